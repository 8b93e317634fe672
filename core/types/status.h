// Errors of C functions.
#pragma once

#include <string>

#include "core/types/errors.h"
#include "mytorch/abi.h"

namespace mytorch {

// Throws the Error of a C function that returned `status`, with "[op] " before the message unless
// it has such a prefix. An unknown status counts as MT_ERROR_INTERNAL.
[[noreturn]] inline void fail_status(int status, const char* op, const std::string& message) {
  const bool known = status >= MT_ERROR_SHAPE && status <= MT_ERROR_INTERNAL;
  const ErrorCode code = known ? static_cast<ErrorCode>(status) : ErrorCode::kInternal;
  if (message[0] == '[') throw Error(code, message);
  fail(code, "[", op, "] ", message);
}

}  // namespace mytorch
