// Strided iteration: the only code that collapses dimensions, iterates over the remaining ones, and
// determines the reduced dimensions.
//
//   StridedLoop   the plan: operands of one shape, with as few dimensions as their strides allow
//   StridedCursor a position in a plan
//   Lines         a plan over the lines along one dimension
//   reduced_dims, select_dims   the reduced dimensions of a call, and how to split a shape by them
//
// On the host:
//
//   const auto loop = sdk::make_loop<2>(out.shape(), {out, in});  // `in` broadcasts to out's shape
//   loop.for_each_run(begin, end, [&](const std::array<int64_t, 2>& at, int64_t count) {
//     // element i of the run: out.data<T>()[at[0] + i * loop.inner_stride(0)]
//   });
//
// On a device: a plan is trivially copyable, so a kernel takes it by value. StridedLoop<N,
// 16>(loop) keeps only 16 dimensions, which fits the parameters of a kernel; offsets() compiles for
// both sides and gives the element of a linear index:
//
//   __global__ void copy(sdk::StridedLoop<2, 16> loop, float* out, const float* in) {
//     int64_t at[2];
//     loop.offsets(blockIdx.x * int64_t{blockDim.x} + threadIdx.x, at);
//     out[at[0]] = in[at[1]];
//   }
//
// For a number of operands that is known only at run time, StridedLoop<kMost> is
// default-constructed and given its operands by collapse():
//
//   StridedLoop<kMost> loop;
//   loop.collapse(shape, std::span(pointers_to_strides, count));
//
// Reductions split the shape first and build one plan of the kept dimensions and one of the
// reduced:
//
//   const uint64_t reduced = sdk::reduced_dims(args, program.dim_field, program.dim_offset, ndim);
//   const int n = sdk::select_dims(reduced, shape, reduced_shape);
//   sdk::select_dims(reduced, strides, reduced_strides);
//   sdk::select_dims(~reduced, shape, kept_shape);
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "mytorch/backend/error.h"
#include "mytorch/backend/sizes.h"
#include "mytorch/backend/tensor.h"

