// A pair of height and width, for module options.
#pragma once

#include <array>
#include <cstdint>

#include "mytorch/list.h"

namespace mytorch::nn {

// A single number sets both.
class Size2 {
 public:
  constexpr Size2(int64_t both) : values_{both, both} {}  // NOLINT: Conv2d(1, 16, 3)
  constexpr Size2(int64_t height, int64_t width) : values_{height, width} {}
  operator IntList() const { return {values_.data(), 2}; }  // NOLINT: what operators take
  constexpr int64_t height() const { return values_[0]; }
  constexpr int64_t width() const { return values_[1]; }
  constexpr bool operator==(const Size2&) const = default;

 private:
  std::array<int64_t, 2> values_;
};

}  // namespace mytorch::nn
