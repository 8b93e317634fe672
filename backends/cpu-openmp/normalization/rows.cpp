#include "backends/cpu-openmp/normalization/rows.h"

#include <cmath>
#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu-openmp/normalization/rows.cpp"
#include "hwy/foreach_target.h"
// After foreach_target.h, which includes this file once for each instruction set.
#include "backends/cpu-openmp/simd/exp-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace mytorch {
namespace cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
namespace vec = mytorch::simd::HWY_NAMESPACE;

// Calls body(load, store, i) for whole vectors, then for the rest through a partial vector: `load`
// fills lanes past the end with `fill`, `store` leaves memory past the end alone.
template <class T, class F>
HWY_INLINE void ForEach(int64_t n, F&& body) {
  const hn::ScalableTag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    body([&](const T* p, T) HWY_ATTR { return hn::LoadU(d, p + i); },
         [&](hn::VFromD<decltype(d)> v, T* p) HWY_ATTR { hn::StoreU(v, d, p + i); });
  }
  if (i == n) return;
#if HWY_ARCH_X86 && HWY_TARGET != HWY_SCALAR
  // Masked loads and stores do not touch memory of lanes that are off.
  const auto some = hn::FirstN(d, static_cast<size_t>(n - i));
  body(
      [&](const T* p, T fill) HWY_ATTR {
        return hn::IfThenElse(some, hn::MaskedLoad(some, d, p + i), hn::Set(d, fill));
      },
      [&](hn::VFromD<decltype(d)> v, T* p) HWY_ATTR { hn::BlendedStore(v, some, d, p + i); });
#else
  body(
      [&](const T* p, T fill) HWY_ATTR {
        HWY_ALIGN T part[hn::MaxLanes(d)];
        for (int64_t j = 0; j < lanes; ++j) part[j] = i + j < n ? p[i + j] : fill;
        return hn::Load(d, part);
      },
      [&](hn::VFromD<decltype(d)> v, T* p) HWY_ATTR {
        HWY_ALIGN T part[hn::MaxLanes(d)];
        hn::Store(v, d, part);
        for (int64_t j = 0; i + j < n; ++j) p[i + j] = part[j];
      });
#endif
}

template <class D, class V>
HWY_INLINE hn::TFromD<D> Sum(D d, V v) {
  return hn::GetLane(hn::SumOfLanes(d, v));
}

// The largest element; NaN where there is one.
template <class T>
HWY_INLINE T Max(const T* x, int64_t n) {
  const hn::ScalableTag<T> d;
  const T lowest = -std::numeric_limits<T>::infinity();
  auto best = hn::Set(d, lowest);
  auto nan = hn::Zero(d);  // all bits set, itself a NaN, in the lanes that met one
  ForEach<T>(n, [&](auto load, auto) HWY_ATTR {
    const auto v = load(x, lowest);
    best = hn::Max(best, v);
    nan = hn::Or(nan, hn::VecFromMask(d, hn::IsNaN(v)));
  });
  if (!hn::AllFalse(d, hn::IsNaN(nan))) return std::numeric_limits<T>::quiet_NaN();
  return hn::GetLane(hn::MaxOfLanes(d, best));
}

template <class T>
HWY_INLINE void Softmax(const T* from, int64_t n, T* to) {
  const hn::ScalableTag<T> d;
  const auto max = hn::Set(d, Max(from, n));
  auto sum = hn::Zero(d);
  const T lowest = -std::numeric_limits<T>::infinity();
  ForEach<T>(n, [&](auto load, auto store) HWY_ATTR {
    const auto e = vec::NodeExp(d, hn::Sub(load(from, lowest), max));
    sum = hn::Add(sum, e);
    store(e, to);
  });
  const auto total = hn::Set(d, Sum(d, sum));
  ForEach<T>(n, [&](auto load, auto store) HWY_ATTR { store(hn::Div(load(to, T(0)), total), to); });
}

template <class T>
HWY_INLINE void LogSoftmax(const T* from, int64_t n, T* to) {
  const hn::ScalableTag<T> d;
  const T largest = Max(from, n);
  const auto max = hn::Set(d, largest);
  auto sum = hn::Zero(d);
  const T lowest = -std::numeric_limits<T>::infinity();
  ForEach<T>(n, [&](auto load, auto) HWY_ATTR {
    sum = hn::Add(sum, vec::NodeExp(d, hn::Sub(load(from, lowest), max)));
  });
  const auto log = hn::Set(d, std::log(Sum(d, sum)));
  ForEach<T>(n, [&](auto load, auto store)
                    HWY_ATTR { store(hn::Sub(hn::Sub(load(from, T(0)), max), log), to); });
}

template <class T>
HWY_INLINE void SoftmaxGradient(const T* g, const T* y, int64_t n, T* to) {
  const hn::ScalableTag<T> d;
  auto sum = hn::Zero(d);
  ForEach<T>(
      n, [&](auto load, auto) HWY_ATTR { sum = hn::MulAdd(load(g, T(0)), load(y, T(0)), sum); });
  const auto total = hn::Set(d, Sum(d, sum));
  ForEach<T>(n, [&](auto load, auto store) HWY_ATTR {
    const auto out = load(y, T(0));
    store(hn::NegMulAdd(out, total, hn::Mul(load(g, T(0)), out)), to);
  });
}

