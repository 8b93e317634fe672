#include "node_ops.h"

#include <cmath>
#include <limits>
#include <string>

#include "mytorch/backend.h"

namespace npu {

namespace sdk = mytorch::sdk;

namespace {

// ---- reals

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
  return std::trunc(sdk::is_dtype<double>(compute) ? quotient : static_cast<float>(quotient));
}
double remainder(double a, double b) {  // has the sign of the divisor
  const double mod = std::fmod(a, b);
  return mod != 0 && (b < 0) != (mod < 0) ? mod + b : mod;
}
double maximum(double a, double b) { return std::isnan(a) || !(std::isnan(b) || a < b) ? a : b; }
double minimum(double a, double b) { return std::isnan(a) || !(std::isnan(b) || b < a) ? a : b; }
double sigmoid(double a) {
  const double e = std::exp(-std::abs(a));
  return a >= 0 ? 1 / (1 + e) : e / (1 + e);
}

// ---- integers, which wrap around

using U = uint64_t;
int64_t add(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<U>(a) + static_cast<U>(b));
}
int64_t sub(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<U>(a) - static_cast<U>(b));
}
int64_t mul(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<U>(a) * static_cast<U>(b));
}
int64_t quotient(int64_t a, int64_t b, const Call& call) {
  if (b == 0) {
    const std::string op = call.op;
    throw sdk::Error(MT_ERROR_VALUE,
                     "[" + op.substr(0, op.find('.')) + "] integer division by zero");
  }
  return b == -1 ? sub(0, a) : a / b;
}
int64_t modulo(int64_t a, int64_t b, const Call& call) {
  return sub(a, mul(quotient(a, b, call), b));
}
bool apart(int64_t mod, int64_t b) { return mod != 0 && (b < 0) != (mod < 0); }
int64_t power(int64_t a, int64_t b) {
  if (b < 0) return a == 1 ? 1 : a == -1 ? (b % 2 == 0 ? 1 : -1) : 0;
  int64_t result = 1;
  for (; b != 0; b >>= 1, a = mul(a, a)) {
    if ((b & 1) != 0) result = mul(result, a);
  }
  return result;
}
int64_t shift_left(int64_t a, int64_t b, mt_dtype type) {
  return b < 0 || b >= type.bits ? 0 : static_cast<int64_t>(static_cast<U>(a) << b);
}
int64_t shift_right(int64_t a, int64_t b, mt_dtype type) {
  const int64_t most = type.bits - (type.code == MT_INT ? 1 : 0);
  return a >> (b < 0 || b >= most ? most : b);
}

struct Entry {
  const char* name;
  NodeOp on_reals;
  NodeOp on_integers;
};

#define REAL(expression)                                      \
  [](NodeValue x, NodeValue y, NodeValue, const Call& call) { \
    [[maybe_unused]] const double a = x.f;                    \
    [[maybe_unused]] const double b = y.f;                    \
    (void)call;                                               \
    return expression;                                        \
  }
#define WHOLE(expression)                                     \
  [](NodeValue x, NodeValue y, NodeValue, const Call& call) { \
    [[maybe_unused]] const int64_t a = x.i;                   \
    [[maybe_unused]] const int64_t b = y.i;                   \
    (void)call;                                               \
    return whole(expression);                                 \
  }
// Computes functions of integers in double.
#define FUNCTION(expression)                                                     \
  REAL(real(expression)), [](NodeValue x, NodeValue y, NodeValue, const Call&) { \
    [[maybe_unused]] const auto a = static_cast<double>(x.i);                    \
    [[maybe_unused]] const auto b = static_cast<double>(y.i);                    \
    return whole(sdk::convert<int64_t>(expression));                             \
  }
#define BOTH(expression) REAL(real(expression)), WHOLE(expression)
#define COMPARE(expression) REAL(whole(expression)), WHOLE(expression)
#define LOGIC(expression) nullptr, WHOLE(expression)

