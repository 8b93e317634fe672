// Batches of matrices as LAPACK takes them: the last two dimensions of an operand, of any strides,
// copied to column-major memory and back; and the conventions that factorizations of every backend
// follow.
//
//   const sdk::Matrices<const float> from(args.self, batch);   // `batch` as of the result
//   const sdk::Matrices<float> to(args.out, batch);
//   for (int64_t b = 0; b < to.count(); ++b) {
//     from.load(b, memory);   // memory[j * from.rows() + i] is element (i, j)
//     to.store(b, memory);
//   }
#pragma once

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstdint>
#include <limits>
#include <numeric>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "mytorch/backend/dtype.h"
#include "mytorch/backend/error.h"
#include "mytorch/backend/sizes.h"
#include "mytorch/backend/tensor.h"

namespace mytorch::sdk {
inline namespace v1 {

template <class T>
inline constexpr bool is_complex_number = false;
template <class T>
inline constexpr bool is_complex_number<std::complex<T>> = true;
// The type of the parts of a complex number; a real type itself.
template <class T>
struct RealOfType {
  using type = T;
};
template <class T>
struct RealOfType<std::complex<T>> {
  using type = T;
};
template <class T>
using RealOf = typename RealOfType<T>::type;

// Calls f(TypeTag) with the type of matrices: float, double, or the complex type of one of these.
// The host has refused others.
template <class F>
void visit_matrix_type(mt_dtype dtype, F&& f) {
  const bool wide = dtype.bits == (is_complex(dtype) ? 128 : 64);
  if (is_complex(dtype)) {
    if (wide) return f(TypeTag<std::complex<double>>{});
    return f(TypeTag<std::complex<float>>{});
  }
  if (wide) return f(TypeTag<double>{});
  f(TypeTag<float>{});
}

// The matrices (..., m, n) of an operand, or with `dims` 1 its vectors (..., n), which are columns;
// with 0 its elements. An operand with fewer matrices than `batch` is broadcast.
template <class T>
class Matrices {
 public:
  using Element = std::remove_const_t<T>;

  Matrices(const TensorView& tensor, std::span<const int64_t> batch, int dims = 2)
      : data_(tensor.data<T>()) {
    const int n = tensor.ndim();
    if (dims == 2) {
      rows_ = tensor.size(-2), row_stride_ = tensor.stride(-2);
      columns_ = tensor.size(-1), column_stride_ = tensor.stride(-1);
    } else if (dims == 1) {
      rows_ = tensor.size(-1), row_stride_ = tensor.stride(-1);
    }
    const std::span<const int64_t> shape = tensor.shape().first(static_cast<size_t>(n - dims));
    std::vector<int64_t> strides(batch.size(), 0);
    const size_t missing = batch.size() - shape.size();
    for (size_t d = 0; d < shape.size(); ++d) {
      const bool repeats = shape[d] == 1 && batch[missing + d] != 1;
      strides[missing + d] = repeats ? 0 : tensor.stride(static_cast<int>(d));
    }
    shape_.assign(batch.begin(), batch.end());
    strides_ = std::move(strides);
    count_ = product(batch);
  }

  int64_t count() const { return count_; }
  int64_t rows() const { return rows_; }
  int64_t columns() const { return columns_; }

  // Returns the first element of matrix b, in row-major order of the batch.
  T* at(int64_t b) const {
    int64_t offset = 0;
    for (size_t d = shape_.size(); d-- > 0;) {
      offset += b % shape_[d] * strides_[d];
      b /= shape_[d];
    }
    return data_ + offset;
  }
  int64_t row_stride() const { return row_stride_; }
  int64_t column_stride() const { return column_stride_; }
  // Whether the memory is column-major without gaps, so that a library may use it in place.
  bool in_columns() const {
    return (row_stride_ == 1 || rows_ <= 1) && (column_stride_ == rows_ || columns_ <= 1);
  }

  // Copies matrix b to column-major memory with `ld` elements from column to column.
  template <class To>
  void load(int64_t b, To* to, int64_t ld) const {
    const T* from = at(b);
    each_tile([&](int64_t i, int64_t j) {
      to[j * ld + i] = static_cast<To>(from[i * row_stride_ + j * column_stride_]);
    });
  }
  template <class To>
  void load(int64_t b, To* to) const {
    load(b, to, rows_);
  }
  template <class From>
  void store(int64_t b, const From* from, int64_t ld) const {
    T* to = at(b);
    each_tile([&](int64_t i, int64_t j) {
      to[i * row_stride_ + j * column_stride_] = static_cast<Element>(from[j * ld + i]);
    });
  }
  template <class From>
  void store(int64_t b, const From* from) const {
    if (static_cast<const void*>(from) != static_cast<const void*>(at(b))) store(b, from, rows_);
  }

 private:
  // Tiles, because one side of a transposing copy jumps from line to line of the cache.
  template <class F>
  void each_tile(F&& f) const {
    constexpr int64_t kTile = 16;
    const bool columns_first = row_stride_ <= column_stride_;
    if (columns_first) {
      for (int64_t j = 0; j < columns_; ++j) {
        for (int64_t i = 0; i < rows_; ++i) f(i, j);
      }
      return;
    }
    for (int64_t j0 = 0; j0 < columns_; j0 += kTile) {
      for (int64_t i0 = 0; i0 < rows_; i0 += kTile) {
        const int64_t j1 = std::min(j0 + kTile, columns_), i1 = std::min(i0 + kTile, rows_);
        for (int64_t j = j0; j < j1; ++j) {
          for (int64_t i = i0; i < i1; ++i) f(i, j);
        }
      }
    }
  }

  T* data_;
  int64_t rows_ = 1, row_stride_ = 1, columns_ = 1, column_stride_ = 1, count_ = 0;
  std::vector<int64_t> shape_, strides_;
};

// Returns the dimensions of an operand before its last `dims`.
inline std::span<const int64_t> batch_shape(const TensorView& tensor, int dims = 2) {
  return tensor.shape().first(static_cast<size_t>(tensor.ndim() - dims));
}

// Makes a vector, an eigenvector or a singular one, unique: its first element that is near its
// largest one is positive. Returns whether that needs the other sign.
template <class T>
bool needs_flip(const T* vector, int64_t n) {
  T largest = 0;
  for (int64_t i = 0; i < n; ++i) largest = std::max(largest, std::abs(vector[i]));
  for (int64_t i = 0; i < n; ++i) {
    if (std::abs(vector[i]) >= largest * static_cast<T>(0.9)) return vector[i] < 0;
  }
  return false;
}

// Returns the factor that makes a vector unique in that way. Of a complex vector, that element
// becomes real and positive.
template <class T>
T unique_factor(const T* vector, int64_t n) {
  if constexpr (is_complex_number<T>) {
    RealOf<T> largest = 0;
    for (int64_t i = 0; i < n; ++i) largest = std::max(largest, std::abs(vector[i]));
    for (int64_t i = 0; i < n && largest > 0; ++i) {
      const RealOf<T> size = std::abs(vector[i]);
      if (size >= largest * static_cast<RealOf<T>>(0.9)) return std::conj(vector[i]) / size;
    }
    return T(1);
  } else {
    return needs_flip(vector, n) ? T(-1) : T(1);
  }
}

// Returns the order in which the eigenvalues of a general matrix are given: by real part, and those
// whose real parts differ by rounding alone, such as of a conjugate pair, by imaginary part.
template <class T>
std::vector<int64_t> order_of_eigenvalues(const std::complex<T>* values, int64_t n) {
  T largest = 0;
  for (int64_t i = 0; i < n; ++i) largest = std::max(largest, std::abs(values[i]));
  const T rounding = largest * 64 * std::numeric_limits<T>::epsilon();
  std::vector<int64_t> order(static_cast<size_t>(n));
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int64_t a, int64_t b) { return values[a].real() < values[b].real(); });
  for (auto begin = order.begin(); begin != order.end();) {
    auto end = begin + 1;
    while (end != order.end() && values[*end].real() - values[*(end - 1)].real() <= rounding) ++end;
    std::stable_sort(begin, end,
                     [&](int64_t a, int64_t b) { return values[a].imag() < values[b].imag(); });
    begin = end;
  }
  return order;
}

