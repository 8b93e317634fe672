// One row, or a few, times a matrix: Y = X B. Each element of B is used so rarely that reading B
// limits the speed, so B is read once, in memory order.
#if defined(MYTORCH_GEMM_MATVEC_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MYTORCH_GEMM_MATVEC_INL_H_
#undef MYTORCH_GEMM_MATVEC_INL_H_
#else
#define MYTORCH_GEMM_MATVEC_INL_H_
#endif

#include <algorithm>

#include "backends/cpu-openmp/gemm/convert-inl.h"
#include "backends/cpu-openmp/gemm/epilogue-inl.h"
#include "backends/cpu-openmp/gemm/job.h"
#include "backends/cpu-openmp/simd/highway.h"

HWY_BEFORE_NAMESPACE();
namespace mytorch::cpu::gemm_internal::HWY_NAMESPACE {

// Dot products of kRows rows of X, `x_row` apart, with kCols contiguous columns of B. Fewer than
// eight sums, which hide the latency of the adder, are kept in two halves each.
template <int kRows, int kCols, class T>
HWY_INLINE void dot_tile(const Compute<T>* HWY_RESTRICT x, int64_t x_row, const T* HWY_RESTRICT b,
                         int64_t b_col, int64_t k, Compute<T>* HWY_RESTRICT y, int64_t y_row) {
  using C = Compute<T>;
  const hn::ScalableTag<C> d;
  using V = hn::VFromD<decltype(d)>;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  constexpr int kHalves = kRows * kCols >= 8 ? 1 : 2;
  V sums[kHalves][kRows][kCols];
#pragma GCC unroll 2
  for (int h = 0; h < kHalves; ++h) {
#pragma GCC unroll 4
    for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
      for (int j = 0; j < kCols; ++j) sums[h][i][j] = hn::Zero(d);
    }
  }
  int64_t p = 0;
  for (; p + kHalves * lanes <= k; p += kHalves * lanes) {
#pragma GCC unroll 2
    for (int h = 0; h < kHalves; ++h) {
      V column[kCols];
#pragma GCC unroll 4
      for (int j = 0; j < kCols; ++j) {
        column[j] = load_compute(d, b + j * b_col + p + h * lanes);
      }
#pragma GCC unroll 4
      for (int i = 0; i < kRows; ++i) {
        const V row = hn::LoadU(d, x + i * x_row + p + h * lanes);
#pragma GCC unroll 4
        for (int j = 0; j < kCols; ++j) {
          sums[h][i][j] = multiply_add(row, column[j], sums[h][i][j]);
        }
      }
    }
  }
#pragma GCC unroll 4
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
    for (int j = 0; j < kCols; ++j) {
      V both = sums[0][i][j];
      if constexpr (kHalves == 2) both = hn::Add(both, sums[1][i][j]);
      C sum = hn::GetLane(hn::SumOfLanes(d, both));
      for (int64_t q = p; q < k; ++q) sum += x[i * x_row + q] * load_scalar(b[j * b_col + q]);
      y[i * y_row + j] = sum;
    }
  }
}

// All columns of a piece. The tile fills 12 of 16 registers. The number of columns in a tile varies
// only at the end of a piece, whose position does not depend on the number of threads.
template <int kRows, class T>
HWY_INLINE void dot_columns(const Compute<T>* x, int64_t x_row, const T* b, int64_t b_col,
                            int64_t k, int64_t cols, Compute<T>* y, int64_t y_row) {
  constexpr int kCols = kRows == 4 ? 3 : 4;
  int64_t j = 0;
  for (; j + kCols <= cols; j += kCols) {
    dot_tile<kRows, kCols>(x, x_row, b + j * b_col, b_col, k, y + j, y_row);
  }
  for (; j < cols; ++j) dot_tile<kRows, 1>(x, x_row, b + j * b_col, b_col, k, y + j, y_row);
}

