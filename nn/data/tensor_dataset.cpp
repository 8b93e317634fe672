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

}  // namespace

TensorDataset::TensorDataset(std::vector<Tensor> tensors) {
  if (tensors.size() == 2 && !tensors[1].defined()) tensors.pop_back();
  if (tensors.empty()) fail(ErrorCode::kValue, "[TensorDataset] there are no tensors: give one");
  for (size_t i = 0; i < tensors.size(); ++i) {
    const std::string name = i == 0 ? "data" : i == 1 ? "target" : absl::StrCat("tensor ", i);
    if (tensors[i].dim() == 0) {
      fail(ErrorCode::kShape, "[TensorDataset] ", name,
           " is 0-dim: its first dimension must be the number of examples");
    }
    if (tensors[i].size(0) != tensors[0].size(0)) {
      fail(ErrorCode::kShape, "[TensorDataset] data ", shape_str(tensors[0].sizes()), " and ", name,
           " ", shape_str(tensors[i].sizes()), ": the first sizes ", tensors[0].size(0), " and ",
           tensors[i].size(0), " differ; each must be the number of examples");
    }
    tensors_.push_back(rows_of(tensors[i]));
  }
}

int64_t TensorDataset::size() const { return tensors_[0].size(0); }

Example TensorDataset::get(int64_t index) const {
  check_index("TensorDataset", index, size());
  std::vector<Tensor> rows;
  for (const Tensor& tensor : tensors_) rows.push_back(row(tensor, index));
  return from_tensors<Example>(std::move(rows));
}

Batch TensorDataset::get_batch(IntList indices) const {
  check_indices("TensorDataset", indices, size());
  std::vector<Tensor> rows;
  for (const Tensor& tensor : tensors_) rows.push_back(gather_rows(tensor, indices));
  return from_tensors<Batch>(std::move(rows));
}

}  // namespace mytorch::nn::data
