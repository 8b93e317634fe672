// Node operations on integers, bools and indices, exact in 64 bits; the caller wraps the result to
// the compute type. Transcendental functions of integers are computed in double.
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>

#include "backends/reference/exact.h"
#include "backends/reference/node_ops.h"
#include "backends/reference/node_tables.h"
#include "mytorch/backend/dtype.h"
#include "mytorch/backend/error.h"

namespace mytorch::reference {
namespace {

void check_divisor(const Operands& x) {
  if (x.b.i == 0) {
    throw sdk::Error(MT_ERROR_VALUE, "[" + std::string(x.op) + "] integer division by zero");
  }
}

// Division by -1 is negation: the smallest int64 wraps to itself instead of trapping.
int64_t trunc_divide(int64_t a, int64_t b) { return b == -1 ? sub(0, a) : a / b; }
int64_t fmod(int64_t a, int64_t b) { return b == -1 ? 0 : a % b; }
int64_t floor_divide(int64_t a, int64_t b) {
  return trunc_divide(a, b) - ((a < 0) != (b < 0) && fmod(a, b) != 0 ? 1 : 0);
}
int64_t remainder(int64_t a, int64_t b) {
  const int64_t mod = fmod(a, b);
  return mod != 0 && (b < 0) != (mod < 0) ? mod + b : mod;
}

int64_t pow(int64_t a, int64_t b) {
  if (b < 0) return a == 1 ? 1 : a == -1 ? (b % 2 == 0 ? 1 : -1) : 0;
  int64_t power = 1;
  for (; b != 0; b >>= 1) {
    if ((b & 1) != 0) power = mul(power, a);
    a = mul(a, a);
  }
  return power;
}

// Shifts by a negative count, or by at least the type's width, leave only the sign, as in ATen.
int64_t shift_left(int64_t a, int64_t b, mt_dtype type) {
  return b < 0 || b >= type.bits ? 0 : static_cast<int64_t>(static_cast<uint64_t>(a) << b);
}
int64_t shift_right(int64_t a, int64_t b, mt_dtype type) {
  const int64_t most = type.bits - (type.code == MT_INT ? 1 : 0);
  return a >> (b < 0 || b >= most ? most : b);
}

#define UNARY(name, expression)      \
  {                                  \
    name, 1, [](const Operands& x) { \
      const int64_t a = x.a.i;       \
      return whole(expression);      \
    }                                \
  }
#define BINARY(name, expression)     \
  {                                  \
    name, 2, [](const Operands& x) { \
      const int64_t a = x.a.i;       \
      const int64_t b = x.b.i;       \
      return whole(expression);      \
    }                                \
  }
#define DIVISION(name, function)            \
  {                                         \
    name, 2, [](const Operands& x) {        \
      check_divisor(x);                     \
      return whole(function(x.a.i, x.b.i)); \
    }                                       \
  }

constexpr NodeOp kIntegerOps[] = {
    BINARY("add", add(a, b)),
    BINARY("sub", sub(a, b)),
    BINARY("mul", mul(a, b)),
    DIVISION("div", trunc_divide),
    DIVISION("floor_divide", floor_divide),
    DIVISION("trunc_divide", trunc_divide),
    DIVISION("remainder", remainder),
    DIVISION("fmod", fmod),
    BINARY("pow", pow(a, b)),
    BINARY("maximum", a < b ? b : a),
    BINARY("minimum", b < a ? b : a),
    BINARY("atan2",
           sdk::convert<int64_t>(std::atan2(static_cast<double>(a), static_cast<double>(b)))),
    UNARY("neg", sub(0, a)),
    UNARY("conj_physical", a),
    UNARY("abs", a < 0 ? sub(0, a) : a),
    UNARY("sign", (a > 0) - (a < 0)),
    UNARY("floor", a),
    UNARY("ceil", a),
    UNARY("round", a),
    UNARY("trunc", a),
    BINARY("eq", a == b),
    BINARY("ne", a != b),
    BINARY("lt", a < b),
    BINARY("le", a <= b),
    BINARY("gt", a > b),
    BINARY("ge", a >= b),
    {"isnan", 1, [](const Operands&) { return whole(0); }},
    BINARY("bitwise_and", a& b),
    BINARY("bitwise_or", a | b),
    BINARY("bitwise_xor", a ^ b),
    BINARY("bitwise_left_shift", shift_left(a, b, x.compute)),
    BINARY("bitwise_right_shift", shift_right(a, b, x.compute)),
    // The complement of a bool is logical: ~1 would be true.
    UNARY("bitwise_not", sdk::is_bool(x.compute) ? a == 0 : ~a),
};

constexpr NodeOp kLogicOps[] = {
    BINARY("logical_and", a != 0 && b != 0),
    BINARY("logical_or", a != 0 || b != 0),
    BINARY("logical_xor", (a != 0) != (b != 0)),
    UNARY("logical_not", a == 0),
    {"where", 3, [](const Operands& x) { return x.a.i != 0 ? x.b : x.c; }},
};

#undef UNARY
#undef BINARY
#undef DIVISION

}  // namespace

std::span<const NodeOp> integer_ops() { return kIntegerOps; }
std::span<const NodeOp> logic_ops() { return kLogicOps; }

const NodeOp* find_node_op(std::string_view name, bool floating) {
  for (const std::span<const NodeOp> table :
       {logic_ops(), floating ? float_ops() : integer_ops(), converted_ops()}) {
    for (const NodeOp& op : table) {
      if (op.name == name) return &op;
    }
  }
  return nullptr;
}

}  // namespace mytorch::reference
