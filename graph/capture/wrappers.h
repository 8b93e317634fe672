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
#include "graph/capture/capture.h"
#include "graph/capture/splitting.h"

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

inline bool same(Deferral& call, const Tensor& x) { return call.tensor(x.impl()); }
inline bool same(Deferral& call, const Operand& x) {
  if (x.is_tensor()) return call.tensor(x.impl());
  const Value* known = call.constant();
  return known != nullptr && same_constant(*known, boxing::box(x));
}
inline bool same(Deferral& call, const TensorList& x) { return call.tensors(x.begin(), x.size()); }
inline bool same(Deferral& call, const bool* x) { return call.wanted(x); }
inline bool same(Deferral& call, const IntList& x) {
  const Value* known = call.constant();
  const auto* list =
      known == nullptr ? nullptr : std::get_if<std::vector<int64_t>>(&known->variant());
  return list != nullptr && x == IntList(*list);
}
inline bool same(Deferral& call, const std::optional<Generator>& x) {
  const Value* known = call.constant();
  return known != nullptr && same_constant(*known, Value(x.has_value() ? *x : default_generator()));
}
template <class T>
bool same(Deferral& call, const T& x) {
  const Value* known = call.constant();
  return known != nullptr && same_constant(*known, boxing::box(x));
}

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
      return requires(Call & to, const R& result) { add_result(to, result); };
    }
  }

  static R next(P... args) {
    return Layered<Op, form>::template next<kLayerCapture>(static_cast<P&&>(args)...);
  }

  static R call(P... args) {
    if (splitting() != nullptr) [[unlikely]] {
      Match match(Op::entry, form, gives_tensors());
      while (Deferral* const known = match.next()) {
        if (!(same(*known, args) && ...) || !match.accept()) continue;
        if (known->node().op().meaning == Meaning::kView) return next(static_cast<P&&>(args)...);
        if constexpr (std::is_void_v<R>) {
          return;
        } else if constexpr (std::is_reference_v<R>) {
          return first_of(args...);
        } else {
          return Waiting<R>::get(*known, 0);
        }
      }
      if (!match.records()) return next(static_cast<P&&>(args)...);
    }
    if (!is_recording()) [[unlikely]]
      return next(static_cast<P&&>(args)...);
    Call call(Op::entry, form);
    (add(call, args), ...);
    if constexpr (std::is_void_v<R>) {
      next(static_cast<P&&>(args)...);
      call.finish();
    } else if constexpr (std::is_reference_v<R>) {
      R result = next(static_cast<P&&>(args)...);
      call.finish();
      return result;
    } else if constexpr (gives_tensors()) {
      R result = next(static_cast<P&&>(args)...);
      add_result(call, result);
      call.finish();
      return result;
    } else {
      call.scalar_result(Op::info);
      return next(static_cast<P&&>(args)...);
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
