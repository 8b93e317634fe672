// Names of functions in error messages.
#pragma once

#include "mytorch/error.h"

namespace mytorch::nn {

// Throws the Error that is being handled, with "[op]" in place of the name that begins its message.
[[noreturn]] void rethrow_as(const char* op);

// Calls `function`, whose errors name `op` instead of the operators that it calls.
template <class F>
auto named(const char* op, const F& function) {
  try {
    return function();
  } catch (const Error&) {
    rethrow_as(op);
  }
}

}  // namespace mytorch::nn