// Throws Error(MT_ERROR_VALUE), naming the element of the batch if there is a batch.
[[noreturn]] inline void fail_matrix(const char* op, const TensorView& of, int64_t b,
                                     const std::string& what) {
  const std::string element =
      of.ndim() > 2 ? "(batch element " + std::to_string(b) + ") " : std::string();
  throw Error(MT_ERROR_VALUE, "[" + std::string(op) + "] " + element + what);
}

// Throws for the first matrix whose `info` is not 0, if the call asks for that.
template <class F>
void check_info(bool wanted, const char* op, const TensorView& of, const int* info, int64_t count,
                F explain) {
  for (int64_t b = 0; wanted && b < count; ++b) {
    if (info[b] != 0) fail_matrix(op, of, b, explain(info[b]));
  }
}
inline std::string not_positive(int order) {
  return "the factorization could not be completed because the input is not positive-definite (the "
         "leading minor of order " +
         std::to_string(order) + " is not positive)";
}
inline std::string singular(int order) {
  const std::string at = std::to_string(order - 1);
  return "U[" + at + ", " + at + "] is 0, so a solve with the factorization would divide by 0";
}
inline std::string no_diagonal(int order) {
  const std::string at = std::to_string(order - 1);
  return "D[" + at + ", " + at + "] is 0, so a solve with the factorization would divide by 0";
}
inline constexpr const char* kNotFinite =
    "the algorithm failed to converge because the input matrix contained non-finite values";

// Checks that pivots (1, 2, ...) name rows. Throws Error(MT_ERROR_VALUE).
inline void check_pivot(const char* op, int64_t pivot, int64_t rows) {
  if (pivot >= 1 && pivot <= rows) return;
  throw Error(MT_ERROR_VALUE, "[" + std::string(op) + "] pivot " + std::to_string(pivot) + " of " +
                                  std::to_string(rows) + " rows: pivots count from 1");
}

// Checks the pivots of linalg_ldl_factor_ex, which are negative for blocks of two rows. Throws
// Error(MT_ERROR_VALUE).
inline void check_block_pivots(const char* op, const int32_t* pivots, int64_t rows) {
  const auto fail = [&](int64_t i, const std::string& what) {
    throw Error(MT_ERROR_VALUE, "[" + std::string(op) + "] pivot " + std::to_string(pivots[i]) +
                                    " of " + std::to_string(rows) + " rows: " + what);
  };
  for (int64_t i = 0; i < rows; ++i) {
    const int64_t pivot = pivots[i];
    if (pivot == 0 || pivot > rows || pivot < -rows) fail(i, "pivots count from 1 or -1");
    if (pivot > 0) continue;
    if (i + 1 == rows || pivots[i + 1] != pivots[i]) {
      fail(i, "a block of two rows has the same negative pivot twice");
    }
    ++i;
  }
}

}  // namespace v1
}  // namespace mytorch::sdk
