// Default values of arguments.
#pragma once

#include "dispatcher/table/op.h"
#include "mytorch/call.h"

namespace mytorch {

// Returns the default of an argument that has one. Throws Error(kValue) if the text is no value of
// the argument's type.
Value default_value(const ArgInfo& arg);

}  // namespace mytorch
