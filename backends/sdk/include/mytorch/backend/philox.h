// Random numbers: the definition that every in-tree backend reproduces bit for bit. Philox 4x32-10
// is by Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3" (SC 2011).
//
// Element i (its logical row-major index) of a random call takes 32 bits from lane i % 4 of the
// block
//     key     = (low, high) word of the seed
//     counter = (low word of i / 4,
//                bits 32 to 47 of i / 4  |  draw << 16,
//                low word of the call number, high word of the call number)
// Every element begins with draw 0. An element that needs more bits (64-bit types, rejection) uses
// draws 1, 2, ... of the same lane, so that its bits do not depend on other elements.
//
// Floating-point steps below are single, correctly rounded multiplications, additions, divisions
// and square roots, in the order written. Backends that restate them need -ffp-contract=off; here
// mul() prevents fusion with any flags.
#pragma once

#include <array>
#include <bit>
#include <cfloat>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "mytorch/abi.h"
#include "mytorch/backend/dtype.h"

namespace mytorch::sdk {
inline namespace v1 {
namespace philox {

static_assert(FLT_EVAL_METHOD == 0, "float expressions must round to float");

using Block = std::array<uint32_t, 4>;

// Ten rounds of Philox 4x32.
constexpr Block philox4x32_10(Block counter, uint32_t key0, uint32_t key1) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xD2511F53u} * counter[0];
    const uint64_t b = uint64_t{0xCD9E8D57u} * counter[2];
    counter = {static_cast<uint32_t>(b >> 32) ^ counter[1] ^ key0, static_cast<uint32_t>(b),
               static_cast<uint32_t>(a >> 32) ^ counter[3] ^ key1, static_cast<uint32_t>(a)};
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  return counter;
}

// The random stream of a call.
struct Stream {
  uint64_t seed = 0;
  uint64_t call = 0;

  Stream() = default;
  Stream(uint64_t seed_, uint64_t call_) : seed(seed_), call(call_) {}
  // Reads a generator argument from memory that the host can read.
  explicit Stream(const mt_random& random)
      : seed(random.seed),
        call(random.call + (random.call_on_device != nullptr ? *random.call_on_device : 0)) {}

  // Returns the bits of elements 4 * number ... 4 * number + 3. number < 2^48, draw < 2^16.
  constexpr Block block(uint64_t number, uint32_t draw = 0) const {
    return philox4x32_10({static_cast<uint32_t>(number),
                          (static_cast<uint32_t>(number >> 32) & 0xFFFFu) | (draw << 16),
                          static_cast<uint32_t>(call), static_cast<uint32_t>(call >> 32)},
                         static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32));
  }

  constexpr uint32_t bits32(int64_t index, uint32_t draw = 0) const {
    return block(static_cast<uint64_t>(index) / 4, draw)[static_cast<uint64_t>(index) % 4];
  }
  // Returns round r of 64 bits: draw 2r above draw 2r + 1.
  constexpr uint64_t bits64(int64_t index, uint32_t round = 0) const {
    return uint64_t{bits32(index, 2 * round)} << 32 | bits32(index, 2 * round + 1);
  }
};

// ---- arithmetic that is never fused ----

// Returns a * b, rounded. On targets with fused multiply-add, hides the product from the optimizer,
// which would fuse it with the following addition.
template <class T>
inline T mul(T a, T b) {
  T product = a * b;
#if defined(__GNUC__) && defined(__FMA__)
  asm("" : "+x"(product));
#elif defined(__GNUC__) && defined(__aarch64__)
  asm("" : "+w"(product));
#endif
  return product;
}

// Horner's scheme, highest coefficient first: r = r * x + c, two roundings each.
template <class T, class... C>
inline T horner(T x, T highest, C... rest) {
  T r = highest;
  ((r = mul(r, x) + static_cast<T>(rest)), ...);
  return r;
}

// ---- uniform ----

// [0, 1), a multiple of 2^-digits, from the upper bits: 24 of them for float, 53 for double, 11 for
// Half, 8 for BFloat16, so that the value is exact in T and never 1. The 16-bit types give floats.
template <class T>
inline constexpr int uniform_digits = std::is_same_v<T, double>  ? 53
                                      : std::is_same_v<T, float> ? 24
                                      : std::is_same_v<T, Half>  ? 11
                                                                 : 8;
template <class T>
inline Widened<T> uniform_of_bits(
    std::conditional_t<std::is_same_v<T, double>, uint64_t, uint32_t> bits) {
  constexpr int width = std::is_same_v<T, double> ? 64 : 32;
  constexpr int digits = uniform_digits<T>;
  constexpr Widened<T> step = Widened<T>(1) / Widened<T>(uint64_t{1} << digits);
  return static_cast<Widened<T>>(bits >> (width - digits)) * step;
}

