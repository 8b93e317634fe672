// Windows of signal processing: Harris, "On the use of windows for harmonic analysis" (1978).
#include <algorithm>
#include <numbers>

#include "mytorch/generated/bodies.h"
#include "mytorch/ops/abs.h"
#include "mytorch/ops/arange.h"
#include "mytorch/ops/cos.h"
#include "mytorch/ops/i0.h"
#include "mytorch/ops/ones.h"
#include "ops/check.h"

namespace mytorch::composite {
namespace {

struct Positions {
  Tensor x;    // float64: 0, 1, ...; undefined for windows of at most one sample, which are ones
  double end;  // the position at which the window is that of 0 again
  ScalarType dtype;
};

Positions positions(int64_t length, bool periodic, std::optional<ScalarType> dtype,
                    const std::optional<Device>& device, const char* op) {
  const ScalarType type = dtype.value_or(kFloat32);
  check_type(is_floating_point(type), op, "dtype is ", type, ": windows are of a floating type");
  check_value(length >= 0, op, "window_length is ", length, ": it must not be negative");
  if (length <= 1) return {{}, 0, type};
  return {mytorch::arange(length, kFloat64, device),
          static_cast<double>(periodic ? length : length - 1), type};
}

Tensor ones(int64_t length, ScalarType dtype, const std::optional<Device>& device) {
  return mytorch::ones({length}, dtype, device);
}

// first - second * cos(2 pi x / end) + third * cos(4 pi x / end)
Tensor cosines(const Positions& at, double first, double second, double third) {
  const Tensor angle = at.x * (2 * std::numbers::pi / at.end);
  Tensor window = first - second * mytorch::cos(angle);
  if (third != 0) window = window + third * mytorch::cos(angle * 2);
  return window.to(at.dtype);
}

}  // namespace

Tensor bartlett_window(int64_t window_length, bool periodic, std::optional<ScalarType> dtype,
                       std::optional<Device> device) {
  const Positions at = positions(window_length, periodic, dtype, device, "bartlett_window");
  if (!at.x.defined()) return ones(window_length, at.dtype, device);
  return (1 - mytorch::abs(at.x * (2 / at.end) - 1)).to(at.dtype);
}

Tensor blackman_window(int64_t window_length, bool periodic, std::optional<ScalarType> dtype,
                       std::optional<Device> device) {
  const Positions at = positions(window_length, periodic, dtype, device, "blackman_window");
  if (!at.x.defined()) return ones(window_length, at.dtype, device);
  return cosines(at, 0.42, 0.5, 0.08);
}

Tensor hamming_window(int64_t window_length, bool periodic, double alpha, double beta,
                      std::optional<ScalarType> dtype, std::optional<Device> device) {
  const Positions at = positions(window_length, periodic, dtype, device, "hamming_window");
  if (!at.x.defined()) return ones(window_length, at.dtype, device);
  return cosines(at, alpha, beta, 0);
}

Tensor hann_window(int64_t window_length, bool periodic, std::optional<ScalarType> dtype,
                   std::optional<Device> device) {
  const Positions at = positions(window_length, periodic, dtype, device, "hann_window");
  if (!at.x.defined()) return ones(window_length, at.dtype, device);
  return cosines(at, 0.5, 0.5, 0);
}

Tensor kaiser_window(int64_t window_length, bool periodic, double beta,
                     std::optional<ScalarType> dtype, std::optional<Device> device) {
  const Positions at = positions(window_length, periodic, dtype, device, "kaiser_window");
  if (!at.x.defined()) return ones(window_length, at.dtype, device);
  const Tensor x = at.x * (2 / at.end) - 1;
  const Tensor root = (1 - x * x).clamp_min(0).sqrt();
  const Tensor peak = mytorch::i0(mytorch::ones(IntList(), kFloat64, device) * beta);
  return (mytorch::i0(root * beta) / peak).to(at.dtype);
}

}  // namespace mytorch::composite
