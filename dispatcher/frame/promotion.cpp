#include "dispatcher/frame/promotion.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <string_view>

#include "core/types/errors.h"
#include "core/types/holds.h"
#include "mytorch/result_type.h"
#include "mytorch/tensor.h"

namespace mytorch {
namespace {

// Returns `high`, unless the category of `low` is higher.
ScalarType combine(ScalarType high, ScalarType low) {
  if (is_complex(high)) return high;
  if (is_floating_point(high)) return is_complex(low) ? to_complex(high) : high;
  if (is_complex(low)) return promote_types(high, low);
  if (high == kBool || is_floating_point(low)) return promote_types(high, low);
  return high;
}

// Whether the operator adds, subtracts, multiplies or combines bits, and does nothing else:
// then the low bits of its result depend on those of its operands alone. (codegen/nodes.py says so
// of these nodes and of those that choose an operand, which do not make another number of it.)
bool is_modular(const OpInfo& op) {
  bool combines = false;
  for (int i = 0; i < op.num_programs; ++i) {
    const mt_program& program = *op.programs[i];
    for (int k = 0; k < program.num_nodes; ++k) {
      const std::string_view node = program.nodes[k].op;
      if (node == "input" || node == "scalar" || node == "const" || node == "cast") continue;
      constexpr std::string_view kModular[] = {"add",         "sub",        "mul",        "neg",
                                               "bitwise_and", "bitwise_or", "bitwise_xor"};
      if (std::find(std::begin(kModular), std::end(kModular), node) == std::end(kModular))
        return false;
      combines = true;
    }
  }
  return combines;
}

constexpr bool takes(uint16_t types, ScalarType type) {
  return (types >> static_cast<int>(type) & 1) != 0;
}

// The accepted types of an operand, and the conversion to suggest.
struct Advice {
  const char* expected;
  const char* mend;
};

Advice advice(uint16_t types) {
  const bool floats = takes(types, kFloat32), integers = takes(types, kInt64);
  const bool bools = takes(types, kBool);
  if (bools && !floats && !integers) return {"a bool", "compare it, as in ne(x, 0)"};
  if (floats && integers) return {"numbers", "convert it with to(), or use a logical operator"};
  return {floats ? "floats" : bools ? "integers and bools" : "integers", "convert it with to()"};
}

}  // namespace

void refuse_complex(const OpInfo& op, const char* name, ScalarType type) {
  fail(ErrorCode::kType, "[", op.base, "] takes no complex numbers, but ", name, " is ",
       dtype_name(type), ": apply it to abs(x), or to the parts real(x) and imag(x)");
}

void check_types(const OpInfo& op, const mt_tensor* const* operands) {
  int at = 0;
  for (int i = 0; i < op.num_args; ++i) {
    const ArgInfo& arg = op.args[i];
    if (arg.type != ArgType::kTensor && arg.type != ArgType::kOperand) continue;
    const uint16_t types = op.accepts[at];
    const mt_tensor* operand = operands[at++];
    if (operand == nullptr || takes(types, from_abi(operand->dl.dtype))) continue;
    const ScalarType type = from_abi(operand->dl.dtype);
    if (is_complex(type)) refuse_complex(op, arg.name, type);
    const Advice how = advice(types);
    fail(ErrorCode::kType, "[", op.base, "] takes ", how.expected, ", but ", arg.name, " is ",
         dtype_name(from_abi(operand->dl.dtype)), ": ", how.mend);
  }
}

bool wraps(const OpInfo& op, ScalarType compute, int64_t value) {
  return compute == kUInt8 && value < 0 && value >= -UINT8_MAX && is_modular(op);
}

void check_whole_number(const OpInfo& op, int arg, const Scalar& value, mt_dtype compute) {
  const char* const name = op.args[arg].name;
  const ScalarType type = from_abi(compute);
  if (value.is_complex()) {
    fail(ErrorCode::kType, "[", op.base, "] ", name,
         " is a complex number, but the computation is in ", dtype_name(type),
         ": convert an operand with to(kComplex64)");
  }
  if (value.is_float()) {
    const double x = value.to_double();
    if (x != std::trunc(x) || std::isinf(x)) {
      fail(ErrorCode::kType, "[", op.base, "] ", name, " is ", x, ", but the computation is in ",
           dtype_name(type), ": give a whole number, or convert an operand with to()");
    }
  }
  if (!holds(type, value) && !wraps(op, type, value.to_int())) {
    fail(ErrorCode::kValue, "[", op.base, "] ", name, " is ", number_text(value), ", outside of ",
         dtype_name(type), ", in which this is computed: give one that fits, or convert an ",
         "operand with to(kInt64)");
  }
}

void ResultType::add(const mt_tensor* operand) {
  const bool number = operand->storage == nullptr;
  const int rank = number ? 2 : operand->dl.ndim == 0 ? 1 : 0;
  add(rank, from_abi(operand->dl.dtype));
}

void ResultType::add(int rank, ScalarType type) {
  // A C++ double has the default type.
  if (rank == 2 && is_floating_point(type)) type = kFloat32;
  if (rank == 2 && is_complex(type)) type = kComplex64;
  types_[rank] = has_[rank] ? promote_types(types_[rank], type) : type;
  has_[rank] = true;
}

ScalarType ResultType::get() const {
  bool any = false;
  ScalarType result = kFloat32;
  for (int rank = 0; rank < 3; ++rank) {
    if (!has_[rank]) continue;
    result = any ? combine(result, types_[rank]) : types_[rank];
    any = true;
  }
  return result;
}

ScalarType result_type(const Operand& a, const Operand& b) {
  ResultType result;
  for (const Operand* operand : {&a, &b}) {
    if (operand->is_tensor()) {
      const Tensor tensor = operand->tensor();
      result.add(tensor.dim() == 0 ? 1 : 0, tensor.dtype());
    } else if (operand->is_scalar()) {
      result.add(2, operand->scalar().type());
    }
  }
  return result.get();
}

}  // namespace mytorch
