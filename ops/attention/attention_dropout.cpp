// The dropout of attention's weights.
#include <cmath>
#include <optional>

#include "core/runtime/stream_capture.h"
#include "mytorch/ops/arange.h"
#include "mytorch/ops/empty.h"
#include "mytorch/ops/stack.h"
#include "ops/attention/attention.h"

namespace mytorch::attention {
namespace {

double kept_scale(double p) { return p == 1 ? 0 : 1 / (1 - p); }

}  // namespace

Tensor last_draw(const std::optional<Generator>& generator, Device device) {
  if (find_capture(device) != nullptr) {
    refuse(ErrorCode::kUnsupported, "attention_forward",
           "no kernel of this device takes this call with dropout, so that a graph cannot draw "
           "anew when it is replayed: set dropout_p to 0");
  }
  const Generator& used = generator.has_value() ? *generator : default_generator();
  Tensor draw = mytorch::empty({2}, kInt64, kCPU);
  draw.data<int64_t>()[0] = static_cast<int64_t>(used.seed());
  draw.data<int64_t>()[1] = static_cast<int64_t>(used.call() - 1);
  return draw.to(device);
}

Tensor dropout_factors(const Arguments& a, const Tensor& draw, ScalarType type) {
  constexpr int64_t kLow = 0xFFFFFFFF;
  const Device device = draw.device();
  const int64_t rows = a.batch() * a.heads() * a.rows(), blocks = (a.keys() + 3) / 4;
  const auto high = [](const Tensor& x) { return (x >> 32) & kLow; };
  const Tensor seed = draw.select(0, 0), call = draw.select(0, 1);
  const Tensor number = mytorch::arange(rows * blocks, kInt64, device);
  Tensor c0 = number & kLow, c1 = (number >> 32) & 0xFFFF, c2 = call & kLow, c3 = high(call);
  Tensor key0 = seed & kLow, key1 = high(seed);
  for (int round = 0; round < 10; ++round) {
    const Tensor x = c0 * int64_t{0xD2511F53}, y = c2 * int64_t{0xCD9E8D57};
    c0 = high(y) ^ c1 ^ key0;
    c1 = y & kLow;
    c2 = high(x) ^ c3 ^ key1;
    c3 = x & kLow;
    key0 = (key0 + int64_t{0x9E3779B9}) & kLow;
    key1 = (key1 + int64_t{0xBB67AE85}) & kLow;
  }
  const Tensor bits =
      mytorch::stack({c0, c1.expand(c0.sizes()), c2.expand(c0.sizes()), c3.expand(c0.sizes())}, -1);
  const Tensor drawn = bits.reshape({rows, 4 * blocks}).narrow(1, 0, a.keys()) >> 8;
  const auto limit = static_cast<int64_t>(
      std::ceil(static_cast<double>(static_cast<float>(1 - a.dropout_p)) * (int64_t{1} << 24)));
  const Tensor kept =
      (drawn < limit).reshape({a.batch(), a.key.size(1), group_size(a), a.rows(), a.keys()});
  return kept.to(type) * kept_scale(a.dropout_p);
}

}  // namespace mytorch::attention
