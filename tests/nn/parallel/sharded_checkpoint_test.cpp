#include "mytorch/nn/parallel/sharded_checkpoint.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <iterator>
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
  void TearDown() override {
    for (const char* end : {"", ".new", ".ready", ".old"}) files::remove_all(folder_ + end);
  }
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
  EXPECT_TRUE(files::exists(folder_ + "/model-00004-of-00004.safetensors"));
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

TEST_F(ShardedCheckpoint, KeepsEveryType) {
  const Tensor values = mytorch::arange(12).reshape({4, 3}) - 5;
  for (const ScalarType type : {kBool, kUInt8, kInt8, kInt16, kInt32, kInt64, kFloat16, kBFloat16,
                                kFloat32, kFloat64, kComplex64, kComplex128}) {
    const Tensor whole = values.to(type);
    distributed::run_local(3, [&](const distributed::Group& g) {
      const int64_t begin = g.rank() + (g.rank() == 2 ? 1 : 0);  // rank 1 has two of the rows
      const int64_t end = begin + (g.rank() == 1 ? 2 : 1);
      // Columns that are not next to each other, as rows.
      const Tensor rows = whole.t().contiguous().t().narrow(0, begin, end - begin);
      const Tensor number = mytorch::full({}, 1, type);
      save_parts(folder_, {{"x", {4, 3}, 0, begin, end, rows},
                           {"n", {}, TensorPart::kWhole, 0, 0, number},
                           {"none", {0, 3}, TensorPart::kWhole, 0, 0, whole.narrow(0, 0, 0)}});
    });
    const TensorMap found = load_safetensors(folder_ + "/state.safetensors.index.json");
    EXPECT_EQ(found.at("x").dtype(), type);
    EXPECT_TRUE(mytorch::equal(found.at("x"), whole)) << dtype_name(type);
    EXPECT_TRUE(mytorch::equal(found.at("n"), mytorch::full({}, 1, type)));
    EXPECT_EQ(found.at("none").sizes().vec(), (std::vector<int64_t>{0, 3}));
  }
}

// Blocks of ranks along two dimensions, each split further by elements.
TEST_F(ShardedCheckpoint, ReadsBlocksThatAreSplitFurther) {
  const std::vector<int64_t> sizes = {5, 6, 7};
  const Tensor whole = mytorch::arange(210).to(kFloat32).reshape(sizes);
  // The blocks are 3 and 2 of 5 rows, by 2 of 6 columns; two ranks share each.
  const auto part_of = [&](const distributed::Group& g) {
    const int64_t shard = g.rank() % 2, row = g.rank() / 2 % 2, column = g.rank() / 4;
    const Tensor block = whole.narrow(0, 3 * row, 3 - row).narrow(1, 2 * column, 2);
    const int64_t n = block.numel(), begin = shard == 0 ? 0 : n / 3, end = shard == 0 ? n / 3 : n;
    TensorPart part{"x",
                    block.sizes().vec(),
                    TensorPart::kFlat,
                    begin,
                    end,
                    block.flatten().narrow(0, begin, end - begin).clone()};
    return block_of(block_of(std::move(part), 0, 3 * row, 5), 1, 2 * column, 6);
  };
  distributed::run_local(12, [&](const distributed::Group& g) {
    save_parts(folder_, {part_of(g)});
    TensorPart part = part_of(g);
    const Tensor expected = part.tensor;
    part.tensor = mytorch::full(expected.sizes(), -1, kFloat32);
    load_parts(folder_, {part});
    expect_close(part.tensor, expected, 0, "the same part");
    // Rows of a block.
    const Tensor rows = mytorch::full({1, 6, 2}, -1, kFloat32);
    load_parts(folder_, {block_of({"x", {5, 6, 2}, 0, 3, 4, rows}, 2, 4, 7)});
    expect_close(rows, whole.narrow(0, 3, 1).narrow(2, 4, 2), 0, "rows of a block");
  });
  const Tensor found = mytorch::zeros(sizes);
  load_parts(folder_, {{"x", sizes, TensorPart::kWhole, 0, 0, found}});
  EXPECT_TRUE(mytorch::equal(found, whole));
  ranks::expect_error([&] { block_of({"x", {3, 2}}, 0, 4, 6); }, "no block of shape (3, 2) at");
  ranks::expect_error([&] { block_of({"x", {3, 2}}, 2, 0, 6); }, "one of its dimensions");
}

