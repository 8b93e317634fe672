#include "backends/cpu-openmp/attention/blocks.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "backends/cpu-openmp/random/bits.h"
#include "backends/cpu-openmp/simd/convert.h"
#include "mytorch/backend/dtype.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu-openmp/attention/blocks.cpp"
#include "backends/cpu-openmp/simd/foreach_target.h"
// After foreach_target.h, which includes this file once for each instruction set.
#include "backends/cpu-openmp/gemm/microkernel-inl.h"
#include "backends/cpu-openmp/simd/export.h"
#include "backends/cpu-openmp/simd/highway.h"
#include "backends/cpu-openmp/simd/transpose-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mytorch {
namespace cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
namespace vec = mytorch::simd::HWY_NAMESPACE;
namespace mm = mytorch::cpu::gemm_internal::HWY_NAMESPACE;

using D = hn::ScalableTag<float>;
using V = hn::VFromD<D>;
constexpr int64_t kWidth = mm::kLanes<float>;
constexpr int64_t kPanel = mm::kTileCols<float>;
constexpr int64_t kTile = mm::kTileRows<float>;
constexpr int64_t kRowBlock = 8 * kTile;
constexpr int64_t kKeyBlock = 256;
// Rows of scores are a little longer than a power of two, so that they do not share cache sets.
constexpr int64_t kScoreStep = kKeyBlock + 16;
constexpr float kNever = -std::numeric_limits<float>::infinity();
static_assert(kKeyBlock <= kRandomChunk && kKeyBlock % 8 == 0);

int64_t padded_to(int64_t n) { return (n + kWidth - 1) / kWidth * kWidth; }

// ---- products ----

// c (+)= a b, of m x k and k x n, in tiles. Rows of `b` and `c` are contiguous and n is padded.
void Product(int64_t m, int64_t n, int64_t k, const float* a, int64_t a_row, int64_t a_k,
             const float* b, int64_t b_k, float* c, int64_t c_row, bool add) {
  const int64_t tiles = (m + kTile - 1) / kTile;
  for (int64_t j = 0; j < n; j += kPanel) {
    const int64_t vecs = n - j > kWidth ? 2 : 1;
    for (int64_t t = 0; t < tiles; ++t) {  // of equal heights
      const int64_t i = t * m / tiles, height = (t + 1) * m / tiles - i;
      mm::direct_tile<float>(height, vecs)(k, a + i * a_row, a_row, a_k, b + j, b_k,
                                           c + i * c_row + j, c_row, add);
    }
  }
}

// c = a b, where b is in panels.
void ProductOfPanels(int64_t m, int64_t n, int64_t k, const float* a, int64_t a_row,
                     const float* panels, float* c, int64_t c_row) {
  const int64_t tiles = (m + kTile - 1) / kTile;
  for (int64_t j = 0; j < n; j += kPanel) {
    for (int64_t t = 0; t < tiles; ++t) {
      const int64_t i = t * m / tiles, height = (t + 1) * m / tiles - i;
      mm::direct_tile<float>(height, 2)(k, a + i * a_row, a_row, 1, panels + j * k, kPanel,
                                        c + i * c_row + j, c_row, false);
    }
  }
}

// ---- staging ----

void StageRow(const void* from, mt_dtype dtype, int64_t col, int64_t n, float* to) {
  if (col == 1 || n == 1) {
    simd::get_convert(dtype, sdk::dtype_of<float>)(from, to, n);
    return;
  }
  sdk::visit_dtype(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T* x = static_cast<const T*>(from);
    for (int64_t i = 0; i < n; ++i) to[i] = sdk::convert<float>(x[i * col]);
  });
}

const void* At(const void* from, mt_dtype dtype, int64_t offset) {
  return static_cast<const char*>(from) + offset * sdk::itemsize(dtype);
}

void StageRows(const void* from, mt_dtype dtype, int64_t row, int64_t col, int64_t n, int64_t width,
               int64_t padded, float* to) {
  if (col == 1 && row == width && padded == width) return StageRow(from, dtype, 1, n * width, to);
  const auto convert = simd::get_convert(dtype, sdk::dtype_of<float>);
  for (int64_t i = 0; i < n; ++i) {
    float* out = to + i * padded;
    const void* x = At(from, dtype, i * row);
    if (col == 1) {
      convert(x, out, width);
    } else if (width != 0) {
      StageRow(x, dtype, col, width, out);
    }
    for (int64_t j = width; j < padded; ++j) out[j] = 0;
  }
}