// y += x B for contiguous rows of B, four at a time: y is loaded and stored once for the four.
template <class T>
HWY_INLINE void add_rows(const Compute<T>* HWY_RESTRICT x, const T* HWY_RESTRICT b, int64_t b_k,
                         int64_t k, int64_t cols, Compute<T>* HWY_RESTRICT y) {
  using C = Compute<T>;
  const hn::ScalableTag<C> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t p = 0;
  for (; p + 4 <= k; p += 4) {
    const T* b0 = b + p * b_k;
    const T* b1 = b0 + b_k;
    const T* b2 = b1 + b_k;
    const T* b3 = b2 + b_k;
    const auto x0 = hn::Set(d, x[p]);
    const auto x1 = hn::Set(d, x[p + 1]);
    const auto x2 = hn::Set(d, x[p + 2]);
    const auto x3 = hn::Set(d, x[p + 3]);
    int64_t j = 0;
    for (; j + lanes <= cols; j += lanes) {
      auto sum = hn::LoadU(d, y + j);
      sum = multiply_add(x0, load_compute(d, b0 + j), sum);
      sum = multiply_add(x1, load_compute(d, b1 + j), sum);
      sum = multiply_add(x2, load_compute(d, b2 + j), sum);
      sum = multiply_add(x3, load_compute(d, b3 + j), sum);
      hn::StoreU(sum, d, y + j);
    }
    for (; j < cols; ++j) {
      y[j] += x[p] * load_scalar(b0[j]);
      y[j] += x[p + 1] * load_scalar(b1[j]);
      y[j] += x[p + 2] * load_scalar(b2[j]);
      y[j] += x[p + 3] * load_scalar(b3[j]);
    }
  }
  for (; p < k; ++p) {
    for (int64_t j = 0; j < cols; ++j) y[j] += x[p] * load_scalar(b[p * b_k + j]);
  }
}

template <class T>
struct MatvecArgs {
  const Job* job;
  const Compute<T>* x;
  int64_t x_row;
  const T* b;
  T* c;
};

// The columns of a piece, the unit of work of a thread: a multiple of all tiles and vectors, so
// that the remainders are in the same places for any number of threads.
inline constexpr int64_t kMatvecCols = 192;
inline constexpr int64_t kMatvecRows = 4;

template <class T>
void matvec_columns(void* user, int64_t begin, int64_t end) {
  using C = Compute<T>;
  const auto& args = *static_cast<const MatvecArgs<T>*>(user);
  const Job& job = *args.job;
  const T* bias = static_cast<const T*>(job.bias);
  const int64_t last = std::min(end * kMatvecCols, job.n);
  // These sums, and four rows of B of the same length, fit in the L1.
  constexpr int64_t kMost = 5 * kMatvecCols;
  const int64_t chunk = job.m == 1 ? kMost : kMatvecCols;
  HWY_ALIGN C sums[kMost];
  static_assert(kMatvecRows * kMatvecCols <= kMost);
  for (int64_t j0 = begin * kMatvecCols; j0 < last; j0 += chunk) {
    const int64_t cols = std::min(chunk, last - j0);
    const T* b = args.b + j0 * job.b_col;
    if (job.m == 1 && job.b_col == 1 && !(job.n == 1 && job.b_k == 1)) {
      std::fill_n(sums, cols, C{});
      add_rows(args.x, b, job.b_k, job.k, cols, sums);
    } else if (job.m == 1) {
      dot_columns<1>(args.x, 0, b, job.b_col, job.k, cols, sums, chunk);
    } else if (job.m == 2) {
      dot_columns<2>(args.x, args.x_row, b, job.b_col, job.k, cols, sums, chunk);
    } else if (job.m == 3) {
      dot_columns<3>(args.x, args.x_row, b, job.b_col, job.k, cols, sums, chunk);
    } else {
      dot_columns<4>(args.x, args.x_row, b, job.b_col, job.k, cols, sums, chunk);
    }
    const Epilogue<T> epilogue = {
        job.accumulate, job.relu,     bias == nullptr ? nullptr : bias + j0 * job.bias_col,
        job.bias_row,   job.bias_col, static_cast<C>(job.alpha)};
    store_tile(sums, chunk, job.m, cols, args.c + j0 * job.c_col, job.c_row, job.c_col, epilogue);
  }
}

// Whether matvec() takes the job: one row and a B with contiguous rows or columns, or a few rows
// and long contiguous columns (a linear layer on a small batch), which packing would transpose.
inline bool is_matvec(const Job& job) {
  if (job.m == 1) return job.b_col == 1 || job.b_k == 1;
  return job.m <= kMatvecRows && job.b_k == 1 && job.k >= 64;
}

