// Attention by tiles, forward and backward, with everything that the record does to scores and
// weights. A block owns the rows of some queries or keys and streams the others through
// shared memory; scores are never stored. Each result has one thread that adds it up, in an order
// that depends on shapes only.
//
// A warp has 16 owned rows. Lane 4 * group + quad holds scores in the layout of multiply()
// (mma.cuh): value 2 r + c of tile k is owned row group + 8 r and streamed row 8 k + 2 quad + c.
#pragma once

#include <cmath>
#include <cstdint>

#include "backends/cuda/attention/split_products.cuh"
#include "backends/cuda/common/element.cuh"
#include "backends/cuda/common/mma.cuh"
#include "backends/cuda/common/pack.cuh"
#include "backends/cuda/common/philox.cuh"

namespace mytorch::cuda::tiles {

constexpr int kThreads = 128;
constexpr int kOwned = 64;  // rows of a block
constexpr int kBackwardStreamed = 32;
constexpr float kLog2e = 1.4426950408889634F, kLn2 = 0.6931471805599453F;

// A tensor (batch, heads, rows, columns) whose rows are aligned to 16 bytes. Strides in elements.
struct TileOperand {
  const void* data;
  int64_t batch, head, row;
  int width;

  template <class T>
  __device__ const T* at(int64_t b, int64_t h) const {
    return static_cast<const T*>(data) + b * batch + h * head;
  }
};

enum class MaskType { kNone, kBool, kAdded };

struct TileCall {
  TileOperand query, key, value, output;  // `output` is written by the forward kernel
  int batch, heads, group;                // query heads per key head
  int queries, keys;
  // Query i sees the keys i + first <= j <= i + last.
  int first, last;
  int64_t diagonal;
  float scale, softcap;
  const float* slopes;  // null: none
  int64_t slope_batch, slope_head;
  const void* mask;
  MaskType mask_type;
  int64_t mask_stride[4];
  bool mask_pairs;  // two adjacent keys of the mask are an aligned word
  // Dropout keeps a weight if the upper 24 bits of its random number are below the limit.
  bool drops;
  uint32_t limit;
  float kept;  // the factor of kept weights
  philox::Stream random = philox::Stream(mt_random{});
  const int64_t* draw;  // backward: the stream's seed and call
  float* logsumexp;     // (batch, heads, queries)

  // Backward. The statistics of rows, as prepare_rows writes them.
  TileOperand grad_output, grad_query, grad_key, grad_value;
  const float* row_shift;
  const float* row_delta;
  void* grad_mask;  // contiguous
  int mask_size[4];

