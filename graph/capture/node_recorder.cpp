#include "graph/capture/node_recorder.h"

#include <algorithm>
#include <utility>

#include "core/tensor/batched.h"
#include "core/types/call_site.h"
#include "core/types/errors.h"
#include "graph/capture/capture_state.h"
#include "graph/ir/uses.h"
#include "mytorch/generator.h"
#include "mytorch/grad_mode.h"

namespace mytorch::graph {

NodeRecorder::NodeRecorder(const OpEntry& entry, Form form)
    : state_(active_capture()), generator_(default_generator()), call_(generator_.call()) {
  node_.entry = &entry;
  node_.form = form;
  node_.grad_mode = grad_enabled();
  if (entry.info->dynamic) {
    fail(ErrorCode::kUnsupported, "[compile] the shape of the result of ", entry.info->base,
         "() depends on values, and the shapes of a graph are fixed: call it outside of the "
         "compiled function, use an operator whose result has a fixed shape, such as where(mask, "
         "x, 0), or set CompileOptions::allow_breaks",
         called_from());
  }
}

void NodeRecorder::tensor(const Tensor& tensor) {
  operands_.push_back(tensor.impl());
  if (!tensor.defined()) {
    node_.args.push_back({});
    return;
  }
  check_not_batched(tensor, "compile");
  node_.args.push_back(Arg::tensor(state_.operand(tensor)));
}

void NodeRecorder::tensors(const Tensor* begin, size_t size) {
  operands_.push_back(nullptr);
  Arg arg{Arg::kTensors, {}, {}};
  for (size_t i = 0; i < size; ++i) {
    arg.values.push_back(begin[i].defined() ? state_.operand(begin[i]) : kNoValue);
  }
  node_.args.push_back(std::move(arg));
}

void NodeRecorder::constant(Value value) {
  operands_.push_back(nullptr);
  Arg arg;
  // The generator of this call, which a GeneratorGuard may have chosen.
  const size_t at = node_.args.size() - (node_.form == kOut ? node_.outs() : 0);
  if (value.is_none() && at < static_cast<size_t>(node_.op().num_args) &&
      node_.op().args[at].type == ArgType::kGenerator) {
    value = Value(default_generator());
  }
  if (const auto* generator = std::get_if<Generator>(&value.variant())) {
    generator_ = *generator;
    call_ = generator_.call();
  }
  arg.constant = std::move(value);
  node_.args.push_back(std::move(arg));
}

void NodeRecorder::result(const Tensor& tensor) {
  if (buffers_ < 0) buffers_ = static_cast<int32_t>(state_.graph().buffers.size());
  result_ = tensor.impl();
  node_.results.push_back(Arg::tensor(state_.result(tensor)));
}

void NodeRecorder::results(const std::vector<Tensor>& tensors) {
  if (buffers_ < 0) buffers_ = static_cast<int32_t>(state_.graph().buffers.size());
  Arg arg{Arg::kTensors, {}, {}};
  for (const Tensor& tensor : tensors) arg.values.push_back(state_.result(tensor));
  node_.results.push_back(std::move(arg));
}

void NodeRecorder::scalar_result(const OpInfo& op) {
  fail(
      ErrorCode::kUnsupported, "[compile] ", op.base,
      "() gives the host a value, but a graph runs without the host: compute with tensors, call it "
      "outside of the compiled function, or set CompileOptions::allow_breaks",
      called_from());
}

// A call can wait if its results can be made without its kernel: fresh memory, or an argument.
// Views need no kernel.
Trace::Note NodeRecorder::note() const {
  Trace::Note note;
  note.draws = static_cast<uint32_t>(generator_.call() - call_);
  const Graph& graph = state_.graph();
  const bool view = node_.op().meaning == Meaning::kView;
  const auto same = std::find(operands_.begin(), operands_.end(), result_);
  if (!view && node_.results.size() == 1 && result_ != nullptr && same != operands_.end()) {
    note.same = static_cast<int8_t>(same - operands_.begin());
    return note;
  }
  node_.for_each_result([&](ValueId id) {
    const ValueInfo& info = graph.values[id];
    const bool fresh = info.buffer >= buffers_;
    const bool whole = info.offset == 0 && bytes_of(info) == graph.buffer_of(id).bytes;
    note.waits = note.waits && (view ? !fresh : fresh && whole);
  });
  return note;
}

void NodeRecorder::finish() {
  if (wanted_ != nullptr) {
    node_.wanted = 0;
    for (size_t i = 0; i < node_.results.size(); ++i) node_.wanted |= uint32_t{wanted_[i]} << i;
  }
  state_.notes.push_back(note());
  state_.note_replaced(node_);
  state_.graph().nodes.push_back(std::move(node_));
}

}  // namespace mytorch::graph
