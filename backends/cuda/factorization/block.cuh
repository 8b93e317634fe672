// A matrix in the shared memory of a thread block, which factorizes it. Threads of a warp are
// assigned to rows, warps to columns.
#pragma once

#include <cstdint>
#include <limits>

#include "backends/cuda/common/mma.cuh"
#include "backends/cuda/factorization/operands.h"

namespace mytorch::cuda {

// Elements from column to column. The remainder spreads eight rows of neighbouring columns, as
// well as 32 rows of one, over the banks.
inline __host__ __device__ int64_t leading(int64_t rows) {
  return rows + ((8 - rows) % 16 + 16) % 16;
}

// Bytes of a matrix in shared memory.
inline int64_t matrix_bytes(const sdk::TensorView& x) {
  return leading(x.size(-2)) * x.size(-1) * x.itemsize();
}

#ifdef __CUDACC__

__device__ __forceinline__ int lane_of() { return static_cast<int>(threadIdx.x) % 32; }
__device__ __forceinline__ int warp_of() { return static_cast<int>(threadIdx.x) / 32; }
__device__ __forceinline__ int warps_of_block() { return static_cast<int>(blockDim.x) / 32; }

template <class T>
struct BlockMatrix {
  T* data;
  int ld;

  BlockMatrix() = default;
  __device__ BlockMatrix(void* memory, int rows)
      : data(static_cast<T*>(memory)), ld(static_cast<int>(leading(rows))) {}
  __device__ __forceinline__ T& operator()(int i, int j) const { return data[j * ld + i]; }
};

// Calls f(i, j) for the elements of an m x n matrix, neighbouring threads along the dimension that
// is contiguous in memory. All threads of the block call it.
template <class F>
__device__ __forceinline__ void each_element(int m, int n, bool by_columns, F&& f) {
  const int inner = by_columns ? m : n, outer = by_columns ? n : m;
  for (int o = warp_of(); o < outer; o += warps_of_block()) {
    for (int i = lane_of(); i < inner; i += 32) by_columns ? f(i, o) : f(o, i);
  }
}

template <class T>
__device__ __forceinline__ void load_block(const BlockMatrix<T>& to, int m, int n,
                                           const FirstMatrix<const T>& from, int64_t at) {
  each_element(m, n, from.row <= from.column,
               [&](int i, int j) { to(i, j) = from.data[at + i * from.row + j * from.column]; });
}
// Stores f(i, j).
template <class T, class F>
__device__ __forceinline__ void store_block(int m, int n, const FirstMatrix<T>& to, int64_t at,
                                            F&& f) {
  each_element(m, n, to.row <= to.column,
               [&](int i, int j) { to.data[at + i * to.row + j * to.column] = f(i, j); });
}

template <class T>
__device__ __forceinline__ T warp_sum(T x, int width = 32) {
  for (int lanes = width / 2; lanes > 0; lanes /= 2) x += __shfl_xor_sync(0xFFFFFFFFu, x, lanes);
  return x;
}
template <class T>
__device__ __forceinline__ T warp_most(T x) {
  for (int lanes = 16; lanes > 0; lanes /= 2) {
    const T other = __shfl_xor_sync(0xFFFFFFFFu, x, lanes);
    x = other > x ? other : x;
  }
  return x;
}

template <class T>
inline constexpr T kEpsilon = std::numeric_limits<T>::epsilon();

// The first of n elements whose magnitude size(i) is near the largest one, or n. All lanes of a
// warp call it.
template <class T, class F>
__device__ __forceinline__ int first_large(int n, F&& size) {
  T most = 0;
  for (int i = lane_of(); i < n; i += 32) most = size(i) > most ? size(i) : most;
  most = warp_most(most);
  int first = n;
  for (int i = lane_of(); i < n && first == n; i += 32) {
    if (size(i) >= most * T(0.9)) first = i;
  }
  for (int lanes = 16; lanes > 0; lanes /= 2) {
    const int other = __shfl_xor_sync(0xFFFFFFFFu, first, lanes);
    first = other < first ? other : first;
  }
  return first;
}

// The sign of a vector, x(i) for i < n, of which the first element that is near the largest one
// shall be positive (sdk::needs_flip). All lanes of a warp call it.
template <class T, class F>
__device__ __forceinline__ T sign_of_vector(int n, F&& x) {
  const int first = first_large<T>(n, [&](int i) { return fabs(x(i)); });
  return first < n && x(first) < 0 ? T(-1) : T(1);
}

// The pair `k` of round `round` if `players`, an even number, meet each other in players - 1
// rounds.
struct Meeting {
  int p, q;  // p < q

  __device__ Meeting(int players, int round, int k) {
    const int others = players - 1;
    int a = round + k, b = round - k + others;
    a = a >= others ? a - others : a;
    b = b >= others ? b - others : b;
    if (k == 0) b = others;
    p = a < b ? a : b;
    q = a < b ? b : a;
  }
};

// The rotation (x, y) -> (c x - s y, s x + c y) that makes the off-diagonal element of a symmetric
// 2 x 2 matrix (a, b; b, d) zero; t is the tangent.
template <class T>
struct Rotation {
  T c = 1, s = 0, t = 0;

  Rotation() = default;
  __device__ Rotation(T a, T b, T d) {
    const T theta = (d - a) / (T(2) * b);
    t = (theta < 0 ? T(-1) : T(1)) / (fabs(theta) + sqrt(T(1) + theta * theta));
    c = T(1) / sqrt(T(1) + t * t);
    s = t * c;
  }
  __device__ __forceinline__ void turn(T& x, T& y) const {
    const T first = x, second = y;
    x = c * first - s * second;
    y = s * first + c * second;
  }
};

inline constexpr int kNoExponent = INT32_MAX;
// The power of two that brings the largest magnitude of an m x n matrix, of which `reads(i, j)`
// tells the elements that count, near 1; kNoExponent if one is not finite. All threads call it.
template <class T, class F>
__device__ int exponent_of(const BlockMatrix<T>& x, int m, int n, F&& reads) {
  __shared__ T most_of[32];
  __shared__ int exponent;
  T most = 0;
  bool finite = true;
  each_element(m, n, true, [&](int i, int j) {
    if (!reads(i, j)) return;
    const T value = fabs(x(i, j));
    finite = finite && value * 0 == 0;
    most = value > most ? value : most;
  });
  most = warp_most(finite ? most : std::numeric_limits<T>::infinity());
  if (lane_of() == 0) most_of[warp_of()] = most;
  __syncthreads();
  if (threadIdx.x == 0) {
    for (int w = 1; w < warps_of_block(); ++w) most = most_of[w] > most ? most_of[w] : most;
    exponent = 0;
    if (most * 0 != 0) {
      exponent = kNoExponent;
    } else if (most > 0) {
      frexp(most, &exponent);
    }
  }
  __syncthreads();
  return exponent;
}
#endif  // __CUDACC__

}  // namespace mytorch::cuda