  __device__ int64_t pair(int64_t b, int64_t h) const { return b * heads + h; }
};

// ---- tiles in shared memory: rows of kWidth elements, zeros past the operand's width and rows,
// with a gap that keeps the rows of a matrix in different banks.

template <class T, int kWidth>
constexpr int kPitch = kWidth + kPack<T>;
// Rows that the forward kernel streams at a time; two blocks share a multiprocessor.
template <class T, int kWidth>
constexpr int kForwardStreamed = sizeof(T) * kWidth > 256 ? 32 : 64;
// Whether products may make NaN of an infinity (split_products.cuh).
template <class T>
constexpr bool kSplits = std::is_same_v<T, float>;

template <class T, int kWidth, int kRows>
__device__ void copy_tile(T* to, const T* from, const TileOperand& x, int first, int rows) {
  constexpr int kPacks = kWidth / kPack<T>;
#pragma unroll
  for (int i = threadIdx.x; i < kRows * kPacks; i += kThreads) {
    const int row = i / kPacks, column = i % kPacks * kPack<T>;
    const bool zeros = first + row >= rows || column >= x.width;
    copy_async(to + row * kPitch<T, kWidth> + column,
               zeros ? from : from + (first + row) * x.row + column, zeros);
  }
}

// s = A B^T for the 16 rows of A and 8 * kTiles rows of B.
template <class T, int kWidth, int kTiles>
__device__ __forceinline__ void multiply_rows(float (&s)[kTiles][4], const T* a, const T* b,
                                              bool exact) {
  if constexpr (kSplits<T>) {
    constexpr int kApart = kPitch<T, kWidth>;
    if (exact) return exact_multiply_rows<kApart, kWidth>(s, a, b);
    return multiply_rows_split<kApart, kWidth>(s, a, b);
  } else {
    const int lane = threadIdx.x % 32, matrix = lane / 8, row = lane % 8;
#pragma unroll
    for (auto& tile : s) tile[0] = tile[1] = tile[2] = tile[3] = 0;
#pragma unroll
    for (int k = 0; k < kWidth; k += 16) {
      uint32_t x[4], y[4];
      load_matrices<false>(x, a + (matrix % 2 * 8 + row) * kPitch<T, kWidth> + k + matrix / 2 * 8);
#pragma unroll
      for (int n = 0; n < kTiles; n += 2) {
        load_matrices<false>(
            y, b + (8 * n + matrix / 2 * 8 + row) * kPitch<T, kWidth> + k + matrix % 2 * 8);
        multiply<T>(s[n], x[0], x[1], x[2], x[3], y[0], y[1]);
        multiply<T>(s[n + 1], x[0], x[1], x[2], x[3], y[2], y[3]);
      }
    }
  }
}

// sum += S B for scores S (16 x 8 * kTiles), rounded to a 16-bit T, and 8 * kTiles rows of B.
template <class T, int kWidth, int kTiles>
__device__ __forceinline__ void add_products(float (&sum)[kWidth / 8][4],
                                             const float (&s)[kTiles][4], const T* b, bool exact) {
  if constexpr (kSplits<T>) {
    constexpr int kApart = kPitch<T, kWidth>;
    if (exact) return exact_add_products<kApart, kWidth>(sum, s, b);
    return add_products_split<kApart, kWidth>(sum, s, b);
  } else {
    const int lane = threadIdx.x % 32, matrix = lane / 8, row = lane % 8;
#pragma unroll
    for (int n = 0; n < kTiles; n += 2) {
      const uint32_t x[4] = {pack<T>(s[n][0], s[n][1]), pack<T>(s[n][2], s[n][3]),
                             pack<T>(s[n + 1][0], s[n + 1][1]), pack<T>(s[n + 1][2], s[n + 1][3])};
#pragma unroll
      for (int k = 0; k < kWidth; k += 16) {
        uint32_t y[4];
        load_matrices<true>(
            y, b + (8 * n + matrix % 2 * 8 + row) * kPitch<T, kWidth> + k + matrix / 2 * 8);
        multiply<T>(sum[k / 8], x[0], x[1], x[2], x[3], y[0], y[1]);
        multiply<T>(sum[k / 8 + 1], x[0], x[1], x[2], x[3], y[2], y[3]);
      }
    }
  }
}

// Writes the warp's 16 rows, times a factor of each.
template <class T, int kWidth>
__device__ void write_rows(const TileOperand& to, int64_t b, int64_t h, int first, int rows,
                           const float (&x)[kWidth / 8][4], const float (&factor)[2]) {
  const int group = threadIdx.x % 32 / 4, quad = threadIdx.x % 4;
  T* const data = const_cast<T*>(to.at<T>(b, h));
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int row = first + group + 8 * r;
    if (row >= rows) continue;
#pragma unroll
    for (int k = 0; k < kWidth / 8; ++k) {
      if (8 * k >= to.width) break;
      T* const at = data + row * to.row + 8 * k + 2 * quad;
      const float low = x[k][2 * r] * factor[r], high = x[k][2 * r + 1] * factor[r];
      if constexpr (std::is_same_v<T, float>) {
        *reinterpret_cast<float2*>(at) = make_float2(low, high);
      } else {
        *reinterpret_cast<uint32_t*>(at) = pack<T>(low, high);
      }
    }
  }
}

// Whether the block, which may have NaN in place of results of infinities, computes its sums again.
template <class T, class... Sums>
__device__ __forceinline__ bool again(bool& exact, const Sums&... sums) {
  if constexpr (kSplits<T>) {
    bool nan = false;
    const auto look = [&](const auto& sum) {
      for (const auto& tile : sum) {
        for (const float x : tile) nan = nan || x != x;
      }
    };
    (look(sums), ...);
    if (exact || __syncthreads_or(nan ? 1 : 0) == 0) return false;
    exact = true;
    return true;
  }
  return false;
}

// ---- scores

template <class T>
struct alignas(2 * sizeof(T)) Pair {
  T at[2];
};

// The scores of a warp: the owned rows are queries, or keys if kOfKeys. 8 * kTiles rows are
// streamed.
template <class T, int kTiles, bool kOfKeys>
struct Scores {
  const TileCall& p;
  int64_t batch, head;  // query head
  int owned;            // the first row of this lane: group of the warp's rows
  int streamed;         // the first column of this lane
  float s[kTiles][4];

  __device__ Scores(const TileCall& call, int64_t b, int64_t h, int first_owned, int first_streamed)
      : p(call),
        batch(b),
        head(h),
        owned(first_owned + static_cast<int>(threadIdx.x % 32 / 4)),
        streamed(first_streamed + static_cast<int>(threadIdx.x % 4 * 2)) {}