void StagePanel(const void* from, mt_dtype dtype, int64_t row, int64_t col, int64_t n,
                int64_t width, float scale, float* to) {
  constexpr int64_t kPiece = 64;
  HWY_ALIGN float pieces[4][kPiece];
  for (int64_t j = 0; j < kPanel; j += 4) {
    for (int64_t p = 0; p < width; p += kPiece) {
      const int64_t count = std::min(kPiece, width - p);
      const float* rows[4];
      for (int64_t r = 0; r < 4; ++r) {
        rows[r] = pieces[r];
        if (j + r >= n) {
          std::fill(pieces[r], pieces[r] + count, 0.0f);
          continue;
        }
        const void* row_from = At(from, dtype, (j + r) * row + p * col);
        if (sdk::is_dtype<float>(dtype) && col == 1) {
          rows[r] = static_cast<const float*>(row_from);
        } else {
          StageRow(row_from, dtype, col, count, pieces[r]);
        }
      }
      float* out = to + p * kPanel + j;
      for (int64_t i = 0; i < count; ++i, out += kPanel) {
        for (int64_t r = 0; r < 4; ++r) out[r] = rows[r][i] * scale;
      }
    }
  }
}

// ---- scores ----

// exp(x); infinity from 88.4 on, where the exponent's field is full, and 0 below -87, where results
// would be denormal, which is slow. Keeps NaN.
HWY_INLINE V Exp(V x) {
  const D d;
  const V low = hn::Set(d, -87.0f);
  const V clamped = vec::Clamp(d, x, low, hn::Set(d, 89.0f));
  const V magic = hn::Set(d, vec::round_magic<D> + 127);
  const V t = hn::MulAdd(clamped, hn::Set(d, 0x1.715476p0f), magic);
  const V p = vec::ExpPoly(d, vec::ReduceLn2(d, clamped, hn::Sub(t, magic)));
  const V scale = hn::BitCast(d, hn::ShiftLeft<23>(hn::BitCast(vec::Bits<D>(), t)));
  return hn::IfThenZeroElse(hn::Lt(x, low), hn::Mul(p, scale));
}

// A block of scores: `rows` x `keys`, in `cols` columns, which are whole panels.
struct Block {
  int64_t batch, head, row, rows, key, keys, cols;
};

// Adds the mask to a row of scores.
void AddMask(const AttentionJob& job, const Block& at, int64_t row, float* s) {
  const D d;
  const HeadRows& mask = job.mask;
  const void* from =
      At(mask.data, mask.dtype,
         at.batch * mask.batch + at.head * mask.head + row * mask.row + at.key * mask.col);
  HWY_ALIGN float added[kKeyBlock];
  if (mask.col == 0) {
    StageRow(from, mask.dtype, 1, 1, added);
    std::fill(added + 1, added + at.keys, added[0]);
  } else {
    StageRow(from, mask.dtype, mask.col, at.keys, added);
  }
  std::fill(added + at.keys, added + at.cols, 0.0f);
  const bool keeps = sdk::is_dtype<bool>(mask.dtype);
  for (int64_t j = 0; j < at.cols; j += kWidth) {
    const V x = hn::LoadU(d, s + j), m = hn::Load(d, added + j);
    hn::StoreU(
        keeps ? hn::IfThenElse(hn::Eq(m, hn::Zero(d)), hn::Set(d, kNever), x) : hn::Add(x, m), d,
        s + j);
  }
}

// Applies softcap, slopes, mask and band to scores. With `cap_slope`, also stores the derivative of
// softcap there.
void Adjust(const AttentionJob& job, const Block& at, float* scores, float* cap_slope) {
  const D d;
  for (int64_t r = 0; r < at.rows; ++r) {
    float* s = scores + r * kScoreStep;
    const int64_t i = at.row + r;
    if (job.softcap != 0) {
      const V cap = hn::Set(d, job.softcap), inverse = hn::Set(d, 1 / job.softcap);
      for (int64_t j = 0; j < at.cols; j += kWidth) {
        const V t = vec::NodeTanh(d, hn::Mul(hn::LoadU(d, s + j), inverse));
        hn::StoreU(hn::Mul(t, cap), d, s + j);
        if (cap_slope != nullptr) {
          hn::StoreU(hn::NegMulAdd(t, t, hn::Set(d, 1.0f)), d, cap_slope + r * kScoreStep + j);
        }
      }
    }
    if (job.slopes.data != nullptr) {
      const float slope = static_cast<const float*>(
          job.slopes.data)[at.batch * job.slopes.batch + at.head * job.slopes.head];
      const V by = hn::Set(d, slope);
      for (int64_t j = 0; j < at.cols; j += kWidth) {
        const float first = static_cast<float>(i + job.diagonal - at.key - j);
        const V distance = hn::Abs(hn::Sub(hn::Set(d, first), hn::Iota(d, 0)));
        hn::StoreU(hn::NegMulAdd(by, distance, hn::LoadU(d, s + j)), d, s + j);
      }
    }
    if (job.mask.data != nullptr) AddMask(job, at, i, s);
    int64_t begin = 0, end = at.keys;
    if (job.left >= 0) {
      begin = std::clamp<int64_t>(i + job.diagonal - job.left - at.key, 0, at.keys);
    }
    if (job.right >= 0) {
      end = std::clamp<int64_t>(i + job.diagonal + job.right + 1 - at.key, 0, at.keys);
    }
    std::fill(s, s + begin, kNever);
    if (end < at.cols) std::fill(s + end, s + at.cols, kNever);
  }
}

