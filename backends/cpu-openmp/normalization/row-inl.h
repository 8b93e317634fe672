// Vector loops over a row: whole vectors, and a partial one at the end.
#if defined(MYTORCH_CPU_NORMALIZATION_ROW_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MYTORCH_CPU_NORMALIZATION_ROW_INL_H_
#undef MYTORCH_CPU_NORMALIZATION_ROW_INL_H_
#else
#define MYTORCH_CPU_NORMALIZATION_ROW_INL_H_
#endif

#include <cstdint>

#include "backends/cpu-openmp/simd/highway.h"
#include "hwy/cache_control.h"

// For lambdas, which are always inlined: a lambda that is called keeps its captures in memory, even
// if only the partial vector calls it.
#ifndef MYTORCH_ROW
#define MYTORCH_ROW HWY_ATTR __attribute__((always_inline))
#endif

HWY_BEFORE_NAMESPACE();
namespace mytorch::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class T>
using Vec = hn::VFromD<hn::ScalableTag<T>>;

// A whole vector of elements, beginning at `i`.
template <class T, bool kPrefetches = true>
class Whole {
 public:
  explicit HWY_INLINE Whole(int64_t i) : i_(i) {}
  HWY_INLINE Vec<T> load(const T* row, T /*fill*/) const { return hn::LoadU(d_, row + i_); }
  HWY_INLINE void store(Vec<T> v, T* row) const { hn::StoreU(v, d_, row + i_); }
  // For rows with space for a whole vector at their end.
  HWY_INLINE void store_roomy(Vec<T> v, T* row) const { hn::StoreU(v, d_, row + i_); }
  // Non-temporal stores need a row of whole cache lines.
  HWY_INLINE void store(Vec<T> v, T* row, bool non_temporal) const {
    if (non_temporal) {
      hn::Stream(v, d_, row + i_);
    } else {
      store(v, row);
    }
  }
  HWY_INLINE Vec<T> zero_beyond(Vec<T> v) const { return v; }
  HWY_INLINE void prefetch(const T* row) const {
    if (kPrefetches) hwy::Prefetch(row + i_);
  }
  // Prefetches only into the L2 if the L1 cannot hold another row of each operand.
  HWY_INLINE void prefetch_far(const T* row) const {
    if (kPrefetches) __builtin_prefetch(row + i_, 0, 2);
  }

 private:
  const hn::ScalableTag<T> d_;
  const int64_t i_;
};

// The last `n` elements, beginning at `i`, fewer than the lanes of a vector. Accesses no memory
// beyond them.
template <class T>
class Part {
 public:
  HWY_INLINE Part(int64_t i, int64_t n) : i_(i), n_(n) {}
#if HWY_ARCH_X86 && HWY_TARGET != HWY_SCALAR
  // Masked loads and stores do not access the memory of inactive lanes.
  HWY_INLINE Vec<T> load(const T* row, T fill) const {
    return hn::IfThenElse(mask(), hn::MaskedLoad(mask(), d_, row + i_), hn::Set(d_, fill));
  }
  HWY_INLINE void store(Vec<T> v, T* row) const { hn::BlendedStore(v, mask(), d_, row + i_); }
#else
  HWY_INLINE Vec<T> load(const T* row, T fill) const {
    HWY_ALIGN T part[hn::MaxLanes(hn::ScalableTag<T>())];
    hn::Store(hn::Set(d_, fill), d_, part);
    for (int64_t j = 0; j < n_; ++j) part[j] = row[i_ + j];
    return hn::Load(d_, part);
  }
  HWY_INLINE void store(Vec<T> v, T* row) const {
    HWY_ALIGN T part[hn::MaxLanes(hn::ScalableTag<T>())];
    hn::Store(v, d_, part);
    for (int64_t j = 0; j < n_; ++j) row[i_ + j] = part[j];
  }
#endif
  HWY_INLINE void store_roomy(Vec<T> v, T* row) const { hn::StoreU(v, d_, row + i_); }
  HWY_INLINE void store(Vec<T> v, T* row, bool /*non_temporal*/) const { store(v, row); }
  HWY_INLINE Vec<T> zero_beyond(Vec<T> v) const { return hn::IfThenElseZero(mask(), v); }
  HWY_INLINE void prefetch(const T* row) const { hwy::Prefetch(row + i_); }
  HWY_INLINE void prefetch_far(const T* row) const { hwy::Prefetch(row + i_); }

 private:
  HWY_INLINE auto mask() const { return hn::FirstN(d_, static_cast<size_t>(n_)); }
  const hn::ScalableTag<T> d_;
  const int64_t i_;
  const int64_t n_;
};

// Calls body(part) for the vectors of a row. Vectors of half a cache line come in pairs, of which
// one prefetches.
template <class T, class F>
HWY_INLINE void ForEach(int64_t n, F&& body) {
  constexpr bool kHalves = hn::MaxLanes(hn::ScalableTag<T>()) * sizeof(T) == 32;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(hn::ScalableTag<T>()));
  int64_t i = 0;
  if constexpr (kHalves) {
    for (; i + 2 * lanes <= n; i += 2 * lanes) {
      body(Whole<T>(i));
      body(Whole<T, false>(i + lanes));
    }
  }
  for (; i + lanes <= n; i += lanes) body(Whole<T>(i));
  if (i < n) body(Part<T>(i, n - i));
}

// Reduces a row: calls body(part, sums) for its vectors, with four independent `sums`, because a
// single chain of additions takes three times as long as the loads. `Sums` has add(other).
template <class T, class Sums, class F>
HWY_INLINE Sums Fold(int64_t n, const Sums& start, F&& body) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(hn::ScalableTag<T>()));
  Sums s0 = start, s1 = start, s2 = start, s3 = start;
  int64_t i = 0;
  for (; i + 4 * lanes <= n; i += 4 * lanes) {
    body(Whole<T>(i), s0);
    body(Whole<T>(i + lanes), s1);
    body(Whole<T>(i + 2 * lanes), s2);
    body(Whole<T>(i + 3 * lanes), s3);
  }
  for (; i + lanes <= n; i += lanes) body(Whole<T>(i), s0);
  if (i < n) body(Part<T>(i, n - i), s1);
  s0.add(s1), s2.add(s3), s0.add(s2);
  return s0;
}

template <class T>
HWY_INLINE T SumOf(Vec<T> v) {
  return hn::GetLane(hn::SumOfLanes(hn::ScalableTag<T>(), v));
}

// One sum, or two. (Implicit constructors would not be compiled for the instruction set.)
template <class T>
struct One {
  Vec<T> a;
  HWY_INLINE One() : a(hn::Zero(hn::ScalableTag<T>())) {}
  HWY_INLINE void add(const One& other) { a = hn::Add(a, other.a); }
};
template <class T>
struct Two {
  Vec<T> a, b;
  HWY_INLINE Two() : a(hn::Zero(hn::ScalableTag<T>())), b(a) {}
  HWY_INLINE void add(const Two& other) {
    a = hn::Add(a, other.a);
    b = hn::Add(b, other.b);
  }
};

}  // namespace mytorch::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard
