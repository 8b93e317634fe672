// Helpers for bodies of records: specs of results, several results, and errors.
#pragma once

#include <array>
#include <tuple>

#include "core/tensor/spec.h"
#include "ops/check.h"

namespace mytorch {

// std::tuple of n equal types: the results of an operator, and their shapes.
template <class T, size_t n>
using TupleOf = decltype(std::tuple_cat(std::declval<std::array<T, n>>()));
template <size_t n>
using Tensors = TupleOf<Tensor, n>;
template <size_t n>
using Specs = TupleOf<TensorSpec, n>;

}  // namespace mytorch
