// What nn::MultiheadAttention and F::multi_head_attention_forward share.
#pragma once

#include <tuple>

#include "mytorch/nn/attention.h"
#include "mytorch/nn/transformer.h"

namespace mytorch::nn {

class Split;

// Attention of several heads before the output's projection: (L, N, E), or (N, L, E) if the inputs
// are `batch_first`, or the same without N; and the weights. `name` begins the messages of errors.
// If the heads are split over ranks, the options have this rank's weights, and the number of all
// heads. The result then is that of this rank's heads, and the weights are those of all.
std::tuple<Tensor, Tensor> attend(const char* name, const Tensor& query, const Tensor& key,
                                  const Tensor& value,
                                  const functional::MultiheadAttentionForwardArgs& options,
                                  bool batch_first, const AttentionFunction& attention = {},
                                  const Split* split = nullptr);

}  // namespace mytorch::nn
