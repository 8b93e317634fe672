// Activations and functions of elements that consist of other operators.
#include <cmath>

#include "mytorch/generated/bodies.h"
#include "mytorch/ops/avg_pool2d.h"
#include "mytorch/ops/clamp.h"
#include "mytorch/ops/constant_pad_nd.h"
#include "mytorch/ops/empty_like.h"
#include "mytorch/ops/exp2.h"
#include "mytorch/ops/isnan.h"
#include "mytorch/ops/ldexp_terms.h"
#include "mytorch/ops/leaky_relu.h"
#include "mytorch/ops/logit_terms.h"
#include "mytorch/ops/nextafter_steps.h"
#include "mytorch/ops/pow.h"
#include "mytorch/ops/prelu_terms.h"
#include "mytorch/ops/round.h"
#include "mytorch/ops/square.h"
#include "mytorch/ops/where.h"
#include "ops/check.h"
#include "ops/composites.h"
#include "ops/geometry.h"

namespace mytorch::composite {

Tensor glu(const Tensor& self, int64_t dim) {
  check_shape(self.dim() != 0, "glu", "a 0-dim tensor has no halves");
  const int64_t at = wrap_dim(dim, self.dim(), "glu");
  check_shape(self.size(at) % 2 == 0, "glu", "dimension ", dim, " of shape ", self.sizes(),
              " cannot be halved");
  const int64_t half = self.size(at) / 2;
  return self.narrow(at, 0, half) * self.narrow(at, half, half).sigmoid();
}

Tensor prelu(const Tensor& self, const Tensor& weight) {
  check_type(self.dtype() == weight.dtype(), "prelu", "self is ", self.dtype(), " and weight is ",
             weight.dtype(), ": convert one of them");
  check_shape(weight.dim() <= 1, "prelu", "weight has shape ", weight.sizes(),
              ": give one number, or a vector with one for each channel");
  if (weight.numel() == 1) return mytorch::prelu_terms(self, weight.reshape({}));
  check_shape(self.dim() >= 2 && self.size(1) == weight.numel(), "prelu", "self ", self.sizes(),
              " does not have ", weight.numel(), " channels in dimension 1, one for each weight");
  Dims sizes(self.dim() - 1, 1);
  sizes[0] = weight.numel();
  return mytorch::prelu_terms(self, weight.reshape(as_list(sizes)));
}

Tensor rrelu(const Tensor& self, double lower, double upper, bool training,
             std::optional<Generator> generator) {
  if (!training) return mytorch::leaky_relu(self, (lower + upper) / 2);
  check_value(lower <= upper, "rrelu", "lower ", lower, " is greater than upper ", upper);
  const Tensor slope = mytorch::empty_like(self.detach());
  slope.uniform_(lower, upper, generator);
  return mytorch::prelu_terms(self, slope);
}

Tensor local_response_norm(const Tensor& self, int64_t size, double alpha, double beta, double k) {
  const char* op = "local_response_norm";
  check_shape(self.dim() >= 3, op, "self ", self.sizes(),
              " has fewer than 3 dimensions: give (N, C, ...)");
  check_value(size >= 1, op, "size is ", size, ": it must be positive");
  if (self.numel() == 0) return self.clone();
  // One plane (C, rest) for each sample, with windows of `size` channels.
  const Tensor planes = mytorch::square(self).flatten(2).unsqueeze(1);
  const Tensor padded = mytorch::constant_pad_nd(planes, {0, 0, size / 2, (size - 1) / 2});
  const Tensor mean =
      mytorch::avg_pool2d(padded, {size, 1}, {1, 1}).squeeze(1).reshape(self.sizes());
  return self / mytorch::pow(k + alpha * mean, beta);
}

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
