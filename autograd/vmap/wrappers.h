// The layer's wrappers of operators. Code generation emits a line for each form:
//
//   batch::install<ops::mul_Tensor, kFunction>();
//
// and, for each composite, the specialization of Body that calls it.
#pragma once

#include <bit>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include "autograd/vmap/rules.h"
#include "dispatcher/boxed/box.h"
#include "dispatcher/table/layers.h"
#include "mytorch/grad_mode.h"

namespace mytorch::autograd::batch {

using boxing::box;
using boxing::Derived;

// The body of a composite: `static auto call(const auto&... args)`.
template <class Op>
struct Body {
  static constexpr bool exists = false;
};

// The shape function of a record, which checks the shapes and types of an example.
template <class Op>
struct Shapes {
  static void check(const auto&...) {}
};

// ---- what a call's tensors are ----

template <class T>
void see(Seen&, const char*, const T&) {}
inline void see(Seen& seen, const char* op, const Tensor& tensor) {
  if (tensor.defined()) seen.add(tensor.impl(), op);
}
inline void see(Seen& seen, const char* op, const Operand& operand) {
  if (operand.is_tensor()) seen.add(operand.impl(), op);
}
inline void see(Seen& seen, const char* op, const TensorList& list) {
  for (const Tensor& tensor : list) see(seen, op, tensor);
}

// ---- results ----

template <class T>
struct Unbox {
  static T get(std::vector<Value>& results) {
    if constexpr (std::is_same_v<T, Tensor>) {
      return unbox::As<const Tensor&>::get(results[0]);
    } else if constexpr (std::is_same_v<T, std::vector<Tensor>>) {
      return results[0].tensors();
    } else {
      return unbox::As<T>::get(results[0]);
    }
  }
};
template <class... T>
struct Unbox<std::tuple<T...>> {
  static std::tuple<T...> get(std::vector<Value>& results) {
    return get(results, std::index_sequence_for<T...>());
  }

 private:
  template <size_t... i>
  static std::tuple<T...> get(std::vector<Value>& results, std::index_sequence<i...>) {
    return std::tuple<T...>{element<T>(results[i])...};
  }
  template <class R>
  static R element(const Value& result) {
    if constexpr (std::is_same_v<R, std::vector<Tensor>>) {
      return result.tensors();
    } else {
      return unbox::As<const R&>::get(result);
    }
  }
};

inline const Tensor& first_of(const Tensor& first, const auto&...) { return first; }
inline const Tensor& first_of(const auto&, const auto&... rest) { return first_of(rest...); }

inline const bool* first_pointer(const bool* first, const auto&...) { return first; }

template <class Op, Form form, class Type = decltype(Below<Op, form>::call)>
struct Wrapper;
template <class Op, Form form, class R, class... P>
struct Wrapper<Op, form, R(P...)> {
  using Type = R (*)(P...);
  static constexpr bool kRandom = (std::is_same_v<P, std::optional<Generator>> || ...);
  static constexpr bool kDerived = (std::is_same_v<P, const bool*> || ...);

  static R call(P... args) {
    Seen seen;
    (see(seen, Op::info.base, args), ...);
    if (state.level == nullptr) {
      return Layered<Op, form>::template next<kLayerBatch>(static_cast<P&&>(args)...);
    }
    if (!seen.batched && !(kRandom && state.level->randomness != Randomness::kSame)) {
      const Scope scope(outside());
      return Layered<Op, form>::call(static_cast<P&&>(args)...);
    }
    if constexpr (form != kFunction) {
      std::vector<Value> values = boxed_args(args...);
      write_form(Op::info, form == kInplace ? 1 : Op::outs, form == kInplace, values);
      if constexpr (!std::is_void_v<R>) return first_of(args...);
    } else {
      if (seen.recorded && !state.recorded && grad_enabled()) {
        if (void* wrapper = Op::entry.wrappers[kAutograd][form]) {
          // A derived gradient is recorded through the operators of its program.
          const Scope scope({state.level, !kDerived, state.bodies}, !kDerived);
          return reinterpret_cast<Type>(wrapper)(static_cast<P&&>(args)...);
        }
      }
      // Without a wrapper of its own, the operators of its body are recorded.
      return compute(seen.recorded && !state.recorded && grad_enabled(), args...);
    }
  }

 private:
  static constexpr int kAutograd = std::countr_zero(uint32_t{kLayerAutograd});

  static std::vector<Value> boxed_args(const P&... args) {
    std::vector<Value> values;
    values.reserve(sizeof...(P));
    (add_arg(values, args), ...);
    return values;
  }
  template <class T>
  static void add_arg(std::vector<Value>& values, const T& arg) {
    if constexpr (!std::is_same_v<T, const bool*>) values.push_back(box(arg));
  }

  static R compute(bool recorded_by_body, const P&... args) {
    static const Rule rule = find_rule(Op::info);
    Shapes<Op>::check(args...);
    Call call(Op::info, boxed_args(args...));
    if constexpr (kDerived) {
      const bool* wanted = first_pointer(args...);
      call.invoke = [wanted](const Value* values, std::vector<Value>* found) {
        Derived<Op>::call(wanted, values, found);
      };
    }
    call.recorded_by_body = recorded_by_body && Op::info.differentiable;
    if constexpr (Body<Op>::exists) {
      call.body = [&](std::vector<Value>* found) {
        if constexpr (std::is_void_v<decltype(Body<Op>::call(args...))>) {
          Body<Op>::call(args...);
        } else {
          unbox::append(found, Body<Op>::call(args...));
        }
      };
    }
    std::vector<Value> results = call.run(rule);
    if constexpr (std::is_reference_v<R>) {
      return first_of(args...);
    } else if constexpr (!std::is_void_v<R>) {
      return Unbox<R>::get(results);
    }
  }
};

template <class Op, Form form>
void install() {
  Layered<Op, form>::template wrap<kLayerBatch>(Wrapper<Op, form>::call);
}

}  // namespace mytorch::autograd::batch
