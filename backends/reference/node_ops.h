// The definitions of the node operations, in double and in exact integers, one table for each.
#pragma once

#include <cstdint>
#include <string_view>

#include "mytorch/abi.h"

namespace mytorch::reference {

// A value of one node: a double, or an int64 (integers, bools, indices).
union Value {
  double f;
  int64_t i;
};
inline Value real(double f) { return Value{.f = f}; }
inline Value whole(int64_t i) { return Value{.i = i}; }

// The operands of an operation.
struct Operands {
  Value a;
  Value b;
  Value c;
  mt_dtype compute;
  std::string_view op;  // the record's name, for errors
};

struct NodeOp {
  const char* name;
  int arity;
  Value (*run)(const Operands&);
};

// Returns NULL for an unknown name. `floating`: the operands are doubles; `where` ignores it.
const NodeOp* find_node_op(std::string_view name, bool floating);

}  // namespace mytorch::reference
