#include "conformance/answer.h"

#include "conformance/check.h"
#include "mytorch/backends.h"

namespace mytorch::conformance {

bool Answer::is_refusal() const {
  return error == ErrorCode::kType || error == ErrorCode::kValue || error == ErrorCode::kShape;
}

Answer run(const Case& c, const Arguments& arguments) {
  Answer outcome;
  try {
    outcome.results = call_named(c.op->name, arguments);
    // Errors that a device finds are reported when it is synchronized.
    for (const Value& result : outcome.results) {
      const auto* tensor = std::get_if<Tensor>(&result.variant());
      if (tensor == nullptr || !tensor->defined() || tensor->device().is_cpu()) continue;
      call("to.device", {*tensor, kCPU});
      break;
    }
  } catch (const Error& error) {
    outcome.error = error.code();
    outcome.message = error.what();
  }
  return outcome;
}

Answer run_reference(const Case& c, const Arguments& arguments) {
  Prefer reference("cpu", "reference");
  RestrictKernels alone(Kernels::kPreferred);
  return run(c, arguments);
}

}  // namespace mytorch::conformance
