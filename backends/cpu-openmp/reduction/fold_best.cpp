// max, min, argmax, argmin, all and any. NaN is better than every number, and the first of equal
// values is kept.
#include "backends/cpu-openmp/reduction/fold.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu-openmp/reduction/fold_best.cpp"
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

template <bool kLargest>
struct Order {
  template <class T>
  static T Worst() {
    using Limits = std::numeric_limits<T>;
    if constexpr (Limits::has_infinity) {
      return kLargest ? -Limits::infinity() : Limits::infinity();
    } else {
      return kLargest ? Limits::lowest() : Limits::max();
    }
  }
  template <class T>
  static HWY_INLINE bool Better(T x, T best) {
    if (best != best) return false;
    return x != x || (kLargest ? x > best : x < best);
  }
  template <class D, class V>
  static HWY_INLINE V Of(D d, V a, V b) {
    return kLargest ? NodeMaximum(d, a, b) : NodeMinimum(d, a, b);
  }
  template <class D, class V>
  static HWY_INLINE hn::Mask<D> BetterMask(D d, V x, V best) {
    if constexpr (is_float<D>) {
      // Not written as "not worse", which is true of two NaNs.
      const auto worse = kLargest ? hn::Le(x, best) : hn::Ge(x, best);
      return hn::AndNot(worse, hn::Eq(best, best));
    } else {
      return kLargest ? hn::Gt(x, best) : hn::Lt(x, best);
    }
  }
};

// ---- max and min

template <class O, class T>
void Reset(const States& s, int64_t n) {
  for (int64_t j = 0; j < n; ++j) static_cast<T*>(s.component[0])[j] = O::template Worst<T>();
}

template <class O, class T>
void Along(const States& s, int64_t j, const void* data, int64_t n, int64_t /*first*/) {
  const T* x = static_cast<const T*>(data);
  const hn::ScalableTag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  T best = static_cast<T*>(s.component[0])[j];
  int64_t i = 0;
  if (n >= 4 * lanes) {
    auto a = hn::Set(d, best), b = a, c = a, e = a;
    for (; i + 4 * lanes <= n; i += 4 * lanes) {
      a = O::Of(d, a, hn::LoadU(d, x + i));
      b = O::Of(d, b, hn::LoadU(d, x + i + lanes));
      c = O::Of(d, c, hn::LoadU(d, x + i + 2 * lanes));
      e = O::Of(d, e, hn::LoadU(d, x + i + 3 * lanes));
    }
    alignas(64) T found[hn::MaxLanes(d)];
    hn::Store(O::Of(d, O::Of(d, a, b), O::Of(d, c, e)), d, found);
    for (int64_t k = 0; k < lanes; ++k) best = O::Better(found[k], best) ? found[k] : best;
  }
  for (; i < n; ++i) best = O::Better(x[i], best) ? x[i] : best;
  static_cast<T*>(s.component[0])[j] = best;
}

template <class O, class T>
void Across(const States& s, const void* data, int64_t stride, int64_t rows, int64_t n,
            int64_t /*first*/) {
  T* best = static_cast<T*>(s.component[0]);
  const hn::ScalableTag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const char* top = static_cast<const char*>(data);
  for (; rows > 0;) {
    const int64_t count = HWY_MIN(rows, 8);
    int64_t j = 0;
    for (; j + lanes <= n; j += lanes) {
      auto v = hn::LoadU(d, best + j);
      for (int64_t r = 0; r < count; ++r) {
        v = O::Of(d, v, hn::LoadU(d, reinterpret_cast<const T*>(top + r * stride) + j));
      }
      hn::StoreU(v, d, best + j);
    }
    for (; j < n; ++j) {
      for (int64_t r = 0; r < count; ++r) {
        const T x = reinterpret_cast<const T*>(top + r * stride)[j];
        if (O::Better(x, best[j])) best[j] = x;
      }
    }
    top += count * stride;
    rows -= count;
  }
}

template <class O, class T>
void Merge(const States& into, const States& from, int64_t n) {
  T* a = static_cast<T*>(into.component[0]);
  const T* b = static_cast<const T*>(from.component[0]);
  for (int64_t j = 0; j < n; ++j) a[j] = O::Better(b[j], a[j]) ? b[j] : a[j];
}

template <class O, class T>
void Each(const States& s, int64_t j, const void* data, int64_t stride, int64_t rows, int64_t n) {
  T* best = static_cast<T*>(s.component[0]) + j;
  int64_t done = 0;
#if HWY_TARGET != HWY_SCALAR
  if constexpr (has_eight<T>) {
    done =
        FoldEights<O>(data, stride, rows, n, O::template Worst<T>(),
                      [&](int64_t r, auto v) HWY_ATTR { hn::StoreU(v, EightTag<T>(), best + r); });
  }
#endif
  const char* x = static_cast<const char*>(data);
  for (; done < rows; ++done) {
    best[done] = O::template Worst<T>();
    Along<O, T>(s, j + done, x + done * stride, n, 0);
  }
}

