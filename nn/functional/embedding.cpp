// Lookup in tables by the options of functions and modules.
#include "mytorch/grad_mode.h"
#include "mytorch/nn/functional.h"
#include "mytorch/ops/embedding_bag.h"
#include "mytorch/ops/index_select.h"
#include "mytorch/ops/renorm.h"
#include "nn/functional/options.h"

namespace mytorch::nn::functional {
namespace {

// Scales rows of the table whose norm exceeds `max_norm` to that norm, those at `indices` alone. A
// row that is looked up twice is written twice, with the same values.
void shorten_rows(const Tensor& weight, const Tensor& indices, double max_norm, double norm_type) {
  if (indices.numel() == 0) return;
  const NoGradGuard no_grad;
  const Tensor rows = indices.reshape(-1);
  weight.index_copy_(0, rows, renorm(weight.index_select(0, rows), norm_type, 0, max_norm));
}

// For the operators, -1 is no row.
int64_t padding_of(std::optional<int64_t> padding_idx, const Tensor& weight, const char* name) {
  const int64_t rows = weight.dim() == 0 ? 0 : weight.size(0);
  return padding_row(padding_idx, rows, name).value_or(-1);
}

}  // namespace

std::optional<int64_t> padding_row(std::optional<int64_t> index, int64_t rows, const char* name) {
  if (!index) return {};
  if (*index < -rows || *index >= rows) {
    fail(ErrorCode::kValue, "[", name, "] padding_idx ", *index, " is not a row of ", rows,
         ": give one from ", -rows, " to ", rows - 1, ", or none");
  }
  return *index < 0 ? *index + rows : *index;
}

Tensor embedding(const Tensor& input, const Tensor& weight, const EmbeddingArgs& options) {
  if (input.is_floating_point()) {
    fail(ErrorCode::kType, "[embedding] the indices have type ", dtype_name(input.dtype()),
         ": they must be int64 or int32, and come first: embedding(indices, weight)");
  }
  if (options.max_norm) shorten_rows(weight, input, *options.max_norm, options.norm_type);
  return mytorch::embedding(weight, input, padding_of(options.padding_idx, weight, "embedding"),
                            options.scale_grad_by_freq);
}

Tensor embedding_bag(const Tensor& indices, const Tensor& weight,
                     const EmbeddingBagFuncArgs& options) {
  if (options.max_norm) shorten_rows(weight, indices, *options.max_norm, options.norm_type);
  return mytorch::embedding_bag(weight, indices, options.offsets, options.scale_grad_by_freq,
                                name_of(options.mode), options.per_sample_weights,
                                options.include_last_offset,
                                padding_of(options.padding_idx, weight, "embedding_bag"));
}

}  // namespace mytorch::nn::functional
