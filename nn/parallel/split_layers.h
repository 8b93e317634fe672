// The products and lookups of layers that are split over ranks, given their part of the weights.
#pragma once

#include <cstdint>
#include <optional>

#include "mytorch/distributed.h"
#include "mytorch/tensor.h"

namespace mytorch::nn::parallel {

inline distributed::Group or_world(const distributed::Group& group) {
  return group.defined() ? group : distributed::world();
}

// Returns this rank's output features; `x` is the same on all ranks, or split along a dimension.
// Backward reduces the gradient of `x` while it computes that of the weight.
Tensor column_linear(const Tensor& x, const Tensor& weight, const Tensor& bias,
                     const distributed::Group& group, std::optional<int64_t> sequence_dim = {});
// Returns the sum over the ranks, plus the bias, of products of each rank's input features; or its
// part along a dimension.
Tensor row_linear(const Tensor& x, const Tensor& weight, const Tensor& bias,
                  const distributed::Group& group, std::optional<int64_t> sequence_dim = {});

// Returns the rows of a table of `num_embeddings` that this rank has, and zeros for the others: the
// sum over the ranks is the result. `padding_idx` is a row of the whole table.
Tensor own_rows(const Tensor& indices, const Tensor& weight, int64_t num_embeddings,
                std::optional<int64_t> padding_idx, const distributed::Group& group);

}  // namespace mytorch::nn::parallel