template <bool kLargest, class T>
constexpr FoldFns Make() {
  using O = Order<kLargest>;
  return {1,
          {sdk::dtype_of<T>, {}, {}},
          sdk::dtype_of<T>,
          Reset<O, T>,
          Along<O, T>,
          Across<O, T>,
          Merge<O, T>,
          Each<O, T>};
}

// ---- argmax and argmin: the index, in integers of the values' width, then the value

template <class T>
using Index = std::conditional_t<sizeof(T) == 4, int32_t, int64_t>;

template <class O, class T>
void ArgReset(const States& s, int64_t n) {
  for (int64_t j = 0; j < n; ++j) {
    static_cast<Index<T>*>(s.component[0])[j] = 0;
    static_cast<T*>(s.component[1])[j] = O::template Worst<T>();
  }
}

// Whether (x, at) beats (best, index), in any order of the two. The first of two NaNs wins.
template <class O, class T>
HWY_INLINE bool ArgBetter(T x, Index<T> at, T best, Index<T> index) {
  if (O::Better(x, best)) return true;
  return at < index && (x == best || (x != x && best != best));
}

template <class O, class T>
void ArgAlong(const States& s, int64_t j, const void* data, int64_t n, int64_t first) {
  const T* x = static_cast<const T*>(data);
  const hn::ScalableTag<T> d;
  const hn::RebindToSigned<decltype(d)> di;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  T best = static_cast<T*>(s.component[1])[j];
  Index<T> index = static_cast<Index<T>*>(s.component[0])[j];
  int64_t i = 0;
  if (n >= 2 * lanes) {
    // Each lane begins with the state, whose elements precede all elements that the lane reads.
    auto va = hn::Set(d, best), vb = va;
    auto ia = hn::Set(di, index), ib = ia;
    auto at = hn::Iota(di, static_cast<Index<T>>(first));
    const auto step = hn::Set(di, static_cast<Index<T>>(lanes));
    for (; i + 2 * lanes <= n; i += 2 * lanes) {
      const auto xa = hn::LoadU(d, x + i), xb = hn::LoadU(d, x + i + lanes);
      const auto next = hn::Add(at, step);
      const auto ma = O::BetterMask(d, xa, va), mb = O::BetterMask(d, xb, vb);
      va = hn::IfThenElse(ma, xa, va);
      vb = hn::IfThenElse(mb, xb, vb);
      ia = hn::IfThenElse(hn::RebindMask(di, ma), at, ia);
      ib = hn::IfThenElse(hn::RebindMask(di, mb), next, ib);
      at = hn::Add(next, step);
    }
    constexpr size_t kMax = hn::MaxLanes(d);
    alignas(64) T values[2 * kMax];
    alignas(64) Index<T> places[2 * kMax];
    hn::Store(va, d, values);
    hn::Store(vb, d, values + lanes);
    hn::Store(ia, di, places);
    hn::Store(ib, di, places + lanes);
    for (int64_t k = 0; k < 2 * lanes; ++k) {
      if (ArgBetter<O>(values[k], places[k], best, index)) {
        best = values[k];
        index = places[k];
      }
    }
  }
  for (; i < n; ++i) {
    if (O::Better(x[i], best)) {
      best = x[i];
      index = static_cast<Index<T>>(first + i);
    }
  }
  static_cast<T*>(s.component[1])[j] = best;
  static_cast<Index<T>*>(s.component[0])[j] = index;
}

template <class O, class T>
void ArgAcross(const States& s, const void* data, int64_t stride, int64_t rows, int64_t n,
               int64_t first) {
  Index<T>* index = static_cast<Index<T>*>(s.component[0]);
  T* best = static_cast<T*>(s.component[1]);
  const hn::ScalableTag<T> d;
  const hn::RebindToSigned<decltype(d)> di;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const char* top = static_cast<const char*>(data);
  for (; rows > 0;) {
    const int64_t count = HWY_MIN(rows, 8);
    int64_t j = 0;
    for (; j + lanes <= n; j += lanes) {
      auto v = hn::LoadU(d, best + j);
      auto at = hn::LoadU(di, index + j);
      for (int64_t r = 0; r < count; ++r) {
        const auto x = hn::LoadU(d, reinterpret_cast<const T*>(top + r * stride) + j);
        const auto better = O::BetterMask(d, x, v);
        v = hn::IfThenElse(better, x, v);
        at = hn::IfThenElse(hn::RebindMask(di, better),
                            hn::Set(di, static_cast<Index<T>>(first + r)), at);
      }
      hn::StoreU(v, d, best + j);
      hn::StoreU(at, di, index + j);
    }
    for (; j < n; ++j) {
      for (int64_t r = 0; r < count; ++r) {
        const T x = reinterpret_cast<const T*>(top + r * stride)[j];
        if (!O::Better(x, best[j])) continue;
        best[j] = x;
        index[j] = static_cast<Index<T>>(first + r);
      }
    }
    top += count * stride;
    first += count;
    rows -= count;
  }
}

