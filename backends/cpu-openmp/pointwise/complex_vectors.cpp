// Arithmetic, magnitudes, comparisons and selections of complex numbers, and their exponential, in
// vector code.
#include <cmath>
#include <complex>
#include <cstring>
#include <limits>

#include "backends/cpu-openmp/pointwise/complex_nodes.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu-openmp/pointwise/complex_vectors.cpp"
#include "backends/cpu-openmp/simd/foreach_target.h"
// After foreach_target.h, which includes this file once for each instruction set.
#include "backends/cpu-openmp/simd/export.h"
#include "backends/cpu-openmp/simd/highway.h"

HWY_BEFORE_NAMESPACE();
namespace mytorch::cpu::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using namespace simd::HWY_NAMESPACE;  // NOLINT: the node functions

// A vector of complex numbers.
template <class V>
struct Z {
  V re;
  V im;
};

template <class T>
using Tag = hn::ScalableTag<T>;

// Calls step(pointers to the operands, pointer to the result) for every `width` numbers of `count`.
// The last ones go through buffers.
template <int kOperands, class T, class F>
HWY_INLINE void ForEach(const T* const* in, T* to, int64_t count, int64_t width, F&& step) {
  const T* at[kOperands];
  for (int k = 0; k < kOperands; ++k) at[k] = in[k];
  int64_t i = 0;
  for (; i + width <= count; i += width) {
    step(at, to + i);
    for (int k = 0; k < kOperands; ++k) at[k] += width;
  }
  if (i == count) return;
  constexpr size_t kMost = 2 * hn::MaxLanes(Tag<T>());
  alignas(64) T rest[kOperands + 1][kMost] = {};
  const size_t bytes = static_cast<size_t>(count - i) * sizeof(T);
  for (int k = 0; k < kOperands; ++k) {
    std::memcpy(rest[k], at[k], bytes);
    at[k] = rest[k];
  }
  step(at, rest[kOperands]);
  std::memcpy(to + i, rest[kOperands], bytes);
}

// For each vector of numbers, whose parts are in turns.
template <int kOperands, class T, class F>
HWY_INLINE void ForEachPart(const T* const* in, T* to, int64_t n, F&& step) {
  ForEach<kOperands>(in, to, 2 * n, static_cast<int64_t>(hn::Lanes(Tag<T>())), step);
}
// For each pair of vectors, of the real and of the imaginary parts.
template <int kOperands, class T, class F>
HWY_INLINE void ForEachPair(const T* const* in, T* to, int64_t n, F&& step) {
  ForEach<kOperands>(in, to, 2 * n, 2 * static_cast<int64_t>(hn::Lanes(Tag<T>())), step);
}

template <class T>
HWY_INLINE auto LoadZ(const T* from) {
  Z<hn::Vec<Tag<T>>> z;
  hn::LoadInterleaved2(Tag<T>(), from, z.re, z.im);
  return z;
}
template <class T, class V>
HWY_INLINE void StoreZ(Z<V> value, T* to) {
  hn::StoreInterleaved2(value.re, value.im, Tag<T>(), to);
}
// A bool is 1 or 0 with an imaginary part of 0.
template <class T, class M>
HWY_INLINE void StoreBool(M mask, T* to) {
  const Tag<T> d;
  StoreZ(Z<hn::Vec<Tag<T>>>{hn::IfThenElseZero(mask, hn::Set(d, T(1))), hn::Zero(d)}, to);
}

template <class D, class V>
HWY_INLINE auto Differs(D, Z<V> a, Z<V> b) {
  return hn::Or(hn::Ne(a.re, b.re), hn::Ne(a.im, b.im));
}
template <class D, class V>
HWY_INLINE auto Holds(D d, Z<V> a) {
  return Differs(d, a, Z<V>{hn::Zero(d), hn::Zero(d)});
}

