// welford (count, mean, m2) and logsumexp (max, sum).
#include "backends/cpu-openmp/reduction/fold.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu-openmp/reduction/fold_moments.cpp"
#include "backends/cpu-openmp/simd/foreach_target.h"
// After foreach_target.h, which includes this file once for each instruction set.
#include "backends/cpu-openmp/pointwise/inner_loop-inl.h"
#include "backends/cpu-openmp/simd/export.h"
#include "backends/cpu-openmp/simd/highway.h"
#include "mytorch/backend/dtype.h"

HWY_BEFORE_NAMESPACE();
namespace mytorch::cpu::HWY_NAMESPACE {
namespace {

// Elements of a block, which is read twice while it is in the cache.
constexpr int64_t kBlock = 1024;
constexpr int64_t kRows = 16;

// Loads a few floats, or as many doubles, as doubles.
template <class DD, class T>
HWY_INLINE hn::VFromD<DD> Doubles(DD dd, const T* x) {
  if constexpr (std::is_same_v<T, float>) {
    return hn::PromoteTo(dd, hn::LoadU(hn::Rebind<float, DD>(), x));
  } else {
    return hn::LoadU(dd, x);
  }
}

template <class D>
HWY_INLINE double SumLanes(D d, hn::VFromD<D> v) {
  return hn::GetLane(hn::SumOfLanes(d, v));
}

// ---- welford: the mean and m2 of a block by two passes, joined by Chan, Golub and LeVeque's rule

void Reset(const States& s, int64_t n) {
  for (int k = 0; k < 3; ++k) {
    std::memset(s.component[k], 0, static_cast<size_t>(n) * sizeof(double));
  }
}

HWY_INLINE void JoinMoments(const States& s, int64_t j, double count, double mean, double m2) {
  double& n = static_cast<double*>(s.component[0])[j];
  double& m = static_cast<double*>(s.component[1])[j];
  double& q = static_cast<double*>(s.component[2])[j];
  if (count == 0) return;
  const double total = n + count;
  const double delta = mean - m;
  if (n == 0) {
    m = mean, q = m2;
  } else {
    m += delta * (count / total);
    q += m2 + delta * delta * (n * (count / total));
  }
  n = total;
}

template <class T>
void Along(const States& s, int64_t j, const void* data, int64_t size, int64_t /*first*/) {
  const hn::ScalableTag<double> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const T* x = static_cast<const T*>(data);
  for (int64_t begin = 0; begin < size; begin += kBlock, x += kBlock) {
    const int64_t n = HWY_MIN(size - begin, kBlock);
    auto a = hn::Zero(d), b = a;
    int64_t i = 0;
    for (; i + 2 * lanes <= n; i += 2 * lanes) {
      a = hn::Add(a, Doubles(d, x + i));
      b = hn::Add(b, Doubles(d, x + i + lanes));
    }
    double sum = SumLanes(d, hn::Add(a, b));
    for (; i < n; ++i) sum += static_cast<double>(x[i]);
    const double mean = sum / static_cast<double>(n);
    const auto center = hn::Set(d, mean);
    a = hn::Zero(d), b = a;
    for (i = 0; i + 2 * lanes <= n; i += 2 * lanes) {
      const auto da = hn::Sub(Doubles(d, x + i), center);
      const auto db = hn::Sub(Doubles(d, x + i + lanes), center);
      a = hn::MulAdd(da, da, a);
      b = hn::MulAdd(db, db, b);
    }
    double m2 = SumLanes(d, hn::Add(a, b));
    for (; i < n; ++i) {
      const double delta = static_cast<double>(x[i]) - mean;
      m2 += delta * delta;
    }
    JoinMoments(s, j, static_cast<double>(n), mean, m2);
  }
}

template <class T>
void Across(const States& s, const void* data, int64_t stride, int64_t rows, int64_t n,
            int64_t /*first*/) {
  const hn::ScalableTag<double> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const char* top = static_cast<const char*>(data);
  double* counts = static_cast<double*>(s.component[0]);
  double* means = static_cast<double*>(s.component[1]);
  double* m2s = static_cast<double*>(s.component[2]);
  for (; rows > 0; top += kRows * stride, rows -= kRows) {
    const int64_t count = HWY_MIN(rows, kRows);
    const auto at = [&](int64_t r, int64_t j) {
      return reinterpret_cast<const T*>(top + r * stride) + j;
    };
    const auto here = hn::Set(d, static_cast<double>(count));
    int64_t j = 0;
    for (; j + lanes <= n; j += lanes) {
      auto sum = Doubles(d, at(0, j));
      for (int64_t r = 1; r < count; ++r) sum = hn::Add(sum, Doubles(d, at(r, j)));
      const auto mean = hn::Div(sum, here);
      auto m2 = hn::Zero(d);
      for (int64_t r = 0; r < count; ++r) {
        const auto delta = hn::Sub(Doubles(d, at(r, j)), mean);
        m2 = hn::MulAdd(delta, delta, m2);
      }
      const auto before = hn::LoadU(d, counts + j);
      const auto fresh = hn::Eq(before, hn::Zero(d));
      const auto total = hn::Add(before, here);
      const auto share = hn::Div(here, total);
      const auto old_mean = hn::LoadU(d, means + j);
      const auto delta = hn::Sub(mean, old_mean);
      const auto joined = hn::MulAdd(delta, share, old_mean);
      const auto joined2 = hn::Add(hn::LoadU(d, m2s + j),
                                   hn::MulAdd(hn::Mul(delta, delta), hn::Mul(before, share), m2));
      hn::StoreU(total, d, counts + j);
      hn::StoreU(hn::IfThenElse(fresh, mean, joined), d, means + j);
      hn::StoreU(hn::IfThenElse(fresh, m2, joined2), d, m2s + j);
    }
    for (; j < n; ++j) {
      double sum = 0, m2 = 0;
      for (int64_t r = 0; r < count; ++r) sum += static_cast<double>(*at(r, j));
      const double mean = sum / static_cast<double>(count);
      for (int64_t r = 0; r < count; ++r) {
        const double delta = static_cast<double>(*at(r, j)) - mean;
        m2 += delta * delta;
      }
      JoinMoments(s, j, static_cast<double>(count), mean, m2);
    }
  }
}

void Merge(const States& into, const States& from, int64_t n) {
  const auto at = [&](int k, int64_t j) {
    return static_cast<const double*>(from.component[k])[j];
  };
  for (int64_t j = 0; j < n; ++j) JoinMoments(into, j, at(0, j), at(1, j), at(2, j));
}

template <class T>
constexpr FoldFns MakeWelford() {
  constexpr mt_dtype f64 = sdk::dtype_of<double>;
  return {3, {f64, f64, f64}, sdk::dtype_of<T>, Reset, Along<T>, Across<T>, Merge, nullptr};
}

// ---- logsumexp: exp(x - max), where x == max is 1 even if both are infinite

template <class T>
void SumReset(const States& s, int64_t n) {
  for (int64_t j = 0; j < n; ++j) {
    static_cast<T*>(s.component[0])[j] = -std::numeric_limits<T>::infinity();
    static_cast<double*>(s.component[1])[j] = 0;
  }
}

template <class T>
HWY_INLINE double Scale(T x, T max) {
  return x == max ? 1.0 : std::exp(static_cast<double>(x) - static_cast<double>(max));
}

template <class D, class V>
HWY_INLINE V Term(D d, V x, V max) {
  const V one = hn::Set(d, hn::TFromD<D>(1));
  return hn::IfThenElse(hn::Eq(x, max), one, NodeExp(d, hn::Sub(x, max)));
}

template <class T>
HWY_INLINE T Larger(T a, T b) {
  return a != a || a > b ? a : b;
}

template <class T>
HWY_INLINE void JoinSums(const States& s, int64_t j, T max, double sum) {
  T& m = static_cast<T*>(s.component[0])[j];
  double& total = static_cast<double*>(s.component[1])[j];
  const T top = Larger(m, max);
  total = total * Scale(m, top) + sum * Scale(max, top);
  m = top;
}

template <class T>
void SumAlong(const States& s, int64_t j, const void* data, int64_t size, int64_t /*first*/) {
  const hn::ScalableTag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const T* x = static_cast<const T*>(data);
  for (int64_t begin = 0; begin < size; begin += kBlock, x += kBlock) {
    const int64_t n = HWY_MIN(size - begin, kBlock);
    T max = -std::numeric_limits<T>::infinity();
    auto top = hn::Set(d, max);
    int64_t i = 0;
    for (; i + lanes <= n; i += lanes) top = NodeMaximum(d, top, hn::LoadU(d, x + i));
    alignas(64) T found[hn::MaxLanes(d)];
    hn::Store(top, d, found);
    for (int64_t k = 0; k < lanes; ++k) max = Larger(max, found[k]);
    for (; i < n; ++i) max = Larger(max, x[i]);
    top = hn::Set(d, max);
    auto terms = hn::Zero(d);
    for (i = 0; i + lanes <= n; i += lanes) {
      terms = hn::Add(terms, Term(d, hn::LoadU(d, x + i), top));
    }
    hn::Store(terms, d, found);
    double sum = 0;
    for (int64_t k = 0; k < lanes; ++k) sum += static_cast<double>(found[k]);
    for (; i < n; ++i) sum += Scale(x[i], max);
    JoinSums(s, j, max, sum);
  }
}

template <class T>
void SumAcross(const States& s, const void* data, int64_t stride, int64_t rows, int64_t n,
               int64_t /*first*/) {
  const hn::ScalableTag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const char* top_row = static_cast<const char*>(data);
  T* maxima = static_cast<T*>(s.component[0]);
  double* sums = static_cast<double*>(s.component[1]);
  for (; rows > 0; top_row += kRows * stride, rows -= kRows) {
    const int64_t count = HWY_MIN(rows, kRows);
    const auto at = [&](int64_t r, int64_t j) {
      return reinterpret_cast<const T*>(top_row + r * stride) + j;
    };
    int64_t j = 0;
    for (; j + lanes <= n; j += lanes) {
      const auto before = hn::LoadU(d, maxima + j);
      auto top = before;
      for (int64_t r = 0; r < count; ++r) top = NodeMaximum(d, top, hn::LoadU(d, at(r, j)));
      auto terms = hn::Zero(d);
      for (int64_t r = 0; r < count; ++r) {
        terms = hn::Add(terms, Term(d, hn::LoadU(d, at(r, j)), top));
      }
      constexpr size_t kMax = hn::MaxLanes(d);
      alignas(64) T added[kMax];
      alignas(64) T scale[kMax];
      hn::Store(terms, d, added);
      hn::Store(Term(d, before, top), d, scale);
      hn::StoreU(top, d, maxima + j);
      for (int64_t k = 0; k < lanes; ++k) {
        sums[j + k] = sums[j + k] * static_cast<double>(scale[k]) + static_cast<double>(added[k]);
      }
    }
    for (; j < n; ++j) {
      for (int64_t r = 0; r < count; ++r) JoinSums<T>(s, j, *at(r, j), 1.0);
    }
  }
}

template <class T>
void SumMerge(const States& into, const States& from, int64_t n) {
  for (int64_t j = 0; j < n; ++j) {
    JoinSums(into, j, static_cast<const T*>(from.component[0])[j],
             static_cast<const double*>(from.component[1])[j]);
  }
}

template <class T>
constexpr FoldFns MakeLogsumexp() {
  return {2,
          {sdk::dtype_of<T>, sdk::dtype_of<double>, {}},
          sdk::dtype_of<T>,
          SumReset<T>,
          SumAlong<T>,
          SumAcross<T>,
          SumMerge<T>,
          nullptr};
}

}  // namespace

const FoldFns* MomentFolds() {
  static constexpr FoldFns table[] = {MakeWelford<float>(), MakeWelford<double>(),
                                      MakeLogsumexp<float>(), MakeLogsumexp<double>()};
  return table;
}

}  // namespace mytorch::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

MYTORCH_EXPORT_TABLE(mytorch::cpu, moment_folds, MomentFolds)
