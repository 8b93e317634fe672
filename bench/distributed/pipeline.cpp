// Forward and backward of a stack of equal blocks, of which each rank has some.
#include "mytorch/nn/parallel/pipeline.h"

#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include "bench/distributed/bench.h"
#include "mytorch/nn/parallel/pipeline_timeline.h"

namespace bench {
namespace {

using mytorch::Tensor;
namespace nn = mytorch::nn;

// x + down(gelu(up(norm(x)))).
struct FeedForward final : nn::Layer<FeedForward> {
  nn::LayerNorm norm;
  nn::Linear up, down;
  explicit FeedForward(int64_t width) : norm(width), up(width, 4 * width), down(4 * width, width) {
    register_module("norm", norm);
    register_module("up", up);
    register_module("down", down);
  }
  Tensor forward(const Tensor& x) override { return x + down(gelu(up(norm(x)))); }
};

// The mean share of the step in which ranks did nothing. Host times: on a GPU they are those of
// queueing, so that only the CPU's mean something.
double idle_share(const nn::Pipeline& pipeline) {
  const std::vector<double> idle = nn::pipeline_timeline(pipeline).idle();
  return std::accumulate(idle.begin(), idle.end(), 0.0) / static_cast<double>(idle.size());
}

}  // namespace

void pipeline(const Group& world, const Settings& settings, int64_t micro_batches) {
  const int64_t width = settings.size(4096, 32), rows = settings.size(2048, 8);
  const int64_t layers = settings.size(8, 4);
  nn::Sequential model;
  {
    FeedForward block(width);
    block.to(settings.device, settings.dtype());
    for (int64_t i = 0; i < layers; ++i) model.push_back(nn::clone(block));
  }
  nn::Sequential stage = nn::pipeline_stage(model, world.size(), world.rank());
  nn::Pipeline pipeline(stage, {.micro_batches = micro_batches});
  const Tensor x =
      mytorch::randn({micro_batches * rows, width}).to(settings.device, settings.dtype());
  const auto loss = [](const Tensor& out, const Tensor& /*target*/) {
    return out.to(mytorch::kFloat32).square().mean();
  };
  Record record("pipeline-" + std::to_string(micro_batches), world);
  const auto step = [&] {
    stage.zero_grad();
    return pipeline.step(x, x, loss).detach();
  };
  const Timing timing =
      measure(world, settings, record, step, static_cast<double>(micro_batches * rows), "rows");
  const double events = idle_share(pipeline);
  // The work of a rank without waiting: its stage on all micro-batches, one after the other.
  const Tensor part = x.narrow(0, 0, rows).detach().clone();
  part.requires_grad_();
  const auto alone = [&] {
    stage.zero_grad();
    for (int64_t i = 0; i < micro_batches; ++i) {
      part.set_grad({});
      loss(stage(part), {}).backward();
    }
  };
  alone();
  const double work = timed(world, settings, alone).median;
  const auto stages = static_cast<double>(world.size());
  record.add("work_ms", 1e3 * work)
      .add("bubble", 1 - work / timing.median)
      .add("bubble_of_events", events)
      .add("bubble_in_theory", (stages - 1) / (static_cast<double>(micro_batches) + stages - 1));
  mytorch::plan::Layout layout;
  layout.pipeline = world.size();
  mytorch::plan::Model shape = feed_forward_model(layers, width, 4 * width, rows, micro_batches);
  predict(record, settings,
          {.model = shape,
           .layout = layout,
           .precision = kSixteenBits,
           .optimizer = false,
           .data = false});
  record.print();
}

}  // namespace bench
