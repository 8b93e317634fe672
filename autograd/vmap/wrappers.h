// The layer's wrappers of operators. Code generation emits a line for each operator:
//
//   install<ops::mul_Tensor>();
//
// and, for each composite, the specialization of Body that calls it. Each form is code of its own,
// so all that does not depend on its types is in wrappers.cpp.
#pragma once

#include <memory>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include "autograd/vmap/rules.h"
#include "dispatcher/boxed/boxed.h"
#include "dispatcher/boxed/params.h"
#include "dispatcher/table/layers.h"

namespace mytorch::autograd::batch {

// The body of a composite: `static auto call(const auto&... args)`, in a std::true_type.
template <class Op>
struct Body : std::false_type {};

// The shape function of a record, which checks the shapes and types of an example:
// `static void check(const auto&... args)`, in a std::true_type.
template <class Op>
struct Shapes : std::false_type {};

// What the wrapper of a form calls, with parameters by address; null if there is none.
struct WrappedForm {
  const FormInfo& form;
  const uint8_t* types;
  size_t size;
  void (*check_shapes)(const void* const* params);
  void (*body)(const void* const* params, std::vector<Value>* results);
};

// One call of an operator. Either it goes on to `target()`, with the thread's state as it must be
// there for the life of this, or it has been computed.
class WrappedCall {
 public:
  WrappedCall(const WrappedForm& of, const void* const* params);

  bool goes_on() const { return goes_on_; }
  // The next wrapper, or null: the call continues below the layers.
  void* target() const { return target_; }
  // The results of the function; the other forms have written theirs.
  std::vector<Value>& results() { return results_; }

 private:
  void compute(const WrappedForm& of, const void* const* params, bool recorded);

  bool goes_on_ = false;
  void* target_ = nullptr;
  std::vector<Value> results_;
  std::optional<BatchScope> scope_;
  std::optional<LayerMask> masked_;
};

// ---- results ----

template <class T>
struct Unbox {
  static T get(std::vector<Value>& results) { return element(results[0]); }
  static T element(const Value& result) {
    if constexpr (std::is_same_v<T, std::vector<Tensor>>) {
      return result.tensors();
    } else if constexpr (std::is_same_v<T, Tensor>) {
      return unbox::As<const Tensor&>::get(result);
    } else {
      return unbox::As<T>::get(result);
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
    return std::tuple<T...>{Unbox<T>::element(results[i])...};
  }
};

inline const Tensor& first_of(const Tensor& first, const auto&...) { return first; }
inline const Tensor& first_of(const auto&, const auto&... rest) { return first_of(rest...); }

// ---- wrappers ----

template <class Op, Form form, class Type = decltype(Below<Op, form>::call)>
struct Wrapper;
template <class Op, Form form, class R, class... P>
struct Wrapper<Op, form, R(P...)> {
  using Function = R (*)(P...);

  static R call(P... args) {
    const void* const params[] = {std::addressof(args)..., nullptr};
    WrappedCall call(kForm, params);
    if (call.goes_on()) {
      void* const wrapper = call.target();
      const Function target =
          wrapper != nullptr ? reinterpret_cast<Function>(wrapper) : Below<Op, form>::call;
      return target(static_cast<P&&>(args)...);
    }
    if constexpr (std::is_reference_v<R>) {
      return first_of(args...);
    } else if constexpr (!std::is_void_v<R>) {
      return Unbox<R>::get(call.results());
    }
  }

 private:
  template <size_t... i>
  static void check(const void* const* params, std::index_sequence<i...>) {
    Shapes<Op>::check(param_at<P>(params[i])...);
  }
  static void check_shapes(const void* const* params) {
    check(params, std::index_sequence_for<P...>());
  }
  template <size_t... i>
  static void run(const void* const* params, std::vector<Value>* results,
                  std::index_sequence<i...>) {
    if constexpr (std::is_void_v<decltype(Body<Op>::call(param_at<P>(params[i])...))>) {
      Body<Op>::call(param_at<P>(params[i])...);
    } else {
      unbox::append(results, Body<Op>::call(param_at<P>(params[i])...));
    }
  }
  static void run_body(const void* const* params, std::vector<Value>* results) {
    run(params, results, std::index_sequence_for<P...>());
  }

  // In place and into outputs, the function computes.
  static constexpr auto checker() -> decltype(WrappedForm::check_shapes) {
    if constexpr (form == kFunction && Shapes<Op>::value) {
      return check_shapes;
    } else {
      return nullptr;
    }
  }
  static constexpr auto body() -> decltype(WrappedForm::body) {
    if constexpr (form == kFunction && Body<Op>::value) {
      return run_body;
    } else {
      return nullptr;
    }
  }
  static constexpr WrappedForm kForm = {kFormInfo<Op, form>, TypesOf<P...>::types, sizeof...(P),
                                        checker(), body()};
};

// Installs the wrappers of all forms.
template <class Op>
void install() {
  Layered<Op, kFunction>::template wrap<kLayerBatch>(Wrapper<Op, kFunction>::call);
  if constexpr (Op::inplace) {
    Layered<Op, kInplace>::template wrap<kLayerBatch>(Wrapper<Op, kInplace>::call);
  }
  if constexpr (Op::outs > 0) {
    Layered<Op, kOut>::template wrap<kLayerBatch>(Wrapper<Op, kOut>::call);
  }
}

}  // namespace mytorch::autograd::batch
