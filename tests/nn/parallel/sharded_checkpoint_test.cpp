#include "mytorch/nn/parallel/sharded_checkpoint.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <mutex>

#include "mytorch/mytorch.h"
#include "tests/nn/parallel/ranks.h"

namespace mytorch::nn {
namespace {

namespace files = std::filesystem;
using ranks::batch;
using ranks::Data;
using ranks::expect;
using ranks::expect_close;
using ranks::kBatch;

class ShardedCheckpoint : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ =
        (files::temp_directory_path() / ("mytorch_sharded_" + std::to_string(::getpid()))).string();
    files::remove_all(folder_);
  }
  void TearDown() override { files::remove_all(folder_); }
  std::string folder_;
};

struct BatchNormNet : Module {
  Linear a{6, 10}, b{10, 10}, c{10, 5};
  BatchNorm1d norm{10};
  BatchNormNet() {
    register_module("a", a);
    register_module("b", b);
    register_module("c", c);
    register_module("norm", norm);
    ranks::set_parameters(*this, 0);
  }
  Tensor forward(const Tensor& x) override { return c(norm(tanh(b(tanh(a(x)))))); }
};

// Steps [from, to) on the ranks of a group; the batch norm sees the same batch on all.
std::vector<double> train(const distributed::Group& g, FullyShardedDataParallel& parallel,
                          optim::Optimizer& optimizer, int64_t from, int64_t to) {
  std::vector<double> losses;
  for (int64_t step = from; step < to; ++step) {
    const Data data = batch(step, 0, kBatch, 6, 5);
    optimizer.zero_grad();
    const Tensor loss = cross_entropy(parallel(data.x), data.y);
    loss.backward();
    optimizer.step();
    losses.push_back(loss.item<double>());
  }
  (void)g;
  return losses;
}

TEST_F(ShardedCheckpoint, ResumesOnAnyNumberOfRanks) {
  std::vector<double> expected;
  std::mutex mutex;
  distributed::run_local(4, [&](const distributed::Group& g) {
    BatchNormNet net;
    FullyShardedDataParallel parallel(net);
    optim::AdamW optimizer(net.parameters(), optim::AdamWOptions(0.02));
    train(g, parallel, optimizer, 0, 3);
    save_sharded(folder_, parallel, &optimizer);
    const std::vector<double> losses = train(g, parallel, optimizer, 3, 6);
    const std::lock_guard<std::mutex> lock(mutex);
    expected = losses;
  });
  EXPECT_TRUE(files::exists(folder_ + "/part-00003-of-00004.safetensors"));
  for (const int ranks : {1, 2, 3, 4}) {
    distributed::run_local(ranks, [&](const distributed::Group& g) {
      BatchNormNet net;
      ranks::set_parameters(net, 5);
      FullyShardedDataParallel parallel(net);
      optim::AdamW optimizer(net.parameters(), optim::AdamWOptions(0.5));
      load_sharded(folder_, parallel, &optimizer);
      expect(optimizer.lr() == 0.02, "the learning rate was not loaded");
      const std::vector<double> losses = train(g, parallel, optimizer, 3, 6);
      for (size_t i = 0; i < losses.size(); ++i) {
        expect_close(losses[i], expected[i], 1e-5, "loss " + std::to_string(i));
      }
    });
  }
  // A module whose parameters are whole.
  BatchNormNet whole;
  ranks::set_parameters(whole, 5);
  load_parts(folder_, parts_of(whole));
  EXPECT_GT(whole.norm.running_var.sub(1).abs().max().item<double>(), 0.01);
  whole.eval();
  distributed::run_local(2, [&](const distributed::Group&) {
    BatchNormNet net;
    FullyShardedDataParallel parallel(net);
    load_sharded(folder_, parallel);
    net.eval();
    const NoGradGuard no_grad;
    const Tensor x = batch(0, 0, 4, 6, 5).x;
    expect_close(parallel(x), whole(x), 1e-6, "the result");
  });
}

