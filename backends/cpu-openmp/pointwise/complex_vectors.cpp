// Arithmetic, magnitudes, comparisons and selections of complex tiles in vector code.
#include "backends/cpu-openmp/pointwise/complex_nodes.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu-openmp/pointwise/complex_vectors.cpp"
#include "backends/cpu-openmp/simd/foreach_target.h"
// After foreach_target.h, which includes this file once for each instruction set.
#include "backends/cpu-openmp/simd/export.h"
#include "backends/cpu-openmp/simd/highway.h"

HWY_BEFORE_NAMESPACE();
namespace mytorch {
namespace cpu {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

// A vector of complex numbers.
template <class V>
struct Z {
  V re;
  V im;
};

template <class T>
using Tag = hn::ScalableTag<T>;

template <class T, class F>
HWY_INLINE void ForEach(int64_t n, F&& f) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(Tag<T>()));
  for (int64_t i = 0; i < n; i += lanes) f(i);
}

template <class T>
HWY_INLINE auto LoadZ(const ComplexTile<T>& tile, int64_t i) {
  const Tag<T> d;
  return Z<hn::Vec<Tag<T>>>{hn::Load(d, tile.re + i), hn::Load(d, tile.im + i)};
}
template <class T, class V>
HWY_INLINE void StoreZ(Z<V> value, const ComplexTile<T>& tile, int64_t i) {
  const Tag<T> d;
  hn::Store(value.re, d, tile.re + i);
  hn::Store(value.im, d, tile.im + i);
}
// A bool is 1 or 0 with an imaginary part of 0.
template <class T, class M>
HWY_INLINE void StoreBool(M mask, const ComplexTile<T>& tile, int64_t i) {
  const Tag<T> d;
  hn::Store(hn::IfThenElseZero(mask, hn::Set(d, T(1))), d, tile.re + i);
  hn::Store(hn::Zero(d), d, tile.im + i);
}

template <class D, class V>
HWY_INLINE auto Differs(D, Z<V> a, Z<V> b) {
  return hn::Or(hn::Ne(a.re, b.re), hn::Ne(a.im, b.im));
}
template <class D, class V>
HWY_INLINE auto Holds(D d, Z<V> a) {
  return Differs(d, a, Z<V>{hn::Zero(d), hn::Zero(d)});
}

#define MYTORCH_UNARY(Name, value)                                    \
  template <class T>                                                  \
  void Name(const ComplexTile<T>* in, ComplexTile<T> to, int64_t n) { \
    const Tag<T> d [[maybe_unused]];                                  \
    ForEach<T>(n, [&](int64_t i) HWY_ATTR {                           \
      const auto a = LoadZ(in[0], i);                                 \
      StoreZ(Z<hn::Vec<Tag<T>>> value, to, i);                        \
    });                                                               \
  }
#define MYTORCH_BINARY(Name, value)                                   \
  template <class T>                                                  \
  void Name(const ComplexTile<T>* in, ComplexTile<T> to, int64_t n) { \
    const Tag<T> d [[maybe_unused]];                                  \
    ForEach<T>(n, [&](int64_t i) HWY_ATTR {                           \
      const auto a = LoadZ(in[0], i);                                 \
      const auto b = LoadZ(in[1], i);                                 \
      StoreZ(Z<hn::Vec<Tag<T>>> value, to, i);                        \
    });                                                               \
  }
#define MYTORCH_TEST(Name, mask)                                      \
  template <class T>                                                  \
  void Name(const ComplexTile<T>* in, ComplexTile<T> to, int64_t n) { \
    const Tag<T> d [[maybe_unused]];                                  \
    ForEach<T>(n, [&](int64_t i) HWY_ATTR {                           \
      const auto a = LoadZ(in[0], i);                                 \
      StoreBool<T>(mask, to, i);                                      \
    });                                                               \
  }
#define MYTORCH_COMPARE(Name, mask)                                   \
  template <class T>                                                  \
  void Name(const ComplexTile<T>* in, ComplexTile<T> to, int64_t n) { \
    const Tag<T> d [[maybe_unused]];                                  \
    ForEach<T>(n, [&](int64_t i) HWY_ATTR {                           \
      const auto a = LoadZ(in[0], i);                                 \
      const auto b = LoadZ(in[1], i);                                 \
      StoreBool<T>(mask, to, i);                                      \
    });                                                               \
  }

