// Views of the matrices of an operand.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

#include "backends/cuda/runtime/sdk.h"

namespace mytorch::cuda {

// A view with its own sizes and strides.
class MatrixView {
 public:
  explicit MatrixView(const sdk::TensorView& x) : tensor_(*x.get()) {
    sdk::check_ndim(static_cast<size_t>(x.ndim()));
    std::copy_n(x.shape().begin(), x.ndim(), shape_);
    std::copy_n(x.strides().begin(), x.ndim(), strides_);
    tensor_.dl.shape = shape_;
    tensor_.dl.strides = strides_;
    tensor_.flags = 0;
  }
  MatrixView(const MatrixView&) = delete;
  sdk::TensorView view() const { return &tensor_; }

 protected:
  mt_tensor tensor_;
  int64_t shape_[sdk::kMaxDims], strides_[sdk::kMaxDims];
};

class Transposed : public MatrixView {
 public:
  explicit Transposed(const sdk::TensorView& x) : MatrixView(x) {
    std::swap(shape_[x.ndim() - 2], shape_[x.ndim() - 1]);
    std::swap(strides_[x.ndim() - 2], strides_[x.ndim() - 1]);
  }
};

// The first columns.
class Narrowed : public MatrixView {
 public:
  Narrowed(const sdk::TensorView& x, int64_t columns) : MatrixView(x) {
    shape_[x.ndim() - 1] = columns;
  }
};

}  // namespace mytorch::cuda