// Sets `factors` to 0 where dropout drops the weights of a row, else to 1 / (1 - p).
void DropoutFactors(const AttentionJob& job, const Block& at, int64_t row, float* factors) {
  const D d;
  const hn::RebindToUnsigned<D> du;
  HWY_ALIGN uint32_t bits[kRandomChunk];
  const auto index = static_cast<uint64_t>((at.batch * job.heads + at.head) * job.rows + row) *
                         static_cast<uint64_t>((job.keys + 3) / 4) +
                     static_cast<uint64_t>(at.key / 4);
  random_fns()->bits32(job.seed, job.call, index, at.cols, bits);
  const float keep = 1 - job.dropout_p;
  const V by = hn::Set(d, job.dropout_p == 1 ? 0.0f : 1 / keep);
  const auto limit = hn::Set(du, static_cast<uint32_t>(std::ceil(double{keep} * 0x1p24)));
  for (int64_t j = 0; j < at.cols; j += kWidth) {
    const auto drawn = hn::ShiftRight<8>(hn::LoadU(du, bits + j));
    hn::StoreU(hn::IfThenElseZero(hn::RebindMask(d, hn::Lt(drawn, limit)), by), d, factors + j);
  }
}

// ---- forward ----

struct ForwardRoom {
  float *query, *scores, *sums, *most, *next, *total, *factors;

  ForwardRoom(float* room, int64_t width, int64_t padded_values) : query(room) {
    scores = query + kRowBlock * width;
    sums = scores + kRowBlock * kScoreStep;
    most = sums + kRowBlock * padded_values;
    next = most + padded_to(kRowBlock);
    total = next + padded_to(kRowBlock);
    factors = total + padded_to(kRowBlock);
  }
  static int64_t size(int64_t width, int64_t padded_values) {
    return kRowBlock * (width + kScoreStep + padded_values) + 3 * padded_to(kRowBlock) + kKeyBlock;
  }
};

// Replaces scores by weights that are not yet divided by their sum, and updates each row's maximum
// and sum. room.next becomes the factor of what the rows have summed before.
void Weigh(const AttentionJob& job, const Block& at, const ForwardRoom& room) {
  const D d;
  for (int64_t r = 0; r < at.rows; ++r) {
    const float* s = room.scores + r * kScoreStep;
    V high = hn::LoadU(d, s);
    for (int64_t j = kWidth; j < at.cols; j += kWidth) high = hn::Max(hn::LoadU(d, s + j), high);
    room.next[r] = hn::GetLane(hn::MaxOfLanes(d, high));
  }
  for (int64_t r = 0; r < at.rows; r += kWidth) {
    const V before = hn::LoadU(d, room.most + r);
    // NaN does not count: it reaches the sum.
    const V found = hn::LoadU(d, room.next + r);
    const V after = hn::IfThenElse(hn::Gt(found, before), found, before);
    const V same = hn::IfThenElse(hn::Eq(after, before), hn::Zero(d), hn::Sub(before, after));
    hn::StoreU(Exp(same), d, room.next + r);
    hn::StoreU(after, d, room.most + r);
  }
  for (int64_t r = 0; r < at.rows; ++r) {
    float* s = room.scores + r * kScoreStep;
    const float most = room.most[r];
    const V below = hn::Set(d, most == kNever ? 0.0f : most);
    V sum = hn::Zero(d);
    if (job.dropout_p == 0) {
      for (int64_t j = 0; j < at.cols; j += kWidth) {
        const V p = Exp(hn::Sub(hn::LoadU(d, s + j), below));
        hn::StoreU(p, d, s + j);
        sum = hn::Add(sum, p);
      }
    } else {
      DropoutFactors(job, at, at.row + r, room.factors);
      for (int64_t j = 0; j < at.cols; j += kWidth) {
        const V p = Exp(hn::Sub(hn::LoadU(d, s + j), below));
        hn::StoreU(hn::Mul(p, hn::LoadU(d, room.factors + j)), d, s + j);
        sum = hn::Add(sum, p);
      }
    }
    room.total[r] = room.total[r] * room.next[r] + hn::GetLane(hn::SumOfLanes(d, sum));
  }
}

void Rescale(float* sums, int64_t padded, int64_t rows, const float* factor) {
  const D d;
  for (int64_t r = 0; r < rows; ++r) {
    if (factor[r] == 1) continue;
    const V by = hn::Set(d, factor[r]);
    for (int64_t j = 0; j < padded; j += kWidth) {
      float* at = sums + r * padded + j;
      hn::StoreU(hn::Mul(hn::LoadU(d, at), by), d, at);
    }
  }
}

