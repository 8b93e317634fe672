#include "core/types/errors.h"
#include "mytorch/grad_mode.h"
#include "mytorch/nn/data/dataset.h"
#include "nn/data/gather.h"

namespace mytorch::nn::data {
namespace {

// Returns the tensor detached and contiguous, so that each row is one block of memory.
Tensor rows_of(const Tensor& tensor) {
  NoGradGuard no_grad;
  if (!tensor.is_contiguous()) return tensor.contiguous();
  return Tensor::adopt(new_alias(tensor.impl()));
}

Tensor row(const Tensor& tensor, int64_t index) {
  const IntList sizes = tensor.sizes();
  const IntList strides = tensor.strides();
  return Tensor::adopt(new_view(tensor.impl(), {sizes.data() + 1, sizes.size() - 1},
                                {strides.data() + 1, strides.size() - 1}, index * strides[0]));
}

void check_has_rows(const Tensor& tensor, const char* name) {
  if (tensor.dim() == 0) {
    fail(ErrorCode::kShape, "[TensorDataset] ", name,
         " is 0-dim: its first dimension must be the number of examples");
  }
}

}  // namespace

TensorDataset::TensorDataset(Tensor data, Tensor target) {
  check_has_rows(data, "data");
  if (target.defined()) {
    check_has_rows(target, "target");
    if (data.size(0) != target.size(0)) {
      fail(ErrorCode::kShape, "[TensorDataset] data ", shape_str(data.sizes()), " and target ",
           shape_str(target.sizes()), ": the first sizes ", data.size(0), " and ", target.size(0),
           " differ; each must be the number of examples");
    }
    target_ = rows_of(target);
  }
  data_ = rows_of(data);
}

int64_t TensorDataset::size() const { return data_.size(0); }

Example TensorDataset::get(int64_t index) const {
  check_index("TensorDataset", index, size());
  return {row(data_, index), target_.defined() ? row(target_, index) : Tensor()};
}

Batch TensorDataset::get_batch(IntList indices) const {
  check_indices("TensorDataset", indices, size());
  return {gather_rows(data_, indices),
          target_.defined() ? gather_rows(target_, indices) : Tensor()};
}

}  // namespace mytorch::nn::data
