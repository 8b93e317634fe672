// The tables behind find_node_op.
#pragma once

#include <span>

#include "backends/reference/node_ops.h"

namespace mytorch::reference {

std::span<const NodeOp> float_ops();
std::span<const NodeOp> integer_ops();
// The functions of one number on integers: in double, converted back.
std::span<const NodeOp> converted_ops();
std::span<const NodeOp> logic_ops();  // of bools, and `where`: the same in both domains

}  // namespace mytorch::reference