  __device__ int query(int k, int i) const {
    return kOfKeys ? streamed + 8 * k + i % 2 : owned + i / 2 * 8;
  }
  __device__ int key(int k, int i) const {
    return kOfKeys ? owned + i / 2 * 8 : streamed + 8 * k + i % 2;
  }
  template <class F>
  __device__ __forceinline__ void for_each(F&& f) {
#pragma unroll
    for (int k = 0; k < kTiles; ++k) {
#pragma unroll
      for (int i = 0; i < 4; ++i) f(s[k][i], k, i);
    }
  }

  // Replaces products by scores * log2(e). `slope` receives the derivative of softcap.
  __device__ __forceinline__ void finish(float (*slope)[4]) {
    if (p.softcap > 0) {
      const float by = p.scale / p.softcap * 2 * kLog2e;
      for_each([&](float& x, int k, int i) {
        const float t = 1 - 2 / (power_of_2(x * by) + 1);  // tanh
        if (slope != nullptr) slope[k][i] = 1 - t * t;
        x = t * (p.softcap * kLog2e);
      });
    } else {
      const float by = p.scale * kLog2e;
      for_each([&](float& x, int, int) { x *= by; });
    }
    if (p.slopes != nullptr) {
      const float by = p.slopes[batch * p.slope_batch + head * p.slope_head] * kLog2e;
      for_each([&](float& x, int k, int i) {
        x -= by * fabsf(static_cast<float>(query(k, i) + p.diagonal - key(k, i)));
      });
    }
    if (p.mask_type != MaskType::kNone) apply_mask();
    if (!is_partial()) return;
    for_each([&](float& x, int k, int i) {
      const int q = query(k, i), j = key(k, i);
      if (j < q + p.first || j > q + p.last || j >= p.keys) x = -INFINITY;
    });
  }

  __device__ __forceinline__ void apply_mask() {
    const int64_t base = batch * p.mask_stride[0] + head * p.mask_stride[1];
    if (!kOfKeys && p.mask_pairs) {
#pragma unroll
      for (int k = 0; k < kTiles; ++k) {
#pragma unroll
        for (int i = 0; i < 4; i += 2) {
          const int q = query(k, i), j = key(k, i);
          if (q >= p.queries || j >= p.keys) continue;
          const int64_t at = base + q * p.mask_stride[2] + j;
          if (p.mask_type == MaskType::kAdded) {
            const auto two = *reinterpret_cast<const Pair<T>*>(static_cast<const T*>(p.mask) + at);
            s[k][i] += widen(two.at[0]) * kLog2e;
            s[k][i + 1] += widen(two.at[1]) * kLog2e;
          } else {
            const auto two =
                *reinterpret_cast<const Pair<bool>*>(static_cast<const bool*>(p.mask) + at);
            if (!two.at[0]) s[k][i] = -INFINITY;
            if (!two.at[1]) s[k][i + 1] = -INFINITY;
          }
        }
      }
      return;
    }
    for_each([&](float& x, int k, int i) {
      const int q = query(k, i), j = key(k, i);
      if (q >= p.queries || j >= p.keys) return;
      const int64_t at = base + q * p.mask_stride[2] + j * p.mask_stride[3];
      if (p.mask_type == MaskType::kAdded) {
        x += widen(static_cast<const T*>(p.mask)[at]) * kLog2e;
      } else if (!static_cast<const bool*>(p.mask)[at]) {
        x = -INFINITY;
      }
    });
  }

  // Whether some row of the warp does not see some key.
  __device__ bool is_partial() const {
    const int row = owned - static_cast<int>(threadIdx.x % 32 / 4);
    const int column = streamed - static_cast<int>(threadIdx.x % 4 * 2);
    const int q = kOfKeys ? column : row, last_q = q + (kOfKeys ? 8 * kTiles : 16) - 1;
    const int j = kOfKeys ? row : column, last_j = j + (kOfKeys ? 16 : 8 * kTiles) - 1;
    return j < last_q + p.first || last_j > q + p.last || last_j >= p.keys;
  }
};

// Which weights dropout keeps. A random block of four numbers belongs to four adjacent keys of a
// query, which several lanes hold; each of them draws for the others.
template <int kTiles, bool kOfKeys>
struct Kept {
  uint32_t bits[kOfKeys ? 4 : 2];

