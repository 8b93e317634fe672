// The incomplete gamma functions, in float64. A backend may have a kernel.
//
// P(a, x) and Q(a, x) = 1 - P(a, x) are computed directly where they are the smaller one:
// - by the power series of P for x < a < 10, and for x up to 1.1;
// - by a series of Q for x up to 1.1 where P is near 1 (Cephes, "igam.c", Moshier);
// - else by quadrature: with t = x exp(+-v) the integrals of t^(a - 1) exp(-t) from x to infinity
//   and from 0 to x are x^a exp(-x) times that of exp(-|x - a| v - x (exp(+-v) - 1 -+ v)), which
//   has no singularity, so 24 points of Gauss and Legendre give it to double precision.
#include "mytorch/ops/incomplete_gamma.h"

#include <cmath>
#include <limits>
#include <tuple>
#include <vector>

#include "core/types/broadcast.h"
#include "mytorch/generated/bodies.h"
#include "mytorch/ops/abs.h"
#include "mytorch/ops/cat.h"
#include "mytorch/ops/div.h"
#include "mytorch/ops/empty.h"
#include "mytorch/ops/exp.h"
#include "mytorch/ops/expm1.h"
#include "mytorch/ops/igamma_integrand.h"
#include "mytorch/ops/isfinite.h"
#include "mytorch/ops/isinf.h"
#include "mytorch/ops/isnan.h"
#include "mytorch/ops/lgamma.h"
#include "mytorch/ops/log.h"
#include "mytorch/ops/log1p.h"
#include "mytorch/ops/logical_and.h"
#include "mytorch/ops/logical_or.h"
#include "mytorch/ops/minimum.h"
#include "mytorch/ops/sqrt.h"
#include "mytorch/ops/sum_to_size.h"
#include "mytorch/ops/where.h"
#include "mytorch/ops/xlogy.h"
#include "mytorch/tensor_values.h"
#include "ops/check.h"
#include "ops/gradients.h"
#include "ops/spec.h"