// a and b are the operands as they lie in memory.
#define MYTORCH_PARTS(Name, operands, value)                                             \
  template <class T>                                                                     \
  void Name(const T* const* in, T* to, int64_t n) {                                      \
    const Tag<T> d;                                                                      \
    ForEachPart<operands>(in, to, n, [&](const T* const* at, T* out) HWY_ATTR {          \
      const auto a = hn::LoadU(d, at[0]);                                                \
      const auto b [[maybe_unused]] = operands < 2 ? a : hn::LoadU(d, at[operands - 1]); \
      hn::StoreU(value, d, out);                                                         \
    });                                                                                  \
  }
#define MYTORCH_TEST(Name, mask)                                         \
  template <class T>                                                     \
  void Name(const T* const* in, T* to, int64_t n) {                      \
    const Tag<T> d [[maybe_unused]];                                     \
    ForEachPair<1>(in, to, n, [&](const T* const* at, T* out) HWY_ATTR { \
      const auto a = LoadZ(at[0]);                                       \
      StoreBool(mask, out);                                              \
    });                                                                  \
  }
#define MYTORCH_COMPARE(Name, mask)                                      \
  template <class T>                                                     \
  void Name(const T* const* in, T* to, int64_t n) {                      \
    const Tag<T> d [[maybe_unused]];                                     \
    ForEachPair<2>(in, to, n, [&](const T* const* at, T* out) HWY_ATTR { \
      const auto a = LoadZ(at[0]);                                       \
      const auto b = LoadZ(at[1]);                                       \
      StoreBool(mask, out);                                              \
    });                                                                  \
  }

MYTORCH_PARTS(Add, 2, hn::Add(a, b))
MYTORCH_PARTS(Sub, 2, hn::Sub(a, b))
MYTORCH_PARTS(Neg, 1, hn::Neg(a))

#if HWY_TARGET == HWY_SCALAR  // one lane, which is half of a number
template <class T>
void Mul(const T* const* in, T* to, int64_t n) {
  ForEachPair<2>(in, to, n, [&](const T* const* at, T* out) HWY_ATTR {
    const auto a = LoadZ(at[0]);
    const auto b = LoadZ(at[1]);
    StoreZ(Z<hn::Vec<Tag<T>>>{hn::Sub(hn::Mul(a.re, b.re), hn::Mul(a.im, b.im)),
                              hn::Add(hn::Mul(a.re, b.im), hn::Mul(a.im, b.re))},
           out);
  });
}
template <class T>
void ConjPhysical(const T* const* in, T* to, int64_t n) {
  ForEachPair<1>(in, to, n, [&](const T* const* at, T* out) HWY_ATTR {
    const auto a = LoadZ(at[0]);
    StoreZ(Z<hn::Vec<Tag<T>>>{a.re, hn::Neg(a.im)}, out);
  });
}
#else
// The signs that make the parts (-x, y) of (x, y).
template <class D>
HWY_INLINE hn::VFromD<D> FirstNegative(D d) {
  return hn::OddEven(hn::Zero(d), hn::SignBit(d));
}
// (ar br - ai bi, ai br + ar bi), each product rounded.
template <class D, class V>
HWY_INLINE V Product(D d, V a, V b, V signs) {
  const V turned = hn::Xor(hn::Mul(hn::Reverse2(d, a), hn::DupOdd(b)), signs);
  return hn::Add(hn::Mul(a, hn::DupEven(b)), turned);
}
template <class T>
void Mul(const T* const* in, T* to, int64_t n) {
  const Tag<T> d;
  const auto signs = FirstNegative(d);
  ForEachPart<2>(in, to, n, [&](const T* const* at, T* out) HWY_ATTR {
    hn::StoreU(Product(d, hn::LoadU(d, at[0]), hn::LoadU(d, at[1]), signs), d, out);
  });
}
template <class T>
void ConjPhysical(const T* const* in, T* to, int64_t n) {
  const Tag<T> d;
  const auto signs = hn::OddEven(hn::SignBit(d), hn::Zero(d));
  ForEachPart<1>(in, to, n, [&](const T* const* at, T* out) HWY_ATTR {
    hn::StoreU(hn::Xor(hn::LoadU(d, at[0]), signs), d, out);
  });
}
#endif

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

#undef MYTORCH_PARTS
#undef MYTORCH_TEST
#undef MYTORCH_COMPARE

