// The microkernel: a tile of C in registers while k runs.
#if defined(MYTORCH_GEMM_MICROKERNEL_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MYTORCH_GEMM_MICROKERNEL_INL_H_
#undef MYTORCH_GEMM_MICROKERNEL_INL_H_
#else
#define MYTORCH_GEMM_MICROKERNEL_INL_H_
#endif

#include <array>
#include <utility>

#include "backends/cpu-openmp/gemm/convert-inl.h"
#include "backends/cpu-openmp/simd/bfloat16-inl.h"
#include "backends/cpu-openmp/simd/highway.h"
#include "hwy/cache_control.h"

HWY_BEFORE_NAMESPACE();
namespace mytorch::cpu::gemm_internal::HWY_NAMESPACE {

// The tile is kTileRows x (kTileVecs vectors). Its sums, the vectors of one row of B and one
// broadcast element of A must fit in registers: 12 + 2 + 1 of 16 with AVX2, 28 + 2 + 1 of 32 with
// AVX-512. Multiplication of 64-bit integers is emulated with several temporaries, so their tile is
// smaller.
inline constexpr int kTileVecs = 2;
#if HWY_TARGET <= HWY_AVX3
template <class C>
inline constexpr int kTileRows = hwy::IsFloat<C>() ? 14 : 8;
#elif HWY_TARGET <= HWY_AVX2
template <class C>
inline constexpr int kTileRows = hwy::IsFloat<C>() || sizeof(C) == 4 ? 6 : 3;
#else
template <class C>
inline constexpr int kTileRows = 4;
#endif

template <class C>
inline constexpr int kLanes = static_cast<int>(hn::MaxLanes(hn::ScalableTag<C>()));
template <class C>
inline constexpr int kTileCols = kTileVecs* kLanes<C>;

// Factors, which are elements of the compute type C, or pairs of bfloat16.
template <class D, class F>
HWY_INLINE auto load_factors(D d, const F* from) {
  if constexpr (std::is_same_v<F, BFloat16Pair>) {
    return hn::LoadU(hn::RebindToUnsigned<D>(), reinterpret_cast<const uint32_t*>(from));
  } else {
    return hn::LoadU(d, from);
  }
}
template <class D, class F>
HWY_INLINE auto set_factor(D d, F factor) {
  if constexpr (std::is_same_v<F, BFloat16Pair>) {
    return hn::Set(hn::RebindToUnsigned<D>(), factor.bits);
  } else {
    return hn::Set(d, factor);
  }
}
template <class F, class V, class C>
HWY_INLINE C add_products(V a, V b, C sum) {
#if MYTORCH_BFLOAT16_PAIRS
  if constexpr (std::is_same_v<F, BFloat16Pair>) {
    return simd::HWY_NAMESPACE::AddPairs(a, b, sum);
  } else
#endif
  {
    return multiply_add(a, b, sum);
  }
}

// c[i][j] (+)= sum over p < k of a[i * a_row + p * a_k] * b[p * b_k + j], for a tile whose rows of
// C are contiguous and `c_row` apart. k is at least 1; it and the strides count factors.
template <class F>
using TileFn = void (*)(int64_t k, const F* a, int64_t a_row, int64_t a_k, const F* b, int64_t b_k,
                        Compute<F>* c, int64_t c_row, bool add);

// With kPacked, A is packed in panels: its rows are 1 apart and its columns kTileRows.
template <class F, int kRows, int kVecs, bool kPacked>
void tile(int64_t k, const F* HWY_RESTRICT a, int64_t a_row, int64_t a_k, const F* HWY_RESTRICT b,
          int64_t b_k, Compute<F>* HWY_RESTRICT c, int64_t c_row, bool add) {
  using C = Compute<F>;
  const hn::ScalableTag<C> d;
  constexpr int kWidth = kLanes<C>;
  using V = hn::VFromD<decltype(d)>;
  if constexpr (kPacked) {
    a_row = 1;
    a_k = kTileRows<C>;
  }

  // The tile of C is needed at the end, and each of its rows may be on another page.
#pragma GCC unroll 16
  for (int i = 0; i < kRows; ++i) hwy::Prefetch(c + i * c_row);

  V sum[kRows][kVecs];
#pragma GCC unroll 16
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 2
    for (int v = 0; v < kVecs; ++v) sum[i][v] = hn::Zero(d);
  }

  // x86 addresses base + {1, 2} * stride directly: one pointer for three rows of A leaves enough
  // integer registers for the 14-row tile.
  constexpr int kGroups = (kRows + 2) / 3;
  const F* rows[kGroups];
#pragma GCC unroll 8
  for (int g = 0; g < kGroups; ++g) rows[g] = a + 3 * g * a_row;

#pragma GCC unroll 4
  for (int64_t p = 0; p < k; ++p) {
    decltype(load_factors(d, b)) row_of_b[kVecs];
#pragma GCC unroll 2
    for (int v = 0; v < kVecs; ++v) row_of_b[v] = load_factors(d, b + v * kWidth);
#pragma GCC unroll 16
    for (int i = 0; i < kRows; ++i) {
      const auto element = set_factor(d, rows[i / 3][(i % 3) * a_row]);
#pragma GCC unroll 2
      for (int v = 0; v < kVecs; ++v) {
        sum[i][v] = add_products<F>(element, row_of_b[v], sum[i][v]);
      }
    }
    b += b_k;
#pragma GCC unroll 8
    for (int g = 0; g < kGroups; ++g) rows[g] += a_k;
  }

  if (add) {
#pragma GCC unroll 16
    for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 2
      for (int v = 0; v < kVecs; ++v) {
        C* to = c + i * c_row + v * kWidth;
        hn::StoreU(hn::Add(hn::LoadU(d, to), sum[i][v]), d, to);
      }
    }
  } else {
#pragma GCC unroll 16
    for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 2
      for (int v = 0; v < kVecs; ++v) hn::StoreU(sum[i][v], d, c + i * c_row + v * kWidth);
    }
  }
}

template <class F, int kVecs, int... kIndex>
constexpr auto direct_tiles(std::integer_sequence<int, kIndex...>) {
  return std::array<TileFn<F>, sizeof...(kIndex)>{&tile<F, kIndex + 1, kVecs, false>...};
}

// The microkernel for a tile of `rows` rows and `vecs` vectors that reads A in place.
template <class F>
HWY_INLINE TileFn<F> direct_tile(int64_t rows, int64_t vecs) {
  using Rows = std::make_integer_sequence<int, kTileRows<Compute<F>>>;
  static constexpr auto kOne = direct_tiles<F, 1>(Rows());
  static constexpr auto kTwo = direct_tiles<F, 2>(Rows());
  return vecs == 1 ? kOne[rows - 1] : kTwo[rows - 1];
}

// The same for a packed A, always of kTileRows rows.
template <class F>
HWY_INLINE TileFn<F> packed_tile(int64_t vecs) {
  constexpr int kRows = kTileRows<Compute<F>>;
  return vecs == 1 ? &tile<F, kRows, 1, true> : &tile<F, kRows, 2, true>;
}

}  // namespace mytorch::cpu::gemm_internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // MYTORCH_GEMM_MICROKERNEL_INL_H_
