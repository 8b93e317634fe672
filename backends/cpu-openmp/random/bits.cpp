#include "backends/cpu-openmp/random/bits.h"

#include <cmath>

#include "mytorch/backend/philox.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu-openmp/random/bits.cpp"
#include "backends/cpu-openmp/simd/foreach_target.h"
// After foreach_target.h, which includes this file once for each instruction set.
#include "backends/cpu-openmp/simd/export.h"
#include "backends/cpu-openmp/simd/highway.h"

HWY_BEFORE_NAMESPACE();
namespace mytorch::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// ---- bits

#if HWY_TARGET == HWY_SCALAR

void Bits32(uint64_t seed, uint64_t call, uint64_t block, int64_t n, uint32_t* out) {
  const sdk::philox::Stream stream(seed, call);
  for (int64_t i = 0; i < n; i += 4, ++block) {
    const sdk::philox::Block words = stream.block(block);
    for (size_t j = 0; j < 4; ++j) out[i + static_cast<int64_t>(j)] = words[j];
  }
}

void Bits64(uint64_t seed, uint64_t call, uint64_t block, int64_t n, uint64_t* out) {
  const sdk::philox::Stream stream(seed, call);
  for (int64_t i = 0; i < n; ++i) out[i] = stream.bits64(static_cast<int64_t>(4 * block) + i);
}

#else

// Words of counters are the low halves of 64-bit lanes, which a widening multiplication reads; the
// high halves are arbitrary until the end.
template <class V>
struct Counter {
  V c0, c1, c2, c3;
};

template <class D, class V = hn::VFromD<D>>
HWY_INLINE Counter<V> Philox(D d, V number, uint64_t seed, uint64_t call, uint32_t draw) {
  const hn::Repartition<uint32_t, D> d32;
  const auto m0 = hn::Set(d32, 0xD2511F53u);
  const auto m1 = hn::Set(d32, 0xCD9E8D57u);
  Counter<V> c = {number,
                  hn::Or(hn::And(hn::ShiftRight<32>(number), hn::Set(d, uint64_t{0xFFFF})),
                         hn::Set(d, uint64_t{draw} << 16)),
                  hn::Set(d, call & 0xFFFFFFFFu), hn::Set(d, call >> 32)};
  V k0 = hn::Set(d, seed & 0xFFFFFFFFu);
  V k1 = hn::Set(d, seed >> 32);
  const V w0 = hn::Set(d, uint64_t{0x9E3779B9u});
  const V w1 = hn::Set(d, uint64_t{0xBB67AE85u});
#pragma GCC unroll 10
  for (int round = 0; round < 10; ++round) {
    const V a = hn::MulEven(hn::BitCast(d32, c.c0), m0);
    const V b = hn::MulEven(hn::BitCast(d32, c.c2), m1);
    c = {hn::Xor(hn::Xor(hn::ShiftRight<32>(b), c.c1), k0), b,
         hn::Xor(hn::Xor(hn::ShiftRight<32>(a), c.c3), k1), a};
    k0 = hn::Add(k0, w0);
    k1 = hn::Add(k1, w1);
  }
  return c;
}

// Joins the low halves of the lanes of `low` with those of `high` above them.
template <class D, class V>
HWY_INLINE V Join(D d, V high, V low) {
  return hn::Or(hn::ShiftLeft<32>(high), hn::And(low, hn::Set(d, uint64_t{0xFFFFFFFFu})));
}

void Bits32(uint64_t seed, uint64_t call, uint64_t block, int64_t n, uint32_t* out) {
  const hn::ScalableTag<uint64_t> d;
  const hn::Repartition<uint32_t, decltype(d)> d32;
  const uint64_t lanes = hn::Lanes(d);
  const auto iota = hn::Iota(d, uint64_t{0});
  const auto twice = hn::Add(iota, iota);
  for (int64_t i = 0; i < n; i += static_cast<int64_t>(8 * lanes), block += 2 * lanes) {
    // Even and odd blocks are separate, so that joining their words orders them.
    const auto even = hn::Add(twice, hn::Set(d, block));
    const auto odd = hn::Add(twice, hn::Set(d, block + 1));
    const auto x = Philox(d, even, seed, call, 0);
    const auto y = Philox(d, odd, seed, call, 0);
    hn::StoreInterleaved4(
        hn::BitCast(d32, Join(d, y.c0, x.c0)), hn::BitCast(d32, Join(d, y.c1, x.c1)),
        hn::BitCast(d32, Join(d, y.c2, x.c2)), hn::BitCast(d32, Join(d, y.c3, x.c3)), d32, out + i);
  }
}