  template <class S>
  __device__ Kept(const TileCall& p, const philox::Stream& random, const S& scores) {
    const int lane = threadIdx.x % 32, group = lane / 4, quad = lane % 4;
    const uint64_t blocks = (static_cast<uint64_t>(p.keys) + 3) / 4;
    const uint64_t rows = p.pair(scores.batch, scores.head) * static_cast<uint64_t>(p.queries);
    // The value for which this lane draws: queries of keys are columns.
    const int drawn = kOfKeys ? group % 4 : quad % 2 * 2;
    uint32_t own = 0;
#pragma unroll
    for (int k = 0; k < kTiles; ++k) {
      const uint64_t row = rows + static_cast<uint64_t>(scores.query(k, drawn));
      const uint4 words =
          random.block(row * blocks + static_cast<uint64_t>(scores.key(k, drawn)) / 4);
      const uint32_t four = (words.x >> 8 < p.limit ? 1u : 0u) |
                            (words.y >> 8 < p.limit ? 2u : 0u) |
                            (words.z >> 8 < p.limit ? 4u : 0u) | (words.w >> 8 < p.limit ? 8u : 0u);
      own |= four << (4 * k);
    }
    if constexpr (kOfKeys) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        bits[i] = __shfl_sync(0xFFFFFFFFu, own, group / 4 * 16 + i * 4 + quad) >> group % 4;
      }
    } else {
      const uint32_t other = __shfl_xor_sync(0xFFFFFFFFu, own, 1);
      bits[0] = (quad % 2 == 0 ? own : other) >> quad % 2 * 2;
      bits[1] = (quad % 2 == 0 ? other : own) >> quad % 2 * 2;
    }
  }
  __device__ bool operator()(int k, int i) const {
    return kOfKeys ? bits[i] >> (4 * k) & 1 : bits[i / 2] >> (4 * k + i % 2) & 1;
  }
};

// The streamed rows that some owned row sees or is seen by, in whole tiles of kRows.
struct Range {
  int begin, end;
};
template <int kRows>
__device__ Range visible(int from, int to, int limit) {
  const int begin = max(from, 0), end = min(to, limit - 1) + 1;
  if (end <= begin) return {0, 0};
  return {begin / kRows * kRows, end};
}
template <int kRows>
__device__ Range keys_of(const TileCall& p, int query) {
  const int last = min(query + kOwned, p.queries) - 1;
  return visible<kRows>(query + p.first, last + p.last, p.keys);
}
template <int kRows>
__device__ Range queries_of(const TileCall& p, int key) {
  const int last = min(key + kOwned, p.keys) - 1;
  return visible<kRows>(key - p.last, last - p.first, p.queries);
}

// ---- forward

__device__ __forceinline__ float finite(float most) { return most == -INFINITY ? 0.0F : most; }

__device__ __forceinline__ float quad_max(float x) {
  x = fmaxf(x, __shfl_xor_sync(0xFFFFFFFFu, x, 1));
  return fmaxf(x, __shfl_xor_sync(0xFFFFFFFFu, x, 2));
}
__device__ __forceinline__ float quad_sum(float x) {
  x += __shfl_xor_sync(0xFFFFFFFFu, x, 1);
  return x + __shfl_xor_sync(0xFFFFFFFFu, x, 2);
}

template <class T, int kWidth>
constexpr size_t kForwardShared = (kOwned + 4 * kForwardStreamed<T, kWidth>)*kPitch<T, kWidth> *
                                  sizeof(T);

