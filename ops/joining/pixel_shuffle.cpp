// Rearranging of channels and planes.
#include "mytorch/generated/bodies.h"
#include "ops/check.h"
#include "ops/geometry.h"

namespace mytorch::composite {
namespace {

// Checks that the last three dimensions exist, and that a factor divides them.
void check_planes(const Tensor& self, int64_t factor, bool shuffle, const char* op) {
  constexpr int64_t kMost = 1 << 20;
  check_shape(self.dim() >= 3, op, "self ", self.sizes(),
              " has fewer than 3 dimensions: give (..., C, H, W)");
  check_value(factor >= 1 && factor <= kMost, op, "the factor ", factor, " is not in [1, ", kMost,
              "]");
  check_shape(shuffle ? self.size(-3) % (factor * factor) == 0
                      : self.size(-2) % factor == 0 && self.size(-1) % factor == 0,
              op, "the factor ", factor, " does not divide the dimensions of ", self.sizes());
}

// Replaces the last three dimensions: splits them into `parts`, reorders these, and merges them
// into `planes`.
Tensor rearranged(const Tensor& self, std::initializer_list<int64_t> parts,
                  std::initializer_list<int64_t> order, std::initializer_list<int64_t> planes,
                  const char* op) {
  const auto leading = static_cast<size_t>(self.dim() - 3);
  Dims split(self.sizes().begin(), self.sizes().begin() + leading), dims, merged = split;
  for (size_t i = 0; i < leading; ++i) dims.push_back(static_cast<int64_t>(i));
  for (const int64_t part : parts) split.push_back(part);
  for (const int64_t dim : order) dims.push_back(static_cast<int64_t>(leading) + dim);
  for (const int64_t plane : planes) merged.push_back(plane);
  checked_product(as_list(merged), op);
  return self.reshape(as_list(split)).permute(as_list(dims)).reshape(as_list(merged)).clone();
}

}  // namespace

Tensor pixel_shuffle(const Tensor& self, int64_t r) {
  check_planes(self, r, true, "pixel_shuffle");
  const int64_t c = self.size(-3) / (r * r), h = self.size(-2), w = self.size(-1);
  return rearranged(self, {c, r, r, h, w}, {0, 3, 1, 4, 2},
                    {c, wrapping_mul(h, r), wrapping_mul(w, r)}, "pixel_shuffle");
}

Tensor pixel_unshuffle(const Tensor& self, int64_t r) {
  check_planes(self, r, false, "pixel_unshuffle");
  const int64_t c = self.size(-3), h = self.size(-2) / r, w = self.size(-1) / r;
  return rearranged(self, {c, h, r, w, r}, {0, 2, 4, 1, 3}, {wrapping_mul(c, r * r), h, w},
                    "pixel_unshuffle");
}

Tensor channel_shuffle(const Tensor& self, int64_t groups) {
  check_shape(self.dim() >= 3, "channel_shuffle", "self ", self.sizes(),
              " has fewer than 3 dimensions: give (N, C, ...)");
  check_value(groups >= 1 && self.size(1) % groups == 0, "channel_shuffle", groups,
              " groups do not divide the channels of ", self.sizes());
  return self.unflatten(1, {groups, self.size(1) / groups}).transpose(1, 2).flatten(1, 2).clone();
}

}  // namespace mytorch::composite
