// Forward and backward of causal attention over a long sequence, whose tokens are divided over the
// ranks.
#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "bench/distributed/bench.h"
#include "mytorch/autograd.h"
#include "mytorch/distributed/attention.h"

namespace bench {
namespace {

using mytorch::Tensor;
namespace distributed = mytorch::distributed;

Tensor attention(const Group& world, const std::vector<Tensor>& x, bool ring) {
  const distributed::ContextAttentionOptions options{.is_causal = true};
  return ring ? distributed::ring_attention(x[0], x[1], x[2], world, options)
              : distributed::ulysses_attention(x[0], x[1], x[2], world, options);
}

// The largest difference of the ranks' result and gradients from those of this rank alone, in
// float32, by the largest value.
double error_of(const Group& world, const Settings& settings, int64_t heads, int64_t width,
                bool ring) {
  const int64_t length = settings.size(2048, 32);
  std::vector<Tensor> whole, mine;
  for (int i = 0; i < 4; ++i) {  // queries, keys, values and the gradient of the result
    const Tensor x = mytorch::randn({1, heads, length, width}).to(settings.device);
    world.broadcast(x, 0);
    const Tensor low = x.to(settings.dtype());
    whole.push_back(low.to(mytorch::kFloat32));
    mine.push_back(distributed::split_sequence(low, 2, world).detach().clone());
  }
  for (int i = 0; i < 3; ++i) {
    whole[i].requires_grad_();
    mine[i].requires_grad_();
  }
  const Tensor expected =
      scaled_dot_product_attention(whole[0], whole[1], whole[2], {}, 0.0, /*is_causal=*/true);
  const Tensor result = attention(world, mine, ring);
  std::vector<Tensor> a =
      mytorch::autograd::grad({expected}, {whole[0], whole[1], whole[2]}, {whole[3]});
  std::vector<Tensor> b = mytorch::autograd::grad({result}, {mine[0], mine[1], mine[2]}, {mine[3]});
  a.push_back(expected.detach());
  b.push_back(result.detach());
  double error = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const Tensor joined = distributed::join_sequence(b[i].detach(), 2, world);
    const Tensor difference = joined.to(mytorch::kFloat32) - a[i];
    const double one = difference.abs().max().item<double>() / a[i].abs().max().item<double>();
    if (!(one <= error)) error = one;  // NaN, too
  }
  return largest(world, error);
}

}  // namespace

void split_sequences(const Group& world, const Settings& settings, bool ring) {
  const int64_t length = settings.size(131072, 64), heads = settings.size(16, 4);
  const int64_t width = settings.size(128, 8), mine = length / world.size();
  const auto random = [&] {
    return mytorch::randn({1, heads, mine, width}, mytorch::kFloat32, settings.device)
        .to(settings.dtype());
  };
  seed_data(world);
  std::vector<Tensor> x;
  for (int i = 0; i < 3; ++i) x.push_back(random().requires_grad_());
  const Tensor gradient = random();
  Record record(ring ? "ring" : "ulysses", world);
  const auto step = [&] {
    const Tensor y = attention(world, x, ring);
    (void)mytorch::autograd::grad({y}, x, {gradient});
    return Tensor();
  };
  measure(world, settings, record, step, static_cast<double>(length), "tokens");
  record.add("error", error_of(world, settings, heads, width, ring));
  predict_attention(record, settings, world,
                    {.heads = static_cast<double>(heads),
                     .key_heads = static_cast<double>(heads),
                     .length = static_cast<double>(length),
                     .width = static_cast<double>(width)},
                    ring);
  record.print();
}

}  // namespace bench