namespace mytorch {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// Nodes and weights of Gauss and Legendre on [0, 1].
const std::vector<double> kNodes = {
    0.00240639000148931991, 0.0126357220143452509, 0.0308627239986336207, 0.0567922364977994829,
    0.089999007013048539,   0.129937904210722818,  0.175953174031512215,  0.227289264305580232,
    0.283103246186977431,   0.342478660151918313,  0.404440566263191845,  0.467971553568697187,
    0.532028446431302813,   0.595559433736808155,  0.657521339848081687,  0.716896753813022569,
    0.772710735694419768,   0.824046825968487785,  0.870062095789277182,  0.910000992986951461,
    0.943207763502200517,   0.969137276001366379,  0.987364277985654749,  0.99759360999851068,
};
const std::vector<double> kWeights = {
    0.00617061489999359977, 0.0142656943144668316, 0.0221387194087099031, 0.0296492924577183904,
    0.0366732407055401529,  0.043095080765976638,  0.0488093260520569441, 0.0537221350579828174,
    0.0577528340268628007,  0.0608352364639016956, 0.0629187281734141481, 0.0639690976733760785,
    0.0639690976733760785,  0.0629187281734141481, 0.0608352364639016956, 0.0577528340268628007,
    0.0537221350579828174,  0.0488093260520569441, 0.043095080765976638,  0.0366732407055401529,
    0.0296492924577183904,  0.0221387194087099031, 0.0142656943144668316, 0.00617061489999359977,
};

// The series of lgamma(1 + a) from a^18 to a^2: zeta(k) / k with alternating signs.
constexpr double kLogGamma[] = {
    0.055555767627403611102,  -0.058823978658684582339, 0.062500955141213040742,
    -0.066668705882420468033, 0.071432946295361336059,  -0.076932516411352191473,
    0.083353840546109004025,  -0.090954017145829042233, 0.10009945751278180853,
    -0.11133426586956469049,  0.12550966952474304242,   -0.14404989676884611812,
    0.16955717699740818995,   -0.20738555102867398527,  0.27058080842778454788,
    -0.40068563438653142847,  0.82246703342411321824};

// Returns x^a exp(-x) / gamma(a): for a from 10 by Stirling's series, whose exponent is
// a (mu - log(1 + mu)) with mu = x / a - 1.
Tensor prefactor(const Tensor& a, const Tensor& x) {
  const Tensor mu = (x - a) / a;
  const Tensor r = mu / (mu + 2);  // log(1 + mu) = 2 atanh(r), and mu - 2 r = mu r
  const Tensor square = r * r;
  Tensor series = square * (1.0 / 35);
  for (int k = 16; k >= 1; --k)
    series = (series + 1.0 / (2 * k + 1)) * (k > 1 ? square : square * r);
  const Tensor near = mu * r - series * 2;
  const Tensor h = mytorch::where(mytorch::abs(mu) < 0.5, near, mu - mytorch::log1p(mu));
  const Tensor z = 1 / a, z2 = z * z;
  Tensor stirling = z2 * (691.0 / 360360);
  for (const double c : {1.0 / 1188, 1.0 / 1680, 1.0 / 1260, 1.0 / 360}) {
    stirling = (c - stirling) * z2;
  }
  stirling = (1.0 / 12 - stirling) * z;
  const Tensor large =
      mytorch::sqrt(a * 0.15915494309189533577) * mytorch::exp(-(a * h) - stirling);
  const Tensor small = mytorch::exp(a * mytorch::log(x) - x - mytorch::lgamma(a));
  return mytorch::where(a >= 10.0, large, small);
}

// Returns Q where `upper`, else P.
Tensor by_quadrature(const Tensor& a, const Tensor& x, const Tensor& upper) {
  constexpr double kLeast = 38;  // exp(-38) is below a rounding error
  const Tensor distance = mytorch::abs(x - a);
  // Where the exponent reaches kLeast, from above: of x (exp(v) - 1 - v), and of
  // a v - x (1 - exp(-v)).
  const Tensor c = kLeast / x;
  Tensor end_of_q = mytorch::sqrt(c * 2);
  for (int i = 0; i < 5; ++i) {
    end_of_q = mytorch::minimum(end_of_q, mytorch::log1p(c + end_of_q));
  }
  Tensor end_of_p = (x + kLeast) / a;
  for (int i = 0; i < 8; ++i) end_of_p = (kLeast - x * mytorch::expm1(-end_of_p)) / a;
  const Tensor narrow = mytorch::sqrt(c * 3);
  end_of_p = mytorch::minimum(end_of_p, mytorch::where(narrow <= 1.0, narrow, kInfinity));
  const Tensor end = mytorch::minimum(mytorch::where(upper, end_of_q, end_of_p),
                                      kLeast / mytorch::where(distance == 0.0, 1e-300, distance));
  const Tensor nodes = tensor(kNodes, kFloat64).to(x.device());
  const Tensor weights = tensor(kWeights, kFloat64).to(x.device());
  const Tensor step = (mytorch::where(upper, end, -end)).unsqueeze(1) * nodes;
  const Tensor values =
      mytorch::igamma_integrand(distance.unsqueeze(1), x.unsqueeze(1), step) * weights;
  return prefactor(a, x) * end * values.sum({1});
}

// The power series of P, for x up to 10.
Tensor series_of_p(const Tensor& a, const Tensor& x) {
  Tensor term = mytorch::exp(a * mytorch::log(x) - x - mytorch::lgamma(a + 1));
  Tensor sum = term;
  for (int n = 1; n <= 64; ++n) {
    term = term * x / (a + static_cast<double>(n));
    sum = sum + term;
  }
  return sum;
}

// Q for x up to 1.1 and small a: 1 - x^a / gamma(a + 1), and the rest of the series.
Tensor series_of_q(const Tensor& a, const Tensor& x) {
  const Tensor log_x = mytorch::log(x);
  // lgamma(1 + a) for small a, where 1 + a loses the digits of a.
  Tensor near = a * 0.0;
  for (const double c : kLogGamma) {
    near = (near + c) * a;
  }
  near = (near - 0.57721566490153286061) * a;
  const Tensor log_gamma = mytorch::where(a < 0.1, near, mytorch::lgamma(a + 1));
  Tensor power = a * 0.0 + 1.0, sum = a * 0.0;
  for (int n = 1; n <= 22; ++n) {
    power = power * x * (-1.0 / n);
    sum = sum + power / (a + static_cast<double>(n));
  }
  const Tensor exponent = a * log_x - log_gamma;
  return -mytorch::expm1(exponent) - mytorch::exp(exponent) * a * sum;
}

// Returns P or, if `complement`, Q, of vectors.
Tensor computed(const Tensor& given_a, const Tensor& given_x, bool complement) {
  const Tensor regular = mytorch::logical_and(
      mytorch::logical_and(given_a > 0.0, given_x > 0.0),
      mytorch::logical_and(mytorch::isfinite(given_a), mytorch::isfinite(given_x)));
  const Tensor a = mytorch::where(regular, given_a, 1.0), x = mytorch::where(regular, given_x, 1.0);
  const Tensor tiny = x <= 1.1;
  const Tensor near_1 = mytorch::logical_and(
      tiny, mytorch::where(x <= 0.5, a <= -0.4 / mytorch::log(x), x * 1.1 >= a));
  const Tensor upper = mytorch::logical_and(x > 1.1, x >= a);
  const Tensor lower = mytorch::logical_and(mytorch::logical_and(x > 1.1, x < a), a >= 10.0);
  const Tensor is_q = mytorch::logical_or(near_1, upper);
  const Tensor series = mytorch::where(near_1, series_of_q(a, x), series_of_p(a, x));
  Tensor result =
      mytorch::where(mytorch::logical_or(upper, lower), by_quadrature(a, x, upper), series);
  result = mytorch::where(complement ? is_q : is_q.logical_not(), result, 1.0 - result);
  // Limits; P is 1 where a is 0 or x is infinite, and 0 where a is infinite or x is 0.
  const Tensor one = mytorch::logical_or(given_a == 0.0, given_x == kInfinity);
  const Tensor none = mytorch::logical_or(given_a == kInfinity, given_x == 0.0);
  const double p = complement ? 0 : 1;
  Tensor limits = mytorch::where(one, p, mytorch::where(none, 1 - p, kNan));
  limits = mytorch::where(mytorch::logical_and(one, none), kNan, limits);
  const Tensor invalid =
      mytorch::logical_or(mytorch::logical_or(given_a < 0.0, given_x < 0.0),
                          mytorch::logical_or(mytorch::isnan(given_a), mytorch::isnan(given_x)));
  return mytorch::where(regular, result, mytorch::where(invalid, kNan, limits));
}

Tensor incomplete(const Tensor& self, const Tensor& other, bool complement, const char* op) {
  check_type(!self.is_complex() && !other.is_complex(), op, "takes no complex numbers");
  const Tensor a = self.detach(), x = other.detach();
  // Types promote as in a pointwise operator of floats; a sum of no elements finds out.
  const auto none = [](const Tensor& t) {
    return t.dim() == 0 ? t : mytorch::empty({0}, t.dtype(), t.device());
  };
  const ScalarType sum = (none(a) + none(x)).dtype();
  const ScalarType type = is_floating_point(sum) ? sum : kFloat32;
  return mytorch::incomplete_gamma(a.to(type), x.to(type), complement);
}

}  // namespace

