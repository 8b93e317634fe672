// The boxed forms of operators (OpInfo::boxed, boxed_inplace, boxed_out): converts Values to
// parameters, and results back. The Values already have the types of the schema (call.cpp).
//
// Each form is code of its own, so all that does not depend on its types is in boxed.cpp.
#pragma once

#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "dispatcher/table/layers.h"
#include "mytorch/call.h"

namespace mytorch {
namespace unbox {

// Returns a Value as a parameter of type T, which refers to the Value.
template <class T>
struct As;

template <>
struct As<const Tensor&> {
  static const Tensor& get(const Value& v);
};
template <>
struct As<const Operand&> {
  static Operand get(const Value& v);
};
template <>
struct As<const Scalar&> {
  static Scalar get(const Value& v);
};
template <>
struct As<int64_t> {
  static int64_t get(const Value& v);
};
template <>
struct As<double> {
  static double get(const Value& v);
};
template <>
struct As<bool> {
  static bool get(const Value& v);
};
template <>
struct As<IntList> {
  static IntList get(const Value& v);
};
template <>
struct As<OptionalIntList> {
  static OptionalIntList get(const Value& v);
};
template <>
struct As<FloatList> {
  static FloatList get(const Value& v);
};
template <>
struct As<OptionalFloatList> {
  static OptionalFloatList get(const Value& v);
};
template <>
struct As<TensorList> {
  static TensorList get(const Value& v);
};
template <>
struct As<std::string_view> {
  static std::string_view get(const Value& v);
};
template <>
struct As<Str> {
  static Str get(const Value& v) { return As<std::string_view>::get(v); }
};
template <>
struct As<ScalarType> {
  static ScalarType get(const Value& v);
};
template <>
struct As<Device> {
  static Device get(const Value& v);
};
template <>
struct As<Generator> {
  static Generator get(const Value& v);
};
template <>
struct As<const Handle&> {
  static Handle get(const Value& v);
};
template <>
struct As<Scalar> : As<const Scalar&> {};
template <class T>
struct As<std::optional<T>> {
  static std::optional<T> get(const Value& v) {
    if (v.is_none()) return std::nullopt;
    return As<T>::get(v);
  }
};

void append(std::vector<Value>* results, const Tensor& result);
void append(std::vector<Value>* results, Tensor&& result);
void append(std::vector<Value>* results, std::vector<Tensor>&& result);
template <class T>
void append(std::vector<Value>* results, T&& result) {
  results->emplace_back(std::forward<T>(result));
}
template <class... T>
void append(std::vector<Value>* results, std::tuple<T...>&& result) {
  std::apply([&](auto&&... each) { (append(results, std::move(each)), ...); }, std::move(result));
}

// Returns the wrapper that a call enters, or null: it continues below the layers. Throws
// Error(kValue) if autograd refuses the form.
void* enter(const FormInfo& form, const Value* args, int size);
// Appends the arguments that a form without results writes.
void append_written(const FormInfo& form, const Value* args, std::vector<Value>* results);

template <class Op, Form form, class Type = decltype(Below<Op, form>::call)>
struct Boxed;
template <class Op, Form form, class R, class... P>
struct Boxed<Op, form, R(P...)> {
  using Function = R (*)(P...);

  static void call(const Value* args, std::vector<Value>* results) {
    run(args, results, std::index_sequence_for<P...>());
  }

 private:
  template <size_t... i>
  static void run(const Value* args, std::vector<Value>* results, std::index_sequence<i...>) {
    void* const wrapper = enter(kFormInfo<Op, form>, args, sizeof...(P));
    auto called = wrapper != nullptr ? reinterpret_cast<Function>(wrapper) : Below<Op, form>::call;
    if constexpr (requires { Op::by_parts; }) {
      if ((has_complex_part(As<P>::get(args[i])) || ...)) called = ByParts<Op, form>::call;
    }
    if constexpr (std::is_void_v<R>) {
      called(As<P>::get(args[i])...);
      append_written(kFormInfo<Op, form>, args, results);
    } else {
      append(results, called(As<P>::get(args[i])...));
    }
  }
};

// A derived gradient, of which only some results may be wanted.
template <class Op, class R, class... P>
struct Boxed<Op, kFunction, R(const bool*, P...)> {
  using Function = R (*)(const bool*, P...);

  static void call(const Value* args, std::vector<Value>* results) {
    call_wanted(kAllWanted, args, results);
  }
  static void call_wanted(const bool* wanted, const Value* args, std::vector<Value>* results) {
    run(wanted, args, results, std::index_sequence_for<P...>());
  }

 private:
  template <size_t... i>
  static void run(const bool* wanted, const Value* args, std::vector<Value>* results,
                  std::index_sequence<i...>) {
    void* const wrapper = enter(kFormInfo<Op, kFunction>, args, sizeof...(P));
    const auto called =
        wrapper != nullptr ? reinterpret_cast<Function>(wrapper) : Below<Op, kFunction>::call;
    append(results, called(wanted, As<P>::get(args[i])...));
  }
};

}  // namespace unbox

// Calls one form of an operator with a boxed value per parameter; the outputs of the out= form come
// first. Appends the outputs of that form, the lists that the operator writes, or its results.
template <class Op, Form form>
inline constexpr auto boxed = unbox::Boxed<Op, form>::call;
// Calls a derived gradient, computing the wanted results alone.
template <class Op>
inline constexpr auto boxed_wanted = unbox::Boxed<Op, kFunction>::call_wanted;

}  // namespace mytorch
