// Functions of elements that other operators compose.
#include <cmath>

#include "mytorch/generated/bodies.h"
#include "mytorch/ops/clamp.h"
#include "mytorch/ops/exp2.h"
#include "mytorch/ops/isnan.h"
#include "mytorch/ops/ldexp_terms.h"
#include "mytorch/ops/logit_terms.h"
#include "mytorch/ops/nextafter_steps.h"
#include "mytorch/ops/pow.h"
#include "mytorch/ops/round.h"
#include "mytorch/ops/where.h"
#include "ops/check.h"

namespace mytorch::composite {

Tensor logit(const Tensor& self, std::optional<double> eps) {
  if (!eps) return mytorch::logit_terms(self);
  if (*eps <= 0.5) return mytorch::logit_terms(mytorch::clamp(self, *eps, 1 - *eps));
  // The bounds cross: as in ATen, the lower one comes first.
  const Tensor low = mytorch::where(self < *eps, *eps, 1 - *eps);
  return mytorch::logit_terms(mytorch::where(mytorch::isnan(self), self, low));
}

Tensor float_power(const Tensor& self, const Operand& exponent) {
  const bool complex =
      self.is_complex() || (exponent.is_tensor() && exponent.tensor().is_complex());
  return mytorch::pow(self.to(complex ? kComplex128 : kFloat64), exponent);
}

Tensor round_decimals(const Tensor& self, int64_t decimals) {
  const char* op = "round";
  check_value(decimals >= -308 && decimals <= 308, op, "decimals is ", decimals,
              ": give -308 to 308");
  if (!self.is_floating_point()) {
    check_type(!self.is_complex(), op, "takes no complex numbers");
    check_value(decimals >= 0, op, "decimals is ", decimals, ", but self is ", self.dtype(),
                ": convert it to a floating type");
    return self.clone();
  }
  if (decimals == 0) return mytorch::round(self);
  const double scale = std::pow(10.0, std::abs(static_cast<double>(decimals)));
  return decimals > 0 ? mytorch::round(self * scale) / scale : mytorch::round(self / scale) * scale;
}

Tensor nextafter(const Tensor& self, const Tensor& other) {
  const ScalarType type = mytorch::where(self == other, self, other).dtype();
  check_type(is_floating_point(type), "nextafter", "takes floating types, not ", type);
  // The relative rounding error and the exponent of the largest power of 2.
  const double unit = type == kFloat64   ? 0x1p-53
                      : type == kFloat32 ? 0x1p-24
                      : type == kFloat16 ? 0x1p-11
                                         : 0x1p-8;
  const double top = type == kFloat64 ? 0x1p1023 : type == kFloat16 ? 0x1p15 : 0x1p127;
  const double least = type == kFloat64   ? 0x1p-1074
                       : type == kFloat32 ? 0x1p-149
                       : type == kFloat16 ? 0x1p-24
                                          : 0x1p-133;
  return mytorch::nextafter_steps(self, other, unit, least, top * (2 - 2 * unit));
}

Tensor ldexp(const Tensor& self, const Tensor& other) {
  if (is_complex(self.dtype()) || is_complex(other.dtype())) return self * mytorch::exp2(other);
  return mytorch::ldexp_terms(self, other);
}

}  // namespace mytorch::composite
