// The iteration space of a call: dimensions joined where every operand allows it, in the order in
// which the first operand lies in memory.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "mytorch/backend/iterate.h"
#include "mytorch/backend/tensor.h"

namespace mytorch::cpu {

inline constexpr int kMaxOperands = 16;

class Loop {
 public:
  Loop() {}  // NOLINT: the arrays stay uninitialized

  // A line of `n` elements; strides in bytes follow by set_stride.
  void set_line(int64_t n) {
    ndim_ = 1;
    numel_ = n;
    shape_[0] = n;
  }
  void set_stride(int operand, int64_t bytes) { strides_[operand][0] = bytes; }

  // Operands broadcast to `shape`; strides in bytes. The first operands decide the order.
  void build(std::span<const int64_t> shape, std::span<const sdk::TensorView> operands) {
    sdk::check_ndim(shape.size());
    int64_t strides[kMaxOperands][sdk::kMaxDims];
    for (size_t k = 0; k < operands.size(); ++k) {
      sdk::broadcast_strides(operands[k], shape, strides[k]);
      for (size_t d = 0; d < shape.size(); ++d) strides[k][d] *= operands[k].itemsize();
    }
    build(shape, strides, static_cast<int>(operands.size()), true);
  }

  // With strides in bytes given. `reorder`: in the order of memory instead of the shape's.
  void build(std::span<const int64_t> shape, const int64_t (*strides)[sdk::kMaxDims], int operands,
             bool reorder) {
    ndim_ = 0;
    numel_ = 1;
    int by[sdk::kMaxDims];
    int kept = 0;
    for (int d = 0; d < static_cast<int>(shape.size()); ++d) {
      numel_ *= shape[d];
      if (shape[d] != 1) by[kept++] = d;
    }
    if (reorder) {
      for (int i = 1; i < kept; ++i) {
        for (int j = i; j > 0 && outside(strides, operands, by[j], by[j - 1]); --j) {
          std::swap(by[j], by[j - 1]);
        }
      }
    }
    for (int i = 0; i < kept; ++i) {
      const int d = by[i];
      bool joins = ndim_ > 0;
      for (int k = 0; joins && k < operands; ++k) {
        joins = strides_[k][ndim_ - 1] == strides[k][d] * shape[d];
      }
      if (!joins) shape_[ndim_++] = 1;
      shape_[ndim_ - 1] *= shape[d];
      for (int k = 0; k < operands; ++k) strides_[k][ndim_ - 1] = strides[k][d];
    }
    if (ndim_ == 0) {
      set_line(1);
      for (int k = 0; k < operands; ++k) strides_[k][0] = 0;
    }
  }

  int ndim() const { return ndim_; }  // at least 1
  int64_t numel() const { return numel_; }
  int64_t size(int dim) const { return shape_[dim]; }
  int64_t stride(int operand, int dim) const { return strides_[operand][dim]; }
  int64_t inner_size() const { return shape_[ndim_ - 1]; }
  int64_t inner_stride(int operand) const { return strides_[operand][ndim_ - 1]; }

  // Whether the operand's elements lie one after the other in the loop's order.
  bool is_contiguous(int operand, int64_t itemsize) const {
    int64_t expected = itemsize;
    for (int d = ndim_ - 1; d >= 0; --d) {
      if (strides_[operand][d] != expected) return false;
      expected *= shape_[d];
    }
    return true;
  }

 private:
  // Whether dimension a lies outside of b in memory; a stride of 0 says nothing.
  static bool outside(const int64_t (*strides)[sdk::kMaxDims], int operands, int a, int b) {
    for (int k = 0; k < operands; ++k) {
      const int64_t x = strides[k][a] < 0 ? -strides[k][a] : strides[k][a];
      const int64_t y = strides[k][b] < 0 ? -strides[k][b] : strides[k][b];
      if (x != 0 && y != 0 && x != y) return x > y;
    }
    return false;
  }

  int ndim_ = 0;
  int64_t numel_ = 1;
  std::array<int64_t, sdk::kMaxDims> shape_;
  std::array<std::array<int64_t, sdk::kMaxDims>, kMaxOperands> strides_;
};

// A position in a loop, moved along a row or by whole rows; keeps the byte offsets of operands
// [first, last).
class Cursor {
 public:
  Cursor(const Loop& loop, int operands, int64_t begin) : Cursor(loop, 0, operands, begin) {}
  Cursor(const Loop& loop, int first, int last, int64_t begin)
      : loop_(loop), first_(first), last_(last) {
    for (int k = first; k < last; ++k) offset_[k] = 0;
    for (int d = loop.ndim() - 1; d >= 0; --d) {
      index_[d] = begin % loop.size(d);
      begin /= loop.size(d);
      for (int k = first; k < last; ++k) offset_[k] += index_[d] * loop.stride(k, d);
    }
  }

  int64_t offset(int operand) const { return offset_[operand]; }
  // How many elements are left of the row.
  int64_t left() const { return loop_.inner_size() - index_[loop_.ndim() - 1]; }
  // How many rows lie at the stride of the last dimension but one; 0 in the middle of a row.
  int64_t rows_left() const {
    const int d = loop_.ndim() - 2;
    return d < 0 || index_[d + 1] != 0 ? 0 : loop_.size(d) - index_[d];
  }
  void advance(int64_t n) { move(loop_.ndim() - 1, n); }             // n <= left()
  void advance_rows(int64_t rows) { move(loop_.ndim() - 2, rows); }  // rows <= rows_left()

 private:
  void move(int d, int64_t n) {
    index_[d] += n;
    for (int k = first_; k < last_; ++k) offset_[k] += n * loop_.stride(k, d);
    while (index_[d] == loop_.size(d) && d > 0) {
      for (int k = first_; k < last_; ++k) {
        offset_[k] += loop_.stride(k, d - 1) - index_[d] * loop_.stride(k, d);
      }
      index_[d] = 0;
      ++index_[--d];
    }
  }

  const Loop& loop_;
  int first_, last_;
  int64_t index_[sdk::kMaxDims];
  int64_t offset_[kMaxOperands];
};

}  // namespace mytorch::cpu
