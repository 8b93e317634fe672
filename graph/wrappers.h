// The layer's wrappers of operators. Code generation emits a line for each form:
//
//   install<ops::mul_Tensor, kFunction>();
#pragma once

#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <vector>

#include "dispatcher/boxed/box.h"
#include "dispatcher/table/layers.h"
#include "graph/capture.h"

namespace mytorch::graph {

inline void add(Call& call, const Tensor& x) { call.tensor(x); }
inline void add(Call& call, const Operand& x) {
  if (x.is_tensor()) {
    call.tensor(x.tensor());
  } else {
    call.constant(boxing::box(x));
  }
}
inline void add(Call& call, const TensorList& x) { call.tensors(x.begin(), x.size()); }
inline void add(Call& call, const bool* x) { call.wanted(x); }
template <class T>
void add(Call& call, const T& x) {
  call.constant(boxing::box(x));
}

inline void add_result(Call& call, const Tensor& x) { call.result(x); }
inline void add_result(Call& call, const std::vector<Tensor>& x) { call.results(x); }
template <class... T>
void add_result(Call& call, const std::tuple<T...>& x) {
  std::apply([&](const auto&... each) { (add_result(call, each), ...); }, x);
}

template <class Op, Form form, class Type = decltype(Below<Op, form>::call)>
struct Wrapper;
template <class Op, Form form, class R, class... P>
struct Wrapper<Op, form, R(P...)> {
  static R call(P... args) {
    if (!is_recording()) [[unlikely]] {
      return Layered<Op, form>::template next<kLayerCapture>(static_cast<P&&>(args)...);
    }
    Call call(Op::entry, form);
    (add(call, args), ...);
    if constexpr (std::is_void_v<R>) {
      Layered<Op, form>::template next<kLayerCapture>(static_cast<P&&>(args)...);
      call.finish();
    } else if constexpr (std::is_reference_v<R>) {
      R result = Layered<Op, form>::template next<kLayerCapture>(static_cast<P&&>(args)...);
      call.finish();
      return result;
    } else if constexpr (requires(Call & to, const R& result) { add_result(to, result); }) {
      R result = Layered<Op, form>::template next<kLayerCapture>(static_cast<P&&>(args)...);
      add_result(call, result);
      call.finish();
      return result;
    } else {
      call.scalar_result(Op::info);
      return Layered<Op, form>::template next<kLayerCapture>(static_cast<P&&>(args)...);
    }
  }
};

template <class Op, Form form>
void install() {
  Layered<Op, form>::template wrap<kLayerCapture>(Wrapper<Op, form>::call);
}

// Calls a derived gradient below the layers, computing the wanted results alone.
using DerivedCall = void (*)(const bool* wanted, const Value* args, std::vector<Value>* results);
void add_derived(const OpInfo& op, DerivedCall call);

template <class Op>
void install_derived() {
  install<Op, kFunction>();
  add_derived(Op::info, boxing::Derived<Op>::call);
}

}  // namespace mytorch::graph
