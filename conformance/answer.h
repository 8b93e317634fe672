// The result of a call, and the reference's.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "conformance/inputs.h"
#include "mytorch/call.h"
#include "mytorch/error.h"

namespace mytorch::conformance {

// The results of a call, or its error.
struct Answer {
  std::vector<Value> results;
  std::optional<ErrorCode> error;
  std::string message;

  // Whether the operator rejected its arguments, as opposed to a missing kernel or a crash.
  bool is_refusal() const;
};

// Calls the case's operator. An error that a device reports later counts, too.
Answer run(const Case& c, const Arguments& arguments);
// Runs the reference's kernels, and no others, on arguments on the CPU.
Answer run_reference(const Case& c, const Arguments& arguments);

}  // namespace mytorch::conformance
