// Blocks of scores: what is added to them, their exponentials, and the sums of rows.
#if defined(MYTORCH_ATTENTION_SCORES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MYTORCH_ATTENTION_SCORES_INL_H_
#undef MYTORCH_ATTENTION_SCORES_INL_H_
#else
#define MYTORCH_ATTENTION_SCORES_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "backends/cpu-openmp/attention/blocks.h"
#include "backends/cpu-openmp/gemm/microkernel-inl.h"
#include "backends/cpu-openmp/random/bits.h"
#include "backends/cpu-openmp/simd/convert.h"
#include "backends/cpu-openmp/simd/highway.h"
#include "mytorch/backend/dtype.h"

HWY_BEFORE_NAMESPACE();
namespace mytorch::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
namespace vec = mytorch::simd::HWY_NAMESPACE;
namespace mm = mytorch::cpu::gemm_internal::HWY_NAMESPACE;

using D = hn::ScalableTag<float>;
using V = hn::VFromD<D>;
using Pair = gemm_internal::BFloat16Pair;
constexpr int64_t kWidth = mm::kLanes<float>;
constexpr int64_t kPanel = mm::kTileCols<float>;
constexpr int64_t kTile = mm::kTileRows<float>;
// The most rows that meet a block of keys at a time: eight tiles, or with AMX those of AMX.
constexpr int64_t kRowBlock = std::max<int64_t>(8 * kTile, 128);
constexpr int64_t kKeyBlock = 256;
// Rows of scores are a little longer than a power of two, so that they do not share cache sets.
constexpr int64_t kScoreStep = kKeyBlock + 16;
constexpr float kNever = -std::numeric_limits<float>::infinity();
static_assert(kKeyBlock <= kRandomChunk && kKeyBlock % 8 == 0);

inline int64_t padded_to(int64_t n) { return (n + kWidth - 1) / kWidth * kWidth; }

