// Forward and backward of a layer of experts, which are divided over the ranks, beside those of a
// dense layer of as many operations.
#include <cstdint>
#include <vector>

#include "bench/distributed/bench.h"
#include "mytorch/error.h"
#include "mytorch/nn/parallel/mixture_of_experts.h"

namespace bench {
namespace {

using mytorch::Tensor;
namespace nn = mytorch::nn;

constexpr int64_t kExperts = 8, kTaken = 2;

// down(silu(gate(x)) * up(x)), as one expert.
struct Dense final : nn::Layer<Dense> {
  nn::Linear gate, up, down;
  Dense(int64_t width, int64_t hidden)
      : gate(width, hidden, false), up(width, hidden, false), down(hidden, width, false) {
    register_module("gate", gate);
    register_module("up", up);
    register_module("down", down);
  }
  Tensor forward(const Tensor& x) override { return down(silu(gate(x)) * up(x)); }
};

// Tokens whose first features choose the experts t and t + 1 for token t: every expert gets equally
// many.
Tensor balanced_tokens(int64_t tokens, int64_t width) {
  const Tensor x = mytorch::randn({tokens, width});
  const Tensor at = mytorch::arange(tokens).remainder(kExperts).unsqueeze(1);
  const Tensor expert = mytorch::arange(kExperts);
  const Tensor first = expert.eq(at).to(mytorch::kFloat32);
  const Tensor second = expert.eq((at + 1).remainder(kExperts)).to(mytorch::kFloat32);
  x.narrow(1, 0, kExperts).copy_(first * 4 + second * 3);
  return x;
}

}  // namespace

void experts(const Group& world, const Settings& settings) {
  const int64_t width = settings.size(4096, 32), hidden = settings.size(14336, 48);
  const int64_t tokens = settings.size(8192, 32);
  nn::MixtureOfExperts layer(width, hidden, kExperts,
                             {.top_k = kTaken,
                              .activation = [](const Tensor& x) { return silu(x); },
                              .gated = true,
                              .group = world});
  {
    const mytorch::NoGradGuard no_grad;
    layer.router.weight.zero_();
    layer.router.weight.narrow(1, 0, kExperts).copy_(mytorch::eye(kExperts));
  }
  layer.to(settings.device, settings.dtype());
  seed_data(world);
  const Tensor x = balanced_tokens(tokens, width).to(settings.device, settings.dtype());
  x.requires_grad_();
  const auto step_of = [](nn::Module& module, const Tensor& input) {
    module.zero_grad();
    input.set_grad({});
    const Tensor loss = module(input).to(mytorch::kFloat32).square().mean();
    loss.backward();
    return loss.detach();
  };
  Record record("experts", world);
  const Timing timing = measure(
      world, settings, record, [&] { return step_of(layer, x); },
      static_cast<double>(tokens * world.size()), "tokens");
  for (const int64_t chosen : layer.tokens_of_experts()) {
    if (chosen != tokens * kTaken / kExperts) {
      throw mytorch::Error(mytorch::ErrorCode::kInternal,
                           "[bench_distributed] the routing is not balanced");
    }
  }
  Dense dense(width, hidden);
  dense.to(settings.device, settings.dtype());
  const Tensor wide =
      mytorch::randn({tokens * kTaken, width}).to(settings.device, settings.dtype());
  wide.requires_grad_();
  for (int i = 0; i < 3; ++i) (void)step_of(dense, wide);
  const double alone = timed(world, settings, [&] { (void)step_of(dense, wide); }).median;
  const double flops = 18.0 * static_cast<double>(tokens * kTaken * width * hidden);
  record.add("teraflops", 1e-12 * flops / timing.median)
      .add("dense_teraflops", 1e-12 * flops / alone)
      .add("share_of_dense", alone / timing.median);
  mytorch::plan::Model shape = feed_forward_model(1, width, hidden, tokens, world.size());
  shape.experts = kExperts;
  shape.top_k = kTaken;
  shape.gated = true;
  mytorch::plan::Layout layout;
  layout.data = layout.expert = world.size();
  predict(record, settings,
          {.model = shape,
           .layout = layout,
           .precision = kSixteenBits,
           .optimizer = false,
           .data = false});
  record.print();
}

}  // namespace bench
