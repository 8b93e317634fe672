// Checkpoints that threads write while the ranks go on.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "mytorch/mytorch.h"
#include "mytorch/nn/parallel/fully_sharded_data_parallel.h"
#include "mytorch/nn/parallel/sharded_checkpoint.h"
#include "mytorch/nn/serialize.h"
#include "tests/nn/data/file_size_limit.h"
#include "tests/nn/parallel/checkpoint_folder.h"
#include "tests/nn/parallel/ranks.h"

namespace mytorch::nn {
namespace {

namespace files = std::filesystem;
using mytorch::testing::FileSizeLimit;
using ranks::expect;
using ranks::expect_close;
using ranks::expect_error;

class AsyncCheckpoint : public CheckpointFolder {
 protected:
  static Sequential net_of(double seed) {
    Sequential net(Linear(6, 10), Tanh(), Linear(10, 5));
    ranks::set_parameters(net, seed);
    return net;
  }
};

TEST_F(AsyncCheckpoint, HasTheValuesOfTheCall) {
  distributed::run_local(2, [&](const distributed::Group& g) {
    Sequential net = net_of(0);
    FullyShardedDataParallel parallel(net);
    CheckpointSave saving;
    saving.wait();  // nothing
    expect(saving.done(), "done");
    for (int step = 0; step < 3; ++step) {
      saving = save_async(path() + "/", parallel);
      const NoGradGuard no_grad;
      for (const Tensor& p : net.parameters()) p.add_(1);
    }
    saving.wait();
    saving.wait();
    // Whole tensors, and tensors of other strides.
    TensorPart whole = {"whole", {2, 3}, TensorPart::kWhole, 0, 0, mytorch::zeros({3, 2}).t()};
    saving = save_async(path() + "2", {whole, part(g, 5)});
    whole.tensor.fill_(7);
    while (!saving.done()) std::this_thread::yield();
    g.barrier();
    expect(files::exists(path() + "2"), "in its place before anybody waits");
    saving.wait();
    const Tensor found = mytorch::ones({2, 3});
    load_parts(path() + "2", {{"whole", {2, 3}, TensorPart::kWhole, 0, 0, found}});
    expect_close(found, mytorch::zeros({2, 3}), 0, "the value of the call");
  });
  Sequential net = net_of(9);
  load_parts(path(), parts_of(net));
  const Tensor expected = net_of(0).at<Linear>(2).weight + 1 + 1;
  EXPECT_TRUE(mytorch::equal(net.at<Linear>(2).weight, expected));
  EXPECT_EQ(names(), (std::vector<std::string>{"saved", "saved2"}));
}

TEST_F(AsyncCheckpoint, ErrorsAreThrownByTheNextSaveAndByWait) {
  distributed::run_local(2, [&](const distributed::Group& g) { save_parts(path(), {part(g, 1)}); });
  distributed::run_local(2, [&](const distributed::Group& g) {
    CheckpointSave saving;
    {
      g.barrier();
      std::optional<FileSizeLimit> full;
      if (g.rank() == 0) full.emplace(10);
      g.barrier();
      saving = save_async(path(), {part(g, 2)});
      while (!saving.done()) std::this_thread::yield();
      g.barrier();
    }
    g.barrier();
    // The next save says so, and does not begin.
    expect_error([&] { save_async(path() + "2", {part(g, 3)}); }, "state-00001-of-00001");
    expect_error([&] { saving.wait(); }, "File too large");
    expect_error([&] { saving.wait(); }, "File too large");
    expect(!files::exists(path() + "2"), "nothing was begun");
    // Then all is well.
    saving = save_async(path() + "2", {part(g, 3)});
    save_parts(path() + "3", {part(g, 4)});
    expect(files::exists(path() + "2"), "one at a time");
    expect(saving.done(), "done");
    saving.wait();
  });
  EXPECT_EQ(load(), 1);
  EXPECT_EQ(names(), (std::vector<std::string>{"saved", "saved2", "saved3"}));
}

// A program may forget to wait; what was begun is completed when the handle is gone, too.
TEST_F(AsyncCheckpoint, NeedsNoHandle) {
  distributed::run_local(2, [&](const distributed::Group& g) {
    save_async(path(), {part(g, 1)});
    save_parts(path(), {part(g, 2)});
  });
  EXPECT_EQ(load(), 2);
  // Of a program that is one rank; and of no tensors.
  Sequential net = net_of(0);
  save_async(path() + "2", parts_of(net)).wait();
  EXPECT_EQ(load_safetensors(path() + "2").size(), 4u);
  EXPECT_EQ(std::distance(files::directory_iterator(path() + "2"), {}), 2);
  save_parts(path(), {});
  EXPECT_TRUE(has_checkpoint(path()));
  load_parts(path(), {});
}

}  // namespace
}  // namespace mytorch::nn