// The elements of a piece of a long dot product: always the same, so that bits do not depend on the
// number of threads.
inline constexpr int64_t kDotPiece = 8192;
inline constexpr int64_t kMostDotPieces = 1024;

template <class T>
struct DotArgs {
  const Compute<T>* x;
  const T* b;
  int64_t k, piece;
  Compute<T>* sums;
};

template <class T>
void dot_pieces(void* user, int64_t begin, int64_t end) {
  const auto& args = *static_cast<const DotArgs<T>*>(user);
  for (int64_t i = begin; i < end; ++i) {
    const int64_t first = i * args.piece;
    dot_tile<1, 1>(args.x + first, 0, args.b + first, 0, std::min(args.piece, args.k - first),
                   args.sums + i, 0);
  }
}

// The product of a long row and a column, in pieces that the threads share.
template <class T>
void long_dot(mt_ctx* ctx, const Job& job, const Compute<T>* x, const T* b, T* c) {
  const int64_t piece = std::max(kDotPiece, (job.k + kMostDotPieces - 1) / kMostDotPieces);
  const int64_t pieces = (job.k + piece - 1) / piece;
  Compute<T> sums[kMostDotPieces];
  DotArgs<T> args = {x, b, job.k, piece, sums};
  if (ctx->num_threads == 1) {
    dot_pieces<T>(&args, 0, pieces);
  } else {
    ctx->parallel_for(ctx, 0, pieces, 4, &dot_pieces<T>, &args);
  }
  using Wide = std::conditional_t<std::is_floating_point_v<Compute<T>>, double, Compute<T>>;
  Wide total{};
  for (int64_t i = 0; i < pieces; ++i) total += static_cast<Wide>(sums[i]);
  Compute<T> sum = static_cast<Compute<T>>(total);
  const Epilogue<T> epilogue = {job.accumulate, job.relu,     static_cast<const T*>(job.bias),
                                job.bias_row,   job.bias_col, static_cast<Compute<T>>(job.alpha)};
  store_tile(&sum, 1, 1, 1, c, job.c_row, job.c_col, epilogue);
}

template <class T>
int matvec(mt_ctx* ctx, const Job& job) {
  using C = Compute<T>;
  constexpr int64_t kStackElements = 4096;
  HWY_ALIGN C stack[kStackElements];
  const bool in_place = kComputesInPlace<T> && job.a_k == 1;
  const int64_t size = job.m * job.k;
  C* copy = stack;
  if (!in_place && size > kStackElements) {
    copy = static_cast<C*>(ctx->scratch(ctx, static_cast<size_t>(size) * sizeof(C)));
    if (copy == nullptr) return MT_ERROR_OUT_OF_MEMORY;
  }
  // The minimum number of bytes of B that justify waking a thread.
  constexpr int64_t kGrainBytes = 256 << 10;
  const int64_t piece_bytes = job.k * kMatvecCols * static_cast<int64_t>(sizeof(T));
  const int64_t pieces = (job.n + kMatvecCols - 1) / kMatvecCols;
  const int64_t grain = std::max<int64_t>(1, kGrainBytes / piece_bytes);
  for (int64_t g = 0; g < job.batch; ++g) {
    const T* a = static_cast<const T*>(job.a) + g * job.a_batch;
    MatvecArgs<T> args = {&job, copy, job.k, static_cast<const T*>(job.b) + g * job.b_batch,
                          static_cast<T*>(job.c) + g * job.c_batch};
    if (in_place) {
      args.x = reinterpret_cast<const C*>(a);
      args.x_row = job.a_row;
    } else {
      for (int64_t i = 0; i < job.m; ++i) {
        for (int64_t p = 0; p < job.k; ++p) {
          copy[i * job.k + p] = load_scalar(a[i * job.a_row + p * job.a_k]);
        }
      }
    }
    if (job.m == 1 && job.n == 1 && job.b_k == 1 && job.k >= 4 * kDotPiece) {
      long_dot<T>(ctx, job, args.x, args.b, args.c);
    } else if (pieces <= grain || ctx->num_threads == 1) {
      matvec_columns<T>(&args, 0, pieces);
    } else {
      ctx->parallel_for(ctx, 0, pieces, grain, &matvec_columns<T>, &args);
    }
  }
  return MT_OK;
}

}  // namespace mytorch::cpu::gemm_internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // MYTORCH_GEMM_MATVEC_INL_H_
