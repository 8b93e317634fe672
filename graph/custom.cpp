// The layer's wrapper of operators registered at run time.
#include "dispatcher/custom/custom.h"

#include "graph/capture.h"

namespace mytorch::graph {
namespace {

std::vector<Value> record_call(const CustomOperator& op, const std::vector<Value>& args) {
  if (!is_recording()) return next_custom(kLayerCapture, op, args);
  Call call(op.entry, kFunction);
  for (const Value& arg : args) {
    if (const auto* tensor = std::get_if<Tensor>(&arg.variant())) {
      call.tensor(*tensor);
    } else if (const auto* list = std::get_if<std::vector<Tensor>>(&arg.variant())) {
      call.tensors(list->data(), list->size());
    } else {
      call.constant(arg);
    }
  }
  std::vector<Value> results = next_custom(kLayerCapture, op, args);
  for (const Value& result : results) {
    if (const auto* list = std::get_if<std::vector<Tensor>>(&result.variant())) {
      call.results(*list);
    } else {
      call.result(result.is_none() ? Tensor() : result.tensor());
    }
  }
  call.finish();
  return results;
}

[[maybe_unused]] const bool installed_custom = (capture_custom = record_call, true);

}  // namespace
}  // namespace mytorch::graph
