// The iteration space of a call for any number of operands: dimensions ordered by the strides of
// the first operands, and collapsed if every operand allows it.
#pragma once

#include <cstdint>
#include <span>
#include <utility>

#include "backends/cuda/programs/kernels.h"
#include "mytorch/backend/iterate.h"

namespace mytorch::cuda {

class Loop {
 public:
  enum class Order { kMemory, kShape };
  static constexpr int kMaxOperands = 26;  // 24 of a call, and two that tile() adds

  Loop() {}  // NOLINT: the arrays stay uninitialized

  // `strides[k]` holds the strides of operand k, in elements.
  Loop(std::span<const int64_t> shape, const int64_t (*strides)[sdk::kMaxDims], int operands,
       Order order) {
    int by[sdk::kMaxDims];
    int kept = 0;
    for (int d = 0; d < static_cast<int>(shape.size()); ++d) {
      numel_ *= shape[static_cast<size_t>(d)];
      if (shape[static_cast<size_t>(d)] != 1) by[kept++] = d;
    }
    if (order == Order::kMemory) {
      for (int i = 1; i < kept; ++i) {
        for (int j = i; j > 0 && outside(strides, operands, by[j], by[j - 1]); --j) {
          std::swap(by[j], by[j - 1]);
        }
      }
    }
    for (int i = kept; i-- > 0;) {
      const int d = by[i];
      const int64_t size = shape[static_cast<size_t>(d)];
      bool joins = ndim_ > 0;
      for (int k = 0; joins && k < operands; ++k) {
        joins = strides[k][d] == strides_[k][ndim_ - 1] * size_[ndim_ - 1];
      }
      if (joins) {
        size_[ndim_ - 1] *= size;
        continue;
      }
      size_[ndim_] = size;
      for (int k = 0; k < operands; ++k) strides_[k][ndim_] = strides[k][d];
      ++ndim_;
    }
    if (ndim_ == 0) {
      ndim_ = 1;
      size_[0] = 1;
      for (int k = 0; k < operands; ++k) strides_[k][0] = 0;
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
  static bool outside(const int64_t (*strides)[sdk::kMaxDims], int operands, int a, int b) {
    for (int k = 0; k < operands; ++k) {
      const int64_t x = strides[k][a] < 0 ? -strides[k][a] : strides[k][a];
      const int64_t y = strides[k][b] < 0 ? -strides[k][b] : strides[k][b];
      if (x != 0 && y != 0 && x != y) return x > y;
    }
    return false;
  }

  int64_t numel_ = 1;
  int ndim_ = 0;
  int64_t size_[sdk::kMaxDims];
  int64_t strides_[kMaxOperands][sdk::kMaxDims];
};

}  // namespace mytorch::cuda