void SumScaled(const float* from, int64_t step, int64_t count, float scale, int64_t n, float* to) {
  const D d;
  const V by = hn::Set(d, scale);
  for (int64_t j = 0; j < n; j += kWidth) {  // rows are padded
    V sum = hn::LoadU(d, from + j);
    for (int64_t c = 1; c < count; ++c) sum = hn::Add(sum, hn::LoadU(d, from + c * step + j));
    hn::StoreU(hn::Mul(sum, by), d, to + j);
  }
}

// Stores the output and the logsumexp of a row, whose sums of values it divides by `total`.
void StoreResult(const AttentionJob& job, int64_t batch, int64_t head, int64_t row, float most,
                 float total, float* sums) {
  SumScaled(sums, 0, 1, total == 0 ? 0.0f : 1 / total, padded_to(job.value_width), sums);
  store_row(sums, job.output, batch, head, row, job.value_width);
  const HeadRows& lse = job.logsumexp;
  static_cast<float*>(lse.data)[batch * lse.batch + head * lse.head + row * lse.row] =
      total == 0 ? kNever : most + std::log(total);
}

void Forward(const AttentionJob& job, const StagedHeads& staged, int64_t batch, int64_t head,
             int64_t first, int64_t n, float* memory) {
  const int64_t padded = padded_to(job.value_width);
  const ForwardRoom room(memory, job.width, padded);
  const int64_t key_head = batch * job.key_heads + head / (job.heads / job.key_heads);
  const float* key =
      staged.key_panels + key_head * ((job.keys + kPanel - 1) / kPanel * kPanel) * job.width;
  const float* value = staged.value.at(batch, head / (job.heads / job.key_heads), 0);
  const HeadRows& q = job.query;
  const void* rows = At(q.data, q.dtype, batch * q.batch + head * q.head + first * q.row);
  const bool in_place = sdk::is_dtype<float>(q.dtype) && q.col == 1;
  const float* query = in_place ? static_cast<const float*>(rows) : room.query;
  const int64_t query_row = in_place ? q.row : job.width;
  if (!in_place) StageRows(rows, q.dtype, q.row, q.col, n, job.width, job.width, room.query);
  std::fill(room.most, room.most + padded_to(kRowBlock), kNever);
  std::fill(room.total, room.total + padded_to(kRowBlock), 0.0f);
  std::fill(room.sums, room.sums + n * padded, 0.0f);

  int64_t begin = 0, end = job.keys;
  if (job.left >= 0) begin = std::max<int64_t>(0, first + job.diagonal - job.left);
  if (job.right >= 0) end = std::min(end, first + n + job.diagonal + job.right);
  begin = begin / kPanel * kPanel;
  bool started = false;
  for (int64_t j = begin; j < end; j += kKeyBlock) {
    Block at{batch, head, first, n, j, std::min(kKeyBlock, end - j), 0};
    at.cols = (at.keys + kPanel - 1) / kPanel * kPanel;
    if (job.width != 0) {
      ProductOfPanels(n, at.cols, job.width, query, query_row, key + j * job.width, room.scores,
                      kScoreStep);
    } else {
      for (int64_t r = 0; r < n; ++r) {
        std::fill(room.scores + r * kScoreStep, room.scores + r * kScoreStep + at.cols, 0.0f);
      }
    }
    Adjust(job, at, room.scores, nullptr);
    Weigh(job, at, room);
    if (started) Rescale(room.sums, padded, n, room.next);
    Product(n, padded, at.keys, room.scores, kScoreStep, 1, value + j * staged.value.row,
            staged.value.row, room.sums, padded, started);
    started = true;
  }

  for (int64_t r = 0; r < n; ++r) {
    StoreResult(job, batch, head, first + r, room.most[r], room.total[r], room.sums + r * padded);
  }
}

// ---- few rows ----

// Rows of queries that one pass over the keys serves.
constexpr int64_t kFewBatch = 32;
static_assert(kFewBatch <= kRowBlock && kFewKeys <= kKeyBlock);
// Rows that share the registers of a loaded row of keys.
constexpr int kFewTile = HWY_TARGET <= HWY_AVX3 ? 4 : 2;

#if HWY_TARGET != HWY_SCALAR
// Adds the 128-bit blocks of a vector.
template <class DV>
HWY_INLINE auto SumBlocks(DV d, hn::VFromD<DV> v) {
  if constexpr (hn::MaxLanes(d) <= 4) {
    return v;
  } else {
    const hn::Half<DV> half;
    return SumBlocks(half, hn::Add(hn::LowerHalf(half, v), hn::UpperHalf(half, v)));
  }
}
#endif

