// The operands of scatter and scatter_add: with at least one dimension, and with a source that does
// not alias the output.
#pragma once

#include <cstdint>
#include <optional>

#include "backends/cuda/common/move.h"
#include "backends/cuda/runtime/sdk.h"

namespace mytorch::cuda {

class ScatterOperands {
 public:
  ScatterOperands(mt_ctx& ctx, int64_t dim, const mt_tensor* index, const mt_tensor* src,
                  const mt_tensor* self, const mt_tensor* out)
      : tensors_{*index, *src, *self, *out} {
    const sdk::TensorView source = src;
    if (source.numel() != 0 && source.raw() == sdk::TensorView(out).raw()) {
      copy_.emplace(ctx, source, source.dtype());
      move(ctx, source, copy_->view());
      tensors_[1] = *copy_->view().get();
    }
    static int64_t one = 1, none = 0;
    for (mt_tensor& tensor : tensors_) {
      if (tensor.dl.ndim != 0) continue;  // a 0-dim tensor becomes one element
      tensor.dl.ndim = 1;
      tensor.dl.shape = &one;
      tensor.dl.strides = &none;
    }
    dim_ = sdk::wrap_dim(dim, this->out().ndim());
  }
  ScatterOperands(const ScatterOperands&) = delete;

  int dim() const { return dim_; }
  sdk::TensorView index() const { return &tensors_[0]; }
  sdk::TensorView src() const { return &tensors_[1]; }
  sdk::TensorView self() const { return &tensors_[2]; }
  sdk::TensorView out() const { return &tensors_[3]; }

 private:
  std::optional<ContiguousScratch> copy_;
  mt_tensor tensors_[4];
  int dim_;
};

}  // namespace mytorch::cuda
