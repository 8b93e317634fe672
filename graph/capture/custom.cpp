// The layer's wrapper of operators registered at run time.
#include "dispatcher/custom/custom.h"

#include <algorithm>

#include "graph/capture/node_recorder.h"
#include "graph/capture/splitting.h"

namespace mytorch::graph {
namespace {

bool same_call(Deferral& call, const std::vector<Value>& args) {
  return std::all_of(args.begin(), args.end(), [&](const Value& arg) {
    if (const auto* tensor = std::get_if<Tensor>(&arg.variant()))
      return call.tensor(tensor->impl());
    if (const auto* list = std::get_if<std::vector<Tensor>>(&arg.variant())) {
      return call.tensors(list->data(), list->size());
    }
    const Value* known = call.constant();
    if (known == nullptr) return false;
    const bool is_generator = std::holds_alternative<Generator>(known->variant());
    return same_constant(*known, arg.is_none() && is_generator ? Value(default_generator()) : arg);
  });
}

std::vector<Value> results_of(Deferral& call) {
  std::vector<Value> results;
  const std::vector<Arg>& known = call.node().results;
  for (size_t i = 0; i < known.size(); ++i) {
    if (known[i].kind == Arg::kTensors) {
      results.emplace_back(call.results(i));
      continue;
    }
    const Tensor result = call.result(i);
    results.push_back(result.defined() ? Value(result) : Value());
  }
  return results;
}

std::vector<Value> record_call(const CustomOperator& op, const std::vector<Value>& args) {
  if (splitting() != nullptr) {
    TraceMatch match(op.entry, kFunction, true);
    while (Deferral* const known = match.next()) {
      if (!same_call(*known, args) || !match.accept()) continue;
      return results_of(*known);
    }
    if (!match.records()) return next_custom(kLayerCapture, op, args);
  }
  if (!is_recording()) return next_custom(kLayerCapture, op, args);
  NodeRecorder call(op.entry, kFunction);
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
