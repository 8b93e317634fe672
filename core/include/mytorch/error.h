// The exception type of mytorch.
#pragma once

#include <exception>
#include <string>
#include <utility>

namespace mytorch {

// The values equal the status codes of the C contract (mytorch/abi.h).
enum class ErrorCode : int {
  kShape = 2,
  kType = 3,
  kDevice = 4,
  kValue = 5,
  kUnsupported = 6,
  kOutOfMemory = 7,
  kIo = 8,
  kInternal = 9,
};

// Thrown for every failure. The message begins with the operator or component that failed, states
// the problem with the offending values, and says how to fix it: `[matmul] shapes (2, 3) and (4,
// 5): inner dimensions 3 and 4 differ`. Unless the message says otherwise, nothing was changed.
class Error : public std::exception {
 public:
  Error(ErrorCode code, std::string message) : code_(code), message_(std::move(message)) {}
  ErrorCode code() const noexcept { return code_; }
  const char* what() const noexcept override { return message_.c_str(); }
  // libtorch's names.
  const std::string& msg() const noexcept { return message_; }
  const char* what_without_backtrace() const noexcept { return what(); }

 private:
  ErrorCode code_;
  std::string message_;
};

}  // namespace mytorch