// One block per 64 queries of a head.
template <class T, int kWidth>
__global__ void __launch_bounds__(kThreads, 2)
    attention_forward(const __grid_constant__ TileCall p) {
  constexpr int kRows = kForwardStreamed<T, kWidth>, kTile = kRows * kPitch<T, kWidth>;
  T* const query = reinterpret_cast<T*>(shared_memory());
  T* const keys = query + kOwned * kPitch<T, kWidth>;
  T* const values = keys + 2 * kTile;
  const int tiles = (p.queries + kOwned - 1) / kOwned;
  const int first = static_cast<int>(blockIdx.x % tiles) * kOwned;
  const int pair = static_cast<int>(blockIdx.x / tiles), b = pair / p.heads, h = pair % p.heads;
  const int warp = threadIdx.x / 32;
  const T* const key = p.key.at<T>(b, h / p.group);
  const T* const value = p.value.at<T>(b, h / p.group);
  philox::Stream random = p.random;
  random.start();

  const Range range = keys_of<kRows>(p, first);
  const auto load = [&](int row, int stage) {
    copy_tile<T, kWidth, kRows>(keys + stage * kTile, key, p.key, row, p.keys);
    copy_tile<T, kWidth, kRows>(values + stage * kTile, value, p.value, row, p.keys);
    commit_copies();
  };
  copy_tile<T, kWidth, kOwned>(query, p.query.at<T>(b, h), p.query, first, p.queries);
  commit_copies();

  float out[kWidth / 8][4], most[2], total[2];
  bool exact = false;
  do {
    if (range.begin < range.end) load(range.begin, 0);
    most[0] = most[1] = -INFINITY;
    total[0] = total[1] = 0;
#pragma unroll
    for (auto& tile : out) tile[0] = tile[1] = tile[2] = tile[3] = 0;
    int stage = 0;
    for (int row = range.begin; row < range.end; row += kRows, stage ^= 1) {
      wait_for_copies<0>();
      __syncthreads();
      if (row + kRows < range.end) load(row + kRows, stage ^ 1);
      Scores<T, kRows / 8, false> scores(p, b, h, first + 16 * warp, row);
      multiply_rows<T, kWidth>(scores.s, query + 16 * warp * kPitch<T, kWidth>,
                               keys + stage * kTile, exact);
      scores.finish(nullptr);
      float now[2] = {most[0], most[1]};
      scores.for_each([&](float& x, int, int i) { now[i / 2] = fmaxf(now[i / 2], x); });
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        now[r] = quad_max(now[r]);
        const float factor = power_of_2(most[r] - finite(now[r]));
        most[r] = now[r];
        total[r] *= factor;
#pragma unroll
        for (auto& tile : out) {
          tile[2 * r] *= factor;
          tile[2 * r + 1] *= factor;
        }
      }
      scores.for_each([&](float& x, int, int i) {
        x = power_of_2(x - finite(most[i / 2]));
        total[i / 2] += x;
      });
      if (p.drops) {
        const Kept<kRows / 8, false> kept(p, random, scores);
        scores.for_each([&](float& x, int k, int i) { x = kept(k, i) ? x : 0.0F; });
      }
      add_products<T, kWidth>(out, scores.s, values + stage * kTile, exact);
    }
    wait_for_copies<0>();
  } while (again<T>(exact, out));

  float factor[2];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const float sum = quad_sum(total[r]);
    factor[r] = sum == 0 ? 0.0F : p.kept / sum;
    const int row = first + 16 * warp + static_cast<int>(threadIdx.x % 32 / 4) + 8 * r;
    if (threadIdx.x % 4 == 0 && row < p.queries) {
      p.logsumexp[p.pair(b, h) * p.queries + row] =
          sum == 0 ? -INFINITY : most[r] * kLn2 + logf(sum);
    }
  }
  write_rows<T, kWidth>(p.output, b, h, first + 16 * warp, p.queries, out, factor);
}

// Writes the seed and the call of the stream.
__global__ void write_draw(const __grid_constant__ TileCall p, int64_t* draw, int64_t step) {
  philox::Stream random = p.random;
  random.start();
  draw[0] = static_cast<int64_t>(random.seed);
  draw[step] = static_cast<int64_t>(random.call);
}

// ---- backward. With P = exp(score - logsumexp), dropped weights W and the incoming gradient dO:
// dS = P (dropped(dO V^T) - delta), dQ = scale dS K, dK = scale dS^T Q, dV = W^T dO.

// Writes, for each row, delta = sum(dO O) - dLogsumexp, and the logarithm times log2(e), or
// infinity for a row that sees no key. One warp per row.
template <class T>
__global__ void __launch_bounds__(kThreads)
    prepare_rows(const __grid_constant__ TileCall p, const float* grad_logsumexp,
                 int64_t grad_stride0, int64_t grad_stride1, int64_t grad_stride2, float* shift,
                 float* delta) {
  const int64_t rows = int64_t{p.batch} * p.heads * p.queries;
  const int lane = threadIdx.x % 32;
  for (int64_t row = (int64_t{blockIdx.x} * kThreads + threadIdx.x) / 32; row < rows;
       row += int64_t{gridDim.x} * (kThreads / 32)) {
    const int64_t i = row % p.queries, h = row / p.queries % p.heads, b = row / p.queries / p.heads;
    const T* const x = p.output.at<T>(b, h) + i * p.output.row;
    const T* const grad = p.grad_output.at<T>(b, h) + i * p.grad_output.row;
    float sum = 0;
    for (int c = lane; c < p.output.width; c += 32) sum += widen(x[c]) * widen(grad[c]);
#pragma unroll
    for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(0xFFFFFFFFu, sum, step);
    if (lane != 0) continue;
    if (grad_logsumexp != nullptr) {
      sum -= grad_logsumexp[b * grad_stride0 + h * grad_stride1 + i * grad_stride2];
    }
    delta[row] = sum;
    const float logsumexp = p.logsumexp[row];
    shift[row] = logsumexp == -INFINITY ? INFINITY : logsumexp * kLog2e;
  }
}