// A tensor that is split by columns, by rows or by elements is read in another way.
TEST_F(ShardedCheckpoint, ChangesHowTensorsAreSplit) {
  const std::vector<int64_t> sizes = {6, 4, 10};
  const Tensor whole = mytorch::arange(240).to(kFloat32).reshape(sizes);
  const auto part_of = [&](int64_t dim, const distributed::Group& g) {
    if (dim == TensorPart::kWhole) {
      return TensorPart{"x", sizes, dim, 0, 0, whole.clone()};
    }
    const int64_t n = dim == TensorPart::kFlat ? 240 : sizes[static_cast<size_t>(dim)];
    // Uneven parts; of 4 ranks, one may have nothing.
    const int64_t begin = std::min(n, (n + 2) / 3 * g.rank()),
                  end = g.rank() == g.size() - 1 ? n : std::min(n, (n + 2) / 3 * (g.rank() + 1));
    const Tensor source = dim == TensorPart::kFlat ? whole.flatten() : whole;
    return TensorPart{
        "x",   sizes, dim,
        begin, end,   source.narrow(std::max<int64_t>(dim, 0), begin, end - begin).contiguous()};
  };
  for (const int64_t written :
       {TensorPart::kWhole, TensorPart::kFlat, int64_t{0}, int64_t{1}, int64_t{2}}) {
    distributed::run_local(
        2, [&](const distributed::Group& g) { save_parts(folder_, {part_of(written, g)}); });
    for (const int64_t read :
         {TensorPart::kWhole, TensorPart::kFlat, int64_t{0}, int64_t{1}, int64_t{2}}) {
      distributed::run_local(4, [&](const distributed::Group& g) {
        const TensorPart expected = part_of(read, g);
        TensorPart part = expected;
        part.tensor = mytorch::full(expected.tensor.sizes(), -1, kFloat64);
        load_parts(folder_, {part});
        expect_close(part.tensor, expected.tensor.to(kFloat64), 0,
                     "written " + std::to_string(written) + ", read " + std::to_string(read));
      });
    }
  }
}

TEST_F(ShardedCheckpoint, AFailureKeepsTheEarlierOne) {
  const Tensor x = mytorch::arange(4).to(kFloat32);
  const auto part = [&](const distributed::Group& g, const Tensor& values) {
    return TensorPart{
        "x", {4}, 0, 2 * g.rank(), 2 * g.rank() + 2, values.narrow(0, 2 * g.rank(), 2).clone()};
  };
  distributed::run_local(2,
                         [&](const distributed::Group& g) { save_parts(folder_, {part(g, x)}); });
  std::vector<std::string> messages(2);
  distributed::run_local(2, [&](const distributed::Group& g) {
    TensorPart wrong = part(g, x + 1);
    if (g.rank() == 1) wrong.tensor = mytorch::ones({3});
    try {
      save_parts(folder_, {wrong});
    } catch (const Error& error) {
      messages[static_cast<size_t>(g.rank())] = error.what();
    }
  });
  EXPECT_NE(messages[0].find("rank 1 could not write"), std::string::npos) << messages[0];
  EXPECT_NE(messages[1].find("'x' has 3 elements"), std::string::npos) << messages[1];
  const Tensor found = mytorch::zeros({4});
  load_parts(folder_, {{"x", {4}, TensorPart::kWhole, 0, 0, found}});
  EXPECT_EQ(found.to_vector<float>(), x.to_vector<float>());
  // A replacement that was cut off between two renames.
  files::rename(folder_, folder_ + ".old");
  found.zero_();
  load_parts(folder_, {{"x", {4}, TensorPart::kWhole, 0, 0, found}});
  EXPECT_EQ(found.to_vector<float>(), x.to_vector<float>());
  files::rename(folder_ + ".old", folder_);
  // What is missing or different is named, and nothing is changed.
  ranks::expect_error(
      [&] {
        load_parts(folder_, {{"y", {4}, TensorPart::kWhole, 0, 0, found}});
      },
      "has no 'y'");
  ranks::expect_error(
      [&] {
        load_parts(folder_, {{"x", {2, 2}, TensorPart::kWhole, 0, 0, found}});
      },
      "has shape");
  files::remove(folder_ + "/part-00001-of-00002.safetensors");
  found.zero_();
  ranks::expect_error(
      [&] {
        load_parts(folder_, {{"x", {4}, TensorPart::kWhole, 0, 0, found}});
      },
      "2 of the 4 elements");
  EXPECT_EQ(found.sum().item<double>(), 0);
  ranks::expect_error([&] { load_parts(folder_ + "_none", {}); }, "is no checkpoint");
}

TEST_F(ShardedCheckpoint, WhatAllRanksHaveIsWrittenOnce) {
  distributed::run_local(3, [&](const distributed::Group&) {
    save_parts(folder_, {{"x", {1000}, TensorPart::kWhole, 0, 0, mytorch::ones({1000})}});
  });
  EXPECT_GT(files::file_size(folder_ + "/part-00000-of-00003.safetensors"), 4000);
  EXPECT_LT(files::file_size(folder_ + "/part-00002-of-00003.safetensors"), 400);
}

}  // namespace
}  // namespace mytorch::nn