// Element `index` of uniform_ on a tensor of T: from + u * (to - from), rounded to T; if rounding
// reaches `to` (and they differ), `from`. The bounds are rounded to T first.
template <class T>
inline T uniform(const Stream& stream, int64_t index, double from, double to) {
  using W = Widened<T>;
  const W low = static_cast<W>(convert<T>(from));
  const W high = static_cast<W>(convert<T>(to));
  W u;
  if constexpr (std::is_same_v<T, double>) {
    u = uniform_of_bits<T>(stream.bits64(index));
  } else {
    u = uniform_of_bits<T>(stream.bits32(index));
  }
  const T value = convert<T>(mul(u, high - low) + low);
  return static_cast<W>(value) < high ? value : convert<T>(low);
}

// ---- integers ----

// Element `index` of integers uniform in [0, range), range 0 meaning 2^64. Lemire's multiplication
// with rejection ("Fast random integer generation in an interval", 2019): the high word of bits *
// range, drawn again while the low word is below 2^w mod range. w is 32 up to range 2^32, else 64.
inline uint64_t below(const Stream& stream, int64_t index, uint64_t range) {
  constexpr uint32_t kLast = 0x7FFF;  // reached with probability 2^-32768 at most
  if (range == 0) return stream.bits64(index);
  if (range <= uint64_t{1} << 32) {
    const uint32_t rejected = static_cast<uint32_t>((uint64_t{1} << 32) % range);
    for (uint32_t draw = 0;; ++draw) {
      const uint64_t product = uint64_t{stream.bits32(index, draw)} * range;
      if (static_cast<uint32_t>(product) >= rejected || draw == kLast) return product >> 32;
    }
  }
  const uint64_t rejected = (0 - range) % range;
  for (uint32_t round = 0;; ++round) {
    const uint64_t bits = stream.bits64(index, round);
    // The 128-bit product in 32-bit limbs, because devices have no 128-bit type and this needs no
    // compiler extension.
    const uint64_t low = (bits & 0xFFFFFFFFu) * (range & 0xFFFFFFFFu);
    const uint64_t cross = (bits >> 32) * (range & 0xFFFFFFFFu) + (low >> 32);
    const uint64_t other = (bits & 0xFFFFFFFFu) * (range >> 32) + (cross & 0xFFFFFFFFu);
    const uint64_t high = (bits >> 32) * (range >> 32) + (cross >> 32) + (other >> 32);
    if (bits * range >= rejected || round == kLast) return high;
  }
}

// Returns the largest value of random_ without `to`: the type's largest integer, or 2^digits for a
// floating type, up to which all integers are exact.
template <class T>
constexpr int64_t largest_random() {
  if constexpr (is_float_type<T>) {
    return int64_t{1} << uniform_digits<T>;
  } else {
    return static_cast<int64_t>(std::numeric_limits<T>::max());
  }
}

// Element `index` of random_: uniform in [from, from + range), converted to T.
template <class T>
inline T integer(const Stream& stream, int64_t index, int64_t from, uint64_t range) {
  return convert<T>(
      static_cast<int64_t>(static_cast<uint64_t>(from) + below(stream, index, range)));
}

// ---- normal ----

// ln x for finite normal x > 0, to about an ulp: x = m * 2^e with m in [sqrt(1/2), sqrt(2)), then
// ln m = 2 atanh(s) with s = (m - 1) / (m + 1), and a Taylor series in s^2 (s^2 < 0.0295).
inline float log_normal_range(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x) - 0x3F3504F3u;  // of sqrt(1/2)
  const float e = static_cast<float>(static_cast<int32_t>(bits) >> 23);
  const float m = std::bit_cast<float>((bits & 0x007FFFFFu) + 0x3F3504F3u);
  const float s = (m - 1.0f) / (m + 1.0f);
  const float z = mul(s, s);
  const float series = horner(z, 2.0f / 9, 2.0f / 7, 2.0f / 5, 2.0f / 3);
  // e * ln 2 in two parts, the first exact (9 bits of mantissa below e's 8).
  return mul(e, 0.693359375f) + (mul(s, mul(z, series)) + (mul(e, -2.12194440e-4f) + mul(2.0f, s)));
}
inline double log_normal_range(double x) {
  const uint64_t bits = std::bit_cast<uint64_t>(x) - 0x3FE6A09E667F3BCDu;
  const double e = static_cast<double>(static_cast<int64_t>(bits) >> 52);
  const double m = std::bit_cast<double>((bits & 0x000FFFFFFFFFFFFFu) + 0x3FE6A09E667F3BCDu);
  const double s = (m - 1.0) / (m + 1.0);
  const double z = mul(s, s);
  const double series = horner(z, 2.0 / 21, 2.0 / 19, 2.0 / 17, 2.0 / 15, 2.0 / 13, 2.0 / 11,
                               2.0 / 9, 2.0 / 7, 2.0 / 5, 2.0 / 3);
  return mul(e, 6.93147180369123816490e-01) +
         (mul(s, mul(z, series)) + (mul(e, 1.90821492927058770002e-10) + mul(2.0, s)));
}

