// The operations of programs (listed in docs/records.md), one element at a time.
#pragma once

#include <cstdint>
#include <string_view>

#include "mytorch/abi.h"

namespace npu {

// The value of a node: a double if its type is a floating compute type, else an integer.
union NodeValue {
  double f;
  int64_t i;
};
inline NodeValue real(double value) { return {.f = value}; }
inline NodeValue whole(int64_t value) { return {.i = value}; }

// The properties of a call that an operation may need.
struct Call {
  mt_dtype compute;  // the compute type
  const char* op;    // the operator, for error messages
};
using NodeOp = NodeValue (*)(NodeValue a, NodeValue b, NodeValue c, const Call& call);

// Returns NULL if the operation is unknown. `on_reals` tells whether the first operand is a double.
NodeOp find_node_op(std::string_view name, bool on_reals);

// Returns `value` converted to an integer type, modulo 2^bits.
int64_t wrap(int64_t value, mt_dtype dtype);

}  // namespace npu
