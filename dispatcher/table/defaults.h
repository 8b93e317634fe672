// Default values of arguments.
#pragma once

#include "dispatcher/table/op.h"
#include "mytorch/call.h"

namespace mytorch {

// Parses the default of an argument that has one.
Value default_value(const ArgInfo& arg);

}  // namespace mytorch
