// Elementwise composites.
#include <limits>
#include <tuple>

#include "mytorch/generated/bodies.h"
#include "mytorch/ops/abs.h"
#include "mytorch/ops/all.h"
#include "mytorch/ops/copysign.h"
#include "mytorch/ops/frexp_parts.h"
#include "mytorch/ops/full.h"
#include "mytorch/ops/gcd.h"
#include "mytorch/ops/gcd_steps.h"
#include "mytorch/ops/isclose.h"
#include "mytorch/ops/isneginf.h"
#include "mytorch/ops/isposinf.h"
#include "mytorch/ops/logical_and.h"
#include "mytorch/ops/lt.h"
#include "mytorch/ops/ones_like.h"
#include "mytorch/ops/pow.h"
#include "mytorch/ops/remainder.h"
#include "mytorch/ops/to.h"
#include "mytorch/ops/trunc_divide.h"
#include "mytorch/ops/where.h"

namespace mytorch {
namespace {

double largest(ScalarType type) {
  switch (type) {
    case kFloat16:
      return 65504.0;
    case kBFloat16:
      return 3.3895313892515355e38;  // (2 - 2^-7) * 2^127
    case kFloat32:
      return std::numeric_limits<float>::max();
    default:
      return std::numeric_limits<double>::max();
  }
}

// Returns the type of a number on the left of a tensor: the number promotes by category only.
ScalarType number_type(const Scalar& number, ScalarType tensor) {
  if (is_complex(tensor)) return tensor;
  if (number.is_complex()) return to_complex(tensor);
  if (is_floating_point(tensor)) return tensor;
  if (number.is_float()) return kFloat32;
  return tensor == kBool && !number.is_bool() ? kInt64 : tensor;
}

}  // namespace

namespace composite {

Tensor signbit(const Tensor& self) {
  if (!self.is_floating_point()) return mytorch::lt(self, 0);
  return mytorch::lt(mytorch::copysign(mytorch::ones_like(self), self), 0);
}

Tensor div_mode(const Tensor& self, const Operand& other,
                std::optional<std::string_view> rounding_mode) {
  if (!rounding_mode.has_value()) return self / other;
  if (*rounding_mode == "floor") return self.floor_divide(other);
  if (*rounding_mode == "trunc") return trunc_divide(self, other);
  fail(ErrorCode::kValue, "[div] rounding_mode \"", *rounding_mode,
       "\": give none, \"trunc\" or \"floor\"");
}

Tensor pow_scalar(const Scalar& self, const Tensor& exponent) {
  // The base stays on the CPU: kernels read a 0-dim CPU tensor as a number.
  return pow(full(IntList(), self, number_type(self, exponent.dtype())), exponent);
}

Tensor remainder_scalar(const Scalar& self, const Tensor& other) {
  return remainder(full(IntList(), self, number_type(self, other.dtype())), other);
}

Tensor isclose(const Tensor& self, const Tensor& other, double rtol, double atol, bool equal_nan) {
  check_type(self.dtype() == other.dtype(), "isclose", "types ", self.dtype(), " and ",
             other.dtype(), " differ: convert one with to()");
  check_value(rtol >= 0 && atol >= 0, "isclose", "rtol ", rtol, " and atol ", atol,
              ": give at least 0");
  Tensor close = self.eq(other);
  if (equal_nan && is_differentiable(self.dtype())) {
    close = close.logical_or(logical_and(self.isnan(), other.isnan()));
  }
  if (rtol == 0 && atol == 0) return close;
  const bool integral = is_integral(self.dtype(), true);
  const Tensor a = integral ? self.to(kFloat64) : self;
  const Tensor b = integral ? other.to(kFloat64) : other;
  const Tensor error = abs(a - b);
  const Tensor allowed = abs(b * rtol) + atol;
  return close.logical_or(logical_and(error.isfinite(), error <= allowed));
}

bool allclose(const Tensor& self, const Tensor& other, double rtol, double atol, bool equal_nan) {
  return all(self.isclose(other, rtol, atol, equal_nan)).item<bool>();
}

bool equal(const Tensor& self, const Tensor& other) {
  return self.sizes() == other.sizes() && all(self.eq(other)).item<bool>();
}

Tensor nan_to_num(const Tensor& self, std::optional<double> nan, std::optional<double> posinf,
                  std::optional<double> neginf) {
  if (!self.is_floating_point()) return self.clone();
  const double limit = largest(self.dtype());
  const Tensor above = where(isposinf(self), posinf.value_or(limit), self);
  const Tensor bounded = where(isneginf(self), neginf.value_or(-limit), above);
  return where(self.isnan(), nan.value_or(0), bounded);
}

Tensor gcd(const Tensor& self, const Tensor& other) {
  for (const Tensor* x : {&self, &other}) {
    check_type(!x->is_floating_point() && x->dtype() != kBool, "gcd", "an operand is ", x->dtype(),
               ": it must be of an integer type");
  }
  auto [divisor, rest] = mytorch::gcd_steps(mytorch::abs(self), mytorch::abs(other));
  // Consecutive Fibonacci numbers take the most steps: 1.44 per bit, of which a call does eight.
  const int64_t bits = 8 * divisor.element_size();
  for (int64_t steps = 8; steps < bits * 3 / 2; steps += 8) {
    std::tie(divisor, rest) = mytorch::gcd_steps(divisor, rest);
  }
  return divisor;
}

Tensor lcm(const Tensor& self, const Tensor& other) {
  const Tensor divisor = mytorch::gcd(self, other);
  const Tensor nonzero = mytorch::where(divisor.eq(0), 1, divisor);
  return mytorch::abs(mytorch::trunc_divide(self, nonzero) * other);
}

Tensors<2> frexp(const Tensor& self) {
  check_floating(self, "self", "frexp");
  auto [mantissa, exponent] = mytorch::frexp_parts(self);
  return {std::move(mantissa), exponent.to(kInt32)};
}

}  // namespace composite
}  // namespace mytorch