// The weights and gradients of a warp's scores. `s` becomes dS before the cap's derivative, and
// `weights` what dropout leaves of P, before the factor of kept weights.
template <class T, int kTiles, bool kOfKeys>
__device__ __forceinline__ void differentiate(Scores<T, kTiles, kOfKeys>& scores,
                                              const philox::Stream& random,
                                              const float (&grad)[kTiles][4], float (*slope)[4],
                                              float (&weights)[kTiles][4]) {
  const TileCall& p = scores.p;
  const int64_t rows = p.pair(scores.batch, scores.head) * p.queries;
  float shift[kOfKeys ? kTiles * 2 : 2], delta[kOfKeys ? kTiles * 2 : 2];
#pragma unroll
  for (int n = 0; n < (kOfKeys ? kTiles * 2 : 2); ++n) {
    const int query = kOfKeys ? scores.query(n / 2, n % 2) : scores.query(0, 2 * n);
    shift[n] = query < p.queries ? p.row_shift[rows + query] : INFINITY;
    delta[n] = query < p.queries ? p.row_delta[rows + query] : 0.0F;
  }
  const auto row_of = [](int k, int i) { return kOfKeys ? 2 * k + i % 2 : i / 2; };
  scores.finish(slope);
  scores.for_each([&](float& x, int k, int i) {
    x = power_of_2(x - shift[row_of(k, i)]);
    weights[k][i] = x;
  });
  if (p.drops) {
    const Kept<kTiles, kOfKeys> kept(p, random, scores);
    scores.for_each([&](float& x, int k, int i) {
      weights[k][i] = kept(k, i) ? x : 0.0F;
      x *= (kept(k, i) ? grad[k][i] * p.kept : 0.0F) - delta[row_of(k, i)];
    });
  } else {
    scores.for_each([&](float& x, int k, int i) { x *= grad[k][i] - delta[row_of(k, i)]; });
  }
}

template <class T, int kWidth>
constexpr size_t kBackwardShared = (2 * kOwned + 4 * kBackwardStreamed) * kPitch<T, kWidth> *
                                   sizeof(T);

// The tiles of a backward block: two operands of owned rows, two of streamed rows in two stages.
template <class T, int kWidth>
struct BackwardTiles {
  static constexpr int kRows = kBackwardStreamed, kTile = kRows * kPitch<T, kWidth>;
  T* const owned = reinterpret_cast<T*>(shared_memory());
  T* const owned2 = owned + kOwned * kPitch<T, kWidth>;
  T* const streamed = owned2 + kOwned * kPitch<T, kWidth>;
  T* const streamed2 = streamed + 2 * kTile;

  __device__ void load(const TileOperand& x, const TileOperand& y, int64_t b, int64_t h, int row,
                       int rows, int stage) const {
    copy_tile<T, kWidth, kRows>(streamed + stage * kTile, x.at<T>(b, h), x, row, rows);
    copy_tile<T, kWidth, kRows>(streamed2 + stage * kTile, y.at<T>(b, h), y, row, rows);
    commit_copies();
  }
  __device__ void load_owned(const TileOperand& x, const TileOperand& y, int64_t b, int64_t h,
                             int row, int rows) const {
    copy_tile<T, kWidth, kOwned>(owned, x.at<T>(b, h), x, row, rows);
    copy_tile<T, kWidth, kOwned>(owned2, y.at<T>(b, h), y, row, rows);
    commit_copies();
  }
  __device__ const T* of_warp(const T* tile) const {
    return tile + threadIdx.x / 32 * 16 * kPitch<T, kWidth>;
  }
  __device__ const T* first(int stage) const { return streamed + stage * kTile; }
  __device__ const T* second(int stage) const { return streamed2 + stage * kTile; }
};

template <int kTiles>
__device__ __forceinline__ void through_cap(const TileCall& p, float (&s)[kTiles][4],
                                            const float (&slope)[kTiles][4]) {
  if (!(p.softcap > 0)) return;
#pragma unroll
  for (int k = 0; k < kTiles; ++k) {
#pragma unroll
    for (int i = 0; i < 4; ++i) s[k][i] *= slope[k][i];
  }
}

__device__ __forceinline__ philox::Stream stream_of_draw(const TileCall& p) {
  philox::Stream random = p.random;
  if (p.drops) {
    random.seed = static_cast<uint64_t>(p.draw[0]);
    random.call = static_cast<uint64_t>(p.draw[1]);
  }
  return random;
}