// to[i] = the sum of v[i].
template <int kCount>
HWY_INLINE void StoreSums(V* v, float* to) {
  const D d;
#if HWY_TARGET != HWY_SCALAR
  if constexpr (kCount == 4) {
    vec::TransposeBlocks(d, v);
    const V sum = hn::Add(hn::Add(v[0], v[1]), hn::Add(v[2], v[3]));
    return hn::StoreU(SumBlocks(d, sum), hn::CappedTag<float, 4>(), to);
  }
#endif
  for (int i = 0; i < kCount; ++i) to[i] = hn::GetLane(hn::SumOfLanes(d, v[i]));
}

// Scores of kRows rows of queries and `n` rows of keys.
template <int kRows>
void FewScores(const float* query, int64_t padded, const float* key, int64_t key_row, int64_t n,
               float* scores) {
  const D d;
  const auto some = [&](auto keys, int64_t j) {
    constexpr int kKeys = decltype(keys)::value;
    V sum[kRows][kKeys];
    for (int r = 0; r < kRows; ++r) {
      for (int i = 0; i < kKeys; ++i) sum[r][i] = hn::Zero(d);
    }
    const float* k = key + j * key_row;
    for (int64_t c = 0; c < padded; c += kWidth) {
      V of_key[kKeys];
#pragma GCC unroll 4
      for (int i = 0; i < kKeys; ++i) of_key[i] = hn::LoadU(d, k + i * key_row + c);
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) {
        const V q = hn::LoadU(d, query + r * padded + c);
#pragma GCC unroll 4
        for (int i = 0; i < kKeys; ++i) sum[r][i] = hn::MulAdd(q, of_key[i], sum[r][i]);
      }
    }
    for (int r = 0; r < kRows; ++r) StoreSums<kKeys>(sum[r], scores + r * kScoreStep + j);
  };
  int64_t j = 0;
  for (; j + 4 <= n; j += 4) some(std::integral_constant<int, 4>(), j);
  for (; j < n; ++j) some(std::integral_constant<int, 1>(), j);
}

// Adds the values of `n` keys, times the weights, to the sums of kRows rows.
template <int kRows>
void FewValues(const float* weights, const float* value, int64_t value_row, int64_t n, float* sums,
               int64_t padded) {
  const D d;
  const auto some = [&](auto keys, int64_t j) {
    constexpr int kKeys = decltype(keys)::value;
    const float* v = value + j * value_row;
    for (int64_t c = 0; c < padded; c += kWidth) {
      V of_key[kKeys];
#pragma GCC unroll 4
      for (int i = 0; i < kKeys; ++i) of_key[i] = hn::LoadU(d, v + i * value_row + c);
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) {
        V sum = hn::LoadU(d, sums + r * padded + c);
#pragma GCC unroll 4
        for (int i = 0; i < kKeys; ++i) {
          sum = hn::MulAdd(hn::Set(d, weights[r * kScoreStep + j + i]), of_key[i], sum);
        }
        hn::StoreU(sum, d, sums + r * padded + c);
      }
    }
  };
  int64_t j = 0;
  for (; j + 4 <= n; j += 4) some(std::integral_constant<int, 4>(), j);
  for (; j < n; ++j) some(std::integral_constant<int, 1>(), j);
}

// Calls body(rows, n) for pieces of `count` rows from `first` on, each on one page and in floats
// with padded rows, which may be `room`.
template <class F>
void ForEachRun(const HeadRows& x, const KeyPages* pages, int64_t batch, int64_t head,
                int64_t first, int64_t count, int64_t width, float* room, F&& body) {
  const int64_t padded = padded_to(width);
  const bool in_place = sdk::is_dtype<float>(x.dtype) && x.col == 1 && width == padded;
  for (int64_t done = 0; done < count;) {
    int64_t n = count - done, outer = batch, row = first + done;
    if (pages != nullptr) {
      outer = pages->table[batch * pages->columns + row / pages->slots];
      row %= pages->slots;
      n = std::min(n, pages->slots - row);
    }
    const void* from = At(x.data, x.dtype, outer * x.batch + head * x.head + row * x.row);
    if (in_place) {
      body(static_cast<const float*>(from), x.row, done, n);
    } else {
      StageRows(from, x.dtype, x.row, x.col, n, width, padded, room);
      body(room, padded, done, n);
    }
    done += n;
  }
}

