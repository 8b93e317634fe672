#include "backends/reference/exact.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <vector>

namespace mytorch::reference {

float round_to_odd(double value) {
  const float nearest = static_cast<float>(value);
  if (!std::isfinite(nearest) || static_cast<double>(nearest) == value) return nearest;
  const bool away = std::abs(static_cast<double>(nearest)) > std::abs(value);
  // Floats of one sign are ordered as their bits are: one less is the neighbour towards zero.
  const uint32_t towards_zero = std::bit_cast<uint32_t>(nearest) - (away ? 1u : 0u);
  return std::bit_cast<float>(towards_zero | 1u);
}

std::vector<int64_t> read_index(const sdk::TensorView& tensor) {
  return read_exact<int64_t>(tensor, sdk::dtype_of<int64_t>);
}

void copy(const sdk::TensorView& from, const sdk::TensorView& to) {
  sdk::visit_dtype(from.dtype(), [&](auto from_tag) {
    using From = typename decltype(from_tag)::type;
    sdk::visit_dtype(to.dtype(), [&](auto to_tag) {
      using To = typename decltype(to_tag)::type;
      Walk walk(to.shape());
      const int source = walk.add(from);
      const int target = walk.add(to);
      for (bool more = walk.start(); more; more = walk.next()) {
        *static_cast<To*>(walk.at(target)) =
            sdk::convert<To>(*static_cast<const From*>(walk.at(source)));
      }
    });
  });
}

}  // namespace mytorch::reference