template <class T>
HWY_INLINE T SumRow(const T* x, int64_t n) {
  const hn::ScalableTag<T> d;
  auto sum = hn::Zero(d);
  ForEach<T>(n, [&](auto load, auto) HWY_ATTR { sum = hn::Add(sum, load(x, T(0))); });
  return Sum(d, sum);
}

template <class T>
HWY_INLINE void LogSoftmaxGradient(const T* g, const T* y, int64_t n, T* to) {
  const hn::ScalableTag<T> d;
  const auto total = hn::Set(d, SumRow(g, n));
  ForEach<T>(n, [&](auto load, auto store) HWY_ATTR {
    store(hn::NegMulAdd(vec::NodeExp(d, load(y, T(0))), total, load(g, T(0))), to);
  });
}

template <class T>
HWY_INLINE T Spread(const T* x, int64_t n, T mean) {
  const hn::ScalableTag<T> d;
  const auto center = hn::Set(d, mean);
  auto sum = hn::Zero(d);
  ForEach<T>(n, [&](auto load, auto) HWY_ATTR {
    const auto v = hn::Sub(load(x, mean), center);
    sum = hn::MulAdd(v, v, sum);
  });
  return Sum(d, sum);
}

template <class T>
HWY_INLINE void Sums(const T* g, const T* x, int64_t n, T mean, T* sum, T* product) {
  const hn::ScalableTag<T> d;
  const auto center = hn::Set(d, mean);
  auto a = hn::Zero(d), b = hn::Zero(d);
  ForEach<T>(n, [&](auto load, auto) HWY_ATTR {
    const auto v = load(g, T(0));
    a = hn::Add(a, v);
    b = hn::MulAdd(v, hn::Sub(load(x, mean), center), b);
  });
  *sum = Sum(d, a);
  *product = Sum(d, b);
}

template <class T>
HWY_INLINE void Normalize(const T* x, int64_t n, T mean, T rstd, const T* weight, const T* bias,
                          T* to) {
  const hn::ScalableTag<T> d;
  const auto center = hn::Set(d, mean), scale = hn::Set(d, rstd);
  ForEach<T>(n, [&](auto load, auto store) HWY_ATTR {
    auto v = hn::Mul(hn::Sub(load(x, T(0)), center), scale);
    if (weight != nullptr) v = hn::Mul(v, load(weight, T(0)));
    if (bias != nullptr) v = hn::Add(v, load(bias, T(0)));
    store(v, to);
  });
}

template <class T>
HWY_INLINE void Scale(const T* x, int64_t n, T mean, T scale, T shift, T* to) {
  const hn::ScalableTag<T> d;
  const auto center = hn::Set(d, mean), a = hn::Set(d, scale), b = hn::Set(d, shift);
  ForEach<T>(n, [&](auto load, auto store)
                    HWY_ATTR { store(hn::MulAdd(hn::Sub(load(x, T(0)), center), a, b), to); });
}

template <class T>
HWY_INLINE void Combine(const T* g, const T* x, int64_t n, T mean, T a, T b, T c, T* to) {
  const hn::ScalableTag<T> d;
  const auto center = hn::Set(d, mean), va = hn::Set(d, a), vb = hn::Set(d, b);
  const auto vc = hn::Set(d, c);
  ForEach<T>(n, [&](auto load, auto store) HWY_ATTR {
    const auto rest = hn::MulAdd(vb, hn::Sub(load(x, T(0)), center), vc);
    store(hn::MulAdd(va, load(g, T(0)), rest), to);
  });
}

template <class T>
HWY_INLINE void Parameter(const T* g, const T* x, int64_t n, T mean, T rstd, T* weight_sum,
                          T* bias_sum) {
  const hn::ScalableTag<T> d;
  const auto center = hn::Set(d, mean), scale = hn::Set(d, rstd);
  ForEach<T>(n, [&](auto load, auto store) HWY_ATTR {
    const auto v = load(g, T(0));
    const auto hat = hn::Mul(hn::Sub(load(x, T(0)), center), scale);
    store(hn::MulAdd(v, hat, load(weight_sum, T(0))), weight_sum);
    store(hn::Add(v, load(bias_sum, T(0))), bias_sum);
  });
}

