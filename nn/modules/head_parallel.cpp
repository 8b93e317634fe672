#include "mytorch/nn/head_parallel.h"

#include "core/types/errors.h"
#include "nn/modules/names.h"
#include "nn/split.h"

namespace mytorch::nn {

int64_t own_heads(const Module& attention, int64_t heads) {
  const Split* split = split_of(attention);
  return split == nullptr ? heads : heads / split->ranks();
}

Tensor input_of_heads(const Module& attention, const Tensor& x, bool cached) {
  const Split* split = split_of(attention);
  if (split == nullptr) return x;
  if (cached && split->splits_sequence()) {
    fail(ErrorCode::kValue, "[", class_name(attention),
         "] a KVCache has whole sequences, and those of this model are split over ranks: generate "
         "with one that was parallelized without sequence_dim");
  }
  return split->shared(x);
}

Tensor attention_of_heads(const Module& attention, const Tensor& query, const Tensor& key,
                          const Tensor& value, const functional::AttentionArgs& options) {
  const Split* split = split_of(attention);
  return split == nullptr ? functional::scaled_dot_product_attention(query, key, value, options)
                          : attention_of_part(query, key, value, options, *split);
}

}  // namespace mytorch::nn
