// Exponentials and memory accesses take about the same time and must overlap: while a row is
// exponentiated, the previous row is normalized and stored, the maximum of the next row is
// computed, and the row after that is prefetched.
#include "backends/cpu-openmp/normalization/softmax_rows.h"

#include <cmath>
#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu-openmp/normalization/softmax_rows.cpp"
#include "backends/cpu-openmp/simd/foreach_target.h"
// After foreach_target.h, which includes this file once for each instruction set.
#include "backends/cpu-openmp/normalization/row-inl.h"
#include "backends/cpu-openmp/simd/export.h"
#include "backends/cpu-openmp/simd/highway.h"

HWY_BEFORE_NAMESPACE();
namespace mytorch::cpu::HWY_NAMESPACE {
namespace vec = mytorch::simd::HWY_NAMESPACE;

// The maximum size in bytes of a row that fits in the L1 together with its neighbors.
constexpr int64_t kShortBytes = 8192;
template <class T>
constexpr int64_t kShort = kShortBytes / static_cast<int64_t>(sizeof(T));

// The maximum and the minimum of elements. They are arbitrary if an element is NaN; the sum
// propagates the NaN to every result.
template <class T>
struct Range {
  Vec<T> high, low;

  HWY_INLINE Range()
      : high(hn::Set(hn::ScalableTag<T>(), -std::numeric_limits<T>::infinity())),
        low(hn::Set(hn::ScalableTag<T>(), std::numeric_limits<T>::infinity())) {}
  HWY_INLINE void meet(Vec<T> v) {
    high = hn::Max(v, high);
    low = hn::Min(v, low);
  }
  HWY_INLINE void add(const Range& other) {
    high = hn::Max(high, other.high);
    low = hn::Min(low, other.low);
  }
  HWY_INLINE T highest() const { return hn::GetLane(hn::MaxOfLanes(hn::ScalableTag<T>(), high)); }
  HWY_INLINE T lowest() const { return hn::GetLane(hn::MinOfLanes(hn::ScalableTag<T>(), low)); }
};

// Exponentials of numbers in [-kNormal, kNormal] are normal floating-point numbers.
template <class T>
constexpr T kNormal = sizeof(T) == 4 ? T(87) : T(708);

// Returns the same bits as NodeExp for NaN and for numbers within kNormal, without clamping and
// with a single scale factor.
template <class T>
HWY_INLINE Vec<T> ExpNormal(Vec<T> x) {
  const hn::ScalableTag<T> d;
  const auto magic = hn::Set(d, vec::round_magic<decltype(d)> + (sizeof(T) == 4 ? 127 : 1023));
  const auto t = hn::MulAdd(x, vec::SetFD(d, 0x1.715476p0f, 0x1.71547652b82fep0), magic);
  const auto p = vec::ExpPoly(d, vec::ReduceLn2(d, x, hn::Sub(t, magic)));
  const vec::Bits<decltype(d)> bits;
  const auto scale = hn::ShiftLeft<vec::mantissa_bits<decltype(d)>>(hn::BitCast(bits, t));
  return hn::Mul(p, hn::BitCast(d, scale));
}

// Calls go(exp) with the exponential function: ExpNormal if `normal`, else NodeExp.
template <class T, class F>
HWY_INLINE void WithExp(bool normal, F&& go) {
  if (normal) {
    go([](Vec<T> v) MYTORCH_ROW { return ExpNormal<T>(v); });
  } else {
    go([](Vec<T> v) MYTORCH_ROW { return vec::NodeExp(hn::ScalableTag<T>(), v); });
  }
}

// A row that has been exponentiated. Softmax is exps * last, log_softmax is (x - max) - last.
template <class T>
struct Done {
  const T* row = nullptr;  // exps, or x
  T* to = nullptr;
  T max = 0, last = 0;
};

template <bool kLog, class T>
HWY_INLINE void Finish(const auto& part, const Done<T>& done, Vec<T> max, Vec<T> last,
                       bool non_temporal) {
  const Vec<T> v = part.load(done.row, T(0));
  const Vec<T> out = kLog ? hn::Sub(hn::Sub(v, max), last) : hn::Mul(v, last);
  part.store(out, done.to, non_temporal);
}

template <bool kLog, class T>
HWY_INLINE void Finish(const Done<T>& done, int64_t n, bool non_temporal) {
  const hn::ScalableTag<T> d;
  const Vec<T> max = hn::Set(d, done.max), last = hn::Set(d, done.last);
  ForEach<T>(
      n, [&](const auto& part) MYTORCH_ROW { Finish<kLog>(part, done, max, last, non_temporal); });
}

template <bool kLog, class T>
HWY_INLINE void SoftmaxRows(Rows<const T> from, Rows<T> to, int64_t count, int64_t n,
                            bool non_temporal) {
  const hn::ScalableTag<T> d;
  HWY_ALIGN T rooms[2][kShort<T> + hn::MaxLanes(d)];
  const bool brief = n <= kShort<T>;
  const auto range_of = [n](const T* x) MYTORCH_ROW {
    return Fold<T>(n, Range<T>(), [&](const auto& part, Range<T>& range) MYTORCH_ROW {
      range.meet(part.load(x, x[0]));
    });
  };
  non_temporal = non_temporal && brief;
  Done<T> before;
  Range<T> range = range_of(from.first);
  for (int64_t row = 0; row < count; ++row) {
    const T* x = from.first + row * from.step;
    T* exps = kLog ? nullptr : brief ? rooms[row % 2] : to.first + row * to.step;
    const T* next = row + 1 < count ? x + from.step : x;
    const T* soon = row + 2 < count && brief ? next + from.step : x;
    const T highest = range.highest();
    const Vec<T> max = hn::Set(d, highest);
    const Vec<T> before_max = hn::Set(d, before.max), before_last = hn::Set(d, before.last);
    Vec<T> sum = hn::Zero(d);
    Range<T> next_range;
    const auto go = [&](auto&& exp) MYTORCH_ROW {
      ForEach<T>(n, [&](const auto& part) MYTORCH_ROW {
        const Vec<T> e = exp(hn::Sub(part.load(x, x[0]), max));
        sum = hn::Add(sum, part.zero_beyond(e));
        if (!kLog) {
          if (brief) {
            part.store_roomy(e, exps);
          } else {
            part.store(e, exps);
          }
        }
        next_range.meet(part.load(next, next[0]));
        part.prefetch(soon);
        if (before.row != nullptr)
          Finish<kLog>(part, before, before_max, before_last, non_temporal);
      });
    };
    WithExp<T>(range.lowest() - highest >= -kNormal<T>, go);
    const T total = SumOf<T>(sum);
    before = {kLog ? x : exps, to.first + row * to.step, highest,
              kLog ? std::log(total) : T(1) / total};
    range = next_range;
  }
  Finish<kLog>(before, n, non_temporal);
}

// The rows of a gradient, and the next rows, which are read at the same time; without `ahead`,
// these are the rows themselves.
template <class T>
struct GradientRow {
  const T *g, *y, *next_g, *next_y;
  T* out;
  HWY_INLINE GradientRow(Rows<const T> grads, Rows<const T> ys, Rows<T> to, int64_t row, bool ahead)
      : g(grads.first + row * grads.step),
        y(ys.first + row * ys.step),
        next_g(ahead ? g + grads.step : g),
        next_y(ahead ? y + ys.step : y),
        out(to.first + row * to.step) {}
};

// While a row is computed and stored, the products of the next row are summed, and the row after
// that is prefetched to the L2, so that reads never wait for stores. Rows that are too long for
// this are computed one by one.
template <class T>
HWY_INLINE void SoftmaxGradientRows(Rows<const T> grads, Rows<const T> ys, Rows<T> to,
                                    int64_t count, int64_t n, bool non_temporal) {
  const hn::ScalableTag<T> d;
  const bool brief = n <= kShort<T>;
  Vec<T> sum = hn::Zero(d);
  for (int64_t row = 0; row < count; ++row) {
    const GradientRow<T> at(grads, ys, to, row, brief && row + 1 < count);
    const bool more = brief && row + 2 < count;
    const T* soon_g = more ? at.next_g + grads.step : at.g;
    const T* soon_y = more ? at.next_y + ys.step : at.y;
    if (!brief || row == 0) {
      sum = hn::Zero(d);
      ForEach<T>(n, [&](const auto& part) MYTORCH_ROW {
        sum = hn::MulAdd(part.load(at.g, T(0)), part.load(at.y, T(0)), sum);
      });
    }
    const Vec<T> total = hn::Set(d, SumOf<T>(sum));
    Vec<T> next_sum = hn::Zero(d);
    ForEach<T>(n, [&](const auto& part) MYTORCH_ROW {
      part.prefetch_far(soon_g);
      part.prefetch_far(soon_y);
      next_sum = hn::MulAdd(part.load(at.next_g, T(0)), part.load(at.next_y, T(0)), next_sum);
      const Vec<T> v = part.load(at.y, T(0));
      const Vec<T> result = hn::NegMulAdd(v, total, hn::Mul(part.load(at.g, T(0)), v));
      part.store(result, at.out, non_temporal);
    });
    sum = next_sum;
  }
}

template <class T>
struct SumAndRange {
  One<T> sum;
  Range<T> range;
  HWY_INLINE SumAndRange() : sum(), range() {}
  HWY_INLINE void add(const SumAndRange& other) {
    sum.add(other.sum);
    range.add(other.range);
  }
};

template <class T>
HWY_INLINE void LogSoftmaxGradientRows(Rows<const T> grads, Rows<const T> ys, Rows<T> to,
                                       int64_t count, int64_t n, bool non_temporal) {
  const hn::ScalableTag<T> d;
  for (int64_t row = 0; row < count; ++row) {
    const GradientRow<T> at(grads, ys, to, row, row + 1 < count && n <= kShort<T>);
    const auto found =
        Fold<T>(n, SumAndRange<T>(), [&](const auto& part, SumAndRange<T>& found) MYTORCH_ROW {
          found.sum.a = hn::Add(found.sum.a, part.load(at.g, T(0)));
          found.range.meet(part.load(at.y, T(0)));
        });
    const Vec<T> total = hn::Set(d, SumOf<T>(found.sum.a));
    const auto go = [&](auto&& exp) MYTORCH_ROW {
      ForEach<T>(n, [&](const auto& part) MYTORCH_ROW {
        part.prefetch(at.next_g);
        part.prefetch(at.next_y);
        const Vec<T> e = exp(part.load(at.y, T(0)));
        const Vec<T> result = hn::NegMulAdd(e, total, part.load(at.g, T(0)));
        part.store(result, at.out, non_temporal);
      });
    };
    WithExp<T>(found.range.lowest() >= -kNormal<T> && found.range.highest() <= kNormal<T>, go);
  }
}

template <class T>
HWY_INLINE void PowerSumRows(Rows<const T> from, int64_t count, int64_t n, T* most, T* sums) {
  const hn::ScalableTag<T> d;
  const auto range_of = [n](const T* x) MYTORCH_ROW {
    return Fold<T>(n, Range<T>(), [&](const auto& part, Range<T>& range) MYTORCH_ROW {
      range.meet(part.load(x, x[0]));
    });
  };
  Range<T> range = range_of(from.first);
  for (int64_t row = 0; row < count; ++row) {
    const T* x = from.first + row * from.step;
    const T* next = row + 1 < count ? x + from.step : x;
    const T* soon = row + 2 < count && n <= kShort<T> ? next + from.step : x;
    const T highest = range.highest();
    const Vec<T> max = hn::Set(d, highest);
    Vec<T> sum = hn::Zero(d);
    Range<T> next_range;
    const auto go = [&](auto&& exp) MYTORCH_ROW {
      ForEach<T>(n, [&](const auto& part) MYTORCH_ROW {
        sum = hn::Add(sum, part.zero_beyond(exp(hn::Sub(part.load(x, x[0]), max))));
        next_range.meet(part.load(next, next[0]));
        part.prefetch(soon);
      });
    };
    WithExp<T>(range.lowest() - highest >= -kNormal<T>, go);
    most[row] = highest;
    sums[row] = SumOf<T>(sum);
    range = next_range;
  }
}

template <class T>
HWY_INLINE void PowerRows(Rows<const T> from, Rows<T> to, int64_t count, int64_t n, const T* shift,
                          const T* factor, const T* off, bool non_temporal) {
  const hn::ScalableTag<T> d;
  for (int64_t row = 0; row < count; ++row) {
    const T* x = from.first + row * from.step;
    T* out = to.first + row * to.step;
    const T* next = row + 1 < count && n <= kShort<T> ? x + from.step : x;
    const auto range = Fold<T>(n, Range<T>(), [&](const auto& part, Range<T>& range) MYTORCH_ROW {
      range.meet(part.load(x, x[0]));
    });
    const Vec<T> below = hn::Set(d, shift[row]);
    const Vec<T> times = hn::Set(d, factor[row]), less = hn::Set(d, off[row]);
    const auto go = [&](auto&& exp) MYTORCH_ROW {
      ForEach<T>(n, [&](const auto& part) MYTORCH_ROW {
        part.prefetch(next);
        const Vec<T> e = exp(hn::Sub(part.load(x, x[0]), below));
        const Vec<T> result = hn::Sub(hn::Mul(e, times), less);
        part.store(result, out, non_temporal);
      });
    };
    WithExp<T>(
        range.lowest() - shift[row] >= -kNormal<T> && range.highest() - shift[row] <= kNormal<T>,
        go);
  }
}

template <class T>
constexpr SoftmaxKernels<T> kSoftmaxKernels = {&SoftmaxRows<false, T>,  &SoftmaxRows<true, T>,
                                               &SoftmaxGradientRows<T>, &LogSoftmaxGradientRows<T>,
                                               &PowerSumRows<T>,        &PowerRows<T>};

const SoftmaxKernels<float>& FloatSoftmax() { return kSoftmaxKernels<float>; }
const SoftmaxKernels<double>& DoubleSoftmax() { return kSoftmaxKernels<double>; }

}  // namespace mytorch::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

MYTORCH_EXPORT_TABLE_OF(float, mytorch::cpu, softmax_kernels, FloatSoftmax)
MYTORCH_EXPORT_TABLE_OF(double, mytorch::cpu, softmax_kernels, DoubleSoftmax)
