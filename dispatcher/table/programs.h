// Properties of the programs of operators.
#pragma once

#include "dispatcher/table/op.h"

namespace mytorch {

// Returns whether the call decomposes into other operators. A program of a single operation and a
// plain reduction of an argument do not: other programs decompose into these.
bool can_decompose(const OpInfo& op, const void* args);

}  // namespace mytorch
