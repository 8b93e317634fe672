// Operands of factorizations: batches of matrices, as our kernels index them and as libraries take
// them.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <type_traits>

#include "backends/cuda/common/move.h"
#include "backends/cuda/common/strided.cuh"
#include "backends/cuda/runtime/faults.h"
#include "backends/cuda/runtime/launch.h"
#include "backends/cuda/runtime/sdk.h"
#include "mytorch/backend/matrices.h"

namespace mytorch::cuda {

// Calls f(sdk::TypeTag<T>{}) with float or double; the host has refused other types.
template <class F>
void visit_matrix_type(mt_dtype dtype, F&& f) {
  if (sdk::is_dtype<float>(dtype)) return f(sdk::TypeTag<float>{});
  f(sdk::TypeTag<double>{});
}

// Complex numbers are float2 and double2, which are cuSOLVER's and cuBLAS's types, too.
template <class T>
inline constexpr bool is_complex_number = std::is_same_v<T, float2> || std::is_same_v<T, double2>;
// The type of the parts of a complex number; a real type itself.
template <class T>
using RealOf = std::conditional_t<std::is_same_v<T, float2>, float,
                                  std::conditional_t<std::is_same_v<T, double2>, double, T>>;
// A real number as one of type T.
template <class T>
inline __host__ __device__ T number(RealOf<T> x) {
  if constexpr (is_complex_number<T>) {
    return {x, 0};
  } else {
    return x;
  }
}
// Calls f as visit_matrix_type does, or with the type of complex numbers.
template <class F>
void visit_any_matrix_type(mt_dtype dtype, F&& f) {
  if (!sdk::is_complex(dtype)) return visit_matrix_type(dtype, f);
  if (dtype.bits == 128) return f(sdk::TypeTag<double2>{});
  f(sdk::TypeTag<float2>{});
}

// The first matrix (..., m, n) of an operand, or with `dims` 1 its first vector (..., n), which is
// a column, or with 0 its first number. Strides are in elements.
template <class T>
struct FirstMatrix {
  T* data = nullptr;
  int64_t row = 0, column = 0;

  FirstMatrix() = default;
  explicit FirstMatrix(const sdk::TensorView& x, int dims = 2) : data(x.data<T>()) {
    if (dims == 2) row = x.stride(-2), column = x.stride(-1);
    if (dims == 1) row = x.stride(-1);
  }
  FirstMatrix transposed() const {
    FirstMatrix other = *this;
    other.row = column, other.column = row;
    return other;
  }
};

// A loop over the matrices of a batch, in row-major order, with their offsets in N operands, which
// broadcast. The last dims[k] dimensions of operand k are the matrix.
template <int N>
Strided<N> batch_loop(std::span<const int64_t> batch,
                      const std::array<sdk::TensorView, N>& operands,
                      const std::array<int, N>& dims) {
  std::array<mt_tensor, N> first{};
  std::array<sdk::TensorView, N> views;
  for (size_t k = 0; k < N; ++k) {
    first[k] = *operands[k].get();
    first[k].dl.ndim -= dims[k];
    first[k].flags = 0;
    views[k] = &first[k];
  }
  return make_strided<N>(batch, views, sdk::Order::kRowMajor);
}

// An operand in the memory that a library takes: matrices one after the other, each by columns.
// That is the operand's own memory if it lies so, else scratch memory.
class Columns {
 public:
  // `batch` is that of the result. With `own`, the memory is always scratch.
  Columns(mt_ctx& ctx, const sdk::TensorView& x, std::span<const int64_t> batch, int dims = 2,
          bool own = false);
  Columns(const Columns&) = delete;

  // Copies the operand to the memory, and the memory to the operand, if they differ.
  void load();
  void store();
  // The matrices as a tensor with the shape of the operand.
  sdk::TensorView view() const { return &tensor_; }

  int64_t count() const { return count_; }
  int64_t rows() const { return rows_; }
  int64_t columns() const { return columns_; }
  template <class T>
  T* at(int64_t b) const {
    return view().data<T>() + b * rows_ * columns_;
  }

 private:
  mt_ctx& ctx_;
  sdk::TensorView x_;
  mt_tensor tensor_{};
  int64_t shape_[sdk::kMaxDims], strides_[sdk::kMaxDims];
  int64_t count_ = 1, rows_ = 1, columns_ = 1;
  bool in_place_;
};

// Errors about one matrix, for faults whose `index` and `size` are the number in the message and
// the element of the batch.
struct MatrixFaults {
  Faults faults{};

#ifdef __CUDACC__
  __device__ void note(int64_t number, int64_t b) {
    if (faults.site == 0) return;
    faults.size = b;
    faults.note(number);
  }
#endif
};
// The sites of a message for single matrices and for batches.
struct MatrixSites {
  uint32_t single, batched;

  MatrixSites(const char* op, const char* message);
  MatrixFaults of(const mt_ctx& ctx, const sdk::TensorView& x) const {
    return {{fault_of(ctx), x.ndim() > 2 ? batched : single, 0, 0}};
  }
};

// The messages, with the number in braces.
inline constexpr const char* kNotPositive =
    "the factorization could not be completed because the input is not positive-definite (the "
    "leading minor of order {index} is not positive)";
inline constexpr const char* kSingular =
    "U[{index}, {index}] is 0, so a solve with the factorization would divide by 0";
inline constexpr const char* kWrongPivot = "pivot {index} of {size} rows: pivots count from 1";
inline constexpr const char* kNoConvergence =
    "the algorithm failed to converge: the matrix is ill-conditioned or has too many repeated "
    "values";

}  // namespace mytorch::cuda
