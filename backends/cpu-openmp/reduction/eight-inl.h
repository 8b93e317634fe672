// Folds eight short rows at once: a vector of partial results for each row, then a network that
// reduces eight vectors to one vector of eight results.
#if defined(MYTORCH_CPU_EIGHT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MYTORCH_CPU_EIGHT_INL_H_
#undef MYTORCH_CPU_EIGHT_INL_H_
#else
#define MYTORCH_CPU_EIGHT_INL_H_
#endif

#include <cstdint>

#include "backends/cpu-openmp/simd/highway.h"

HWY_BEFORE_NAMESPACE();
namespace mytorch::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Vectors of eight 4-byte lanes, if the target has them.
template <class T>
using EightTag = hn::CappedTag<T, 8>;
template <class T>
inline constexpr bool has_eight = sizeof(T) == 4 && hn::MaxLanes(EightTag<T>()) == 8;

#if HWY_TARGET != HWY_SCALAR
// Returns the elements of x in the mask `rest`, and the identity elsewhere. With `whole`, a whole
// vector may be read, which is faster than a masked load.
template <class D, class V>
HWY_INLINE V LoadRest(D d, const hn::TFromD<D>* x, V identity, hn::Mask<D> rest, bool whole) {
  const V v = HWY_LIKELY(whole) ? hn::LoadU(d, x) : hn::MaskedLoad(rest, d, x);
  return hn::IfThenElse(rest, v, identity);
}

// Op::Of(d, a, b) combines two vectors; `identity` is its neutral element.
template <class Op, class D, class V>
HWY_INLINE V FoldRow(D d, const hn::TFromD<D>* x, int64_t n, V identity, hn::Mask<D> rest,
                     bool whole) {
  V a = identity, b = identity, c = identity, e = identity;
  int64_t i = 0;
  for (; i + 32 <= n; i += 32) {
    a = Op::Of(d, a, hn::LoadU(d, x + i));
    b = Op::Of(d, b, hn::LoadU(d, x + i + 8));
    c = Op::Of(d, c, hn::LoadU(d, x + i + 16));
    e = Op::Of(d, e, hn::LoadU(d, x + i + 24));
  }
  a = Op::Of(d, a, b);
  c = Op::Of(d, c, e);
  for (; i + 8 <= n; i += 8) a = Op::Of(d, a, hn::LoadU(d, x + i));
  if (i < n) c = Op::Of(d, c, LoadRest(d, x + i, identity, rest, whole));
  return Op::Of(d, a, c);
}

// For rows of fewer than 16 elements: at most one whole vector.
template <class Op, bool kFull, class D, class V>
HWY_INLINE V FoldShortRow(D d, const hn::TFromD<D>* x, V identity, hn::Mask<D> rest, bool whole) {
  const V v = LoadRest(d, kFull ? x + 8 : x, identity, rest, whole);
  if constexpr (kFull) return Op::Of(d, v, hn::LoadU(d, x));
  return v;
}

// Lane r of the result combines the lanes of v[r].
template <class Op, class D, class V>
HWY_INLINE V FoldLanes(D d, V v0, V v1, V v2, V v3, V v4, V v5, V v6, V v7) {
  const hn::Repartition<uint64_t, D> dw;
  const auto pairs = [&](V a, V b) HWY_ATTR {
    return Op::Of(d, hn::InterleaveLower(d, a, b), hn::InterleaveUpper(d, a, b));
  };
  const auto fours = [&](V a, V b) HWY_ATTR {
    const auto x = hn::BitCast(dw, a), y = hn::BitCast(dw, b);
    return Op::Of(d, hn::BitCast(d, hn::InterleaveLower(dw, x, y)),
                  hn::BitCast(d, hn::InterleaveUpper(dw, x, y)));
  };
  const V low = fours(pairs(v0, v1), pairs(v2, v3));
  const V high = fours(pairs(v4, v5), pairs(v6, v7));
  return Op::Of(d, hn::ConcatLowerLower(d, high, low), hn::ConcatUpperUpper(d, high, low));
}

// Folds whole groups of eight rows of `n` elements, `stride` bytes apart, and calls store(first
// row, vector of results) for each group. Returns the number of rows folded.
template <class Op, class T, class F>
HWY_INLINE int64_t FoldEights(const void* data, int64_t stride, int64_t rows, int64_t n, T identity,
                              F&& store) {
  const EightTag<T> d;
  const auto none = hn::Set(d, identity);
  const auto rest = hn::FirstN(d, static_cast<size_t>(n % 8));
  // Bytes of a whole vector beyond the end of a row.
  const int64_t beyond = (8 - n % 8) * static_cast<int64_t>(sizeof(T));
  const char* top = static_cast<const char*>(data);
  const auto each = [&](auto&& fold) HWY_ATTR {
    int64_t r = 0;
    for (; r + 8 <= rows; r += 8, top += 8 * stride) {
      const bool whole = beyond <= (rows - r - 8) * stride;
      const auto at = [&](int64_t i) HWY_ATTR {
        return fold(reinterpret_cast<const T*>(top + i * stride), whole);
      };
      // The loads are in this order, which hardware prefetchers follow; the order in which
      // arguments are evaluated is unspecified.
      const auto v0 = at(0), v1 = at(1), v2 = at(2), v3 = at(3);
      const auto v4 = at(4), v5 = at(5), v6 = at(6), v7 = at(7);
      store(r, FoldLanes<Op>(d, v0, v1, v2, v3, v4, v5, v6, v7));
    }
    return r;
  };
  if (n < 8) {
    return each([&](const T* x, bool whole)
                    HWY_ATTR { return FoldShortRow<Op, false>(d, x, none, rest, whole); });
  }
  if (n < 16) {
    return each([&](const T* x, bool whole)
                    HWY_ATTR { return FoldShortRow<Op, true>(d, x, none, rest, whole); });
  }
  return each([&](const T* x, bool whole)
                  HWY_ATTR { return FoldRow<Op>(d, x, n, none, rest, whole); });
}
#endif  // HWY_TARGET != HWY_SCALAR

}  // namespace mytorch::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard
