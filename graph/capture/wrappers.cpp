#include "graph/capture/wrappers.h"

#include "dispatcher/boxed/box.h"

namespace mytorch::graph {
namespace {

// Adds a parameter to a call that is recorded.
struct Adds {
  NodeRecorder& call;
  void operator()(const Tensor& x) const { call.tensor(x); }
  void operator()(const Operand& x) const {
    if (x.is_tensor()) {
      call.tensor(x.tensor());
    } else {
      call.constant(boxing::box(x));
    }
  }
  void operator()(const TensorList& x) const { call.tensors(x.begin(), x.size()); }
  void operator()(const bool* x) const { call.wanted(x); }
  template <class T>
  void operator()(const T& x) const {
    call.constant(boxing::box(x));
  }
};

// Compares the parameters of a call with those of one that a trace knows.
struct Compares {
  Deferral& call;
  bool& all_same;
  template <class T>
  void operator()(const T& x) const {
    all_same = all_same && same(x);
  }

  bool same(const Tensor& x) const { return call.tensor(x.impl()); }
  bool same(const Operand& x) const {
    if (x.is_tensor()) return call.tensor(x.impl());
    const Value* known = call.constant();
    return known != nullptr && same_constant(*known, boxing::box(x));
  }
  bool same(const TensorList& x) const { return call.tensors(x.begin(), x.size()); }
  bool same(const bool* x) const { return call.wanted(x); }
  bool same(const IntList& x) const {
    const Value* known = call.constant();
    const auto* list =
        known == nullptr ? nullptr : std::get_if<std::vector<int64_t>>(&known->variant());
    return list != nullptr && x == IntList(*list);
  }
  bool same(const std::optional<Generator>& x) const {
    const Value* known = call.constant();
    return known != nullptr &&
           same_constant(*known, Value(x.has_value() ? *x : default_generator()));
  }
  template <class T>
  bool same(const T& x) const {
    const Value* known = call.constant();
    return known != nullptr && same_constant(*known, boxing::box(x));
  }
};

}  // namespace

CapturedCall::CapturedCall(const FormInfo& form, const Params& params, bool gives_tensors) {
  if (splitting() != nullptr && !finds_waiting(form, params, gives_tensors)) return;
  if (waiting_ != nullptr || !is_recording()) return;
  call_.emplace(form.entry, form.form);
  for_each_param(params, Adds{*call_});
  if (gives_tensors) return;
  call_->scalar_result(form.op);
  call_.reset();
}

// Returns false if the call runs outside of any graph.
bool CapturedCall::finds_waiting(const FormInfo& form, const Params& params, bool gives_tensors) {
  TraceMatch match(form.entry, form.form, gives_tensors);
  while (Deferral* const known = match.next()) {
    bool same = true;
    for_each_param(params, Compares{*known, same});
    if (!same || !match.accept()) continue;
    // A view waits for nothing.
    if (known->node().op().meaning == Meaning::kView) return false;
    waiting_ = known;
    return true;
  }
  return match.records();
}

void CapturedCall::finish() {
  if (call_.has_value()) call_->finish();
}

}  // namespace mytorch::graph