#define MYTORCH_CPU_ROWS(T, S)                                                             \
  void Softmax##S(const T* from, int64_t n, T* to) { Softmax(from, n, to); }               \
  void LogSoftmax##S(const T* from, int64_t n, T* to) { LogSoftmax(from, n, to); }         \
  void SoftmaxGradient##S(const T* g, const T* y, int64_t n, T* to) {                      \
    SoftmaxGradient(g, y, n, to);                                                          \
  }                                                                                        \
  void LogSoftmaxGradient##S(const T* g, const T* y, int64_t n, T* to) {                   \
    LogSoftmaxGradient(g, y, n, to);                                                       \
  }                                                                                        \
  T Sum##S(const T* x, int64_t n) { return SumRow(x, n); }                                 \
  T Spread##S(const T* x, int64_t n, T mean) { return Spread(x, n, mean); }                \
  void Sums##S(const T* g, const T* x, int64_t n, T mean, T* sum, T* product) {            \
    Sums(g, x, n, mean, sum, product);                                                     \
  }                                                                                        \
  void Normalize##S(const T* x, int64_t n, T mean, T rstd, const T* weight, const T* bias, \
                    T* to) {                                                               \
    Normalize(x, n, mean, rstd, weight, bias, to);                                         \
  }                                                                                        \
  void Scale##S(const T* x, int64_t n, T mean, T scale, T shift, T* to) {                  \
    Scale(x, n, mean, scale, shift, to);                                                   \
  }                                                                                        \
  void Combine##S(const T* g, const T* x, int64_t n, T mean, T a, T b, T c, T* to) {       \
    Combine(g, x, n, mean, a, b, c, to);                                                   \
  }                                                                                        \
  void Parameter##S(const T* g, const T* x, int64_t n, T mean, T rstd, T* weight_sum,      \
                    T* bias_sum) {                                                         \
    Parameter(g, x, n, mean, rstd, weight_sum, bias_sum);                                  \
  }
MYTORCH_CPU_ROWS(float, Float)
MYTORCH_CPU_ROWS(double, Double)
#undef MYTORCH_CPU_ROWS

}  // namespace HWY_NAMESPACE
}  // namespace cpu
}  // namespace mytorch
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mytorch::cpu {

#define MYTORCH_CPU_ROWS(T, S)                                                              \
  HWY_EXPORT(Softmax##S);                                                                   \
  HWY_EXPORT(LogSoftmax##S);                                                                \
  HWY_EXPORT(SoftmaxGradient##S);                                                           \
  HWY_EXPORT(LogSoftmaxGradient##S);                                                        \
  HWY_EXPORT(Sum##S);                                                                       \
  HWY_EXPORT(Spread##S);                                                                    \
  HWY_EXPORT(Sums##S);                                                                      \
  HWY_EXPORT(Normalize##S);                                                                 \
  HWY_EXPORT(Scale##S);                                                                     \
  HWY_EXPORT(Combine##S);                                                                   \
  HWY_EXPORT(Parameter##S);                                                                 \
  void softmax_row(const T* from, int64_t n, T* to) {                                       \
    HWY_DYNAMIC_DISPATCH(Softmax##S)(from, n, to);                                          \
  }                                                                                         \
  void log_softmax_row(const T* from, int64_t n, T* to) {                                   \
    HWY_DYNAMIC_DISPATCH(LogSoftmax##S)(from, n, to);                                       \
  }                                                                                         \
  void softmax_gradient_row(const T* g, const T* y, int64_t n, T* to) {                     \
    HWY_DYNAMIC_DISPATCH(SoftmaxGradient##S)(g, y, n, to);                                  \
  }                                                                                         \
  void log_softmax_gradient_row(const T* g, const T* y, int64_t n, T* to) {                 \
    HWY_DYNAMIC_DISPATCH(LogSoftmaxGradient##S)(g, y, n, to);                               \
  }                                                                                         \
  T sum_row(const T* x, int64_t n) { return HWY_DYNAMIC_DISPATCH(Sum##S)(x, n); }           \
  T spread_row(const T* x, int64_t n, T mean) {                                             \
    return HWY_DYNAMIC_DISPATCH(Spread##S)(x, n, mean);                                     \
  }                                                                                         \
  void sums_row(const T* g, const T* x, int64_t n, T mean, T* sum, T* product) {            \
    HWY_DYNAMIC_DISPATCH(Sums##S)(g, x, n, mean, sum, product);                             \
  }                                                                                         \
  void normalize_row(const T* x, int64_t n, T mean, T rstd, const T* weight, const T* bias, \
                     T* to) {                                                               \
    HWY_DYNAMIC_DISPATCH(Normalize##S)(x, n, mean, rstd, weight, bias, to);                 \
  }                                                                                         \
  void scale_row(const T* x, int64_t n, T mean, T scale, T shift, T* to) {                  \
    HWY_DYNAMIC_DISPATCH(Scale##S)(x, n, mean, scale, shift, to);                           \
  }                                                                                         \
  void combine_row(const T* g, const T* x, int64_t n, T mean, T a, T b, T c, T* to) {       \
    HWY_DYNAMIC_DISPATCH(Combine##S)(g, x, n, mean, a, b, c, to);                           \
  }                                                                                         \
  void parameter_row(const T* g, const T* x, int64_t n, T mean, T rstd, T* weight_sum,      \
                     T* bias_sum) {                                                         \
    HWY_DYNAMIC_DISPATCH(Parameter##S)(g, x, n, mean, rstd, weight_sum, bias_sum);          \
  }
MYTORCH_CPU_ROWS(float, Float)
MYTORCH_CPU_ROWS(double, Double)
#undef MYTORCH_CPU_ROWS

}  // namespace mytorch::cpu
#endif  // HWY_ONCE
