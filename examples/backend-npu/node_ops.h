// The operations of programs (docs/records.md lists them), one element at a time.
#pragma once

#include <cstdint>
#include <string_view>

#include "mytorch/abi.h"

namespace npu {

// The value of a node: a double where it is of a floating computation type, else an integer.
union Lane {
  double f;
  int64_t i;
};
inline Lane real(double value) { return {.f = value}; }
inline Lane whole(int64_t value) { return {.i = value}; }

// `compute` is the computation type of the call, `op` the operator, for errors.
struct Call {
  mt_dtype compute;
  const char* op;
};
using NodeOp = Lane (*)(Lane a, Lane b, Lane c, const Call& call);

// NULL for an operation unknown here. `on_reals`: whether the first operand is a double.
NodeOp find_node_op(std::string_view name, bool on_reals);

// `value` in an integer type: its low bits.
int64_t wrap(int64_t value, mt_dtype dtype);

}  // namespace npu
