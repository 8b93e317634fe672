// The layer's wrappers of operators. Code generation emits a line for each operator:
//
//   install<ops::mul_Tensor>();
//
// Each form is code of its own, so all that does not depend on its types is in wrappers.cpp.
#pragma once

#include <cstddef>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "dispatcher/boxed/params.h"
#include "dispatcher/table/layers.h"
#include "graph/capture/node_recorder.h"
#include "graph/capture/splitting.h"

namespace mytorch::graph {

// One call of an operator: it waits, as a trace knows it, or it runs, and is recorded if the thread
// records.
class CapturedCall {
 public:
  // `gives_tensors`: a graph can hold the results.
  CapturedCall(const FormInfo& form, const Params& params, bool gives_tensors);

  // The call of the trace that waits in place of this one, or null: this call runs.
  Deferral* waiting() const { return waiting_; }
  bool records() const { return call_.has_value(); }

  void result(const Tensor& x) { call_->result(x); }
  void result(const std::vector<Tensor>& x) { call_->results(x); }
  template <class... T>
  void result(const std::tuple<T...>& x) {
    std::apply([&](const auto&... each) { (result(each), ...); }, x);
  }
  void finish();

 private:
  bool finds_waiting(const FormInfo& form, const Params& params, bool gives_tensors);

  Deferral* waiting_ = nullptr;
  std::optional<NodeRecorder> call_;
};

// Returns the results of a call that waits.
template <class R>
struct Waiting {
  static R get(Deferral& call, size_t i) {
    if constexpr (std::is_same_v<R, Tensor>) {
      return call.result(i);
    } else if constexpr (std::is_same_v<R, std::vector<Tensor>>) {
      return call.results(i);
    } else {
      return R();  // the host's values are in no trace
    }
  }
};
template <class... T>
struct Waiting<std::tuple<T...>> {
  static std::tuple<T...> get(Deferral& call, size_t) {
    return get(call, std::index_sequence_for<T...>());
  }
  template <size_t... i>
  static std::tuple<T...> get(Deferral& call, std::index_sequence<i...>) {
    return {Waiting<T>::get(call, i)...};
  }
};

template <class First, class... Rest>
const Tensor& first_of(const First& first, const Rest&...) {
  return first;
}

template <class Op, Form form, class Type = decltype(Below<Op, form>::call)>
struct Wrapper;
template <class Op, Form form, class R, class... P>
struct Wrapper<Op, form, R(P...)> {
  static constexpr bool gives_tensors() {
    if constexpr (std::is_void_v<R> || std::is_reference_v<R>) {
      return true;
    } else {
      return requires(CapturedCall & to, const R& result) { to.result(result); };
    }
  }

  // The layer is the last one.
  static R next(P... args) {
    static_assert(kLayerCapture == 1 << (kNumLayers - 1));
    const LayerMask masked(kLayerCapture | (kLayerCapture - 1));
    return Below<Op, form>::call(static_cast<P&&>(args)...);
  }

  static R call(P... args) {
    const void* const values[] = {std::addressof(args)..., nullptr};
    CapturedCall call(kFormInfo<Op, form>, {TypesOf<P...>::types, values, sizeof...(P)},
                      gives_tensors());
    if constexpr (std::is_void_v<R>) {
      if (call.waiting() != nullptr) return;
      next(static_cast<P&&>(args)...);
      call.finish();
    } else if constexpr (std::is_reference_v<R>) {
      if (call.waiting() != nullptr) return first_of(args...);
      R result = next(static_cast<P&&>(args)...);
      call.finish();
      return result;
    } else if constexpr (gives_tensors()) {
      if (call.waiting() != nullptr) return Waiting<R>::get(*call.waiting(), 0);
      R result = next(static_cast<P&&>(args)...);
      if (call.records()) call.result(result);
      call.finish();
      return result;
    } else {
      if (call.waiting() != nullptr) return Waiting<R>::get(*call.waiting(), 0);
      return next(static_cast<P&&>(args)...);
    }
  }
};

// Installs the wrappers of all forms.
template <class Op>
void install() {
  Layered<Op, kFunction>::template wrap<kLayerCapture>(Wrapper<Op, kFunction>::call);
  if constexpr (Op::inplace) {
    Layered<Op, kInplace>::template wrap<kLayerCapture>(Wrapper<Op, kInplace>::call);
  }
  if constexpr (Op::outs > 0) {
    Layered<Op, kOut>::template wrap<kLayerCapture>(Wrapper<Op, kOut>::call);
  }
}

}  // namespace mytorch::graph