void Few(const AttentionJob& job, const KeyPages* pages, int64_t batch, int64_t key_head,
         int64_t first, int64_t n, int64_t begin, int64_t end, float* memory, float* partial,
         int64_t step) {
  const int64_t padded = padded_to(job.width), padded_values = padded_to(job.value_width);
  const ForwardRoom room(memory, padded, padded_values);
  float* staged = memory + ForwardRoom::size(padded, padded_values);
  const int64_t group = job.heads / job.key_heads, at_once = kFewBatch / n;
  if (job.left >= 0) {
    begin = std::max(begin, (first + job.diagonal - job.left) / kWidth * kWidth);
  }
  if (job.right >= 0) end = std::min(end, first + n + job.diagonal + job.right);
  for (int64_t g = 0; g < group; g += at_once) {
    const int64_t heads = std::min(at_once, group - g), rows = heads * n;
    const int64_t head = key_head * group + g;
    const HeadRows& q = job.query;
    for (int64_t h = 0; h < heads; ++h) {
      StageRows(At(q.data, q.dtype, batch * q.batch + (head + h) * q.head + first * q.row), q.dtype,
                q.row, q.col, n, job.width, padded, room.query + h * n * padded);
    }
    SumScaled(room.query, 0, 1, job.scale, rows * padded, room.query);
    std::fill(room.most, room.most + padded_to(rows), kNever);
    std::fill(room.next, room.next + padded_to(rows), kNever);
    std::fill(room.total, room.total + rows, 0.0f);
    std::fill(room.sums, room.sums + rows * padded_values, 0.0f);
    for (int64_t key = begin; key < end; key += kFewKeys) {
      Block at{batch, head, first, n, key, std::min(kFewKeys, end - key), 0};
      at.cols = padded_to(at.keys);
      ForEachRun(job.key, pages, batch, key_head, key, at.keys, job.width, staged,
                 [&](const float* k, int64_t k_row, int64_t j, int64_t count) {
                   int64_t r = 0;
                   for (; r + kFewTile <= rows; r += kFewTile) {
                     FewScores<kFewTile>(room.query + r * padded, padded, k, k_row, count,
                                         room.scores + r * kScoreStep + j);
                   }
                   for (; r < rows; ++r) {
                     FewScores<1>(room.query + r * padded, padded, k, k_row, count,
                                  room.scores + r * kScoreStep + j);
                   }
                 });
      for (int64_t h = 0; h < heads; ++h) {
        at.head = head + h;
        Adjust(job, at, room.scores + h * n * kScoreStep, nullptr);
      }
      at.rows = rows;
      Weigh(job, at, room);
      Rescale(room.sums, padded_values, rows, room.next);
      ForEachRun(job.value, pages, batch, key_head, key, at.keys, job.value_width, staged,
                 [&](const float* v, int64_t v_row, int64_t j, int64_t count) {
                   int64_t r = 0;
                   for (; r + kFewTile <= rows; r += kFewTile) {
                     FewValues<kFewTile>(room.scores + r * kScoreStep + j, v, v_row, count,
                                         room.sums + r * padded_values, padded_values);
                   }
                   for (; r < rows; ++r) {
                     FewValues<1>(room.scores + r * kScoreStep + j, v, v_row, count,
                                  room.sums + r * padded_values, padded_values);
                   }
                 });
    }
    for (int64_t r = 0; r < rows; ++r) {
      float* to = partial + ((batch * job.heads + head + r / n) * job.rows + first + r % n) * step;
      to[0] = room.most[r];
      to[1] = room.total[r];
      std::memcpy(to + kSumsBegin, room.sums + r * padded_values,
                  static_cast<size_t>(padded_values) * sizeof(float));
    }
  }
}

void Combine(const AttentionJob& job, int64_t batch, int64_t head, int64_t row, int64_t count,
             float* partial) {
  const D d;
  const int64_t padded = padded_to(job.value_width), size = kSumsBegin + padded;
  float most = kNever, total = 0;
  for (int64_t c = 0; c < count; ++c) most = std::max(most, partial[c * size]);
  float* sums = partial + kSumsBegin;
  for (int64_t c = 0; c < count; ++c) {
    const float own = partial[c * size];
    const float factor = own == most ? 1.0f : std::exp(own - most);
    total += partial[c * size + 1] * factor;
    const V by = hn::Set(d, factor);
    for (int64_t j = 0; j < padded; j += kWidth) {
      const V term = hn::Mul(hn::LoadU(d, sums + c * size + j), by);
      hn::StoreU(c == 0 ? term : hn::Add(hn::LoadU(d, sums + j), term), d, sums + j);
    }
  }
  StoreResult(job, batch, head, row, most, total, sums);
}

// ---- backward ----

constexpr int64_t kBackwardKeys = kKeyBlock / 2;

struct BackwardRoom {
  float *weights, *gradients, *slopes, *grad_key, *grad_value, *factors;

  BackwardRoom(float* room, int64_t padded, int64_t padded_values) : weights(room) {
    gradients = weights + kRowBlock * kScoreStep;
    slopes = gradients + kRowBlock * kScoreStep;
    grad_key = slopes + kRowBlock * kScoreStep;
    grad_value = grad_key + kBackwardKeys * padded;
    factors = grad_value + kBackwardKeys * padded_values;
  }
  static int64_t size(int64_t padded, int64_t padded_values) {
    return 3 * kRowBlock * kScoreStep + kBackwardKeys * (padded + padded_values) + kKeyBlock;
  }
};