MYTORCH_BINARY(Add, ({hn::Add(a.re, b.re), hn::Add(a.im, b.im)}))
MYTORCH_BINARY(Sub, ({hn::Sub(a.re, b.re), hn::Sub(a.im, b.im)}))
MYTORCH_BINARY(Mul, ({hn::Sub(hn::Mul(a.re, b.re), hn::Mul(a.im, b.im)),
                      hn::Add(hn::Mul(a.re, b.im), hn::Mul(a.im, b.re))}))
MYTORCH_UNARY(Neg, ({hn::Neg(a.re), hn::Neg(a.im)}))
MYTORCH_UNARY(ConjPhysical, ({a.re, hn::Neg(a.im)}))
MYTORCH_TEST(IsNan, hn::Or(hn::IsNaN(a.re), hn::IsNaN(a.im)))
MYTORCH_COMPARE(Eq, hn::And(hn::Eq(a.re, b.re), hn::Eq(a.im, b.im)))
MYTORCH_COMPARE(Ne, Differs(d, a, b))
MYTORCH_COMPARE(Lt, hn::Lt(a.re, b.re))
MYTORCH_COMPARE(Le, hn::Le(a.re, b.re))
MYTORCH_COMPARE(Gt, hn::Gt(a.re, b.re))
MYTORCH_COMPARE(Ge, hn::Ge(a.re, b.re))
MYTORCH_COMPARE(LogicalAnd, hn::And(Holds(d, a), Holds(d, b)))
MYTORCH_COMPARE(LogicalOr, hn::Or(Holds(d, a), Holds(d, b)))
MYTORCH_COMPARE(LogicalXor, hn::Xor(Holds(d, a), Holds(d, b)))
MYTORCH_TEST(LogicalNot, hn::Not(Holds(d, a)))
MYTORCH_TEST(ToBool, Holds(d, a))

#undef MYTORCH_UNARY
#undef MYTORCH_BINARY
#undef MYTORCH_TEST
#undef MYTORCH_COMPARE

template <class T>
void Where(const ComplexTile<T>* in, ComplexTile<T> to, int64_t n) {
  const Tag<T> d;
  ForEach<T>(n, [&](int64_t i) HWY_ATTR {
    const auto chosen = hn::Ne(hn::Load(d, in[0].re + i), hn::Zero(d));
    const auto a = LoadZ(in[1], i);
    const auto b = LoadZ(in[2], i);
    StoreZ(
        Z<hn::Vec<Tag<T>>>{hn::IfThenElse(chosen, a.re, b.re), hn::IfThenElse(chosen, a.im, b.im)},
        to, i);
  });
}

// |z| = big * sqrt(1 + (small / big)^2), which neither overflows nor underflows before the result
// does. An infinite part gives infinity, even beside NaN.
template <class D, class V>
HWY_INLINE V Magnitude(D d, Z<V> z) {
  const V x = hn::Abs(z.re);
  const V y = hn::Abs(z.im);
  const auto swap = hn::Lt(x, y);
  const V big = hn::IfThenElse(swap, y, x);
  const V small = hn::IfThenElse(swap, x, y);
  const auto zero = hn::Eq(big, hn::Zero(d));
  const V ratio = hn::IfThenElse(zero, small, hn::Div(small, big));  // small may be NaN
  const V one = hn::Set(d, hn::TFromD<D>(1));
  const V size = hn::Mul(big, hn::Sqrt(hn::Add(hn::Mul(ratio, ratio), one)));
  return hn::IfThenElse(hn::Or(hn::IsInf(x), hn::IsInf(y)), hn::Inf(d), size);
}

template <class T>
void Abs(const ComplexTile<T>* in, ComplexTile<T> to, int64_t n) {
  const Tag<T> d;
  ForEach<T>(n, [&](int64_t i) HWY_ATTR {
    StoreZ(Z<hn::Vec<Tag<T>>>{Magnitude(d, LoadZ(in[0], i)), hn::Zero(d)}, to, i);
  });
}

template <class T>
void Sign(const ComplexTile<T>* in, ComplexTile<T> to, int64_t n) {
  const Tag<T> d;
  ForEach<T>(n, [&](int64_t i) HWY_ATTR {
    const auto a = LoadZ(in[0], i);
    const auto size = Magnitude(d, a);
    const auto zero = hn::Eq(size, hn::Zero(d));
    StoreZ(Z<hn::Vec<Tag<T>>>{hn::IfThenZeroElse(zero, hn::Div(a.re, size)),
                              hn::IfThenZeroElse(zero, hn::Div(a.im, size))},
           to, i);
  });
}