// One block per 64 queries of a head.
template <class T, int kWidth>
__global__ void __launch_bounds__(kThreads, 2) query_gradient(const __grid_constant__ TileCall p) {
  using Tiles = BackwardTiles<T, kWidth>;
  constexpr int kRows = kBackwardStreamed;
  const Tiles tiles;
  const int count = (p.queries + kOwned - 1) / kOwned;
  const int first = static_cast<int>(blockIdx.x % count) * kOwned;
  const int pair = static_cast<int>(blockIdx.x / count), b = pair / p.heads, h = pair % p.heads;
  const int own = first + static_cast<int>(threadIdx.x / 32) * 16, key_head = h / p.group;
  const philox::Stream random = stream_of_draw(p);
  const Range range = keys_of<kRows>(p, first);
  tiles.load_owned(p.query, p.grad_output, b, h, first, p.queries);

  float sum[kWidth / 8][4];
  bool exact = false;
  do {
    if (range.begin < range.end) tiles.load(p.key, p.value, b, key_head, range.begin, p.keys, 0);
#pragma unroll
    for (auto& tile : sum) tile[0] = tile[1] = tile[2] = tile[3] = 0;
    int stage = 0;
    for (int row = range.begin; row < range.end; row += kRows, stage ^= 1) {
      wait_for_copies<0>();
      __syncthreads();
      if (row + kRows < range.end) {
        tiles.load(p.key, p.value, b, key_head, row + kRows, p.keys, stage ^ 1);
      }
      Scores<T, kRows / 8, false> scores(p, b, h, own, row);
      float grad[kRows / 8][4], slope[kRows / 8][4], weights[kRows / 8][4];
      multiply_rows<T, kWidth>(scores.s, tiles.of_warp(tiles.owned), tiles.first(stage), exact);
      multiply_rows<T, kWidth>(grad, tiles.of_warp(tiles.owned2), tiles.second(stage), exact);
      differentiate(scores, random, grad, slope, weights);
      through_cap(p, scores.s, slope);
      add_products<T, kWidth>(sum, scores.s, tiles.first(stage), exact);
    }
    wait_for_copies<0>();
  } while (again<T>(exact, sum));
  write_rows<T, kWidth>(p.grad_query, b, h, own, p.queries, sum, {p.scale, p.scale});
}

// One block per 64 keys of a key head. It adds up the query heads of the group in order.
template <class T, int kWidth>
__global__ void __launch_bounds__(kThreads, 2) key_gradient(const __grid_constant__ TileCall p) {
  using Tiles = BackwardTiles<T, kWidth>;
  constexpr int kRows = kBackwardStreamed;
  const Tiles tiles;
  const int count = (p.keys + kOwned - 1) / kOwned, key_heads = p.heads / p.group;
  const int first = static_cast<int>(blockIdx.x % count) * kOwned;
  const int pair = static_cast<int>(blockIdx.x / count);
  const int b = pair / key_heads, key_head = pair % key_heads;
  const int own = first + static_cast<int>(threadIdx.x / 32) * 16;
  const philox::Stream random = stream_of_draw(p);
  const Range range = queries_of<kRows>(p, first);
  const int steps = (range.end - range.begin + kRows - 1) / kRows, total = steps * p.group;
  const auto load = [&](int step, int stage) {
    tiles.load(p.query, p.grad_output, b, key_head * p.group + step / steps,
               range.begin + step % steps * kRows, p.queries, stage);
  };
  tiles.load_owned(p.key, p.value, b, key_head, first, p.keys);

  float to_key[kWidth / 8][4], to_value[kWidth / 8][4];
  bool exact = false;
  do {
    if (total > 0) load(0, 0);
#pragma unroll
    for (int k = 0; k < kWidth / 8; ++k) {
#pragma unroll
      for (int i = 0; i < 4; ++i) to_key[k][i] = to_value[k][i] = 0;
    }
    for (int step = 0; step < total; ++step) {
      const int stage = step % 2;
      wait_for_copies<0>();
      __syncthreads();
      if (step + 1 < total) load(step + 1, stage ^ 1);
      Scores<T, kRows / 8, true> scores(p, b, key_head * p.group + step / steps, own,
                                        range.begin + step % steps * kRows);
      float grad[kRows / 8][4], slope[kRows / 8][4], weights[kRows / 8][4];
      multiply_rows<T, kWidth>(scores.s, tiles.of_warp(tiles.owned), tiles.first(stage), exact);
      multiply_rows<T, kWidth>(grad, tiles.of_warp(tiles.owned2), tiles.second(stage), exact);
      differentiate(scores, random, grad, slope, weights);
      add_products<T, kWidth>(to_value, weights, tiles.second(stage), exact);
      through_cap(p, scores.s, slope);
      add_products<T, kWidth>(to_key, scores.s, tiles.first(stage), exact);
    }
    wait_for_copies<0>();
  } while (again<T>(exact, to_key, to_value));
  if (p.grad_key.data != nullptr) {
    write_rows<T, kWidth>(p.grad_key, b, key_head, own, p.keys, to_key, {p.scale, p.scale});
  }
  if (p.grad_value.data != nullptr) {
    write_rows<T, kWidth>(p.grad_value, b, key_head, own, p.keys, to_value, {p.kept, p.kept});
  }
}

