#include "backends/cpu-openmp/normalization/rows.h"

#include <cmath>
#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu-openmp/normalization/rows.cpp"
#include "backends/cpu-openmp/simd/foreach_target.h"
// After foreach_target.h, which includes this file once for each instruction set.
#include "backends/cpu-openmp/normalization/row-inl.h"
#include "backends/cpu-openmp/simd/export.h"
#include "backends/cpu-openmp/simd/highway.h"

HWY_BEFORE_NAMESPACE();
namespace mytorch::cpu::HWY_NAMESPACE {

template <class T>
HWY_INLINE void Moments(const T* x, int64_t n, T center, T* sum, T* squares) {
  const Vec<T> from = hn::Set(hn::ScalableTag<T>(), center);
  const auto sums = Fold<T>(n, Two<T>(), [&](const auto& part, Two<T>& sums) MYTORCH_ROW {
    const Vec<T> v = hn::Sub(part.load(x, center), from);
    sums.a = hn::Add(sums.a, v);
    sums.b = hn::MulAdd(v, v, sums.b);
  });
  *sum = SumOf<T>(sums.a);
  *squares = SumOf<T>(sums.b);
}

template <class T>
HWY_INLINE void Sums(const T* g, const T* x, int64_t n, T mean, T* sum, T* product) {
  const Vec<T> center = hn::Set(hn::ScalableTag<T>(), mean);
  const auto sums = Fold<T>(n, Two<T>(), [&](const auto& part, Two<T>& sums) MYTORCH_ROW {
    const Vec<T> v = part.load(g, T(0));
    sums.a = hn::Add(sums.a, v);
    sums.b = hn::MulAdd(v, hn::Sub(part.load(x, mean), center), sums.b);
  });
  *sum = SumOf<T>(sums.a);
  *product = SumOf<T>(sums.b);
}

template <class T>
HWY_INLINE void Scale(const T* x, int64_t n, T mean, T scale, T shift, T* to) {
  const hn::ScalableTag<T> d;
  const Vec<T> center = hn::Set(d, mean), a = hn::Set(d, scale), b = hn::Set(d, shift);
  ForEach<T>(n, [&](const auto& part) MYTORCH_ROW {
    part.store(hn::MulAdd(hn::Sub(part.load(x, T(0)), center), a, b), to);
  });
}

template <class T>
HWY_INLINE void Combine(const T* g, const T* x, int64_t n, T mean, T a, T b, T c, T* to) {
  const hn::ScalableTag<T> d;
  const Vec<T> center = hn::Set(d, mean), va = hn::Set(d, a), vb = hn::Set(d, b);
  const Vec<T> vc = hn::Set(d, c);
  ForEach<T>(n, [&](const auto& part) MYTORCH_ROW {
    const Vec<T> rest = hn::MulAdd(vb, hn::Sub(part.load(x, T(0)), center), vc);
    part.store(hn::MulAdd(va, part.load(g, T(0)), rest), to);
  });
}

template <class T>
HWY_INLINE void AddRows(const T* x, const T* y, int64_t n, T* to) {
  ForEach<T>(n, [&](const auto& part) MYTORCH_ROW {
    part.store(hn::Add(part.load(x, T(0)), part.load(y, T(0))), to);
  });
}

// In a mean of squares of this size or larger, those that vanished do not matter.
template <class T>
inline constexpr T kLeastSquare = std::numeric_limits<T>::min() / std::numeric_limits<T>::epsilon();

// Returns the power of 2 that brings the largest element to [1, 2); 0 if it is 0 or not finite.
template <class T>
T PowerToOne(const T* x, int64_t n) {
  T largest = 0;
  for (int64_t i = 0; i < n; ++i) {
    if (!std::isfinite(x[i])) return 0;
    largest = HWY_MAX(largest, std::abs(x[i]));
  }
  if (largest == 0) return 0;
  const int most = std::numeric_limits<T>::max_exponent - 1;  // of a power that is finite
  return std::ldexp(T(1), HWY_MIN(-std::ilogb(largest), most));
}

// Computes the mean (0 if `mean` is NULL) and the inverse deviation of a row whose squares exceed
// the range of T or vanish in it, from scaled elements. Leaves both as they are if the row is 0 or
// not finite.
template <class T>
HWY_NOINLINE void ScaledStatistics(const T* x, int64_t n, T eps, T* mean, T* rstd) {
  const T power = PowerToOne(x, n);
  if (power == 0) return;
  const double count = static_cast<double>(n);
  double center = 0, squares = 0;
  if (mean != nullptr) {
    for (int64_t i = 0; i < n; ++i) center += static_cast<double>(x[i] * power);
    center /= count;
    *mean = static_cast<T>(center / static_cast<double>(power));
  }
  for (int64_t i = 0; i < n; ++i) {
    const double v = static_cast<double>(x[i] * power) - center;
    squares += v * v;
  }
  const double deviation = std::sqrt(squares / count) / static_cast<double>(power);
  *rstd = static_cast<T>(1 / std::hypot(deviation, std::sqrt(static_cast<double>(eps))));
}

template <class T>
HWY_INLINE void LayerNorm(const T* x, int64_t n, T eps, const T* weight, const T* bias, T* to,
                          T* mean, T* rstd, const RowContext<T>& context) {
  const hn::ScalableTag<T> d;
  // The squares are taken around the mean of a fraction f of the row. It differs from the mean by
  // at most sqrt(var * (1 - f) / f), so that cancellation below costs at most a factor 1 / f: too
  // little to justify a second pass over the row.
  T sum, squares, center = 0, off = 0;
  if (mean != nullptr) {
    const int64_t some = HWY_MIN(n, HWY_MAX(n / 16, 64));
    Moments(x, some, T(0), &sum, &squares);
    center = center_of(sum, some);
  }
  Moments(x, n, center, &sum, &squares);
  if (mean != nullptr) {
    off = sum / static_cast<T>(n);
    *mean = center + off;
  }
  T middle_of = center + off;
  // Keeps a NaN.
  const T spread = squares / static_cast<T>(n) - off * off;
  const T var = (spread < T(0) ? T(0) : spread) + eps;
  *rstd = T(1) / std::sqrt(var);
  if (HWY_UNLIKELY(!(var <= std::numeric_limits<T>::max() && var >= kLeastSquare<T>))) {
    ScaledStatistics(x, n, eps, mean, rstd);
    if (mean != nullptr) middle_of = *mean;
  }
  if (to == nullptr) return;
  const Vec<T> middle = hn::Set(d, middle_of), scale = hn::Set(d, *rstd);
  const T* next = context.next;
  const T* next_other = context.next_other;
  const bool non_temporal = context.non_temporal;
  ForEach<T>(n, [&](const auto& part) MYTORCH_ROW {
    if (next != nullptr) part.prefetch(next);
    if (next_other != nullptr) part.prefetch(next_other);
    Vec<T> v = hn::Mul(hn::Sub(part.load(x, T(0)), middle), scale);
    if (weight != nullptr) v = hn::Mul(v, part.load(weight, T(0)));
    if (bias != nullptr) v = hn::Add(v, part.load(bias, T(0)));
    part.store(v, to, non_temporal);
  });
}

template <class T>
HWY_INLINE void NormGradientRow(const NormGradient<T>& row, int64_t n,
                                const RowContext<T>& context) {
  const hn::ScalableTag<T> d;
  const T* const g = row.g;
  const T* const x = row.x;
  const T mean = row.mean, rstd = row.rstd;
  const T* const weight = row.weight;
  T* const weight_sum = row.weight_sum;
  T* const bias_sum = row.bias_sum;
  T* const to = row.to;
  const Vec<T> center = hn::Set(d, mean), scale = hn::Set(d, rstd);
  const Vec<T> one = hn::Set(d, T(1));
  Two<T> sums;
  ForEach<T>(n, [&](const auto& part) MYTORCH_ROW {
    const Vec<T> v = part.load(g, T(0));
    const Vec<T> w = weight != nullptr ? part.load(weight, T(0)) : one;
    // Scaled first: powers of rstd or products with x may exceed the range of T, or vanish.
    const Vec<T> product = hn::Mul(v, hn::Mul(hn::Sub(part.load(x, mean), center), scale));
    if (weight_sum != nullptr) {
      part.store(hn::Add(product, part.load(weight_sum, T(0))), weight_sum);
    }
    if (bias_sum != nullptr) part.store(hn::Add(v, part.load(bias_sum, T(0))), bias_sum);
    sums.a = hn::MulAdd(v, w, sums.a);
    sums.b = hn::MulAdd(product, w, sums.b);
  });
  if (to == nullptr) return;
  const T count = static_cast<T>(n);
  const Vec<T> along = hn::Set(d, -rstd * (SumOf<T>(sums.b) / count));
  const Vec<T> shift = hn::Set(d, row.centered ? -rstd * (SumOf<T>(sums.a) / count) : T(0));
  const T* next_g = context.next;
  const T* next_x = context.next_other;
  const T* const added = row.added;
  const bool non_temporal = context.non_temporal;
  ForEach<T>(n, [&](const auto& part) MYTORCH_ROW {
    if (next_g != nullptr) {
      part.prefetch_far(next_g);
      part.prefetch_far(next_x);
    }
    Vec<T> v = part.load(g, T(0));
    if (weight != nullptr) v = hn::Mul(v, part.load(weight, T(0)));
    const Vec<T> normal = hn::Mul(hn::Sub(part.load(x, T(0)), center), scale);
    Vec<T> out = hn::MulAdd(scale, v, hn::MulAdd(along, normal, shift));
    if (added != nullptr) out = hn::Add(out, part.load(added, T(0)));
    part.store(out, to, non_temporal);
  });
}

template <class T>
constexpr RowKernels<T> kRowKernels = {&Moments<T>, &Sums<T>,      &Scale<T>,          &Combine<T>,
                                       &AddRows<T>, &LayerNorm<T>, &NormGradientRow<T>};

const RowKernels<float>& FloatRows() { return kRowKernels<float>; }
const RowKernels<double>& DoubleRows() { return kRowKernels<double>; }

}  // namespace mytorch::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

MYTORCH_EXPORT_TABLE_OF(float, mytorch::cpu, row_kernels, FloatRows)
MYTORCH_EXPORT_TABLE_OF(double, mytorch::cpu, row_kernels, DoubleRows)