void Bits64(uint64_t seed, uint64_t call, uint64_t block, int64_t n, uint64_t* out) {
  const hn::ScalableTag<uint64_t> d;
  const uint64_t lanes = hn::Lanes(d);
  const auto iota = hn::Iota(d, uint64_t{0});
  for (int64_t i = 0; i < n; i += static_cast<int64_t>(4 * lanes), block += lanes) {
    const auto number = hn::Add(iota, hn::Set(d, block));
    const auto x = Philox(d, number, seed, call, 0);
    const auto y = Philox(d, number, seed, call, 1);
    hn::StoreInterleaved4(Join(d, x.c0, y.c0), Join(d, x.c1, y.c1), Join(d, x.c2, y.c2),
                          Join(d, x.c3, y.c3), d, out + i);
  }
}

#endif  // HWY_SCALAR

// ---- numbers

// Returns a * b, rounded: compilers fuse even the products of intrinsics with following additions.
template <class V>
HWY_INLINE V Product(V a, V b) {
  V product = hn::Mul(a, b);
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2
  asm("" : "+x"(product.raw));
#elif HWY_ARCH_ARM_A64 && HWY_TARGET == HWY_NEON
  asm("" : "+w"(product.raw));
#endif
  return product;
}

template <class D, class V = hn::VFromD<D>, class... C>
HWY_INLINE V Horner(D d, V x, double highest, C... rest) {
  using T = hn::TFromD<D>;
  V r = hn::Set(d, static_cast<T>(highest));
  ((r = hn::Add(Product(r, x), hn::Set(d, static_cast<T>(rest)))), ...);
  return r;
}

template <class T>
using Unsigned = std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>;

template <class T>
void Uniform(const Unsigned<T>* bits, T low, T high, T* out) {
  const hn::ScalableTag<T> d;
  const hn::RebindToUnsigned<decltype(d)> du;
  const hn::RebindToSigned<decltype(d)> di;
  constexpr int kDropped = sizeof(T) == 4 ? 8 : 11;
  const auto step = hn::Set(d, sizeof(T) == 4 ? T(0x1p-24) : T(0x1p-53));
  const auto range = hn::Set(d, high - low);
  const auto from = hn::Set(d, low);
  const auto to = hn::Set(d, high);
  for (size_t i = 0; i < kRandomChunk; i += hn::Lanes(d)) {
    const auto whole = hn::ShiftRight<kDropped>(hn::LoadU(du, bits + i));
    const auto u = hn::Mul(hn::ConvertTo(d, hn::BitCast(di, whole)), step);
    const auto value = hn::Add(Product(u, range), from);
    hn::StoreU(hn::IfThenElse(hn::Lt(value, to), value, from), d, out + i);
  }
}

