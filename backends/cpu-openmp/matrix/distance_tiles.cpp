#include "backends/cpu-openmp/matrix/distance_tiles.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu-openmp/matrix/distance_tiles.cpp"
#include "backends/cpu-openmp/simd/foreach_target.h"
// After foreach_target.h, which includes this file once for each instruction set.
#include "backends/cpu-openmp/normalization/row-inl.h"
#include "backends/cpu-openmp/simd/export.h"
#include "backends/cpu-openmp/simd/highway.h"

HWY_BEFORE_NAMESPACE();
namespace mytorch::cpu::HWY_NAMESPACE {

// Sums of longer rows are added in parts, so that their rounding errors do not grow as much.
constexpr int64_t kPart = 512;

template <class T>
HWY_INLINE Vec<T> Same(T x) {
  return hn::Set(hn::ScalableTag<T>(), x);
}

// The sign, which is 0 for NaN.
template <class T>
HWY_INLINE Vec<T> Sign(Vec<T> x) {
  const Vec<T> zero = Same<T>(0), one = Same<T>(1);
  return hn::Sub(hn::IfThenElseZero(hn::Gt(x, zero), one),
                 hn::IfThenElseZero(hn::Lt(x, zero), one));
}

// Adds an element of a difference to a norm, or one of its parts to another.
template <Norm kNorm, class T>
HWY_INLINE Vec<T> Joined(Vec<T> sum, Vec<T> other) {
  if constexpr (kNorm != Norm::kLargest) return hn::Add(sum, other);
  return hn::IfThenElse(hn::Or(hn::Gt(other, sum), hn::IsNaN(other)), other, sum);
}
template <Norm kNorm, class T>
HWY_INLINE Vec<T> Added(Vec<T> sum, Vec<T> difference, Vec<T> p) {
  if constexpr (kNorm == Norm::kSquares) return hn::MulAdd(difference, difference, sum);
  if constexpr (kNorm == Norm::kCount) {
    return hn::Add(sum, hn::IfThenZeroElse(hn::Eq(difference, Same<T>(0)), Same<T>(1)));
  }
  const Vec<T> size = hn::Abs(difference);
  if constexpr (kNorm != Norm::kPowers) return Joined<kNorm, T>(sum, size);
  return hn::Add(sum, simd::HWY_NAMESPACE::NodePow(hn::ScalableTag<T>(), size, p));
}

template <Norm kNorm, class T>
HWY_INLINE Vec<T> Finished(Vec<T> sum, Vec<T> inverse) {
  if constexpr (kNorm == Norm::kSquares) return hn::Sqrt(sum);
  if constexpr (kNorm != Norm::kPowers) return sum;
  return simd::HWY_NAMESPACE::NodePow(hn::ScalableTag<T>(), sum, inverse);
}

// Returns whether a square or power is outside of [low, the largest number].
template <Norm kNorm, class T>
HWY_INLINE bool MeasureTile(const T* const* x1, int64_t rows, const T* panel, int64_t n,
                            int64_t size, T p, T low, T* to, int64_t pitch) {
  const hn::ScalableTag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const Vec<T> exponent = Same<T>(p), inverse = Same<T>(1 / p), zero = Same<T>(0);
  const T *x = x1[0], *y = x1[1], *z = x1[2], *w = x1[3];
  Vec<T> a0 = zero, a1 = zero, b0 = zero, b1 = zero;
  Vec<T> c0 = zero, c1 = zero, d0 = zero, d1 = zero;
  for (int64_t part = 0; part < size; part += kPart) {
    Vec<T> e0 = zero, e1 = zero, f0 = zero, f1 = zero;
    Vec<T> g0 = zero, g1 = zero, h0 = zero, h1 = zero;
    const int64_t end = HWY_MIN(size, part + kPart);
    for (int64_t k = part; k < end; ++k) {
      const Vec<T> u = hn::LoadU(d, panel + k * 2 * lanes);
      const Vec<T> v = hn::LoadU(d, panel + k * 2 * lanes + lanes);
      const Vec<T> at0 = Same<T>(x[k]), at1 = Same<T>(y[k]);
      e0 = Added<kNorm, T>(e0, hn::Sub(at0, u), exponent);
      e1 = Added<kNorm, T>(e1, hn::Sub(at0, v), exponent);
      f0 = Added<kNorm, T>(f0, hn::Sub(at1, u), exponent);
      f1 = Added<kNorm, T>(f1, hn::Sub(at1, v), exponent);
      const Vec<T> at2 = Same<T>(z[k]), at3 = Same<T>(w[k]);
      g0 = Added<kNorm, T>(g0, hn::Sub(at2, u), exponent);
      g1 = Added<kNorm, T>(g1, hn::Sub(at2, v), exponent);
      h0 = Added<kNorm, T>(h0, hn::Sub(at3, u), exponent);
      h1 = Added<kNorm, T>(h1, hn::Sub(at3, v), exponent);
    }
    a0 = Joined<kNorm, T>(a0, e0), a1 = Joined<kNorm, T>(a1, e1);
    b0 = Joined<kNorm, T>(b0, f0), b1 = Joined<kNorm, T>(b1, f1);
    c0 = Joined<kNorm, T>(c0, g0), c1 = Joined<kNorm, T>(c1, g1);
    d0 = Joined<kNorm, T>(d0, h0), d1 = Joined<kNorm, T>(d1, h1);
  }
  const Vec<T> least = Same<T>(low), most = Same<T>(hwy::HighestValue<T>());
  auto inside = hn::Eq(zero, zero);
  const auto store = [&](int64_t row, Vec<T> first, Vec<T> second) MYTORCH_ROW {
    if (row >= rows) return;
    T* const line = to + row * pitch;
    first = Finished<kNorm, T>(first, inverse), second = Finished<kNorm, T>(second, inverse);
    if constexpr (kNorm == Norm::kSquares || kNorm == Norm::kPowers) {
      inside = hn::And(inside, hn::And(hn::Ge(first, least), hn::Le(first, most)));
      inside = hn::And(inside, hn::And(hn::Ge(second, least), hn::Le(second, most)));
    }
    if (n == 2 * lanes) {
      hn::StoreU(first, d, line);
      hn::StoreU(second, d, line + lanes);
      return;
    }
    if (n >= lanes) {
      hn::StoreU(first, d, line);
    } else {
      Part<T>(0, n).store(first, line);
    }
    if (n > lanes) Part<T>(lanes, n - lanes).store(second, line);
  };
  store(0, a0, a1), store(1, b0, b1), store(2, c0, c1), store(3, d0, d1);
  return !hn::AllTrue(d, inside);
}

// The rows, of which the last one stands for absent ones.
template <class T>
struct Rows {
  const T* at[kDistanceRows];
  HWY_INLINE Rows(const T* x, int64_t rows, int64_t pitch) {
    for (int64_t i = 0; i < kDistanceRows; ++i) at[i] = x + HWY_MIN(i, rows - 1) * pitch;
  }
};

template <class T>
int64_t Columns() {
  return 2 * static_cast<int64_t>(hn::Lanes(hn::ScalableTag<T>()));
}

template <class T>
void Pack(const T* x2, int64_t n, int64_t size, T* panel) {
  const int64_t columns = Columns<T>();
  const int64_t given = HWY_MIN(n, columns);
  for (int64_t k = 0; k < size; ++k) {
    for (int64_t j = 0; j < given; ++j) panel[k * columns + j] = x2[j * size + k];
    for (int64_t j = given; j < columns; ++j) panel[k * columns + j] = 0;
  }
}

template <class T>
bool Measure(const T* x1, int64_t rows, const T* panel, int64_t n, int64_t size, Norm norm, T p,
             T low, T* to, int64_t pitch) {
  const Rows<T> x(x1, rows, size);
  const int64_t columns = HWY_MIN(n, Columns<T>());
  switch (norm) {
    case Norm::kCount:
      return MeasureTile<Norm::kCount, T>(x.at, rows, panel, columns, size, p, low, to, pitch);
    case Norm::kSum:
      return MeasureTile<Norm::kSum, T>(x.at, rows, panel, columns, size, p, low, to, pitch);
    case Norm::kSquares:
      return MeasureTile<Norm::kSquares, T>(x.at, rows, panel, columns, size, p, low, to, pitch);
    case Norm::kLargest:
      return MeasureTile<Norm::kLargest, T>(x.at, rows, panel, columns, size, p, low, to, pitch);
    case Norm::kPowers:
      return MeasureTile<Norm::kPowers, T>(x.at, rows, panel, columns, size, p, low, to, pitch);
  }
  return false;
}

// Adds g times the derivative of the norm by one of the elements.
template <Norm kNorm, class T>
HWY_INLINE Vec<T> AddedSlope(Vec<T> sum, Vec<T> difference, T g, T distance, T p) {
  if constexpr (kNorm == Norm::kSquares) return hn::MulAdd(difference, Same<T>(g), sum);
  const Vec<T> slope = hn::Mul(Sign<T>(difference), Same<T>(g));
  if constexpr (kNorm == Norm::kSum) return hn::Add(sum, slope);
  const Vec<T> size = hn::Abs(difference), length = Same<T>(distance);
  if constexpr (kNorm == Norm::kLargest) {
    return hn::Add(sum, hn::IfThenElseZero(hn::Eq(size, length), slope));
  }
  // The quotient neither overflows nor underflows, unlike separate powers.
  const Vec<T> power =
      simd::HWY_NAMESPACE::NodePow(hn::ScalableTag<T>(), hn::Div(size, length), Same<T>(p - 1));
  const Vec<T> of = p < 1 ? size : length;
  return hn::Add(sum, hn::IfThenZeroElse(hn::Eq(of, Same<T>(0)), hn::Mul(slope, power)));
}

template <Norm kNorm, class T>
HWY_INLINE void GradientTile(const T* const* x1, int64_t rows, const T* x2, int64_t n, int64_t size,
                             T p, const T* const* g, const T* const* lengths, T* to) {
  const T *g0 = g[0], *g1 = g[1], *g2 = g[2], *g3 = g[3];
  const T *l0 = lengths[0], *l1 = lengths[1], *l2 = lengths[2], *l3 = lengths[3];
  ForEach<T>(size, [&](const auto& part) MYTORCH_ROW {
    const Vec<T> x = part.load(x1[0], T(0)), y = part.load(x1[1], T(0));
    const Vec<T> z = part.load(x1[2], T(0)), w = part.load(x1[3], T(0));
    Vec<T> a = Same<T>(0), b = a, c = a, e = a;
    for (int64_t j = 0; j < n; ++j) {
      const Vec<T> v = part.load(x2 + j * size, T(0));
      a = AddedSlope<kNorm, T>(a, hn::Sub(x, v), g0[j], l0[j], p);
      b = AddedSlope<kNorm, T>(b, hn::Sub(y, v), g1[j], l1[j], p);
      c = AddedSlope<kNorm, T>(c, hn::Sub(z, v), g2[j], l2[j], p);
      e = AddedSlope<kNorm, T>(e, hn::Sub(w, v), g3[j], l3[j], p);
    }
    const auto add = [&](int64_t row, Vec<T> sum) MYTORCH_ROW {
      if (row >= rows) return;
      T* const line = to + row * size;
      part.store(hn::Add(part.load(line, T(0)), sum), line);
    };
    add(0, a), add(1, b), add(2, c), add(3, e);
  });
}

template <class T>
void AddGradient(const T* x1, int64_t rows, const T* x2, int64_t n, int64_t size, Norm norm, T p,
                 const T* g, const T* distances, T* to, int64_t pitch) {
  const Rows<T> x(x1, rows, size), gs(g, rows, pitch), ls(distances, rows, pitch);
  switch (norm) {
    case Norm::kCount:
      return;
    case Norm::kSum:
      return GradientTile<Norm::kSum, T>(x.at, rows, x2, n, size, p, gs.at, ls.at, to);
    case Norm::kSquares:
      return GradientTile<Norm::kSquares, T>(x.at, rows, x2, n, size, p, gs.at, ls.at, to);
    case Norm::kLargest:
      return GradientTile<Norm::kLargest, T>(x.at, rows, x2, n, size, p, gs.at, ls.at, to);
    case Norm::kPowers:
      return GradientTile<Norm::kPowers, T>(x.at, rows, x2, n, size, p, gs.at, ls.at, to);
  }
}

template <class T>
T Attained(const T* x1, const T* x2, int64_t size, T magnitude) {
  const auto sums = Fold<T>(size, One<T>(), [&](const auto& part, One<T>& sum) MYTORCH_ROW {
    const Vec<T> d = hn::Abs(hn::Sub(part.load(x1, T(0)), part.load(x2, T(0))));
    const Vec<T> same = hn::IfThenElseZero(hn::Eq(d, Same<T>(magnitude)), Same<T>(1));
    sum.a = hn::Add(sum.a, part.zero_beyond(same));
  });
  return SumOf<T>(sums.a);
}

template <class T>
T Centered(const T* row, const T* center, int64_t size, T* to) {
  const auto sums = Fold<T>(size, One<T>(), [&](const auto& part, One<T>& sum) MYTORCH_ROW {
    const Vec<T> x = hn::Sub(part.load(row, T(0)), part.load(center, T(0)));
    part.store(x, to);
    sum.a = hn::MulAdd(x, x, sum.a);
  });
  return SumOf<T>(sums.a);
}

// The smallest share of its terms that a sum may be: what is left has lost three bits.
template <class T>
constexpr T kShare = T(0.125);

template <class T>
bool Finish(T own, const T* others, int64_t n, T low, T* to) {
  const hn::ScalableTag<T> d;
  const Vec<T> length = Same<T>(own), share = Same<T>(kShare<T>);
  const Vec<T> least = Same<T>(low), most = Same<T>(hwy::HighestValue<T>());
  auto all = hn::Eq(share, share);
  ForEach<T>(n, [&](const auto& part) MYTORCH_ROW {
    const Vec<T> terms = hn::Add(length, part.load(others, T(1)));
    const Vec<T> sum = hn::Add(terms, part.load(to, T(0)));
    const Vec<T> distance = hn::Sqrt(sum);
    auto good = hn::And(hn::Ge(sum, hn::Mul(share, terms)), hn::Le(sum, most));
    good = hn::And(good, hn::Ge(distance, least));
    all = hn::And(all, good);
    part.store(hn::IfThenElse(good, distance, hn::NaN(d)), to);
  });
  return !hn::AllTrue(d, all);
}

template <class T>
T Distance(const T* x1, const T* x2, int64_t size) {
  const auto sums = Fold<T>(size, One<T>(), [&](const auto& part, One<T>& sum) MYTORCH_ROW {
    const Vec<T> x = hn::Sub(part.load(x1, T(0)), part.load(x2, T(0)));
    sum.a = hn::MulAdd(x, x, sum.a);
  });
  return hn::GetLane(hn::Sqrt(hn::SumOfLanes(hn::ScalableTag<T>(), sums.a)));
}

template <class T>
constexpr DistanceTiles<T> kDistanceTiles = {&Columns<T>,     &Pack<T>,     &Measure<T>,
                                             &AddGradient<T>, &Attained<T>, &Centered<T>,
                                             &Finish<T>,      &Distance<T>};

const DistanceTiles<float>& FloatDistances() { return kDistanceTiles<float>; }
const DistanceTiles<double>& DoubleDistances() { return kDistanceTiles<double>; }

}  // namespace mytorch::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

MYTORCH_EXPORT_TABLE_OF(float, mytorch::cpu, distance_tiles, FloatDistances)
MYTORCH_EXPORT_TABLE_OF(double, mytorch::cpu, distance_tiles, DoubleDistances)