namespace mytorch::sdk {
inline namespace v1 {

// ---- shapes ----

inline constexpr int kMaxDims = 64;

inline void check_ndim(size_t ndim) {
  if (ndim > kMaxDims) {
    throw Error(MT_ERROR_UNSUPPORTED, "tensors of " + std::to_string(ndim) +
                                          " dimensions; at most " + std::to_string(kMaxDims) +
                                          " are supported");
  }
}

// Returns `dim` counted from the front; negative dimensions count from the end. A 0-dim tensor has
// one dimension here. Throws Error(MT_ERROR_VALUE) if there is no such dimension.
inline int wrap_dim(int64_t dim, int ndim) {
  const int64_t size = std::max(ndim, 1);
  const int64_t wrapped = dim < 0 ? dim + size : dim;
  if (wrapped < 0 || wrapped >= size) {
    throw Error(MT_ERROR_VALUE, "dimension " + std::to_string(dim) + " is out of range for " +
                                    std::to_string(ndim) + " dimensions");
  }
  return static_cast<int>(wrapped);
}

// Writes the strides that read `tensor` as if it had `shape`, to which it broadcasts: shapes align
// at the right, and repeated dimensions get stride 0. `strides` has room for shape.size().
inline void broadcast_strides(const TensorView& tensor, std::span<const int64_t> shape,
                              int64_t* strides) {
  const int ndim = static_cast<int>(shape.size());
  const int missing = ndim - tensor.ndim();
  for (int d = 0; d < ndim; ++d) {
    const bool repeats = d < missing || (tensor.size(d - missing) == 1 && shape[d] != 1);
    strides[d] = repeats ? 0 : tensor.stride(d - missing);
  }
}

// Returns the shape to which all tensors broadcast. The frontend has checked that they do.
inline std::vector<int64_t> broadcast_shape(std::span<const TensorView> tensors) {
  std::vector<int64_t> shape;
  for (const TensorView& tensor : tensors) {
    const size_t ndim = static_cast<size_t>(tensor.ndim());
    if (shape.size() < ndim) shape.insert(shape.begin(), ndim - shape.size(), 1);
    for (size_t d = 0; d < ndim; ++d) {
      int64_t& size = shape[shape.size() - ndim + d];
      if (size == 1) size = tensor.size(static_cast<int>(d));
    }
  }
  check_ndim(shape.size());
  return shape;
}

// ---- reduced dimensions ----

// Returns the dimensions that a reduction reduces, one bit each. `dim_field` (MT_DIM_*) and
// `dim_offset` locate the `dim` in the argument struct. All dimensions are reduced if the list is
// absent or empty, if the optional dimension is absent, or if the input is 0-dim.
inline uint64_t reduced_dims(const void* args, int32_t dim_field, uint32_t dim_offset, int ndim) {
  constexpr uint64_t kAll = ~uint64_t{0};
  const auto bit = [&](int64_t dim) { return uint64_t{1} << wrap_dim(dim, ndim); };
  check_ndim(static_cast<size_t>(ndim));
  switch (dim_field) {
    case MT_DIM_LIST: {
      const auto list = field_at<mt_int_list>(args, dim_offset);
      if (list.data == nullptr || list.size == 0) return kAll;
      uint64_t dims = 0;
      for (int64_t i = 0; i < list.size; ++i) dims |= bit(list.data[i]);
      return dims;
    }
    case MT_DIM_INT:
      return bit(field_at<int64_t>(args, dim_offset));
    case MT_DIM_OPTIONAL_INT: {
      const auto dim = field_at<mt_optional_int>(args, dim_offset);
      return dim.present != 0 ? bit(dim.value) : kAll;
    }
    default:
      return kAll;
  }
}

inline bool has_dim(uint64_t dims, int dim) { return (dims >> dim & 1) != 0; }

// Copies the `values`, one for each dimension, whose bit in `dims` is set. Returns their number.
inline int select_dims(uint64_t dims, std::span<const int64_t> values, int64_t* to) {
  int count = 0;
  for (int d = 0; d < static_cast<int>(values.size()); ++d) {
    if (has_dim(dims, d)) to[count++] = values[static_cast<size_t>(d)];
  }
  return count;
}

// ---- the plan ----

// The order of a loop's elements: that of the shape (a linear index is then the logical row-major
// index), or that of memory, which the first operands determine.
enum class Order { kRowMajor, kMemory };

// A loop over at most N operands of one shape. Dimensions of size 1 are dropped, and adjacent
// dimensions that can be merged in every operand are merged; at least one dimension and at most
// kDims remain. Strides have the unit in which they are given: elements, or bytes after scale().
template <int N, int kDims = kMaxDims>
class StridedLoop {
 public:
  // Uninitialized until collapse() or set_line().
  StridedLoop() {}  // NOLINT: clearing the arrays would cost more than small loops

  // `strides[k]` points at shape.size() strides of operand k.
  StridedLoop(std::span<const int64_t> shape, const std::array<const int64_t*, N>& strides,
              Order order = Order::kMemory) {
    collapse(shape, strides, order);
  }
  // The same plan with space for fewer dimensions. Throws Error(MT_ERROR_UNSUPPORTED) if it has
  // more.
  template <int kOtherDims>
  explicit StridedLoop(const StridedLoop<N, kOtherDims>& other) {
    if (other.ndim() > kDims) throw_too_many();
    numel_ = other.numel();
    ndim_ = other.ndim();
    operands_ = other.operands();
    for (int d = 0; d < ndim_; ++d) {
      shape_[d] = other.size(d);
      for (int k = 0; k < operands_; ++k) strides_[k][d] = other.stride(k, d);
    }
  }

  void collapse(std::span<const int64_t> shape, std::span<const int64_t* const> strides,
                Order order = Order::kMemory) {
    check_ndim(shape.size());
    operands_ = static_cast<int>(strides.size());
    numel_ = 1;
    int kept[kMaxDims];  // the dimensions that are not of size 1, outermost first
    int num_kept = 0;
    for (int d = 0; d < static_cast<int>(shape.size()); ++d) {
      numel_ = wrapping_mul(numel_, shape[d]);
      if (shape[d] != 1) kept[num_kept++] = d;
    }
    if (order == Order::kMemory) sort_by_memory(strides, kept, num_kept);
    ndim_ = 0;
    for (int i = 0; i < num_kept; ++i) append(shape[kept[i]], strides, kept[i]);
    if (ndim_ > 0) return;
    set_line(1);
    for (int k = 0; k < operands_; ++k) strides_[k][0] = 0;
  }

  // Makes the loop a line of `n` elements. Call set_stride() next, for each operand.
  void set_line(int64_t n, int operands = N) {
    operands_ = operands;
    ndim_ = 1;
    numel_ = n;
    shape_[0] = n;
  }
  void set_stride(int operand, int dim, int64_t stride) { strides_[operand][dim] = stride; }
  // Multiplies an operand's strides, for example by its itemsize, for strides in bytes.
  void scale(int operand, int64_t factor) {
    for (int d = 0; d < ndim_; ++d) {
      strides_[operand][d] = wrapping_mul(strides_[operand][d], factor);
    }
  }

  MYTORCH_HOST_DEVICE int operands() const { return operands_; }
  MYTORCH_HOST_DEVICE int64_t numel() const { return numel_; }
  MYTORCH_HOST_DEVICE int ndim() const { return ndim_; }  // at least 1
  MYTORCH_HOST_DEVICE int64_t size(int dim) const { return shape_[dim]; }
  MYTORCH_HOST_DEVICE int64_t stride(int operand, int dim) const { return strides_[operand][dim]; }
  MYTORCH_HOST_DEVICE int64_t inner_size() const { return shape_[ndim_ - 1]; }
  MYTORCH_HOST_DEVICE int64_t inner_stride(int operand) const {
    return strides_[operand][ndim_ - 1];
  }
  std::span<const int64_t> shape() const { return {shape_, static_cast<size_t>(ndim_)}; }

  // Returns whether the operand is contiguous in the loop's order. `unit` is the itemsize if
  // strides are in bytes.
  bool is_contiguous(int operand, int64_t unit = 1) const {
    if (numel_ == 1) return true;
    int64_t expected = unit;
    for (int d = ndim_ - 1; d >= 0; --d) {
      if (strides_[operand][d] != expected) return false;
      expected = wrapping_mul(expected, shape_[d]);
    }
    return true;
  }

  // Stores the offset of each operand's element of linear index `index`.
  MYTORCH_HOST_DEVICE void offsets(int64_t index, int64_t (&at)[N]) const {
    for (int k = 0; k < N; ++k) at[k] = 0;
    for (int d = ndim_ - 1; d >= 0; --d) {
      const int64_t outer = d == 0 ? 0 : index / shape_[d];
      const int64_t i = index - outer * shape_[d];
      for (int k = 0; k < N; ++k) at[k] += i * strides_[k][d];
      index = outer;
    }
  }

  // Calls f(offsets, count) for the runs along the innermost dimension that cover the linear
  // indices [begin, end). `offsets`, a std::array<int64_t, N>, has the offset of each operand's
  // first element; element i of operand k is at offsets[k] + i * inner_stride(k). All N operands
  // must be given.
  template <class F>
  void for_each_run(int64_t begin, int64_t end, F&& f) const;

  // Calls f(offsets) for each element, in order.
  template <class F>
  void for_each(F&& f) const {
    for_each_run(0, numel_, [&](std::array<int64_t, N> offsets, int64_t count) {
      for (int64_t i = 0; i < count; ++i) {
        f(static_cast<const std::array<int64_t, N>&>(offsets));
        for (int k = 0; k < N; ++k) offsets[k] += inner_stride(k);
      }
    });
  }

 private:
  [[noreturn]] static void throw_too_many() {
    throw Error(MT_ERROR_UNSUPPORTED, "strides of more than " + std::to_string(kDims) +
                                          " dimensions that cannot be merged");
  }

  // An insertion sort, which is stable, and fast because the few dimensions are mostly in order.
  static void sort_by_memory(std::span<const int64_t* const> strides, int* dims, int n) {
    for (int i = 1; i < n; ++i) {
      for (int j = i; j > 0 && is_outside(strides, dims[j], dims[j - 1]); --j) {
        std::swap(dims[j], dims[j - 1]);
      }
    }
  }
  // Returns whether dimension a lies outside of b. If a stride is 0, the next operand decides.
  static bool is_outside(std::span<const int64_t* const> strides, int a, int b) {
    for (const int64_t* of : strides) {
      const int64_t x = of[a] < 0 ? -of[a] : of[a];
      const int64_t y = of[b] < 0 ? -of[b] : of[b];
      if (x != 0 && y != 0 && x != y) return x > y;
    }
    return false;
  }

  // Adds an inner dimension, merged with the previous one if every operand allows it.
  void append(int64_t size, std::span<const int64_t* const> strides, int from) {
    bool merges = ndim_ > 0;
    for (size_t k = 0; merges && k < strides.size(); ++k) {
      merges = strides_[k][ndim_ - 1] == wrapping_mul(strides[k][from], size);
    }
    if (!merges) {
      if (ndim_ == kDims) throw_too_many();
      shape_[ndim_++] = 1;
    }
    shape_[ndim_ - 1] = wrapping_mul(shape_[ndim_ - 1], size);
    for (size_t k = 0; k < strides.size(); ++k) strides_[k][ndim_ - 1] = strides[k][from];
  }

  int64_t numel_;
  int32_t ndim_;
  int32_t operands_;
  int64_t shape_[kDims];
  int64_t strides_[N][kDims];
};

// ---- the cursor ----

// A position in a loop, with the offsets of operands [first, last).
template <int N, int kDims = kMaxDims>
class StridedCursor {
 public:
  using Loop = StridedLoop<N, kDims>;

  explicit StridedCursor(const Loop& loop, int64_t index = 0)
      : StridedCursor(loop, 0, loop.operands(), index) {}
  StridedCursor(const Loop& loop, int first, int last, int64_t index = 0)
      : loop_(loop), first_(first), last_(last) {
    seek(index);
  }

  int64_t offset(int operand) const { return offset_[static_cast<size_t>(operand)]; }
  const std::array<int64_t, N>& offsets() const { return offset_; }
  // Returns the number of elements left in the current row, including this one.
  int64_t left() const { return loop_.inner_size() - index_[loop_.ndim() - 1]; }
  // Returns the number of rows left at the stride of the second-to-last dimension; 0 in the middle
  // of a row.
  int64_t rows_left() const {
    const int d = loop_.ndim() - 2;
    return d < 0 || index_[d + 1] != 0 ? 0 : loop_.size(d) - index_[d];
  }

  void seek(int64_t index) {
    for (int k = first_; k < last_; ++k) offset_[static_cast<size_t>(k)] = 0;
    for (int d = loop_.ndim() - 1; d >= 0; --d) {
      const int64_t size = loop_.size(d);
      index_[d] = index % size;
      index /= size;
      for (int k = first_; k < last_; ++k) {
        offset_[static_cast<size_t>(k)] += index_[d] * loop_.stride(k, d);
      }
    }
  }
  void next() { advance(1); }
  void advance(int64_t n) { move(loop_.ndim() - 1, n); }             // n <= left()
  void advance_rows(int64_t rows) { move(loop_.ndim() - 2, rows); }  // rows <= rows_left()

 private:
  void move(int d, int64_t n) {
    index_[d] += n;
    for (int k = first_; k < last_; ++k) {
      offset_[static_cast<size_t>(k)] += n * loop_.stride(k, d);
    }
    while (index_[d] == loop_.size(d) && d > 0) {
      for (int k = first_; k < last_; ++k) {
        offset_[static_cast<size_t>(k)] += loop_.stride(k, d - 1) - index_[d] * loop_.stride(k, d);
      }
      index_[d] = 0;
      ++index_[--d];
    }
  }

  const Loop& loop_;
  const int first_, last_;
  int64_t index_[kDims];
  std::array<int64_t, N> offset_;
};

template <int N, int kDims>
template <class F>
void StridedLoop<N, kDims>::for_each_run(int64_t begin, int64_t end, F&& f) const {
  if (begin >= end) return;
  StridedCursor<N, kDims> cursor(*this, 0, N, begin);
  for (;;) {
    const int64_t count = std::min(cursor.left(), end - begin);
    f(cursor.offsets(), count);
    begin += count;
    if (begin >= end) return;
    cursor.advance(count);
  }
}

// Returns a loop over operands that all broadcast to `shape`.
template <int N>
StridedLoop<N> make_loop(std::span<const int64_t> shape, const std::array<TensorView, N>& operands,
                         Order order = Order::kMemory) {
  check_ndim(shape.size());
  int64_t strides[N][kMaxDims];
  std::array<const int64_t*, N> pointers;
  for (int k = 0; k < N; ++k) {
    broadcast_strides(operands[k], shape, strides[k]);
    pointers[k] = strides[k];
  }
  return StridedLoop<N>(shape, pointers, order);
}

// ---- lines ----

// The lines of operands along one dimension. A 0-dim operand is a line of one element.
template <int N>
struct Lines {
  StridedLoop<N> loop;          // over the first elements of the lines
  std::array<int64_t, N> step;  // between adjacent elements of a line
  std::array<int64_t, N> size;  // of a line

  int64_t count() const { return loop.numel(); }
};

// Returns the lines along `dim` of operands that have equal sizes in every other dimension.
template <int N>
Lines<N> make_lines(const std::array<TensorView, N>& operands, int64_t dim,
                    Order order = Order::kMemory) {
  const int ndim = operands[0].ndim();
  check_ndim(static_cast<size_t>(ndim));
  std::array<int64_t, N> step{};
  std::array<int64_t, N> size;
  size.fill(1);
  uint64_t others = ~uint64_t{0};
  if (ndim > 0) {
    const int along = wrap_dim(dim, ndim);
    others &= ~(uint64_t{1} << along);
    for (size_t k = 0; k < N; ++k) {
      if (operands[k].ndim() == 0) continue;
      step[k] = operands[k].stride(along);
      size[k] = operands[k].size(along);
    }
  }
  int64_t shape[kMaxDims];
  int64_t strides[N][kMaxDims];
  std::array<const int64_t*, N> pointers;
  const int kept = select_dims(others, operands[0].shape(), shape);
  for (size_t k = 0; k < N; ++k) {
    select_dims(others, operands[k].strides(), strides[k]);
    pointers[k] = strides[k];
  }
  return {StridedLoop<N>({shape, static_cast<size_t>(kept)}, pointers, order), step, size};
}

}  // namespace v1
}  // namespace mytorch::sdk