// As philox::log_normal_range.
template <class D, class V = hn::VFromD<D>>
HWY_INLINE V Log(D d, V x) {
  using T = hn::TFromD<D>;
  constexpr bool kFloat = sizeof(T) == 4;
  constexpr int kMantissa = kFloat ? 23 : 52;
  using U = Unsigned<T>;
  const hn::RebindToUnsigned<D> du;
  const hn::RebindToSigned<D> di;
  const auto root = hn::Set(du, kFloat ? U(0x3F3504F3u) : U(0x3FE6A09E667F3BCDu));
  const auto bits = hn::Sub(hn::BitCast(du, x), root);
  const V e = hn::ConvertTo(d, hn::ShiftRight<kMantissa>(hn::BitCast(di, bits)));
  const auto fraction = hn::And(bits, hn::Set(du, (U{1} << kMantissa) - 1));
  const V m = hn::BitCast(d, hn::Add(fraction, root));
  const V one = hn::Set(d, T(1));
  const V s = hn::Div(hn::Sub(m, one), hn::Add(m, one));
  const V z = Product(s, s);
  V series;
  T high, low;
  if constexpr (kFloat) {
    series = Horner(d, z, 2.0f / 9, 2.0f / 7, 2.0f / 5, 2.0f / 3);
    high = 0.693359375f, low = -2.12194440e-4f;
  } else {
    series = Horner(d, z, 2.0 / 21, 2.0 / 19, 2.0 / 17, 2.0 / 15, 2.0 / 13, 2.0 / 11, 2.0 / 9,
                    2.0 / 7, 2.0 / 5, 2.0 / 3);
    high = 6.93147180369123816490e-01, low = 1.90821492927058770002e-10;
  }
  const V rest = hn::Add(Product(e, hn::Set(d, low)), Product(hn::Set(d, T(2)), s));
  return hn::Add(Product(e, hn::Set(d, high)), hn::Add(Product(s, Product(z, series)), rest));
}

// As philox::normal_quantile.
template <class D, class V = hn::VFromD<D>>
HWY_INLINE V Central(D d, V q) {
  using T = hn::TFromD<D>;
  const V r = hn::Sub(hn::Set(d, T(0.180625)), Product(q, q));
  if constexpr (sizeof(T) == 4) {
    return hn::Div(Product(q, Horner(d, r, 5.9109374720e+01f, 1.5929113202e+02f, 5.0434271938e+01f,
                                     3.3871327179e+00f)),
                   Horner(d, r, 6.7187563600e+01f, 7.8757757664e+01f, 1.7895169469e+01f, 1.0f));
  } else {
    return hn::Div(
        Product(q, Horner(d, r, 2.5090809287301226727e+3, 3.3430575583588128105e+4,
                          6.7265770927008700853e+4, 4.5921953931549871457e+4,
                          1.3731693765509461125e+4, 1.9715909503065514427e+3,
                          1.3314166789178437745e+2, 3.3871328727963666080e+0)),
        Horner(d, r, 5.2264952788528545610e+3, 2.8729085735721942674e+4, 3.9307895800092710610e+4,
               2.1213794301586595867e+4, 5.3941960214247511077e+3, 6.8718700749205790830e+2,
               4.2313330701600911252e+1, 1.0));
  }
}

template <class D, class V = hn::VFromD<D>>
HWY_INLINE V Tail(D d, V root) {
  using T = hn::TFromD<D>;
  const V r = hn::Sub(root, hn::Set(d, T(1.6)));
  if constexpr (sizeof(T) == 4) {
    return hn::Div(
        Horner(d, r, 1.7023821103e-01f, 1.3067284816e+00f, 2.7568153900e+00f, 1.4234372777e+00f),
        Horner(d, r, 1.2021132975e-01f, 7.3700164250e-01f, 1.0f));
  } else {
    return hn::Div(
        Horner(d, r, 7.74545014278341407640e-4, 2.27238449892691845833e-2,
               2.41780725177450611770e-1, 1.27045825245236838258e+0, 3.64784832476320460504e+0,
               5.76949722146069140550e+0, 4.63033784615654529590e+0, 1.42343711074968357734e+0),
        Horner(d, r, 1.05075007164441684324e-9, 5.47593808499534494600e-4,
               1.51986665636164571966e-2, 1.48103976427480074590e-1, 6.89767334985100004550e-1,
               1.67638483018380384940e+0, 2.05319162663775882187e+0, 1.0));
  }
}

