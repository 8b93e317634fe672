// Parameters of operators by address, for the wrappers of layers that treat all operators alike: a
// wrapper is code of its own for each form, and passes what it was given to one function.
//
//   const void* const values[] = {&self, &other};
//   for_each_param({Params<P...>::types, values, 2}, [](const auto& param) { ... });
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>

#include "dispatcher/table/op.h"
#include "mytorch/tensor.h"

namespace mytorch {

// Every type of a parameter. The pointer tells which results of a derived gradient are wanted.
using ParamTypes =
    std::tuple<Tensor, Operand, TensorList, const bool*, Scalar, int64_t, double, bool, IntList,
               OptionalIntList, FloatList, OptionalFloatList, std::string_view, Str, ScalarType,
               Device, Generator, Handle, std::optional<Scalar>, std::optional<int64_t>,
               std::optional<double>, std::optional<bool>, std::optional<std::string_view>,
               std::optional<ScalarType>, std::optional<Device>, std::optional<Generator>>;

template <class T, size_t i = 0>
constexpr uint8_t param_type() {
  static_assert(i < std::tuple_size_v<ParamTypes>, "not a type of a parameter");
  if constexpr (std::is_same_v<T, std::tuple_element_t<i, ParamTypes>>) {
    return i;
  } else {
    return param_type<T, i + 1>();
  }
}

// The parameters of one call.
struct Params {
  const uint8_t* types;  // positions in ParamTypes
  const void* const* values;
  size_t size;
};

template <class... P>
struct TypesOf {
  static constexpr uint8_t types[sizeof...(P) + 1] = {param_type<std::remove_cvref_t<P>>()...};
};

// Returns the parameter of type P at an address.
template <class P>
const std::remove_cvref_t<P>& param_at(const void* address) {
  return *static_cast<const std::remove_cvref_t<P>*>(address);
}

template <class F, size_t... i>
void visit_param(uint8_t type, const void* value, F& f, std::index_sequence<i...>) {
  using Visit = void (*)(const void*, F&);
  static constexpr Visit visits[] = {
      [](const void* at, F& to) { to(param_at<std::tuple_element_t<i, ParamTypes>>(at)); }...};
  visits[type](value, f);
}

template <class F>
void for_each_param(const Params& params, F f) {
  for (size_t k = 0; k < params.size; ++k) {
    visit_param(params.types[k], params.values[k], f,
                std::make_index_sequence<std::tuple_size_v<ParamTypes>>());
  }
}

}  // namespace mytorch