constexpr Entry kEntries[] = {
    {"add", REAL(real(a + b)), WHOLE(add(a, b))},
    {"sub", REAL(real(a - b)), WHOLE(sub(a, b))},
    {"mul", REAL(real(a* b)), WHOLE(mul(a, b))},
    {"div", REAL(real(a / b)), WHOLE(quotient(a, b, call))},
    {"floor_divide", REAL(real(floor_divide(a, b))),
     WHOLE(quotient(a, b, call) - (apart(modulo(a, b, call), b) ? 1 : 0))},
    {"trunc_divide", REAL(real(trunc_divide(a, b, call.compute))), WHOLE(quotient(a, b, call))},
    {"remainder", REAL(real(remainder(a, b))),
     WHOLE(modulo(a, b, call) + (apart(modulo(a, b, call), b) ? b : 0))},
    {"fmod", REAL(real(std::fmod(a, b))), WHOLE(modulo(a, b, call))},
    {"pow", REAL(real(std::pow(a, b))), WHOLE(power(a, b))},
    {"maximum", REAL(real(maximum(a, b))), WHOLE(a < b ? b : a)},
    {"minimum", REAL(real(minimum(a, b))), WHOLE(b < a ? b : a)},
    {"atan2", FUNCTION(std::atan2(a, b))},
    {"neg", REAL(real(-a)), WHOLE(sub(0, a))},
    {"conj_physical", BOTH(a)},
    {"abs", REAL(real(std::abs(a))), WHOLE(a < 0 ? sub(0, a) : a)},
    {"sign", BOTH((a > 0) - (a < 0))},
    {"sqrt", FUNCTION(std::sqrt(a))},
    {"rsqrt", FUNCTION(1 / std::sqrt(a))},
    {"exp", FUNCTION(std::exp(a))},
    {"exp2", FUNCTION(std::exp2(a))},
    {"expm1", FUNCTION(std::expm1(a))},
    {"log", FUNCTION(std::log(a))},
    {"log2", FUNCTION(std::log2(a))},
    {"log10", FUNCTION(std::log10(a))},
    {"log1p", FUNCTION(std::log1p(a))},
    {"sin", FUNCTION(std::sin(a))},
    {"cos", FUNCTION(std::cos(a))},
    {"tan", FUNCTION(std::tan(a))},
    {"asin", FUNCTION(std::asin(a))},
    {"acos", FUNCTION(std::acos(a))},
    {"atan", FUNCTION(std::atan(a))},
    {"sinh", FUNCTION(std::sinh(a))},
    {"cosh", FUNCTION(std::cosh(a))},
    {"tanh", FUNCTION(std::tanh(a))},
    {"asinh", FUNCTION(std::asinh(a))},
    {"acosh", FUNCTION(std::acosh(a))},
    {"atanh", FUNCTION(std::atanh(a))},
    {"erf", FUNCTION(std::erf(a))},
    {"erfc", FUNCTION(std::erfc(a))},
    {"sigmoid", FUNCTION(sigmoid(a))},
    {"floor", REAL(real(std::floor(a))), WHOLE(a)},
    {"ceil", REAL(real(std::ceil(a))), WHOLE(a)},
    {"round", REAL(real(std::nearbyint(a))), WHOLE(a)},
    {"trunc", REAL(real(std::trunc(a))), WHOLE(a)},
    {"eq", COMPARE(a == b)},
    {"ne", COMPARE(a != b)},
    {"lt", COMPARE(a < b)},
    {"le", COMPARE(a <= b)},
    {"gt", COMPARE(a > b)},
    {"ge", COMPARE(a >= b)},
    {"isnan", REAL(whole(std::isnan(a))), WHOLE(0)},
    {"logical_and", LOGIC(a != 0 && b != 0)},
    {"logical_or", LOGIC(a != 0 || b != 0)},
    {"logical_xor", LOGIC((a != 0) != (b != 0))},
    {"logical_not", LOGIC(a == 0)},
    {"bitwise_and", LOGIC(a& b)},
    {"bitwise_or", LOGIC(a | b)},
    {"bitwise_xor", LOGIC(a ^ b)},
    {"bitwise_not", LOGIC(sdk::is_bool(call.compute) ? a == 0 : ~a)},
    {"bitwise_left_shift", LOGIC(shift_left(a, b, call.compute))},
    {"bitwise_right_shift", LOGIC(shift_right(a, b, call.compute))},
    // The condition is a bool; the selected value is passed on unchanged.
    {"where", nullptr,
     [](NodeValue x, NodeValue y, NodeValue z, const Call&) { return x.i != 0 ? y : z; }},
};

}  // namespace

NodeOp find_node_op(std::string_view name, bool on_reals) {
  for (const Entry& entry : kEntries) {
    if (entry.name == name) return on_reals ? entry.on_reals : entry.on_integers;
  }
  return nullptr;
}

int64_t wrap(int64_t value, mt_dtype dtype) {
  if (sdk::is_bool(dtype)) return value;  // store() converts it to 0 or 1
  return sdk::visit_dtype(dtype, [&](auto tag) {
    return sdk::convert<int64_t>(sdk::convert<typename decltype(tag)::type>(value));
  });
}

}  // namespace npu
