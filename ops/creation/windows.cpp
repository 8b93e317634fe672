// Windows of signal processing: Harris, "On the use of windows for harmonic analysis" (1978).
#include <algorithm>
#include <numbers>

#include "mytorch/generated/bodies.h"
#include "mytorch/ops/abs.h"
#include "mytorch/ops/arange.h"
#include "mytorch/ops/cos.h"
#include "mytorch/ops/exp.h"
#include "mytorch/ops/i0.h"
#include "mytorch/ops/ones.h"
#include "mytorch/ops/sin.h"
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

// Windows by the names of torch.signal.windows are called symmetric if they are not periodic.
Positions signal_positions(int64_t length, bool sym, std::optional<ScalarType> dtype,
                           const std::optional<Device>& device, const char* op) {
  check_value(length >= 0, op, "M is ", length, ": it must not be negative");
  return positions(length, !sym, dtype, device, op);
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

Tensor kaiser(const Positions& at, double beta, const std::optional<Device>& device) {
  const Tensor x = at.x * (2 / at.end) - 1;
  const Tensor root = (1 - x * x).clamp_min(0).sqrt();
  const Tensor peak = mytorch::i0(mytorch::ones(IntList(), kFloat64, device) * beta);
  return (mytorch::i0(root * beta) / peak).to(at.dtype);
}

// Returns the sum of factors[i] cos(i y), y from -pi to pi.
Tensor sum_of_cosines(int64_t length, FloatList factors, bool sym, std::optional<ScalarType> dtype,
                      const std::optional<Device>& device, const char* op) {
  check_value(factors.size() > 0, op, "a is empty: give the factor of each cosine");
  const Positions at = signal_positions(length, sym, dtype, device, op);
  if (!at.x.defined()) return ones(length, at.dtype, device);
  const Tensor y = at.x * (2 * std::numbers::pi / at.end) - std::numbers::pi;
  Tensor window = mytorch::ones({length}, kFloat64, device) * factors[0];
  for (size_t i = 1; i < factors.size(); ++i) {
    window = window + mytorch::cos(y * static_cast<double>(i)) * factors[i];
  }
  return window.to(at.dtype);
}

}  // namespace

Tensor signal_windows_bartlett(int64_t M, bool sym, std::optional<ScalarType> dtype,
                               std::optional<Device> device) {
  const Positions at = signal_positions(M, sym, dtype, device, "signal_windows_bartlett");
  if (!at.x.defined()) return ones(M, at.dtype, device);
  return (1 - mytorch::abs(at.x * (2 / at.end) - 1)).to(at.dtype);
}

Tensor signal_windows_blackman(int64_t M, bool sym, std::optional<ScalarType> dtype,
                               std::optional<Device> device) {
  return sum_of_cosines(M, {0.42, 0.5, 0.08}, sym, dtype, device, "signal_windows_blackman");
}

Tensor signal_windows_cosine(int64_t M, bool sym, std::optional<ScalarType> dtype,
                             std::optional<Device> device) {
  const Positions at = signal_positions(M, sym, dtype, device, "signal_windows_cosine");
  if (!at.x.defined()) return ones(M, at.dtype, device);
  return mytorch::sin((at.x + 0.5) * (std::numbers::pi / (at.end + 1))).to(at.dtype);
}

Tensor signal_windows_exponential(int64_t M, std::optional<double> center, double tau, bool sym,
                                  std::optional<ScalarType> dtype, std::optional<Device> device) {
  const char* op = "signal_windows_exponential";
  check_value(tau > 0, op, "tau is ", tau, ": it must be positive");
  check_value(!sym || !center.has_value(), op,
              "a symmetric window is centered: give sym = false with a center");
  const Positions at = signal_positions(M, sym, dtype, device, op);
  if (!at.x.defined()) return ones(M, at.dtype, device);
  return mytorch::exp(mytorch::abs(at.x - center.value_or(at.end / 2)) * (-1 / tau)).to(at.dtype);
}

Tensor signal_windows_gaussian(int64_t M, double std, bool sym, std::optional<ScalarType> dtype,
                               std::optional<Device> device) {
  const char* op = "signal_windows_gaussian";
  check_value(std > 0, op, "std is ", std, ": it must be positive");
  const Positions at = signal_positions(M, sym, dtype, device, op);
  if (!at.x.defined()) return ones(M, at.dtype, device);
  const Tensor distance = (at.x - at.end / 2) / std;
  return mytorch::exp(distance * distance * -0.5).to(at.dtype);
}

Tensor signal_windows_general_cosine(int64_t M, FloatList a, bool sym,
                                     std::optional<ScalarType> dtype,
                                     std::optional<Device> device) {
  return sum_of_cosines(M, a, sym, dtype, device, "signal_windows_general_cosine");
}

Tensor signal_windows_general_hamming(int64_t M, double alpha, bool sym,
                                      std::optional<ScalarType> dtype,
                                      std::optional<Device> device) {
  return sum_of_cosines(M, {alpha, 1 - alpha}, sym, dtype, device,
                        "signal_windows_general_hamming");
}

Tensor signal_windows_hamming(int64_t M, bool sym, std::optional<ScalarType> dtype,
                              std::optional<Device> device) {
  return sum_of_cosines(M, {0.54, 0.46}, sym, dtype, device, "signal_windows_hamming");
}

Tensor signal_windows_hann(int64_t M, bool sym, std::optional<ScalarType> dtype,
                           std::optional<Device> device) {
  return sum_of_cosines(M, {0.5, 0.5}, sym, dtype, device, "signal_windows_hann");
}

Tensor signal_windows_kaiser(int64_t M, double beta, bool sym, std::optional<ScalarType> dtype,
                             std::optional<Device> device) {
  const Positions at = signal_positions(M, sym, dtype, device, "signal_windows_kaiser");
  return at.x.defined() ? kaiser(at, beta, device) : ones(M, at.dtype, device);
}

Tensor signal_windows_nuttall(int64_t M, bool sym, std::optional<ScalarType> dtype,
                              std::optional<Device> device) {
  return sum_of_cosines(M, {0.3635819, 0.4891775, 0.1365995, 0.0106411}, sym, dtype, device,
                        "signal_windows_nuttall");
}

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
  return kaiser(at, beta, device);
}

}  // namespace mytorch::composite