// The upper quantile of the standard normal distribution: x with P(X > x) = p, 0 < p <= 1/2.
// Wichura's algorithm AS 241 (Applied Statistics 37, 1988): PPND7 in float, PPND16 in double.
inline float normal_quantile(float p) {
  const float q = 0.5f - p;
  if (q <= 0.425f) {
    const float r = 0.180625f - mul(q, q);
    return mul(q, horner(r, 5.9109374720e+01f, 1.5929113202e+02f, 5.0434271938e+01f,
                         3.3871327179e+00f)) /
           horner(r, 6.7187563600e+01f, 7.8757757664e+01f, 1.7895169469e+01f, 1.0f);
  }
  // p >= 2^-33, so that r < 4.79 and AS 241's far tail (r > 5) is never entered.
  const float r = std::sqrt(-log_normal_range(p)) - 1.6f;
  return horner(r, 1.7023821103e-01f, 1.3067284816e+00f, 2.7568153900e+00f, 1.4234372777e+00f) /
         horner(r, 1.2021132975e-01f, 7.3700164250e-01f, 1.0f);
}
inline double normal_quantile(double p) {
  const double q = 0.5 - p;
  if (q <= 0.425) {
    const double r = 0.180625 - mul(q, q);
    return mul(q, horner(r, 2.5090809287301226727e+3, 3.3430575583588128105e+4,
                         6.7265770927008700853e+4, 4.5921953931549871457e+4,
                         1.3731693765509461125e+4, 1.9715909503065514427e+3,
                         1.3314166789178437745e+2, 3.3871328727963666080e+0)) /
           horner(r, 5.2264952788528545610e+3, 2.8729085735721942674e+4, 3.9307895800092710610e+4,
                  2.1213794301586595867e+4, 5.3941960214247511077e+3, 6.8718700749205790830e+2,
                  4.2313330701600911252e+1, 1.0);
  }
  const double root = std::sqrt(-log_normal_range(p));
  if (root <= 5.0) {
    const double r = root - 1.6;
    return horner(r, 7.74545014278341407640e-4, 2.27238449892691845833e-2,
                  2.41780725177450611770e-1, 1.27045825245236838258e+0, 3.64784832476320460504e+0,
                  5.76949722146069140550e+0, 4.63033784615654529590e+0, 1.42343711074968357734e+0) /
           horner(r, 1.05075007164441684324e-9, 5.47593808499534494600e-4,
                  1.51986665636164571966e-2, 1.48103976427480074590e-1, 6.89767334985100004550e-1,
                  1.67638483018380384940e+0, 2.05319162663775882187e+0, 1.0);
  }
  const double r = root - 5.0;
  return horner(r, 2.01033439929228813265e-7, 2.71155556874348757815e-5, 1.24266094738807843860e-3,
                2.65321895265761230930e-2, 2.96560571828504891230e-1, 1.78482653991729133580e+0,
                5.46378491116411436990e+0, 6.65790464350110377720e+0) /
         horner(r, 2.04426310338993978564e-15, 1.42151175831644588870e-7, 1.84631831751005468180e-5,
                7.86869131145613259100e-4, 1.48753612908506148525e-2, 1.36929880922735805310e-1,
                5.99832206555887937690e-1, 1.0);
}

// A standard normal number from one draw: the top bit is the sign, the others, k, give the tail
// p = (k + 1/2) * 2^-w, so that both tails reach equally far (6.3 and 9.1 standard deviations).
inline float normal_of_bits(uint32_t bits) {
  const float k = static_cast<float>(static_cast<int32_t>(bits & 0x7FFFFFFFu));
  const float x = normal_quantile(mul(k, 0x1p-32f) + 0x1p-33f);
  return (bits >> 31) != 0 ? -x : x;
}
inline double normal_of_bits(uint64_t bits) {
  const double k = static_cast<double>(static_cast<int64_t>(bits & 0x7FFFFFFFFFFFFFFFu));
  const double x = normal_quantile(mul(k, 0x1p-64) + 0x1p-65);
  return (bits >> 63) != 0 ? -x : x;
}

// Element `index` of normal_ on a tensor of T: mean + std * z, each step in the widened type,
// rounded to T at the end.
template <class T>
inline T normal(const Stream& stream, int64_t index, double mean, double std) {
  using W = Widened<T>;
  W z;
  if constexpr (std::is_same_v<T, double>) {
    z = normal_of_bits(stream.bits64(index));
  } else {
    z = normal_of_bits(stream.bits32(index));
  }
  return convert<T>(mul(z, static_cast<W>(std)) + static_cast<W>(mean));
}

}  // namespace philox
}  // namespace v1
}  // namespace mytorch::sdk