// Two groups of a model that is split over two others.
TEST_F(ShardedCheckpoint, ShardsOfSplitLayersAreBlocks) {
  const Tensor weight = mytorch::arange(96).to(kFloat32).reshape({12, 8});
  distributed::run_local(4, [&](const distributed::Group& g) {
    const distributed::DeviceMesh mesh(g, {{"tp", 2}, {"dp", 2}});
    Linear up(8, 6);  // the rows of this rank of 12
    const int64_t begin = 6 * mesh.coordinate("tp");
    up.weight.detach().copy_(weight.narrow(0, begin, 6));
    up.bias.detach().copy_(weight.narrow(0, begin, 6).select(1, 0));
    FullyShardedDataParallel parallel(up, {.group = mesh.group("dp")});
    ranks::expect_error([&] { save_sharded(folder_, parallel); },
                        "the model's group has 2 of the 4 ranks");
    // Equal names and places; nothing is lost silently.
    ranks::expect_error([&] { save_sharded(folder_, parallel, nullptr, g); },
                        g.rank() < 2 ? "could not write" : "and other elements: say by block_of()");
    expect(!files::exists(folder_), "a checkpoint was written");
    const auto parts = [&] {
      std::vector<TensorPart> parts = parts_of(parallel);
      for (TensorPart& part : parts) part = block_of(part, 0, begin, 12);
      return parts;
    };
    save_parts(folder_, parts());
    for (const TensorPart& part : parts()) part.tensor.fill_(-1);
    load_parts(folder_, parts());
    const TensorMap state = parallel.full_state_dict();
    expect_close(state.at("weight"), weight.narrow(0, begin, 6), 0, "the weight");
    expect_close(state.at("bias"), weight.narrow(0, begin, 6).select(1, 0), 0, "the bias");
  });
  Linear whole(8, 12);
  load_parts(folder_, parts_of(whole));
  EXPECT_TRUE(mytorch::equal(whole.weight.detach(), weight));
  EXPECT_TRUE(mytorch::equal(whole.bias.detach(), weight.select(1, 0)));
}

// One of the ranks alone would be written.
TEST_F(ShardedCheckpoint, RefusesEqualPlacesWithOtherElements) {
  std::vector<std::string> messages(3);
  distributed::run_local(3, [&](const distributed::Group& g) {
    const Tensor x = mytorch::full({4}, g.rank() == 1 ? 2.0 : 1.0);
    try {
      save_parts(folder_, {{"x", {4}, TensorPart::kWhole, 0, 0, x}});
    } catch (const Error& error) {
      messages[static_cast<size_t>(g.rank())] = error.what();
    }
    ranks::expect_error(
        [&] {
          save_parts(folder_, {{"x", {4}, 0, 0, 2, mytorch::ones({2})},
                               {"x", {4}, 0, 0, 2, mytorch::ones({2})}});
        },
        "two parts named 'x'");
    const std::vector<int64_t> sizes = {g.rank() == 1 ? 5 : 4};
    const char* text = g.rank() == 1 ? "'x' has other sizes on rank 1, (5,), than on rank 0"
                                     : "rank 1 could not write";
    ranks::expect_error(
        [&] {
          save_parts(folder_, {{"x", sizes, TensorPart::kWhole, 0, 0, mytorch::ones(sizes)}});
        },
        text);
  });
  EXPECT_NE(messages[0].find("rank 1 could not write"), std::string::npos) << messages[0];
  EXPECT_NE(messages[1].find("'x' has the same place (-2 0 0 4) on ranks 0 and 1"),
            std::string::npos)
      << messages[1];
  EXPECT_NE(messages[2].find("rank 1 could not write"), std::string::npos) << messages[2];
  EXPECT_FALSE(files::exists(folder_));
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
  files::remove(folder_ + "/state-00001-of-00001.safetensors");
  found.zero_();
  ranks::expect_error(
      [&] {
        load_parts(folder_, {{"x", {4}, TensorPart::kWhole, 0, 0, found}});
      },
      "state-00001-of-00001.safetensors: cannot be opened");
  EXPECT_EQ(found.sum().item<double>(), 0);
  ranks::expect_error([&] { load_parts(folder_ + "_none", {}); }, "is no checkpoint");
}

TEST_F(ShardedCheckpoint, WhatAllRanksHaveIsWrittenOnce) {
  distributed::run_local(3, [&](const distributed::Group&) {
    save_parts(folder_, {{"x", {1000}, TensorPart::kWhole, 0, 0, mytorch::ones({1000})}});
  });
  EXPECT_EQ(load_safetensors(folder_ + "/state-00001-of-00001.safetensors").size(), 1u);
  EXPECT_EQ(std::distance(files::directory_iterator(folder_), {}), 2);  // it and its index
}

TEST_F(ShardedCheckpoint, RefusesPartsThatLackElements) {
  std::vector<std::string> messages(2);
  distributed::run_local(2, [&](const distributed::Group& g) {
    // The ranks have the first and the third of four rows.
    const Tensor row = mytorch::ones({1, 3});
    try {
      save_parts(folder_, {{"x", {4, 3}, 0, 2 * g.rank(), 2 * g.rank() + 1, row}});
    } catch (const Error& error) {
      messages[static_cast<size_t>(g.rank())] = error.what();
    }
    const ScalarType type = g.rank() == 0 ? kFloat32 : kFloat64;
    ranks::expect_error(
        [&] {
          save_parts(folder_, {{"x", {2}, 0, g.rank(), g.rank() + 1, mytorch::ones({1}, type)}});
        },
        "'x' has another type on rank 1, float64, than on rank 0");
  });
  for (const std::string& message : messages) {
    EXPECT_NE(message.find("parts of 'x' have 6 of its 12 elements"), std::string::npos) << message;
  }
  EXPECT_FALSE(files::exists(folder_));
}

}  // namespace
}  // namespace mytorch::nn
