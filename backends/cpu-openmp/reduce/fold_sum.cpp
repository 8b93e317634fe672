// sum and prod.
#include "backends/cpu-openmp/reduce/fold.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu-openmp/reduce/fold_sum.cpp"
#include "hwy/foreach_target.h"
// After foreach_target.h, which includes this file once for each instruction set.
#include "backends/cpu-openmp/pointwise/span-inl.h"
#include "hwy/highway.h"
#include "mytorch/backend/dtype.h"

HWY_BEFORE_NAMESPACE();
namespace mytorch {
namespace cpu {
namespace HWY_NAMESPACE {
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

// Joins the lanes of a vector, pairwise, in the type of the total.
template <class Op, class D, class V>
HWY_INLINE Total<hn::TFromD<D>> Lanes(D d, V v) {
  using T = hn::TFromD<D>;
  constexpr size_t kLanes = hn::MaxLanes(D());
  alignas(64) T lanes[kLanes];
  hn::Store(v, d, lanes);
  Total<T> totals[kLanes];
  for (size_t i = 0; i < kLanes; ++i) totals[i] = lanes[i];
  for (size_t width = kLanes / 2; width > 0; width /= 2) {
    for (size_t i = 0; i < width; ++i) totals[i] = Op::One(totals[i], totals[i + width]);
  }
  return totals[0];
}

// A block is short enough for float32: each of 64 or more running sums takes 32 elements, and the
// sums of blocks are added in double.
constexpr int64_t kBlock = 2048;

template <class Op, class T>
Total<T> Block(const T* x, int64_t n) {
  const hn::ScalableTag<T> d;
  using V = hn::VFromD<decltype(d)>;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  V a0 = hn::Set(d, T(Op::kIdentity)), a1 = a0, a2 = a0, a3 = a0, a4 = a0, a5 = a0, a6 = a0,
    a7 = a0;
  int64_t i = 0;
  for (; i + 8 * lanes <= n; i += 8 * lanes) {
    a0 = Op::Of(d, a0, hn::LoadU(d, x + i));
    a1 = Op::Of(d, a1, hn::LoadU(d, x + i + lanes));
    a2 = Op::Of(d, a2, hn::LoadU(d, x + i + 2 * lanes));
    a3 = Op::Of(d, a3, hn::LoadU(d, x + i + 3 * lanes));
    a4 = Op::Of(d, a4, hn::LoadU(d, x + i + 4 * lanes));
    a5 = Op::Of(d, a5, hn::LoadU(d, x + i + 5 * lanes));
    a6 = Op::Of(d, a6, hn::LoadU(d, x + i + 6 * lanes));
    a7 = Op::Of(d, a7, hn::LoadU(d, x + i + 7 * lanes));
  }
  for (; i + lanes <= n; i += lanes) a0 = Op::Of(d, a0, hn::LoadU(d, x + i));
  a0 = Op::Of(d, Op::Of(d, a0, a1), Op::Of(d, a2, a3));
  a4 = Op::Of(d, Op::Of(d, a4, a5), Op::Of(d, a6, a7));
  Total<T> total = Lanes<Op>(d, Op::Of(d, a0, a4));
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
    // Products leave float's range on the way more readily than sums.
    double wide[256];
    for (int64_t i = 0; i < n; i += 256) {
      const int64_t count = HWY_MIN(n - i, 256);
      for (int64_t k = 0; k < count; ++k) wide[k] = x[i + k];
      total *= Block<Op>(wide, count);
    }
  } else {
    for (int64_t i = 0; i < n; i += kBlock) {
      total = Op::One(total, Block<Op>(x + i, HWY_MIN(n - i, kBlock)));
    }
  }
}

// Joins a vector of values to the totals.
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

template <class Op, class T>
void Across(const States& s, const void* data, int64_t stride, int64_t rows, int64_t n,
            int64_t /*first*/) {
  const hn::ScalableTag<T> d;
  Total<T>* totals = static_cast<Total<T>*>(s.component[0]);
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const char* top = static_cast<const char*>(data);
  constexpr int64_t kRows = std::is_same_v<Op, Add> ? 8 : 1;  // see Along
  while (rows > 0) {
    const int64_t count = rows >= kRows ? kRows : 1;
    const auto at = [&](int64_t r, int64_t j) {
      return reinterpret_cast<const T*>(top + r * stride) + j;
    };
    int64_t j = 0;
    for (; j + lanes <= n; j += lanes) {
      auto v = hn::LoadU(d, at(0, j));
      if (count == 8) {
        const auto a = Op::Of(d, v, hn::LoadU(d, at(1, j)));
        const auto b = Op::Of(d, hn::LoadU(d, at(2, j)), hn::LoadU(d, at(3, j)));
        const auto e = Op::Of(d, hn::LoadU(d, at(4, j)), hn::LoadU(d, at(5, j)));
        const auto f = Op::Of(d, hn::LoadU(d, at(6, j)), hn::LoadU(d, at(7, j)));
        v = Op::Of(d, Op::Of(d, a, b), Op::Of(d, e, f));
      }
      Join<Op>(d, v, totals + j);
    }
    for (; j < n; ++j) {
      for (int64_t r = 0; r < count; ++r) totals[j] = Op::One(totals[j], Total<T>(*at(r, j)));
    }
    top += count * stride;
    rows -= count;
  }
}

template <class Op, class T>
void Merge(const States& into, const States& from, int64_t n) {
  Total<T>* a = static_cast<Total<T>*>(into.component[0]);
  const Total<T>* b = static_cast<const Total<T>*>(from.component[0]);
  for (int64_t j = 0; j < n; ++j) a[j] = Op::One(a[j], b[j]);
}

template <class Op, class T>
constexpr FoldFns Make() {
  return {1,
          {sdk::dtype_of<Total<T>>, {}, {}},
          sdk::dtype_of<T>,
          Reset<Op, T>,
          Along<Op, T>,
          Across<Op, T>,
          Merge<Op, T>};
}

}  // namespace

const FoldFns* SumFolds() {
  static constexpr FoldFns table[] = {Make<Add, float>(),       Make<Add, double>(),
                                      Make<Add, int64_t>(),     Make<Multiply, float>(),
                                      Make<Multiply, double>(), Make<Multiply, int64_t>()};
  return table;
}

}  // namespace HWY_NAMESPACE
}  // namespace cpu
}  // namespace mytorch
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mytorch::cpu {
HWY_EXPORT(SumFolds);
const FoldFns* sum_folds() {
  static const FoldFns* const best = HWY_DYNAMIC_DISPATCH(SumFolds)();
  return best;
}
}  // namespace mytorch::cpu
#endif
