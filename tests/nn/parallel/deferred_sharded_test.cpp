// FullyShardedDataParallel of models that were made without memory.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>

#include "core/runtime/cpu_pool.h"
#include "dispatcher/choice/observe.h"
#include "mytorch/distributed.h"
#include "mytorch/mytorch.h"
#include "mytorch/nn/deferred.h"
#include "mytorch/nn/parallel/fully_sharded_data_parallel.h"
#include "mytorch/nn/parallel/sharded_checkpoint.h"
#include "tests/nn/parallel/checkpoint_folder.h"
#include "tests/nn/parallel/ranks.h"

namespace mytorch::nn {
namespace {

using distributed::Group;
using ranks::batch;
using ranks::Data;
using ranks::expect;
using ranks::kBatch;

constexpr int kUnits = 8;

struct DeferredNet : Module {
  Linear first;
  ModuleList blocks;
  Embedding table{5, 3};
  Tensor angles = pow(10.0, arange(5).to(kFloat32) / -5);
  explicit DeferredNet(int64_t width = 6) : first(6, width) {
    register_module("first", first);
    for (int i = 0; i < kUnits; ++i) {
      Linear layer(width, width);
      init::orthogonal_(layer.weight);
      blocks.push_back(layer);
    }
    register_module("blocks", blocks);
    register_module("table", table);
    register_buffer("angles", angles, false);
  }
  Tensor forward(const Tensor& x) override {
    Tensor h = tanh(first(x));
    for (size_t i = 0; i < blocks.size(); ++i) h = h + tanh(blocks[i](h));
    return matmul(h.narrow(1, 0, 3), table.weight.t()) + angles;
  }
};

// Ranks have the same numbers, or, if `seed` is the rank's, different ones.
DeferredNet make(uint64_t seed, bool deferred, int64_t width = 6) {
  const GeneratorGuard guard{Generator(seed)};
  if (!deferred) return DeferredNet(width);
  return deferred_init([width] { return DeferredNet(width); });
}

struct DeferredCourse {
  std::vector<double> losses;
  TensorMap state;
};
DeferredCourse train(const Group& g, bool deferred, FullyShardedDataParallelOptions options) {
  DeferredNet net = make(options.sync_parameters ? static_cast<uint64_t>(g.rank()) : 3, deferred);
  options.group = g;
  FullyShardedDataParallel parallel(net, options);
  expect(!is_deferred(net), "something is deferred still");
  optim::AdamW optimizer(net.parameters(), {.lr = 0.02});
  const int64_t size = kBatch / g.size();
  DeferredCourse course;
  for (int step = 0; step < 4; ++step) {
    const Data data = batch(step, g.rank() * size, size, 6, 5);
    optimizer.zero_grad();
    const Tensor loss = cross_entropy(parallel(data.x), data.y);
    loss.backward();
    optimizer.step();
    course.losses.push_back(loss.item<double>());
  }
  course.state = parallel.full_state_dict();
  return course;
}

TEST(DeferredSharded, TrainsAsAModelMadeAtOnce) {
  for (const int ranks : {1, 2, 3}) {
    for (const bool sync : {true, false}) {
      for (const bool offload : {true, false}) {
        distributed::run_local(ranks, [&](const Group& g) {
          const FullyShardedDataParallelOptions options{.cpu_offload = {.offload_params = offload},
                                                        .sync_parameters = sync};
          const DeferredCourse expected = train(g, false, options);
          const DeferredCourse found = train(g, true, options);
          expect(found.losses == expected.losses, "a loss differs");
          for (const auto& [name, tensor] : expected.state) {
            expect(mytorch::equal(tensor, found.state.at(name)), name + " differs");
          }
        });
      }
    }
  }
}

// The most host memory that tensors of more than 64 KiB have at a call of a kernel.
uint64_t peak_of_construction(int ranks, bool deferred, int64_t width) {
  const uint64_t before = cpu_pool::stats().large_in_use;
  std::atomic<uint64_t> peak = 0;
  distributed::run_local(ranks, [&](const Group& g) {
    const Observe observe([&](const KernelCall&) {
      const uint64_t now = cpu_pool::stats().large_in_use - before;
      uint64_t most = peak;
      while (now > most && !peak.compare_exchange_weak(most, now)) {
      }
    });
    DeferredNet net = make(1, deferred, width);
    g.barrier();
    FullyShardedDataParallel parallel(net, {.group = g});
    g.barrier();
  });
  return peak;
}

TEST(DeferredSharded, NeedsTheMemoryOfItsPartsAndOfOneUnit) {
  if (!cpu_pool::detail::kPooled) GTEST_SKIP() << "a sanitizer sees every block come and go";
  constexpr int kRanks = 4;
  constexpr int64_t kWidth = 512;
  const uint64_t unit = 4 * kWidth * (kWidth + 1), model = kUnits * unit;
  const uint64_t deferred = peak_of_construction(kRanks, true, kWidth);
  const uint64_t at_once = peak_of_construction(kRanks, false, kWidth);
  EXPECT_GE(at_once, kRanks * model);
  // The parts of all ranks are the model. Besides, each rank has a unit, and rank 0 one of its
  // parameters and the float64 numbers that it is drawn in. A quarter of a block may be unused.
  EXPECT_LE(deferred, (model + kRanks * unit + 4 * unit) * 5 / 4);
}

class DeferredLoad : public CheckpointFolder {};

TEST_F(DeferredLoad, TakesACheckpointWithoutDrawing) {
  TensorMap expected;
  distributed::run_local(2, [&](const Group& g) {
    DeferredNet net = make(5, false);
    FullyShardedDataParallel parallel(net, {.group = g});
    save_sharded(path(), parallel, nullptr);
    const TensorMap state = parallel.full_state_dict();
    if (g.rank() == 0) expected = state;
  });
  distributed::run_local(3, [&](const Group& g) {
    DeferredNet net = make(6, true);
    FullyShardedDataParallel parallel(net, {.group = g, .draw_parameters = false});
    for (const auto& shard : parallel.shards()) {
      expect(shard.tensor.detach().abs().sum().item<double>() == 0, shard.name + " was drawn");
    }
    expect(mytorch::equal(net.angles, DeferredNet().angles), "the buffer is not there");
    load_sharded(path(), parallel);
    for (const auto& [name, tensor] : parallel.full_state_dict()) {
      expect(mytorch::equal(tensor, expected.at(name)), name + " differs");
    }
    DeferredNet other = make(6, true);
    FullyShardedDataParallel whole(other, {.group = g, .draw_parameters = false});
    whole.load_full_state_dict(expected);
    for (const auto& [name, tensor] : whole.full_state_dict()) {
      expect(mytorch::equal(tensor, expected.at(name)), name + " differs");
    }
  });
}

}  // namespace
}  // namespace mytorch::nn