template <class T>
void Normal(const Unsigned<T>* bits, T mean, T std, T* out) {
  const hn::ScalableTag<T> d;
  const hn::RebindToUnsigned<decltype(d)> du;
  const hn::RebindToSigned<decltype(d)> di;
  using U = Unsigned<T>;
  constexpr U kTop = U{1} << (sizeof(T) * 8 - 1);
  const T step = sizeof(T) == 4 ? T(0x1p-32) : T(0x1p-64);
  for (size_t i = 0; i < kRandomChunk; i += hn::Lanes(d)) {
    const auto b = hn::LoadU(du, bits + i);
    const auto sign = hn::BitCast(d, hn::And(b, hn::Set(du, kTop)));
    const auto k = hn::ConvertTo(d, hn::BitCast(di, hn::AndNot(hn::Set(du, kTop), b)));
    const auto p = hn::Add(Product(k, hn::Set(d, step)), hn::Set(d, step / 2));
    const auto q = hn::Sub(hn::Set(d, T(0.5)), p);
    auto x = Central(d, q);
    const auto outer = hn::Gt(q, hn::Set(d, T(0.425)));
    if (!hn::AllFalse(d, outer)) {
      const auto root = hn::Sqrt(hn::Neg(Log(d, p)));
      x = hn::IfThenElse(outer, Tail(d, root), x);
      if constexpr (sizeof(T) == 8) {
        // The far tail, once in 10^10 numbers, is computed by the definition.
        const auto far =
            hn::And(hn::VecFromMask(d, hn::Gt(root, hn::Set(d, T(5)))), hn::VecFromMask(d, outer));
        if (HWY_UNLIKELY(!hn::AllFalse(d, hn::MaskFromVec(far)))) {
          HWY_ALIGN T lanes[hn::MaxLanes(d)];
          hn::Store(x, d, lanes);
          for (size_t j = 0; j < hn::Lanes(d); ++j) {
            lanes[j] = std::abs(sdk::philox::normal_of_bits(bits[i + j]));
          }
          x = hn::Load(d, lanes);
        }
      }
    }
    // Flips the sign, because the quantile of p near 1/2 may be negative.
    x = hn::Xor(x, sign);
    hn::StoreU(hn::Add(Product(x, hn::Set(d, std)), hn::Set(d, mean)), d, out + i);
  }
}

#if HWY_TARGET == HWY_SCALAR

void Dropout(const uint32_t* bits, float keep, int64_t n, const float* x, float scale, float* y,
             uint8_t* mask) {
  for (int64_t i = 0; i < n; ++i) {
    mask[i] = sdk::philox::uniform_of_bits<float>(bits[i]) < keep ? 1 : 0;
    if (x != nullptr) y[i] = x[i] * static_cast<float>(mask[i]) * scale;
  }
}

#else

void Dropout(const uint32_t* bits, float keep, int64_t n, const float* x, float scale, float* y,
             uint8_t* mask) {
  const hn::ScalableTag<float> d;
  const hn::RebindToSigned<decltype(d)> di;
  const hn::RebindToUnsigned<decltype(d)> du;
  const hn::Rebind<uint8_t, decltype(d)> d8;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto one = hn::Set(d, 1.0f);
  for (int64_t i = 0; i < kRandomChunk; i += lanes) {
    const auto whole = hn::BitCast(di, hn::ShiftRight<8>(hn::LoadU(du, bits + i)));
    const auto u = hn::Mul(hn::ConvertTo(d, whole), hn::Set(d, 0x1p-24f));
    const auto kept = hn::Lt(u, hn::Set(d, keep));
    const auto m = hn::IfThenElseZero(kept, one);
    hn::StoreU(hn::DemoteTo(d8, hn::ConvertTo(di, m)), d8, mask + i);
    if (x == nullptr) continue;
    if (i + lanes <= n) {
      const auto dropped = hn::Mul(hn::LoadU(d, x + i), m);
      hn::StoreU(hn::Mul(dropped, hn::Set(d, scale)), d, y + i);
    } else {
      for (int64_t j = i; j < n; ++j) y[j] = x[j] * static_cast<float>(mask[j]) * scale;
    }
  }
}

#endif  // HWY_SCALAR

const RandomFns* RandomTable() {
  static constexpr RandomFns table = {
      Bits32, Bits64, Uniform<float>, Uniform<double>, Normal<float>, Normal<double>, Dropout};
  return &table;
}

}  // namespace mytorch::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

MYTORCH_EXPORT_TABLE(mytorch::cpu, random_fns, RandomTable)
