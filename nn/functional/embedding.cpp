// Lookup in tables by the options of functions and modules.
#include "mytorch/nn/functional.h"
#include "mytorch/ops/embedding_bag.h"
#include "nn/functional/options.h"

namespace mytorch::nn::functional {

Tensor embedding(const Tensor& input, const Tensor& weight, const EmbeddingArgs& options) {
  if (input.is_floating_point()) {
    fail(ErrorCode::kType, "[embedding] the indices have type ", dtype_name(input.dtype()),
         ": give embedding(indices, weight) integers and then the table");
  }
  return mytorch::embedding(weight, input, options.padding_idx, options.scale_grad_by_freq);
}

Tensor embedding_bag(const Tensor& indices, const Tensor& weight,
                     const EmbeddingBagFuncArgs& options) {
  return mytorch::embedding_bag(weight, indices, options.offsets, options.scale_grad_by_freq,
                                name_of(options.mode), options.per_sample_weights,
                                options.include_last_offset, options.padding_idx);
}

}  // namespace mytorch::nn::functional
