// Rows of a table by index.
#include "mytorch/generated/bodies.h"
#include "mytorch/ops/embedding_dense_backward.h"
#include "mytorch/ops/index_add.h"
#include "mytorch/ops/ones.h"
#include "mytorch/ops/zeros.h"
#include "ops/geometry.h"
#include "ops/gradients.h"
#include "ops/precision.h"

namespace mytorch {
namespace {

void check_indices(const Tensor& indices, const char* op) {
  check_type(indices.dtype() == kInt64 || indices.dtype() == kInt32, op, "indices are ",
             indices.dtype(), ": they must be int64 or int32");
}

// Returns the rows of gradients to add to the table: 0 at the padding index and, on request,
// divided by the number of occurrences of their index.
Tensor weighted_rows(const Tensor& rows, const Tensor& index, int64_t num_weights,
                     int64_t padding_idx, bool scale_grad_by_freq) {
  Tensor result = rows;
  if (padding_idx >= 0) {
    result = result.masked_fill((index == padding_idx).unsqueeze(1), 0);
  }
  if (scale_grad_by_freq) {
    const Tensor one = mytorch::ones(index.numel(), rows.dtype(), rows.device());
    const Tensor counts =
        mytorch::index_add(mytorch::zeros(num_weights, rows.dtype(), rows.device()), 0, index, one);
    result = result / counts.index_select(0, index).unsqueeze(1);
  }
  return result;
}

}  // namespace

namespace shape {

TensorSpec embedding(const Tensor& weight, const Tensor& indices, int64_t /*padding_idx*/,
                     bool /*scale_grad_by_freq*/) {
  check_shape(weight.dim() == 2, "embedding", "weight has shape ", weight.sizes(),
              ": it must be 2-dim");
  check_indices(indices, "embedding");
  Dims sizes = to_dims(indices.sizes());
  sizes.push_back(weight.sizes()[1]);
  return like(weight, std::move(sizes));
}

TensorSpec embedding_dense_backward(const Tensor& grad_output, const Tensor& indices,
                                    int64_t num_weights, int64_t /*padding_idx*/,
                                    bool /*scale_grad_by_freq*/) {
  const char* op = "embedding_dense_backward";
  check_indices(indices, op);
  const IntList sizes = grad_output.sizes();
  check_shape(sizes.size() == indices.sizes().size() + 1 &&
                  IntList(sizes.data(), sizes.size() - 1) == indices.sizes(),
              op, "grad_output has shape ", sizes, ", which is not that of indices, ",
              indices.sizes(), ", and a row");
  check_value(num_weights >= 0, op, "num_weights ", num_weights);
  return like(grad_output, {num_weights, sizes.back()});
}

}  // namespace shape

namespace composite {

Tensor embedding(const Tensor& weight, const Tensor& indices, int64_t /*padding_idx*/,
                 bool /*scale_grad_by_freq*/) {
  Dims sizes = to_dims(indices.sizes());
  sizes.push_back(weight.sizes()[1]);
  return weight.index_select(0, indices.reshape(-1)).reshape(as_list(sizes));
}

Tensor embedding_dense_backward(const Tensor& grad_output, const Tensor& indices,
                                int64_t num_weights, int64_t padding_idx, bool scale_grad_by_freq) {
  const int64_t width = grad_output.sizes().back();
  const Tensor index = indices.reshape(-1);
  const Tensor rows = weighted_rows(widened(grad_output).reshape({index.numel(), width}), index,
                                    num_weights, padding_idx, scale_grad_by_freq);
  const Tensor table = mytorch::zeros({num_weights, width}, rows.dtype(), rows.device());
  return table.index_add(0, index, rows).to(grad_output.dtype());
}

}  // namespace composite

namespace grads {

Tensor embedding_dense_double_backward(const Tensor& grad, const Tensor& indices,
                                       int64_t num_weights, int64_t padding_idx,
                                       bool scale_grad_by_freq) {
  const Tensor index = indices.reshape(-1);
  const Tensor rows = weighted_rows(grad.index_select(0, index), index, num_weights, padding_idx,
                                    scale_grad_by_freq);
  Dims sizes = to_dims(indices.sizes());
  sizes.push_back(grad.sizes()[1]);
  return rows.reshape(as_list(sizes));
}

}  // namespace grads
}  // namespace mytorch
