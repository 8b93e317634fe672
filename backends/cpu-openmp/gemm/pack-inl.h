// Packing: copies a block of A or B into the order in which the microkernel reads it.
//
// A panel holds `kWidth` rows of A or columns of B (its lanes) for k steps: out[p * kWidth + l] is
// lane l at step p. Lanes past the edge of the matrix are zero.
#if defined(MYTORCH_GEMM_PACK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MYTORCH_GEMM_PACK_INL_H_
#undef MYTORCH_GEMM_PACK_INL_H_
#else
#define MYTORCH_GEMM_PACK_INL_H_
#endif

#include <bit>

#include "backends/cpu-openmp/gemm/convert-inl.h"
#include "backends/cpu-openmp/simd/bfloat16-inl.h"
#include "backends/cpu-openmp/simd/highway.h"
#include "backends/cpu-openmp/simd/transpose-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mytorch::cpu::gemm_internal::HWY_NAMESPACE {

// The most elements that pack_transposed writes past its panel.
inline constexpr int64_t kPackSlack = 16;

// Copies kWidth contiguous elements with vectors of decreasing width: 6 floats are copied as 4 and
// 2.
template <int kWidth, class T>
HWY_INLINE void copy_lanes(const T* HWY_RESTRICT from, Compute<T>* HWY_RESTRICT to) {
  using C = Compute<T>;
  constexpr int kMost = static_cast<int>(hn::MaxLanes(hn::ScalableTag<C>()));
  constexpr int kStep =
      kWidth >= kMost ? kMost : static_cast<int>(std::bit_floor(unsigned(kWidth)));
  const hn::CappedTag<C, kStep> d;
  hn::StoreU(load_compute(d, from), d, to);
  if constexpr (kWidth > kStep) copy_lanes<kWidth - kStep>(from + kStep, to + kStep);
}

// Packs lanes of any strides, and those at the edge.
template <int kWidth, class T>
HWY_INLINE void pack_elements(const T* HWY_RESTRICT from, int64_t lane_stride, int64_t k_stride,
                              int64_t k, int64_t lanes, Compute<T>* HWY_RESTRICT out) {
  for (int64_t p = 0; p < k; ++p, from += k_stride, out += kWidth) {
    for (int64_t l = 0; l < lanes; ++l) out[l] = load_scalar(from[l * lane_stride]);
    for (int64_t l = lanes; l < kWidth; ++l) out[l] = Compute<T>{};
  }
}

#if HWY_TARGET == HWY_SCALAR
template <int kWidth, class T>
void pack_transposed(const T* HWY_RESTRICT from, int64_t lane_stride, int64_t k, int64_t lanes,
                     Compute<T>* HWY_RESTRICT out) {
  pack_elements<kWidth>(from, lane_stride, 1, k, lanes, out);
}
#else
// Packs lanes that are contiguous along k: squares of 4 x 4 (or 2 x 2) elements are transposed in
// registers. 128-bit vectors suffice on every target: a square costs about one instruction per
// element, against n or m multiply-adds of that element.
template <int kWidth, class T>
void pack_transposed(const T* HWY_RESTRICT from, int64_t lane_stride, int64_t k, int64_t lanes,
                     Compute<T>* HWY_RESTRICT out) {
  using C = Compute<T>;
  const hn::Full128<C> d;
  constexpr int kSide = 16 / sizeof(C);
  constexpr int kGroups = (kWidth + kSide - 1) / kSide;
  static_assert(kGroups * kSide - kWidth <= kPackSlack);
  const int64_t whole = k / kSide * kSide;
  // One cache line of each lane at a time: lanes whose distance is a power of two share a set of
  // the L1, which would evict a line before its next square is read.
  constexpr int64_t kChunk = 64 / sizeof(T);
  for (int64_t begin = 0; begin < whole; begin += kChunk) {
    const int64_t end = begin + kChunk < whole ? begin + kChunk : whole;
    // If kWidth is no multiple of kSide, the last group spills over the first lanes of the next
    // step. Groups therefore go from last to first, which writes those lanes afterwards.
#pragma GCC unroll 8
    for (int g = kGroups - 1; g >= 0; --g) {
      for (int64_t p = begin; p < end; p += kSide) {
        hn::VFromD<decltype(d)> square[kSide];
#pragma GCC unroll 4
        for (int l = 0; l < kSide; ++l) {
          const int64_t lane = g * kSide + l;
          square[l] = lane < lanes ? load_compute(d, from + lane * lane_stride + p) : hn::Zero(d);
        }
        simd::HWY_NAMESPACE::TransposeBlocks(d, square);
#pragma GCC unroll 4
        for (int q = 0; q < kSide; ++q) {
          hn::StoreU(square[q], d, out + (p + q) * kWidth + g * kSide);
        }
      }
    }
  }
  pack_elements<kWidth>(from + whole, lane_stride, 1, k - whole, lanes, out + whole * kWidth);
}
#endif  // HWY_TARGET == HWY_SCALAR