// Adds the gradients of a row of scores to that of the mask.
void AddToMask(const float* gradients, int64_t keys, int64_t col, float* to) {
  const D d;
  if (col == 0) {
    V sum = hn::Zero(d);
    int64_t j = 0;
    for (; j + kWidth <= keys; j += kWidth) sum = hn::Add(sum, hn::LoadU(d, gradients + j));
    float total = hn::GetLane(hn::SumOfLanes(d, sum));
    for (; j < keys; ++j) total += gradients[j];
    *to += total;
    return;
  }
  int64_t j = 0;
  for (; j + kWidth <= keys; j += kWidth) {
    hn::StoreU(hn::Add(hn::LoadU(d, to + j), hn::LoadU(d, gradients + j)), d, to + j);
  }
  for (; j < keys; ++j) to[j] += gradients[j];
}

// Replaces scores by weights, after dropout, and the gradients of the weights by those of the
// scores. `mask` points at the mask's sums of the first row and key, or is NULL.
void Differentiate(const AttentionJob& job, const Block& at, const float* logsumexp,
                   const float* delta, const BackwardRoom& room, float* mask) {
  const D d;
  for (int64_t r = 0; r < at.rows; ++r) {
    float* s = room.weights + r * kScoreStep;
    float* g = room.gradients + r * kScoreStep;
    const float sum = logsumexp[r];
    const V below = hn::Set(d, sum == kNever ? -kNever : sum), less = hn::Set(d, delta[r]);
    if (job.dropout_p == 0) {
      for (int64_t j = 0; j < at.cols; j += kWidth) {
        const V p = Exp(hn::Sub(hn::LoadU(d, s + j), below));
        hn::StoreU(hn::Mul(p, hn::Sub(hn::LoadU(d, g + j), less)), d, g + j);
        hn::StoreU(p, d, s + j);
      }
    } else {
      DropoutFactors(job, at, at.row + r, room.factors);
      for (int64_t j = 0; j < at.cols; j += kWidth) {
        const V p = Exp(hn::Sub(hn::LoadU(d, s + j), below));
        const V f = hn::LoadU(d, room.factors + j);
        hn::StoreU(hn::Mul(p, hn::MulSub(hn::LoadU(d, g + j), f, less)), d, g + j);
        hn::StoreU(hn::Mul(p, f), d, s + j);
      }
    }
    if (mask != nullptr) {
      AddToMask(g, at.keys, job.mask_sums.col, mask + r * job.mask_sums.row);
    }
    if (job.softcap != 0) {
      const float* slope = room.slopes + r * kScoreStep;
      for (int64_t j = 0; j < at.cols; j += kWidth) {
        hn::StoreU(hn::Mul(hn::LoadU(d, g + j), hn::LoadU(d, slope + j)), d, g + j);
      }
    }
  }
}

void StoreRows(const HeadRows& to, int64_t batch, int64_t head, int64_t first, int64_t n,
               int64_t width, const float* from, int64_t padded) {
  if (to.data == nullptr) return;
  for (int64_t r = 0; r < n; ++r) store_row(from + r * padded, to, batch, head, first + r, width);
}

