// Names of functions in error messages.
#pragma once

#include <exception>

namespace mytorch::nn {

// Throws the Error that is being handled, with "[op]" in place of the name that begins its message;
// for an exception of the standard library, Error(kOutOfMemory).
[[noreturn]] void rethrow_as(const char* op);

// Calls `function`, whose errors name `op` instead of the operators that it calls.
template <class F>
auto named(const char* op, const F& function) {
  try {
    return function();
  } catch (const std::exception&) {
    rethrow_as(op);
  }
}

}  // namespace mytorch::nn