// Packs `lanes` lanes into panels of kWidth, each kWidth * k elements. May write up to kPackSlack
// elements past the last, and does not write before the first.
template <int kWidth, class T>
void pack_panels(const T* HWY_RESTRICT from, int64_t lane_stride, int64_t k_stride, int64_t k,
                 int64_t lanes, Compute<T>* HWY_RESTRICT out) {
  int64_t l = 0;
  if (lane_stride == 1) {
    // Several panels at a time, so that the elements read at one step are enough for the prefetcher
    // and repay a TLB entry. More panels would have too many write streams.
    constexpr int64_t kAtATime = kWidth >= 64 ? 1 : 256 / kWidth;
    const int64_t whole = lanes / kWidth * kWidth;
    while (l < whole) {
      const int64_t end = l + kAtATime * kWidth < whole ? l + kAtATime * kWidth : whole;
      for (int64_t p = 0; p < k; ++p) {
        const T* row = from + p * k_stride;
        Compute<T>* to = out + p * kWidth;
        for (int64_t i = l; i < end; i += kWidth) copy_lanes<kWidth>(row + i, to + i * k);
      }
      l = end;
    }
  }
  for (; l < lanes; l += kWidth) {
    const int64_t rest = lanes - l < kWidth ? lanes - l : kWidth;
    if (k_stride == 1) {
      pack_transposed<kWidth>(from + l * lane_stride, lane_stride, k, rest, out + l * k);
    } else {
      pack_elements<kWidth>(from + l * lane_stride, lane_stride, k_stride, k, rest, out + l * k);
    }
  }
}

#if MYTORCH_BFLOAT16_PAIRS
// Packs one step of up to kWidth lanes from the steps `even` and `odd`; the latter may be NULL, for
// zeros. May write up to kPackSlack pairs past the step.
template <int kWidth>
HWY_INLINE void pack_pair(const BFloat16* even, const BFloat16* odd, int64_t lane_stride,
                          int64_t lanes, BFloat16Pair* HWY_RESTRICT out) {
  if (lane_stride == 1) {
    const hn::Full512<uint32_t> d;
    const hn::Rebind<uint16_t, decltype(d)> half;
    static_assert((kWidth + 15) / 16 * 16 - kWidth <= kPackSlack);
    for (int64_t l = 0; l < kWidth; l += 16) {
      const auto some = hn::FirstN(half, static_cast<size_t>(lanes <= l ? 0 : lanes - l));
      const auto load = [&](const BFloat16* from) HWY_ATTR {
        const auto* bits = reinterpret_cast<const uint16_t*>(from);
        return hn::PromoteTo(d, hn::MaskedLoad(some, half, bits + l));
      };
      auto pair = load(even);
      if (odd != nullptr) pair = hn::Or(pair, hn::ShiftLeft<16>(load(odd)));
      hn::StoreU(pair, d, reinterpret_cast<uint32_t*>(out) + l);
    }
    return;
  }
  for (int64_t l = 0; l < lanes; ++l) {
    const uint32_t high = odd == nullptr ? 0 : odd[l * lane_stride].bits;
    out[l].bits = even[l * lane_stride].bits | high << 16;
  }
  for (int64_t l = lanes; l < kWidth; ++l) out[l].bits = 0;
}

// Packs pairs of steps. A step after the last of an odd `k` is zero. Like pack_panels(), may write
// up to kPackSlack pairs past the last.
template <int kWidth>
void pack_pairs(const BFloat16* HWY_RESTRICT from, int64_t lane_stride, int64_t k_stride, int64_t k,
                int64_t lanes, BFloat16Pair* HWY_RESTRICT out) {
  const int64_t steps = (k + 1) / 2;
  for (int64_t l = 0; l < lanes; l += kWidth, out += kWidth * steps) {
    const int64_t count = lanes - l < kWidth ? lanes - l : kWidth;
    const BFloat16* panel = from + l * lane_stride;
    int64_t done = 0;
    if (k_stride == 1) {
      // Squares of 4 x 4 pairs, as pack_transposed() has them.
      const hn::Full128<uint32_t> d;
      const hn::Full128<uint16_t> half;
      constexpr int kGroups = (kWidth + 3) / 4;
      static_assert(kGroups * 4 - kWidth <= kPackSlack);
      const int64_t whole = k / 8 * 4;
      constexpr int64_t kChunk = 16;  // a cache line
      for (; done < whole; done += kChunk) {
        const int64_t end = done + kChunk < whole ? done + kChunk : whole;
#pragma GCC unroll 8
        for (int g = kGroups - 1; g >= 0; --g) {
          for (int64_t p = done; p < end; p += 4) {
            hn::VFromD<decltype(d)> square[4];
#pragma GCC unroll 4
            for (int r = 0; r < 4; ++r) {
              const int64_t lane = g * 4 + r;
              const auto* at =
                  reinterpret_cast<const uint16_t*>(panel) + lane * lane_stride + 2 * p;
              square[r] = lane < count ? hn::BitCast(d, hn::LoadU(half, at)) : hn::Zero(d);
            }
            simd::HWY_NAMESPACE::TransposeBlocks(d, square);
#pragma GCC unroll 4
            for (int q = 0; q < 4; ++q) {
              hn::StoreU(square[q], d, reinterpret_cast<uint32_t*>(out) + (p + q) * kWidth + g * 4);
            }
          }
        }
      }
      done = whole;
    }
    for (; done < steps; ++done) {
      const BFloat16* even = panel + 2 * done * k_stride;
      pack_pair<kWidth>(even, 2 * done + 1 < k ? even + k_stride : nullptr, lane_stride, count,
                        out + done * kWidth);
    }
  }
}
#endif  // MYTORCH_BFLOAT16_PAIRS

// Packs lanes of T into panels of factors F.
template <int kWidth, class T, class F>
HWY_INLINE void pack_factors(const T* from, int64_t lane_stride, int64_t k_stride, int64_t k,
                             int64_t lanes, F* out) {
#if MYTORCH_BFLOAT16_PAIRS
  if constexpr (std::is_same_v<F, BFloat16Pair>) {
    pack_pairs<kWidth>(from, lane_stride, k_stride, k, lanes, out);
  } else
#endif
  {
    pack_panels<kWidth>(from, lane_stride, k_stride, k, lanes, out);
  }
}

}  // namespace mytorch::cpu::gemm_internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // MYTORCH_GEMM_PACK_INL_H_
