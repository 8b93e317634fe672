// Node operations on floating types, evaluated in double. Only trunc_divide, which is discontinuous
// at quotients that round to an integer, first rounds the quotient to the compute type.
#include <array>
#include <cmath>
#include <cstddef>
#include <iterator>
#include <utility>

#include "backends/reference/node_ops.h"
#include "backends/reference/node_tables.h"
#include "mytorch/backend/dtype.h"

namespace mytorch::reference {
namespace {

// ATen's definition, exact through fmod, so that a == floor_divide(a, b) * b + remainder(a, b)
// holds up to rounding.
double floor_divide(double a, double b) {
  if (b == 0) return a / b;
  const double mod = std::fmod(a, b);
  double quotient = (a - mod) / b;
  if (mod != 0 && (b < 0) != (mod < 0)) quotient -= 1;
  if (quotient == 0) return std::copysign(0.0, a / b);
  const double floor = std::floor(quotient);
  return quotient - floor > 0.5 ? floor + 1 : floor;
}

double trunc_divide(double a, double b, mt_dtype compute) {
  const double quotient = a / b;
  const bool narrow = !sdk::is_dtype<double>(compute);
  return std::trunc(narrow ? static_cast<float>(quotient) : quotient);
}

// The result has the divisor's sign.
double remainder(double a, double b) {
  const double mod = std::fmod(a, b);
  return mod != 0 && (b < 0) != (mod < 0) ? mod + b : mod;
}

double maximum(double a, double b) {
  if (std::isnan(a)) return a;
  return std::isnan(b) || a < b ? b : a;
}
double minimum(double a, double b) {
  if (std::isnan(a)) return a;
  return std::isnan(b) || b < a ? b : a;
}

double sigmoid(double a) {
  if (a >= 0) return 1 / (1 + std::exp(-a));
  const double e = std::exp(a);  // 1 / (1 + exp(-a)) would be 0 for some subnormal results
  return e / (1 + e);
}

#define UNARY(name, expression)      \
  {                                  \
    name, 1, [](const Operands& x) { \
      const double a = x.a.f;        \
      return real(expression);       \
    }                                \
  }
#define BINARY(name, expression)     \
  {                                  \
    name, 2, [](const Operands& x) { \
      const double a = x.a.f;        \
      const double b = x.b.f;        \
      return real(expression);       \
    }                                \
  }
#define COMPARE(name, operation)                                            \
  {                                                                         \
    name, 2, [](const Operands& x) { return whole(x.a.f operation x.b.f); } \
  }

constexpr NodeOp kFloatOps[] = {
    BINARY("add", a + b),
    BINARY("sub", a - b),
    BINARY("mul", a* b),
    BINARY("div", a / b),
    BINARY("floor_divide", floor_divide(a, b)),
    BINARY("trunc_divide", trunc_divide(a, b, x.compute)),
    BINARY("remainder", remainder(a, b)),
    BINARY("fmod", std::fmod(a, b)),
    BINARY("pow", std::pow(a, b)),
    BINARY("maximum", maximum(a, b)),
    BINARY("minimum", minimum(a, b)),
    BINARY("atan2", std::atan2(a, b)),
    UNARY("neg", -a),
    UNARY("conj_physical", a),
    UNARY("abs", std::abs(a)),
    UNARY("sign", static_cast<double>((a > 0) - (a < 0))),
    UNARY("sqrt", std::sqrt(a)),
    UNARY("rsqrt", 1 / std::sqrt(a)),
    UNARY("exp", std::exp(a)),
    UNARY("exp2", std::exp2(a)),
    UNARY("expm1", std::expm1(a)),
    UNARY("log", std::log(a)),
    UNARY("log2", std::log2(a)),
    UNARY("log10", std::log10(a)),
    UNARY("log1p", std::log1p(a)),
    UNARY("sin", std::sin(a)),
    UNARY("cos", std::cos(a)),
    UNARY("tan", std::tan(a)),
    UNARY("asin", std::asin(a)),
    UNARY("acos", std::acos(a)),
    UNARY("atan", std::atan(a)),
    UNARY("sinh", std::sinh(a)),
    UNARY("cosh", std::cosh(a)),
    UNARY("tanh", std::tanh(a)),
    UNARY("asinh", std::asinh(a)),
    UNARY("acosh", std::acosh(a)),
    UNARY("atanh", std::atanh(a)),
    UNARY("erf", std::erf(a)),
    UNARY("erfc", std::erfc(a)),
    UNARY("sigmoid", sigmoid(a)),
    UNARY("floor", std::floor(a)),
    UNARY("ceil", std::ceil(a)),
    UNARY("round", std::nearbyint(a)),  // rounds halves to even
    UNARY("trunc", std::trunc(a)),
    COMPARE("eq", ==),
    COMPARE("ne", !=),
    COMPARE("lt", <),
    COMPARE("le", <=),
    COMPARE("gt", >),
    COMPARE("ge", >=),
    {"isnan", 1, [](const Operands& x) { return whole(std::isnan(x.a.f)); }},
};

#undef UNARY
#undef BINARY
#undef COMPARE

template <size_t i>
Value converted(const Operands& x) {
  Operands real = x;
  real.a.f = static_cast<double>(x.a.i);
  return whole(sdk::convert<int64_t>(kFloatOps[i].run(real).f));
}
// Also those that integers have an own meaning of, which find_node_op finds first.
template <size_t... i>
constexpr std::array<NodeOp, sizeof...(i)> convert_all(std::index_sequence<i...>) {
  return {NodeOp{kFloatOps[i].arity == 1 ? kFloatOps[i].name : "", 1, &converted<i>}...};
}
constexpr auto kConvertedOps = convert_all(std::make_index_sequence<std::size(kFloatOps)>());

}  // namespace

std::span<const NodeOp> float_ops() { return kFloatOps; }
std::span<const NodeOp> converted_ops() { return kConvertedOps; }

}  // namespace mytorch::reference
