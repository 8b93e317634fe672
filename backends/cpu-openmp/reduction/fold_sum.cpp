// sum and prod.
#include <algorithm>

#include "backends/cpu-openmp/reduction/fold.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu-openmp/reduction/fold_sum.cpp"
#include "backends/cpu-openmp/simd/foreach_target.h"
// After foreach_target.h, which includes this file once for each instruction set.
#include "backends/cpu-openmp/pointwise/inner_loop-inl.h"
#include "backends/cpu-openmp/reduction/eight-inl.h"
#include "backends/cpu-openmp/simd/export.h"
#include "backends/cpu-openmp/simd/highway.h"
#include "mytorch/backend/dtype.h"

HWY_BEFORE_NAMESPACE();
namespace mytorch::cpu::HWY_NAMESPACE {
namespace {

template <class T>
using Total = std::conditional_t<std::is_same_v<T, float>, double, T>;

struct Add {
  static constexpr int kIdentity = 0;
  template <class D, class V>
  static HWY_INLINE V Of(D, V a, V b) {
    return hn::Add(a, b);
  }
  static double One(double a, double b) { return a + b; }
  static int64_t One(int64_t a, int64_t b) {
    return static_cast<int64_t>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
  }
};
struct Multiply {
  static constexpr int kIdentity = 1;
  template <class D, class V>
  static HWY_INLINE V Of(D, V a, V b) {
    return hn::Mul(a, b);
  }
  static double One(double a, double b) { return a * b; }
  static int64_t One(int64_t a, int64_t b) {
    return static_cast<int64_t>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
  }
};

// Combines totals pairwise.
template <class Op, class T, size_t kCount>
HWY_INLINE T Pairwise(T (&totals)[kCount]) {
  for (size_t width = kCount / 2; width > 0; width /= 2) {
    for (size_t i = 0; i < width; ++i) totals[i] = Op::One(totals[i], totals[i + width]);
  }
  return totals[0];
}

// Combines the lanes of a vector in the type of the total.
template <class Op, class D, class V>
HWY_INLINE Total<hn::TFromD<D>> Lanes(D d, V v) {
  using T = hn::TFromD<D>;
  constexpr size_t kLanes = hn::MaxLanes(D());
  alignas(64) T lanes[kLanes];
  hn::Store(v, d, lanes);
  Total<T> totals[kLanes];
  for (size_t i = 0; i < kLanes; ++i) totals[i] = lanes[i];
  return Pairwise<Op>(totals);
}

// A block is short enough for float32: each of its running sums, 64 or more with vectors and 8
// without, takes at most 32 elements, and the sums of blocks are added in double.
constexpr int64_t kBlock = kVectors ? 2048 : 256;
// Long inputs are read in two streams, one for each half: a single stream waits at the end of each
// page, where the hardware prefetchers start anew. The second stream begins some lines further into
// its page, because equal lines of two pages share a set of the cache.
constexpr int64_t kFarBlocks = 16;
constexpr int64_t kSkew = 16;

// Returns a vector with the sum of `steps` times eight vectors, four at x and four at y, which both
// advance by `by` elements a step. A single stream passes two adjacent ones.
template <class Op, class D, class T>
HWY_INLINE hn::VFromD<D> Eights(D d, const T* x, const T* y, int64_t by, int64_t steps) {
  using V = hn::VFromD<D>;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  V a0 = hn::Set(d, T(Op::kIdentity)), a1 = a0, a2 = a0, a3 = a0, a4 = a0, a5 = a0, a6 = a0,
    a7 = a0;
  // One cache line at a time.
  for (; steps > 0; --steps, x += by, y += by) {
    a0 = Op::Of(d, a0, hn::LoadU(d, x));
    a1 = Op::Of(d, a1, hn::LoadU(d, x + lanes));
    a4 = Op::Of(d, a4, hn::LoadU(d, y));
    a5 = Op::Of(d, a5, hn::LoadU(d, y + lanes));
    a2 = Op::Of(d, a2, hn::LoadU(d, x + 2 * lanes));
    a3 = Op::Of(d, a3, hn::LoadU(d, x + 3 * lanes));
    a6 = Op::Of(d, a6, hn::LoadU(d, y + 2 * lanes));
    a7 = Op::Of(d, a7, hn::LoadU(d, y + 3 * lanes));
  }
  a0 = Op::Of(d, Op::Of(d, a0, a1), Op::Of(d, a2, a3));
  return Op::Of(d, a0, Op::Of(d, Op::Of(d, a4, a5), Op::Of(d, a6, a7)));
}

// Adds a vector of values to the totals.
template <class Op, class D, class V>
HWY_INLINE void Join(D d, V v, Total<hn::TFromD<D>>* totals) {
  if constexpr (std::is_same_v<hn::TFromD<D>, float>) {
#if HWY_TARGET == HWY_SCALAR
    totals[0] = Op::One(totals[0], double{hn::GetLane(v)});
#else
    const hn::Repartition<double, D> dd;
    const hn::Half<D> dh;
    const size_t lanes = hn::Lanes(dd);
    hn::StoreU(Op::Of(dd, hn::LoadU(dd, totals), hn::PromoteTo(dd, hn::LowerHalf(dh, v))), dd,
               totals);
    hn::StoreU(Op::Of(dd, hn::LoadU(dd, totals + lanes), hn::PromoteTo(dd, hn::UpperHalf(dh, v))),
               dd, totals + lanes);
#endif
  } else {
    hn::StoreU(Op::Of(d, hn::LoadU(d, totals), v), d, totals);
  }
}

// Returns the total of `count` blocks at x or, if y is given, of `count` halves of blocks at each.
template <class Op, class T>
Total<T> Blocks(const T* x, const T* y, int64_t count) {
  const hn::ScalableTag<T> d;
  constexpr size_t kLanes = hn::MaxLanes(d);
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  alignas(64) Total<T> totals[kLanes];
  for (Total<T>& total : totals) total = Op::kIdentity;
  const int64_t by = y == nullptr ? 8 * lanes : 4 * lanes, steps = kBlock / (8 * lanes);
  if (y == nullptr) y = x + 4 * lanes;
  for (; count > 0; --count, x += steps * by, y += steps * by) {
    Join<Op>(d, Eights<Op>(d, x, y, by, steps), totals);
  }
  return Pairwise<Op>(totals);
}

// Returns the total of a block of any length.
template <class Op, class T>
Total<T> Block(const T* x, int64_t n) {
  const hn::ScalableTag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = n / (8 * lanes) * (8 * lanes);
  auto sum = Eights<Op>(d, x, x + 4 * lanes, 8 * lanes, n / (8 * lanes));
  for (; i + lanes <= n; i += lanes) sum = Op::Of(d, sum, hn::LoadU(d, x + i));
  Total<T> total = Lanes<Op>(d, sum);
  for (; i < n; ++i) total = Op::One(total, Total<T>(x[i]));
  return total;
}

template <class T>
void ResetTotals(const States& s, int64_t n, T identity) {
  for (int64_t j = 0; j < n; ++j) static_cast<T*>(s.component[0])[j] = identity;
}

template <class Op, class T>
void Reset(const States& s, int64_t n) {
  ResetTotals<Total<T>>(s, n, Op::kIdentity);
}

template <class Op, class T>
void Along(const States& s, int64_t j, const void* data, int64_t n, int64_t /*first*/) {
  const T* x = static_cast<const T*>(data);
  Total<T>& total = static_cast<Total<T>*>(s.component[0])[j];
  if constexpr (std::is_same_v<Op, Multiply> && std::is_same_v<T, float>) {
    // Intermediate products overflow float's range more often than sums.
    double wide[256];
    for (int64_t i = 0; i < n; i += 256) {
      const int64_t count = HWY_MIN(n - i, 256);
      for (int64_t k = 0; k < count; ++k) wide[k] = x[i + k];
      total *= Block<Op>(wide, count);
    }
  } else {
    if (n >= kFarBlocks * kBlock) {
      const int64_t count = (n - kSkew) / kBlock, half = count * kBlock / 2;
      total = Op::One(total, Blocks<Op>(x, x + half + kSkew, count));
      total = Op::One(total, Block<Op>(x + half, kSkew));
      x += 2 * half + kSkew;
      n -= 2 * half + kSkew;
    }
    if (n >= kBlock) {
      total = Op::One(total, Blocks<Op, T>(x, nullptr, n / kBlock));
      x += n / kBlock * kBlock;
      n %= kBlock;
    }
    total = Op::One(total, Block<Op>(x, n));
  }
}

// Adds a row to the totals.
template <class Op, class T>
HWY_INLINE void JoinRow(const T* x, int64_t n, Total<T>* totals) {
  const hn::ScalableTag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t j = 0;
  for (; j + lanes <= n; j += lanes) Join<Op>(d, hn::LoadU(d, x + j), totals + j);
  for (; j < n; ++j) totals[j] = Op::One(totals[j], Total<T>(x[j]));
}

// Folds four rows at once, which are far apart for the reason given at kFarBlocks. float32 is
// summed over 64 rows, four at a time.
template <class Op, class T>
void Across(const States& s, const void* data, int64_t stride, int64_t rows, int64_t n,
            int64_t /*first*/) {
  const hn::ScalableTag<T> d;
  Total<T>* totals = static_cast<Total<T>*>(s.component[0]);
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const char* top = static_cast<const char*>(data);
  const auto at = [&](int64_t r) { return reinterpret_cast<const T*>(top + r * stride); };
  int64_t r = 0;
  // See Along for products.
  if constexpr (std::is_same_v<Op, Add> || !std::is_same_v<T, float>) {
    constexpr bool kWide = std::is_same_v<T, Total<T>>;
    constexpr int64_t kRows = 16;
    alignas(64) T room[kWide ? 1 : kMaxStates];
    T* sums;
    if constexpr (kWide) {
      sums = totals;
    } else {
      sums = room;
    }
    const int64_t quarter = rows / 4, whole = n / lanes * lanes;
    for (int64_t q = 0; q < quarter;) {
      if (!kWide) std::fill_n(sums, n, T(Op::kIdentity));
      for (const int64_t end = HWY_MIN(q + kRows, quarter); q < end; ++q) {
        const T *x0 = at(q), *x1 = at(q + quarter), *x2 = at(q + 2 * quarter),
                *x3 = at(q + 3 * quarter);
        for (int64_t j = 0; j < whole; j += lanes) {
          const auto a = Op::Of(d, hn::LoadU(d, x0 + j), hn::LoadU(d, x1 + j));
          const auto b = Op::Of(d, hn::LoadU(d, x2 + j), hn::LoadU(d, x3 + j));
          hn::StoreU(Op::Of(d, hn::LoadU(d, sums + j), Op::Of(d, a, b)), d, sums + j);
        }
        for (int64_t j = whole; j < n; ++j) {
          for (const T* x : {x0, x1, x2, x3}) {
            totals[j] = Op::One(totals[j], Total<T>(x[j]));
          }
        }
      }
      if (!kWide) JoinRow<Op>(sums, whole, totals);
    }
    r = 4 * quarter;
  }
  for (; r < rows; ++r) JoinRow<Op>(at(r), n, totals);
}

// Along() folds longer rows, because it adds in double more often.
template <class Op, class T>
void Each(const States& s, int64_t j, const void* data, int64_t stride, int64_t rows, int64_t n) {
  Total<T>* totals = static_cast<Total<T>*>(s.component[0]) + j;
  int64_t done = 0;
#if HWY_TARGET != HWY_SCALAR
  if constexpr (has_eight<T>) {
    const EightTag<T> d;
    const hn::Repartition<double, decltype(d)> dd;
    const hn::Half<decltype(d)> dh;
    if (n <= kBlock / 4) {
      done =
          FoldEights<Op>(data, stride, rows, n, T(Op::kIdentity), [&](int64_t r, auto v) HWY_ATTR {
            hn::StoreU(hn::PromoteTo(dd, hn::LowerHalf(dh, v)), dd, totals + r);
            hn::StoreU(hn::PromoteTo(dd, hn::UpperHalf(dh, v)), dd, totals + r + 4);
          });
    }
  }
#endif
  const char* x = static_cast<const char*>(data);
  for (; done < rows; ++done) {
    totals[done] = Op::kIdentity;
    Along<Op, T>(s, j + done, x + done * stride, n, 0);
  }
}

// An even number of lanes keeps the two apart.
template <class Op, class T>
void Pairs(const States& s, int64_t j, const void* data, int64_t n) {
  const hn::ScalableTag<T> d;
  constexpr size_t kLanes = HWY_MAX(hn::MaxLanes(d), size_t{2});
  const T* x = static_cast<const T*>(data);
  n *= 2;
  alignas(64) Total<T> totals[kLanes];
  for (Total<T>& total : totals) total = Op::kIdentity;
#if HWY_TARGET != HWY_SCALAR
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  while (n >= lanes) {
    const int64_t steps = HWY_MIN(n, kBlock) / (8 * lanes);
    auto sum = Eights<Op>(d, x, x + 4 * lanes, 8 * lanes, steps);
    x += steps * 8 * lanes;
    n -= steps * 8 * lanes;
    for (; n >= lanes && n < 8 * lanes; x += lanes, n -= lanes) {
      sum = Op::Of(d, sum, hn::LoadU(d, x));
    }
    Join<Op>(d, sum, totals);
  }
#endif
  for (int64_t i = 0; i < n; ++i) totals[i % 2] = Op::One(totals[i % 2], Total<T>(x[i]));
  Total<T>* to = static_cast<Total<T>*>(s.component[0]) + j;
  for (size_t width = kLanes / 2; width > 1; width /= 2) {
    for (size_t i = 0; i < width; ++i) totals[i] = Op::One(totals[i], totals[i + width]);
  }
  to[0] = totals[0];
  to[1] = totals[1];
}

template <class Op, class T>
void Merge(const States& into, const States& from, int64_t n) {
  Total<T>* a = static_cast<Total<T>*>(into.component[0]);
  const Total<T>* b = static_cast<const Total<T>*>(from.component[0]);
  JoinRow<Op>(b, n, a);
}

template <class Op, class T>
constexpr FoldFns Make() {
  return {1,
          {sdk::dtype_of<Total<T>>, {}, {}},
          sdk::dtype_of<T>,
          Reset<Op, T>,
          Along<Op, T>,
          Across<Op, T>,
          Merge<Op, T>,
          std::is_same_v<Op, Add> ? Each<Op, T> : nullptr,
          std::is_same_v<Op, Add> ? Pairs<Op, T> : nullptr};
}

}  // namespace

const FoldFns* SumFolds() {
  static constexpr FoldFns table[] = {Make<Add, float>(),       Make<Add, double>(),
                                      Make<Add, int64_t>(),     Make<Multiply, float>(),
                                      Make<Multiply, double>(), Make<Multiply, int64_t>()};
  return table;
}

}  // namespace mytorch::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

MYTORCH_EXPORT_TABLE(mytorch::cpu, sum_folds, SumFolds)