template <class T>
void Where(const T* const* in, T* to, int64_t n) {
  const Tag<T> d;
  ForEachPair<3>(in, to, n, [&](const T* const* at, T* out) HWY_ATTR {
    const auto chosen = hn::Ne(LoadZ(at[0]).re, hn::Zero(d));
    const auto a = LoadZ(at[1]);
    const auto b = LoadZ(at[2]);
    StoreZ(
        Z<hn::Vec<Tag<T>>>{hn::IfThenElse(chosen, a.re, b.re), hn::IfThenElse(chosen, a.im, b.im)},
        out);
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
void Abs(const T* const* in, T* to, int64_t n) {
  const Tag<T> d;
  ForEachPair<1>(in, to, n, [&](const T* const* at, T* out) HWY_ATTR {
    StoreZ(Z<hn::Vec<Tag<T>>>{Magnitude(d, LoadZ(at[0])), hn::Zero(d)}, out);
  });
}

template <class T>
void Sign(const T* const* in, T* to, int64_t n) {
  const Tag<T> d;
  ForEachPair<1>(in, to, n, [&](const T* const* at, T* out) HWY_ATTR {
    const auto a = LoadZ(at[0]);
    const auto size = Magnitude(d, a);
    const auto zero = hn::Eq(size, hn::Zero(d));
    StoreZ(Z<hn::Vec<Tag<T>>>{hn::IfThenZeroElse(zero, hn::Div(a.re, size)),
                              hn::IfThenZeroElse(zero, hn::Div(a.im, size))},
           out);
  });
}

// Smith's division: the quotient of the smaller by the larger part of the divisor keeps everything
// in range. A divisor of 0 divides both parts by 0, as in ATen.
template <class T>
void Div(const T* const* in, T* to, int64_t n) {
  const Tag<T> d;
  ForEachPair<2>(in, to, n, [&](const T* const* at, T* out) HWY_ATTR {
    const auto a = LoadZ(at[0]);
    const auto b = LoadZ(at[1]);
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
           out);
  });
}

// exp(x) (cos y + i sin y). Numbers whose exp(x) is near the ends of the range, or that are not
// finite, are left to the standard library.
template <class T>
void Exp(const T* const* in, T* to, int64_t n) {
  const Tag<T> d;
  const auto most = hn::Set(d, T(std::is_same_v<T, float> ? 80 : 700));
  const auto finite = hn::Set(d, std::numeric_limits<T>::max());
  ForEachPair<1>(in, to, n, [&](const T* const* at, T* out) HWY_ATTR {
    const auto z = LoadZ(at[0]);
    const auto ordinary = hn::And(hn::Le(hn::Abs(z.re), most), hn::Le(hn::Abs(z.im), finite));
    const auto size = NodeExp(d, z.re);
    StoreZ(Z<hn::Vec<Tag<T>>>{hn::Mul(size, NodeCos(d, z.im)), hn::Mul(size, NodeSin(d, z.im))},
           out);
    if (HWY_LIKELY(hn::AllTrue(d, ordinary))) return;
    HWY_ALIGN T given[2 * hn::MaxLanes(d)];  // `out` may be at[0]
    StoreZ(z, given);
    for (size_t i = 0; i < 2 * hn::Lanes(d); i += 2) {
      const T re = given[i], im = given[i + 1];
      if (std::abs(re) <= hn::GetLane(most) && std::abs(im) <= hn::GetLane(finite)) continue;
      const std::complex<T> e = std::exp(std::complex<T>(re, im));
      out[i] = e.real();
      out[i + 1] = e.imag();
    }
  });
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
      {"exp", Exp<T>},
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
  static constexpr ComplexVectorFns<T> fns = {rows, sizeof(rows) / sizeof(rows[0])};
  return fns;
}

}  // namespace

const ComplexVectorFns<float>& FloatFns() { return Fns<float>(); }
const ComplexVectorFns<double>& DoubleFns() { return Fns<double>(); }

}  // namespace mytorch::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

MYTORCH_EXPORT_TABLE_OF(float, mytorch::cpu, complex_vector_fns, FloatFns)
MYTORCH_EXPORT_TABLE_OF(double, mytorch::cpu, complex_vector_fns, DoubleFns)