// Smith's division: the quotient of the smaller by the larger part of the divisor keeps everything
// in range. A divisor of 0 divides both parts by 0, as in ATen.
template <class T>
void Div(const ComplexTile<T>* in, ComplexTile<T> to, int64_t n) {
  const Tag<T> d;
  ForEach<T>(n, [&](int64_t i) HWY_ATTR {
    const auto a = LoadZ(in[0], i);
    const auto b = LoadZ(in[1], i);
    const auto swap = hn::Lt(hn::Abs(b.re), hn::Abs(b.im));
    const auto big = hn::IfThenElse(swap, b.im, b.re);
    const auto small = hn::IfThenElse(swap, b.re, b.im);
    const auto x = hn::IfThenElse(swap, a.im, a.re);
    const auto y = hn::IfThenElse(swap, a.re, a.im);
    const auto zero = hn::And(hn::Eq(big, hn::Zero(d)), hn::Eq(small, hn::Zero(d)));
    const auto ratio = hn::IfThenZeroElse(zero, hn::Div(small, big));
    const auto scale = hn::IfThenElse(zero, hn::Abs(big), hn::Add(big, hn::Mul(small, ratio)));
    const auto im = hn::Div(hn::Sub(y, hn::Mul(x, ratio)), scale);
    StoreZ(Z<hn::Vec<Tag<T>>>{hn::Div(hn::Add(x, hn::Mul(y, ratio)), scale),
                              hn::IfThenElse(swap, hn::Neg(im), im)},
           to, i);
  });
}

template <class T>
void LoadParts(const T* from, ComplexTile<T> to, int64_t n) {
  const Tag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    hn::Vec<Tag<T>> re;
    hn::Vec<Tag<T>> im;
    hn::LoadInterleaved2(d, from + 2 * i, re, im);
    hn::Store(re, d, to.re + i);
    hn::Store(im, d, to.im + i);
  }
  for (; i < n; ++i) {
    to.re[i] = from[2 * i];
    to.im[i] = from[2 * i + 1];
  }
}

template <class T>
void StoreParts(ComplexTile<T> from, T* to, int64_t n) {
  const Tag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    hn::StoreInterleaved2(hn::Load(d, from.re + i), hn::Load(d, from.im + i), d, to + 2 * i);
  }
  for (; i < n; ++i) {
    to[2 * i] = from.re[i];
    to[2 * i + 1] = from.im[i];
  }
}

template <class T>
const ComplexVectorFns<T>& Fns() {
  static constexpr typename ComplexVectorFns<T>::Row rows[] = {
      {"add", Add<T>},
      {"sub", Sub<T>},
      {"mul", Mul<T>},
      {"div", Div<T>},
      {"neg", Neg<T>},
      {"conj_physical", ConjPhysical<T>},
      {"abs", Abs<T>},
      {"sign", Sign<T>},
      {"isnan", IsNan<T>},
      {"eq", Eq<T>},
      {"ne", Ne<T>},
      {"lt", Lt<T>},
      {"le", Le<T>},
      {"gt", Gt<T>},
      {"ge", Ge<T>},
      {"logical_and", LogicalAnd<T>},
      {"logical_or", LogicalOr<T>},
      {"logical_xor", LogicalXor<T>},
      {"logical_not", LogicalNot<T>},
      {"cast", ToBool<T>},
      {"where", Where<T>},
  };
  static constexpr ComplexVectorFns<T> fns = {rows, sizeof(rows) / sizeof(rows[0]), LoadParts<T>,
                                              StoreParts<T>};
  return fns;
}

}  // namespace

const ComplexVectorFns<float>& FloatFns() { return Fns<float>(); }
const ComplexVectorFns<double>& DoubleFns() { return Fns<double>(); }

}  // namespace HWY_NAMESPACE
}  // namespace cpu
}  // namespace mytorch
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mytorch::cpu {
template <>
MYTORCH_EXPORT_TABLE(complex_vector_fns<float>, FloatFns)
template <>
MYTORCH_EXPORT_TABLE(complex_vector_fns<double>, DoubleFns)
}  // namespace mytorch::cpu
#endif
