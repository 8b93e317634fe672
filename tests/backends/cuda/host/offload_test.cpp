// FullyShardedDataParallel with shards on the host, on one GPU. `mytorch launch parallel_ranks
// cuda` does the same with several.
#include "mytorch/cuda.h"
#include "mytorch/mytorch.h"
#include "mytorch/nn/deferred.h"
#include "mytorch/nn/parallel/fully_sharded_data_parallel.h"
#include "tests/backends/cuda/gpu.h"

namespace mytorch::testing {
namespace {

class Offloaded : public Gpu {};

constexpr int64_t kWidth = 1024;

struct Wide : nn::Module {
  nn::ModuleList layers;
  Wide() {
    for (int i = 0; i < 16; ++i) layers.push_back(nn::Linear(kWidth, kWidth));
    register_module("layers", layers);
  }
  Tensor forward(const Tensor& x) override {
    Tensor h = x;
    for (size_t i = 0; i < layers.size(); ++i) h = h + tanh(layers[i](h));
    return h;
  }
};

struct Numbers {
  std::vector<double> losses;
  size_t peak = 0;   // of steps
  size_t rest = 0;   // between them
  size_t built = 0;  // peak of the construction
};

Numbers train(nn::FullyShardedDataParallelOptions options, bool deferred) {
  const Device cuda("cuda");
  manual_seed(3);
  empty_cache();
  reset_peak_memory();
  const size_t before = memory_stats().allocated;
  Wide net = deferred ? nn::deferred_init([] { return Wide(); }) : Wide();
  options.device = cuda;
  nn::FullyShardedDataParallel parallel(net, options);
  nn::optim::AdamW optimizer(net.parameters(), {.lr = 1e-3});
  Numbers run;
  run.built = memory_stats().allocated_peak - before;
  for (int step = 0; step < 6; ++step) {
    const Tensor x = rand({64, kWidth}).to(cuda);
    optimizer.zero_grad();
    const Tensor loss = mse_loss(parallel(x), x.mul(0.5));
    loss.backward();
    (void)parallel.clip_grad_norm_(1.0);
    optimizer.step();
    run.losses.push_back(loss.item<double>());
    if (step == 1) reset_peak_memory();
  }
  run.peak = memory_stats().allocated_peak - before;
  run.rest = memory_stats().allocated - before;
  return run;
}

TEST_F(Offloaded, HasTheSameLossesAndFreesTheGPU) {
  const size_t parameters = 16 * (kWidth * kWidth + kWidth) * sizeof(float);
  const Numbers expected = train({}, false);
  for (const bool deferred : {false, true}) {
    for (const bool pinned : {true, false}) {
      const Numbers found = train({.cpu_offload = {true, pinned}}, deferred);
      for (size_t i = 0; i < expected.losses.size(); ++i) {
        EXPECT_NEAR(found.losses[i], expected.losses[i], 1e-4 * (1 + expected.losses[i])) << i;
      }
      // Parameters, gradients, and two moments leave; a few units of 16 are there during a step.
      EXPECT_LE(found.rest + 4 * parameters, expected.rest + parameters / 4);
      EXPECT_LE(found.peak + 3 * parameters, expected.peak + parameters / 4);
      EXPECT_LE(found.built, parameters / 4);
    }
  }
}

TEST_F(Offloaded, ComputesInBFloat16) {
  const Numbers expected = train({.mixed_precision = {kBFloat16, kFloat32}}, false);
  const Numbers found = train(
      {.mixed_precision = {kBFloat16, kFloat32}, .cpu_offload = {.offload_params = true}}, false);
  for (size_t i = 0; i < expected.losses.size(); ++i) {
    EXPECT_NEAR(found.losses[i], expected.losses[i], 1e-2 * (1 + expected.losses[i])) << i;
  }
}

}  // namespace
}  // namespace mytorch::testing