// The gradient of an added mask. One block per tile of 64 x 32 elements of the mask. It adds up all
// scores to which the tile is broadcast, in order; a dimension of size 1 is one row or column.
template <class T, int kWidth>
__global__ void __launch_bounds__(kThreads, 2) mask_gradient(const __grid_constant__ TileCall p) {
  using Tiles = BackwardTiles<T, kWidth>;
  constexpr int kRows = kBackwardStreamed, kTiles = kRows / 8;
  const Tiles tiles;
  const auto count = [](int n, int each) { return (n + each - 1) / each; };
  const int row_tiles = count(p.mask_size[2], kOwned), column_tiles = count(p.mask_size[3], kRows);
  unsigned block = blockIdx.x;
  const auto next = [&](int n) {
    const int i = static_cast<int>(block % static_cast<unsigned>(n));
    block /= static_cast<unsigned>(n);
    return i;
  };
  const int column = next(column_tiles) * kRows, row = next(row_tiles) * kOwned;
  const int mask_head = next(p.mask_size[1]), mask_batch = static_cast<int>(block);
  const philox::Stream random = stream_of_draw(p);
  // From `begin` on, `n` batches, heads, rows or keys are added.
  const auto size = [&](int d, int all) { return p.mask_size[d] == 1 ? all : 1; };
  const int batches = size(0, p.batch), heads = size(1, p.heads);
  const bool all_rows = p.mask_size[2] == 1, all_keys = p.mask_size[3] == 1;
  const int end_row = all_rows ? p.queries : min(row + kOwned, p.queries);
  const int end_key = all_keys ? p.keys : min(column + kRows, p.keys);

  float sum[kTiles][4];
  bool exact = false;
  do {
#pragma unroll
    for (auto& tile : sum) tile[0] = tile[1] = tile[2] = tile[3] = 0;
    for (int n = 0; n < batches * heads; ++n) {
      const int b = mask_batch + n / heads, h = mask_head + n % heads;
      for (int i = row; i < end_row; i += kOwned) {
        for (int j = column; j < end_key; j += kRows) {
          const Range range = keys_of<kRows>(p, i);
          if (j + kRows <= range.begin || j >= range.end) continue;
          __syncthreads();
          tiles.load_owned(p.query, p.grad_output, b, h, i, p.queries);
          tiles.load(p.key, p.value, b, h / p.group, j, p.keys, 0);
          wait_for_copies<0>();
          __syncthreads();
          const int own = i + static_cast<int>(threadIdx.x / 32) * 16;
          Scores<T, kTiles, false> scores(p, b, h, own, j);
          float grad[kTiles][4], slope[kTiles][4], weights[kTiles][4];
          multiply_rows<T, kWidth>(scores.s, tiles.of_warp(tiles.owned), tiles.first(0), exact);
          multiply_rows<T, kWidth>(grad, tiles.of_warp(tiles.owned2), tiles.second(0), exact);
          differentiate(scores, random, grad, slope, weights);
          scores.for_each([&](float& x, int k, int e) {
            sum[k][e] +=
                own + static_cast<int>(threadIdx.x % 32 / 4) + e / 2 * 8 < p.queries ? x : 0;
          });
        }
      }
    }

  } while (again<T>(exact, sum));

  // The tile, through shared memory.
  __syncthreads();
  float* const all = reinterpret_cast<float*>(shared_memory());
#pragma unroll
  for (int k = 0; k < kTiles; ++k) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int r = static_cast<int>(threadIdx.x / 32) * 16 +
                    static_cast<int>(threadIdx.x % 32 / 4) + i / 2 * 8;
      all[r * kRows + 8 * k + static_cast<int>(threadIdx.x % 4) * 2 + i % 2] = sum[k][i];
    }
  }
  __syncthreads();
  const int rows = all_rows ? 1 : end_row - row, columns = all_keys ? 1 : end_key - column;
  T* const to = static_cast<T*>(p.grad_mask) + (int64_t{mask_batch} * p.mask_size[1] + mask_head) *
                                                   p.mask_size[2] * p.mask_size[3];
  for (int i = threadIdx.x; i < rows * columns; i += kThreads) {
    const int r = i / columns, c = i % columns;
    float total = 0;
    for (int y = r; y < (all_rows ? kOwned : r + 1); ++y) {
      for (int x = c; x < (all_keys ? kRows : c + 1); ++x) total += all[y * kRows + x];
    }
    to[int64_t{row + r} * p.mask_size[3] + column + c] = convert<T>(total);
  }
}

}  // namespace mytorch::cuda::tiles