template <class O, class T>
void ArgMerge(const States& into, const States& from, int64_t n) {
  Index<T>* index = static_cast<Index<T>*>(into.component[0]);
  T* best = static_cast<T*>(into.component[1]);
  for (int64_t j = 0; j < n; ++j) {
    const T x = static_cast<const T*>(from.component[1])[j];
    if (!O::Better(x, best[j])) continue;
    best[j] = x;
    index[j] = static_cast<const Index<T>*>(from.component[0])[j];
  }
}

template <bool kLargest, class T>
constexpr FoldFns MakeArg() {
  using O = Order<kLargest>;
  return {2,
          {sdk::dtype_of<Index<T>>, sdk::dtype_of<T>, {}},
          sdk::dtype_of<T>,
          ArgReset<O, T>,
          ArgAlong<O, T>,
          ArgAcross<O, T>,
          ArgMerge<O, T>,
          nullptr};
}

// ---- all and any, of bytes that are zero or not: their min and max

template <bool kAll>
struct Bytes {
  template <class D, class V>
  static HWY_INLINE V Of(D, V a, V b) {
    return kAll ? hn::Min(a, b) : hn::Max(a, b);
  }
  static uint8_t One(uint8_t a, uint8_t b) { return kAll ? HWY_MIN(a, b) : HWY_MAX(a, b); }

  static void Reset(const States& s, int64_t n) {
    std::memset(s.component[0], kAll ? 1 : 0, static_cast<size_t>(n));
  }
  static void Along(const States& s, int64_t j, const void* data, int64_t n, int64_t /*first*/) {
    const uint8_t* x = static_cast<const uint8_t*>(data);
    uint8_t& state = static_cast<uint8_t*>(s.component[0])[j];
    const hn::ScalableTag<uint8_t> d;
    const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
    int64_t i = 0;
    auto v = hn::Set(d, state);
    for (; i + lanes <= n; i += lanes) v = Of(d, v, hn::LoadU(d, x + i));
    alignas(64) uint8_t found[hn::MaxLanes(d)];
    hn::Store(v, d, found);
    for (int64_t k = 0; k < lanes; ++k) state = One(state, found[k]);
    for (; i < n; ++i) state = One(state, x[i]);
  }
  static void Across(const States& s, const void* data, int64_t stride, int64_t rows, int64_t n,
                     int64_t /*first*/) {
    const hn::ScalableTag<uint8_t> d;
    const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
    uint8_t* state = static_cast<uint8_t*>(s.component[0]);
    for (int64_t r = 0; r < rows; ++r) {
      const uint8_t* x = static_cast<const uint8_t*>(data) + r * stride;
      int64_t j = 0;
      for (; j + lanes <= n; j += lanes) {
        hn::StoreU(Of(d, hn::LoadU(d, state + j), hn::LoadU(d, x + j)), d, state + j);
      }
      for (; j < n; ++j) state[j] = One(state[j], x[j]);
    }
  }
  static void Merge(const States& into, const States& from, int64_t n) {
    uint8_t* a = static_cast<uint8_t*>(into.component[0]);
    for (int64_t j = 0; j < n; ++j) {
      a[j] = One(a[j], static_cast<const uint8_t*>(from.component[0])[j]);
    }
  }
  static constexpr FoldFns Make() {
    return {1,      {sdk::dtype_of<bool>, {}, {}}, sdk::dtype_of<bool>, Reset, Along, Across, Merge,
            nullptr};
  }
};

}  // namespace

const FoldFns* BestFolds() {
  static constexpr FoldFns table[] = {
      Make<true, float>(),       Make<true, double>(),     Make<true, int32_t>(),
      Make<true, int64_t>(),     Make<false, float>(),     Make<false, double>(),
      Make<false, int32_t>(),    Make<false, int64_t>(),   MakeArg<true, float>(),
      MakeArg<true, double>(),   MakeArg<true, int32_t>(), MakeArg<true, int64_t>(),
      MakeArg<false, float>(),   MakeArg<false, double>(), MakeArg<false, int32_t>(),
      MakeArg<false, int64_t>(),
  };
  return table;
}

const FoldFns* LogicFolds() {
  static constexpr FoldFns table[] = {Bytes<true>::Make(), Bytes<false>::Make()};
  return table;
}

}  // namespace mytorch::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

MYTORCH_EXPORT_TABLE(mytorch::cpu, best_folds, BestFolds)
MYTORCH_EXPORT_TABLE(mytorch::cpu, logic_folds, LogicFolds)