TensorSpec shape::incomplete_gamma(const Tensor& self, const Tensor& other, bool /*complement*/) {
  const char* op = "incomplete_gamma";
  check_floating(self, "self", op);
  check_type(self.dtype() == other.dtype(), op, "self is ", self.dtype(), " and other ",
             other.dtype(), ": they must have one type");
  return like(self, broadcast_shapes(self.sizes(), other.sizes(), op));
}

Tensor composite::incomplete_gamma(const Tensor& self, const Tensor& other, bool complement) {
  const Tensor a = self.to(kFloat64), x = other.to(kFloat64);
  const Tensor shape = a + x;
  const Tensor all_a = a.expand_as(shape).reshape({-1}), all_x = x.expand_as(shape).reshape({-1});
  constexpr int64_t kMost = 1 << 16;  // elements at a time: quadrature takes 24 numbers for each
  const int64_t count = shape.numel();
  std::vector<Tensor> parts;
  for (int64_t i = 0; i < count; i += kMost) {
    const int64_t n = std::min(kMost, count - i);
    parts.push_back(computed(all_a.narrow(0, i, n), all_x.narrow(0, i, n), complement));
  }
  if (parts.empty()) return shape.to(self.dtype());
  return (parts.size() == 1 ? parts[0] : mytorch::cat(parts))
      .reshape(shape.sizes())
      .to(self.dtype());
}

Tensor composite::igamma(const Tensor& self, const Tensor& other) {
  return incomplete(self, other, false, "igamma");
}

Tensor composite::igammac(const Tensor& self, const Tensor& other) {
  return incomplete(self, other, true, "igammac");
}

Tensor grads::igamma_slope(const Tensor& grad, const Tensor& self, const Tensor& other) {
  // At 0, the logarithm of 0^0 is 0, and so is its derivative.
  const Tensor base = mytorch::where((self == 1).logical_and(other == 0), 1, other);
  const Tensor slope =
      grad * mytorch::exp(mytorch::xlogy(self - 1, base) - other - mytorch::lgamma(self));
  return slope.to(other.dtype()).sum_to_size(other.sizes());
}

}  // namespace mytorch
