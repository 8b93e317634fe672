// The strided loop of a generated kernel, for any number of operands: the SDK's plan, innermost
// dimension first, and its transformations into runs and tiles.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <utility>

#include "backends/cuda/programs/kernels.h"
#include "mytorch/backend/iterate.h"

namespace mytorch::cuda {

class Loop {
 public:
  static constexpr int kMaxOperands = 26;  // 24 of a call, and two that tile() adds

  Loop() {}  // NOLINT: the arrays stay uninitialized

  // `strides[k]` holds the strides of operand k, in elements.
  Loop(std::span<const int64_t> shape, const int64_t (*strides)[sdk::kMaxDims], int operands,
       sdk::Order order) {
    std::array<const int64_t*, kMaxOperands> pointers;
    for (int k = 0; k < operands; ++k) pointers[static_cast<size_t>(k)] = strides[k];
    sdk::StridedLoop<kMaxOperands> plan;
    plan.collapse(shape, {pointers.data(), static_cast<size_t>(operands)}, order);
    numel_ = plan.numel();
    ndim_ = plan.ndim();
    for (int d = 0; d < ndim_; ++d) {
      size_[d] = plan.size(ndim_ - 1 - d);
      for (int k = 0; k < operands; ++k) strides_[k][d] = plan.stride(k, ndim_ - 1 - d);
    }
  }

  int64_t numel() const { return numel_; }
  int ndim() const { return ndim_; }  // at least 1
  // Sizes and strides, innermost dimension first.
  int64_t size(int dim) const { return size_[dim]; }
  int64_t stride(int operand, int dim) const { return strides_[operand][dim]; }

  // Whether `operand` can be accessed in aligned runs of `width` elements along the innermost
  // dimension: it is contiguous or repeats there, and its other strides are multiples of the width.
  bool packs(int operand, int width) const {
    if (size_[0] % width != 0) return false;
    if (stride(operand, 0) == 0) return true;
    if (stride(operand, 0) != 1) return false;
    for (int d = 1; d < ndim_; ++d) {
      if (stride(operand, d) % width != 0) return false;
    }
    return true;
  }
  // Makes each run one element of the loop.
  void pack(int width, int operands) {
    size_[0] /= width;
    numel_ /= width;
    for (int k = 0; k < operands; ++k) strides_[k][0] *= width;
  }

  // Moves dimension `dim` next to the innermost dimension.
  void bring(int dim, int operands) {
    for (; dim > 1; --dim) {
      std::swap(size_[dim], size_[dim - 1]);
      for (int k = 0; k < operands; ++k) std::swap(strides_[k][dim], strides_[k][dim - 1]);
    }
  }
  // Makes each square tile of the two innermost dimensions one element of the loop. Adds two
  // operands, whose offsets are the coordinates of the tile.
  void tile(int side, int operands) {
    for (int d = 0; d < ndim_; ++d) {
      strides_[operands][d] = d == 0;
      strides_[operands + 1][d] = d == 1;
    }
    numel_ = 1;
    for (int d = 0; d < ndim_; ++d) {
      if (d < 2) {
        size_[d] = (size_[d] + side - 1) / side;
        for (int k = 0; k < operands + 2; ++k) strides_[k][d] *= side;
      }
      numel_ *= size_[d];
    }
  }

  // Writes the prelude's Strided<operands.size(), dims(), wide()>; an operand of -1 has stride 0.
  void write(Params& params, std::span<const int> operands) const {
    write(params, operands, dims());
  }
  void write(Params& params, std::span<const int> operands, int dims) const {
    for (int d = 0; d < dims; ++d) params.divisor(d < ndim_ ? size_[d] : 1);
    for (int d = 0; d < dims; ++d) {
      for (const int k : operands) params.number(k >= 0 && d < ndim_ ? strides_[k][d] : 0);
    }
  }
  // The number of dimensions for which a kernel is compiled.
  int dims() const { return ndim_ <= 2 ? ndim_ : ndim_ <= 4 ? 4 : ndim_ <= 8 ? 8 : 32; }
  bool wide() const { return numel_ > INT32_MAX; }

 private:
  int64_t numel_ = 1;
  int ndim_ = 0;
  int64_t size_[sdk::kMaxDims];
  int64_t strides_[kMaxOperands][sdk::kMaxDims];
};

}  // namespace mytorch::cuda