void Backward(const AttentionJob& job, const StagedHeads& staged, int64_t batch, int64_t key_head,
              int64_t chunk, int64_t chunks, float* memory) {
  const int64_t padded = padded_to(job.width), padded_values = padded_to(job.value_width);
  const BackwardRoom room(memory, padded, padded_values);
  const int64_t group = job.heads / job.key_heads;
  const int64_t all_keys = (job.keys + kPanel - 1) / kPanel * kPanel;
  const int64_t kv = batch * job.key_heads + key_head;
  for (int64_t key = chunk * kBackwardKeys; key < job.keys; key += chunks * kBackwardKeys) {
    const int64_t keys = std::min(kBackwardKeys, job.keys - key);
    const int64_t cols = (keys + kPanel - 1) / kPanel * kPanel;
    const float* key_panels = staged.key_panels + (kv * all_keys + key) * job.width;
    const float* value_panels = staged.value_panels + (kv * all_keys + key) * job.value_width;
    const float* key_rows = staged.key.at(batch, key_head, key);
    std::fill(room.grad_key, room.grad_key + keys * padded, 0.0f);
    std::fill(room.grad_value, room.grad_value + keys * padded_values, 0.0f);
    int64_t begin = 0, end = job.rows;  // the rows that see any of the keys
    if (job.right >= 0) begin = std::max<int64_t>(0, key - job.diagonal - job.right);
    if (job.left >= 0) end = std::min(end, key + keys - job.diagonal + job.left);
    for (int64_t head = key_head * group; head < (key_head + 1) * group; ++head) {
      const int64_t first_row = (batch * job.heads + head) * job.rows;
      for (int64_t row = begin; row < end; row += kRowBlock) {
        const int64_t n = std::min(kRowBlock, end - row);
        const Block at{batch, head, row, n, key, keys, cols};
        const float* q = staged.query.at(batch, head, row);
        const float* g = staged.grad_output.at(batch, head, row);
        const int64_t q_row = staged.query.row, g_row = staged.grad_output.row;
        ProductOfPanels(n, cols, job.width, q, q_row, key_panels, room.weights, kScoreStep);
        ProductOfPanels(n, cols, job.value_width, g, g_row, value_panels, room.gradients,
                        kScoreStep);
        Adjust(job, at, room.weights, room.slopes);
        const HeadRows& sums = job.mask_sums;
        float* mask = static_cast<float*>(sums.data);
        if (mask != nullptr) {
          mask += chunk * job.mask_chunk + batch * sums.batch + head * sums.head + row * sums.row +
                  key * sums.col;
        }
        Differentiate(job, at, static_cast<const float*>(job.logsumexp.data) + first_row + row,
                      staged.delta + first_row + row, room, mask);
        if (job.grad_value.data != nullptr) {
          Product(keys, padded_values, n, room.weights, 1, kScoreStep, g, g_row, room.grad_value,
                  padded_values, true);
        }
        if (job.grad_key.data != nullptr) {
          Product(keys, padded, n, room.gradients, 1, kScoreStep, q, q_row, room.grad_key, padded,
                  true);
        }
        if (job.grad_query.data != nullptr) {
          float* to =
              staged.grad_query +
              ((chunk * job.batch * job.heads + batch * job.heads + head) * job.rows + row) *
                  padded;
          Product(n, padded, keys, room.gradients, kScoreStep, 1, key_rows, staged.key.row, to,
                  padded, true);
        }
      }
    }
    SumScaled(room.grad_key, 0, 1, job.scale, keys * padded, room.grad_key);
    StoreRows(job.grad_key, batch, key_head, key, keys, job.width, room.grad_key, padded);
    StoreRows(job.grad_value, batch, key_head, key, keys, job.value_width, room.grad_value,
              padded_values);
  }
}

float RowDot(const float* a, const float* b, int64_t padded) {
  const D d;
  V sum = hn::Zero(d);
  for (int64_t j = 0; j < padded; j += kWidth) {
    sum = hn::MulAdd(hn::LoadU(d, a + j), hn::LoadU(d, b + j), sum);
  }
  return hn::GetLane(hn::SumOfLanes(d, sum));
}

const AttentionFns* AttentionTable() {
  static constexpr AttentionFns table = {kWidth,     kPanel,      kRowBlock, kKeyBlock,
                                         &StageRows, &StagePanel, &Forward,  &Few,
                                         &Combine,   &Backward,   &RowDot,   &SumScaled};
  return &table;
}

}  // namespace HWY_NAMESPACE
}  // namespace cpu
}  // namespace mytorch
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mytorch::cpu {

MYTORCH_EXPORT_TABLE(attention_fns, AttentionTable)

void store_row(const float* from, const HeadRows& to, int64_t batch, int64_t head, int64_t row,
               int64_t width) {
  if (width == 0) return;
  const auto store = simd::get_convert(sdk::dtype_of<float>, to.dtype);
  const int64_t size = sdk::itemsize(to.dtype);
  char* out =
      static_cast<char*>(to.data) + (batch * to.batch + head * to.head + row * to.row) * size;
  if (to.col == 1 || width == 1) return store(from, out, width);
  for (int64_t j = 0; j < width; ++j) store(from + j, out + j * to.col * size, 1);
}

int64_t forward_room(const AttentionFns& fns, int64_t width, int64_t value_width) {
  return fns.row_block * (width + fns.key_block + 16 + padded_to(value_width, fns.lanes)) +
         3 * padded_to(fns.row_block, fns.lanes) + fns.key_block;
}

int64_t few_room(const AttentionFns& fns, int64_t width, int64_t value_width) {
  const int64_t padded = padded_to(width, fns.lanes);
  const int64_t padded_values = padded_to(value_width, fns.lanes);
  return forward_room(fns, padded, value_width) + kFewKeys * std::max(padded, padded_values);
}

int64_t partial_size(const AttentionFns& fns, int64_t value_width) {
  return kSumsBegin + padded_to(value_width, fns.lanes);
}

int64_t backward_room(const AttentionFns& fns, int64_t width, int64_t value_width) {
  return 3 * fns.row_block * (fns.key_block + 16) +
         fns.key_block / 2 * (padded_to(width, fns.lanes) + padded_to(value_width, fns.lanes)) +
         fns.key_block;
}

}  // namespace mytorch::cpu
#endif  // HWY_ONCE