inline void StageRow(const void* from, mt_dtype dtype, int64_t col, int64_t n, float* to) {
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

inline const void* At(const void* from, mt_dtype dtype, int64_t offset) {
  return static_cast<const char*>(from) + offset * sdk::itemsize(dtype);
}

// exp(x), infinity for x from 89 to 1e6. Results that would be denormal, which is slow, may be 0.
// Keeps NaN.
HWY_INLINE V Exp(V x) {
  const D d;
  const V low = hn::Set(d, -87.0f);
#if HWY_TARGET == HWY_AVX3
  const V clamped = hn::Max(low, x);
  const V magic = hn::Set(d, vec::round_magic<D>);
  const V n = hn::Sub(hn::MulAdd(clamped, hn::Set(d, 0x1.715476p0f), magic), magic);
  const V e{_mm512_scalef_ps(vec::ExpPoly(d, vec::ReduceLn2(d, clamped, n)).raw, n.raw)};
  return hn::IfThenZeroElse(hn::Lt(x, low), e);
#else
  const V clamped = vec::Clamp(d, x, low, hn::Set(d, 89.0f));
  const V magic = hn::Set(d, vec::round_magic<D> + 127);
  const V t = hn::MulAdd(clamped, hn::Set(d, 0x1.715476p0f), magic);
  const V p = vec::ExpPoly(d, vec::ReduceLn2(d, clamped, hn::Sub(t, magic)));
  const V scale = hn::BitCast(d, hn::ShiftLeft<23>(hn::BitCast(vec::Bits<D>(), t)));
  return hn::IfThenZeroElse(hn::Lt(x, low), hn::Mul(p, scale));
#endif
}

// A block of scores: `rows` x `keys`, in `cols` columns, which are whole panels.
struct Block {
  int64_t batch, head, row, rows, key, keys, cols;
};

// Adds the mask to a row of scores.
inline void AddMask(const AttentionJob& job, const Block& at, int64_t row, float* s) {
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

// Applies softcap, slopes, mask and band to products of queries and keys, and returns the factor by
// which the results are still to be multiplied: `scale`, or 1 if it is applied, too. With
// `cap_slope`, also stores the derivative of softcap there.
inline float Adjust(const AttentionJob& job, const Block& at, float scale, float* scores,
                    float* cap_slope) {
  const D d;
  // A factor that is not positive would make something else of -infinity.
  const bool now = job.softcap != 0 || job.slopes.data != nullptr || job.mask.data != nullptr ||
                   !(scale > 0) || scale == -kNever;
  for (int64_t r = 0; r < at.rows; ++r) {
    float* s = scores + r * kScoreStep;
    const int64_t i = at.row + r;
    if (now && scale != 1) {
      const V by = hn::Set(d, scale);
      for (int64_t j = 0; j < at.cols; j += kWidth) {
        hn::StoreU(hn::Mul(hn::LoadU(d, s + j), by), d, s + j);
      }
    }
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
  return now ? 1.0f : scale;
}

// Sets `factors` to 0 where dropout drops the weights of a row, else to 1 / (1 - p).
inline void DropoutFactors(const AttentionJob& job, const Block& at, int64_t row, float* factors) {
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

struct ForwardRoom {
  float *scores, *sums, *most, *next, *total, *factors;

  ForwardRoom(float* room, int64_t padded_values) : scores(room) {
    sums = scores + kRowBlock * kScoreStep;
    most = sums + kRowBlock * padded_values;
    next = most + padded_to(kRowBlock);
    total = next + padded_to(kRowBlock);
    factors = total + padded_to(kRowBlock);
  }
  static int64_t size(int64_t padded_values) {
    return kRowBlock * (kScoreStep + padded_values) + 3 * padded_to(kRowBlock) + kKeyBlock;
  }
};

// Rounds a row of `cols` weights to factors, in place.
template <class F>
HWY_INLINE void RoundRow(float* row, int64_t cols) {
#if MYTORCH_BFLOAT16_PAIRS
  if constexpr (std::is_same_v<F, Pair>) {
    const D d;
    const hn::RebindToUnsigned<D> du;
    auto* to = reinterpret_cast<uint32_t*>(row);
    for (int64_t j = 0; j < cols; j += 2 * kWidth) {
      const V low = hn::LoadU(d, row + j), high = hn::LoadU(d, row + j + kWidth);
      hn::StoreU(vec::PairNeighbours(low, high), du, to + j / 2);
    }
  }
#endif
  (void)row, (void)cols;
}

// Replaces scores, which are still to be multiplied by `scale`, by weights that are not yet divided
// by their sum, and updates each row's maximum and sum. room.next becomes the factor of what the
// rows have summed before.
template <class F>
void Weigh(const AttentionJob& job, const Block& at, float scale, const ForwardRoom& room) {
  const D d;
  const V by = hn::Set(d, scale);
  for (int64_t r = 0; r < at.rows; ++r) {
    const float* s = room.scores + r * kScoreStep;
    V high = hn::LoadU(d, s);
    for (int64_t j = kWidth; j < at.cols; j += kWidth) high = hn::Max(hn::LoadU(d, s + j), high);
    room.next[r] = hn::GetLane(hn::MaxOfLanes(d, high)) * scale;
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
        const V p = Exp(hn::MulSub(hn::LoadU(d, s + j), by, below));
        hn::StoreU(p, d, s + j);
        sum = hn::Add(sum, p);
      }
    } else {
      DropoutFactors(job, at, at.row + r, room.factors);
      for (int64_t j = 0; j < at.cols; j += kWidth) {
        const V p = Exp(hn::MulSub(hn::LoadU(d, s + j), by, below));
        hn::StoreU(hn::Mul(p, hn::LoadU(d, room.factors + j)), d, s + j);
        sum = hn::Add(sum, p);
      }
    }
    RoundRow<F>(s, at.cols);
    room.total[r] = room.total[r] * room.next[r] + hn::GetLane(hn::SumOfLanes(d, sum));
  }
}

inline void Rescale(float* sums, int64_t padded, int64_t rows, const float* factor) {
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

inline void SumScaled(const float* from, int64_t step, int64_t count, float scale, int64_t n,
                      float* to) {
  const D d;
  const V by = hn::Set(d, scale);
  for (int64_t j = 0; j < n; j += kWidth) {  // rows are padded
    V sum = hn::LoadU(d, from + j);
    for (int64_t c = 1; c < count; ++c) sum = hn::Add(sum, hn::LoadU(d, from + c * step + j));
    hn::StoreU(hn::Mul(sum, by), d, to + j);
  }
}

// Stores the output and the logsumexp of a row, whose sums of values it divides by `total`.
inline void StoreResult(const AttentionJob& job, int64_t batch, int64_t head, int64_t row,
                        float most, float total, float* sums) {
  SumScaled(sums, 0, 1, total == 0 ? 0.0f : 1 / total, padded_to(job.value_width), sums);
  store_row(sums, job.output, batch, head, row, job.value_width);
  const HeadRows& lse = job.logsumexp;
  static_cast<float*>(lse.data)[batch * lse.batch + head * lse.head + row * lse.row] =
      total == 0 ? kNever : most + std::log(total);
}

}  // namespace mytorch::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // MYTORCH_ATTENTION_SCORES_INL_H_
