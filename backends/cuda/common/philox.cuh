// mytorch/backend/philox.h in device code, bit for bit: products and sums are rounded individually,
// with intrinsics that the compiler does not fuse. That header defines the numbers and explains
// why.
#pragma once

#include <cstdint>

#include "backends/cuda/common/element.cuh"
#include "mytorch/abi.h"

namespace mytorch::cuda::philox {

// One random call. While a graph is replayed, the number in device memory is added to the call's
// number.
struct Stream {
  uint64_t seed;
  uint64_t call;
  const uint64_t* call_on_device;

  explicit Stream(const mt_random& random)
      : seed(random.seed), call(random.call), call_on_device(random.call_on_device) {}

#ifdef __CUDACC__
  // Call this once in a kernel.
  __device__ __forceinline__ void start() {
    if (call_on_device != nullptr) call += *call_on_device;
  }
  // Returns the bits of elements 4 * number ... 4 * number + 3.
  __device__ __forceinline__ uint4 block(uint64_t number, uint32_t draw = 0) const {
    uint32_t c0 = static_cast<uint32_t>(number);
    uint32_t c1 = (static_cast<uint32_t>(number >> 32) & 0xFFFFu) | (draw << 16);
    uint32_t c2 = static_cast<uint32_t>(call);
    uint32_t c3 = static_cast<uint32_t>(call >> 32);
    uint32_t key0 = static_cast<uint32_t>(seed);
    uint32_t key1 = static_cast<uint32_t>(seed >> 32);
#pragma unroll
    for (int round = 0; round < 10; ++round) {
      const uint64_t a = uint64_t{0xD2511F53u} * c0;
      const uint64_t b = uint64_t{0xCD9E8D57u} * c2;
      c0 = static_cast<uint32_t>(b >> 32) ^ c1 ^ key0;
      c1 = static_cast<uint32_t>(b);
      c2 = static_cast<uint32_t>(a >> 32) ^ c3 ^ key1;
      c3 = static_cast<uint32_t>(a);
      key0 += 0x9E3779B9u;
      key1 += 0xBB67AE85u;
    }
    return make_uint4(c0, c1, c2, c3);
  }
  __device__ uint32_t bits32(uint64_t index, uint32_t draw) const {
    const uint4 words = block(index / 4, draw);
    const uint32_t lane = index % 4;
    return lane == 0 ? words.x : lane == 1 ? words.y : lane == 2 ? words.z : words.w;
  }
  __device__ uint64_t bits64(uint64_t index, uint32_t round) const {
    return uint64_t{bits32(index, 2 * round)} << 32 | bits32(index, 2 * round + 1);
  }
#endif
};

#ifdef __CUDACC__

__device__ __forceinline__ float mul(float a, float b) { return __fmul_rn(a, b); }
__device__ __forceinline__ double mul(double a, double b) { return __dmul_rn(a, b); }
__device__ __forceinline__ float add(float a, float b) { return __fadd_rn(a, b); }
__device__ __forceinline__ double add(double a, double b) { return __dadd_rn(a, b); }
__device__ __forceinline__ float div(float a, float b) { return __fdiv_rn(a, b); }
__device__ __forceinline__ double div(double a, double b) { return __ddiv_rn(a, b); }
__device__ __forceinline__ float root(float a) { return __fsqrt_rn(a); }
__device__ __forceinline__ double root(double a) { return __dsqrt_rn(a); }

template <class T, class... C>
__device__ __forceinline__ T horner(T x, T highest, C... rest) {
  T r = highest;
  ((r = add(mul(r, x), static_cast<T>(rest))), ...);
  return r;
}

// ---- uniform

template <class T>
inline constexpr int kDigits = std::is_same_v<T, double>   ? 53
                               : std::is_same_v<T, float>  ? 24
                               : std::is_same_v<T, __half> ? 11
                                                           : 8;

template <class T>
__device__ __forceinline__ Wide<T> uniform_of_bits(
    std::conditional_t<std::is_same_v<T, double>, uint64_t, uint32_t> bits) {
  constexpr int kWidth = std::is_same_v<T, double> ? 64 : 32;
  constexpr Wide<T> kStep = Wide<T>(1) / Wide<T>(uint64_t{1} << kDigits<T>);
  return mul(static_cast<Wide<T>>(bits >> (kWidth - kDigits<T>)), kStep);
}

// ---- integers

__device__ inline uint64_t below(const Stream& stream, uint64_t index, uint64_t range,
                                 uint32_t first_bits) {
  constexpr uint32_t kLast = 0x7FFF;
  if (range == 0) return uint64_t{first_bits} << 32 | stream.bits32(index, 1);
  if (range <= uint64_t{1} << 32) {
    const uint32_t rejected = static_cast<uint32_t>((uint64_t{1} << 32) % range);
    uint32_t bits = first_bits;
    for (uint32_t draw = 0;; bits = stream.bits32(index, ++draw)) {
      const uint64_t product = uint64_t{bits} * range;
      if (static_cast<uint32_t>(product) >= rejected || draw == kLast) return product >> 32;
    }
  }
  const uint64_t rejected = (0 - range) % range;
  uint64_t bits = uint64_t{first_bits} << 32 | stream.bits32(index, 1);
  for (uint32_t round = 0;; bits = stream.bits64(index, ++round)) {
    if (bits * range >= rejected || round == kLast) return __umul64hi(bits, range);
  }
}

// ---- normal

__device__ inline float log_normal_range(float x) {
  const uint32_t bits = __float_as_uint(x) - 0x3F3504F3u;
  const float e = static_cast<float>(static_cast<int32_t>(bits) >> 23);
  const float m = __uint_as_float((bits & 0x007FFFFFu) + 0x3F3504F3u);
  const float s = div(add(m, -1.0f), add(m, 1.0f));
  const float z = mul(s, s);
  const float series = horner(z, 2.0f / 9, 2.0f / 7, 2.0f / 5, 2.0f / 3);
  return add(mul(e, 0.693359375f),
             add(mul(s, mul(z, series)), add(mul(e, -2.12194440e-4f), mul(2.0f, s))));
}
__device__ inline double log_normal_range(double x) {
  const uint64_t bits = static_cast<uint64_t>(__double_as_longlong(x)) - 0x3FE6A09E667F3BCDu;
  const double e = static_cast<double>(static_cast<int64_t>(bits) >> 52);
  const double m = __longlong_as_double(
      static_cast<long long>((bits & 0x000FFFFFFFFFFFFFu) + 0x3FE6A09E667F3BCDu));
  const double s = div(add(m, -1.0), add(m, 1.0));
  const double z = mul(s, s);
  const double series = horner(z, 2.0 / 21, 2.0 / 19, 2.0 / 17, 2.0 / 15, 2.0 / 13, 2.0 / 11,
                               2.0 / 9, 2.0 / 7, 2.0 / 5, 2.0 / 3);
  return add(mul(e, 6.93147180369123816490e-01),
             add(mul(s, mul(z, series)), add(mul(e, 1.90821492927058770002e-10), mul(2.0, s))));
}

__device__ inline float normal_quantile(float p) {
  const float q = add(0.5f, -p);
  if (q <= 0.425f) {
    const float r = add(0.180625f, -mul(q, q));
    return div(mul(q, horner(r, 5.9109374720e+01f, 1.5929113202e+02f, 5.0434271938e+01f,
                             3.3871327179e+00f)),
               horner(r, 6.7187563600e+01f, 7.8757757664e+01f, 1.7895169469e+01f, 1.0f));
  }
  const float r = add(root(-log_normal_range(p)), -1.6f);
  return div(horner(r, 1.7023821103e-01f, 1.3067284816e+00f, 2.7568153900e+00f, 1.4234372777e+00f),
             horner(r, 1.2021132975e-01f, 7.3700164250e-01f, 1.0f));
}
__device__ inline double normal_quantile(double p) {
  const double q = add(0.5, -p);
  if (q <= 0.425) {
    const double r = add(0.180625, -mul(q, q));
    return div(mul(q, horner(r, 2.5090809287301226727e+3, 3.3430575583588128105e+4,
                             6.7265770927008700853e+4, 4.5921953931549871457e+4,
                             1.3731693765509461125e+4, 1.9715909503065514427e+3,
                             1.3314166789178437745e+2, 3.3871328727963666080e+0)),
               horner(r, 5.2264952788528545610e+3, 2.8729085735721942674e+4,
                      3.9307895800092710610e+4, 2.1213794301586595867e+4, 5.3941960214247511077e+3,
                      6.8718700749205790830e+2, 4.2313330701600911252e+1, 1.0));
  }
  const double far = root(-log_normal_range(p));
  if (far <= 5.0) {
    const double r = add(far, -1.6);
    return div(
        horner(r, 7.74545014278341407640e-4, 2.27238449892691845833e-2, 2.41780725177450611770e-1,
               1.27045825245236838258e+0, 3.64784832476320460504e+0, 5.76949722146069140550e+0,
               4.63033784615654529590e+0, 1.42343711074968357734e+0),
        horner(r, 1.05075007164441684324e-9, 5.47593808499534494600e-4, 1.51986665636164571966e-2,
               1.48103976427480074590e-1, 6.89767334985100004550e-1, 1.67638483018380384940e+0,
               2.05319162663775882187e+0, 1.0));
  }
  const double r = add(far, -5.0);
  return div(
      horner(r, 2.01033439929228813265e-7, 2.71155556874348757815e-5, 1.24266094738807843860e-3,
             2.65321895265761230930e-2, 2.96560571828504891230e-1, 1.78482653991729133580e+0,
             5.46378491116411436990e+0, 6.65790464350110377720e+0),
      horner(r, 2.04426310338993978564e-15, 1.42151175831644588870e-7, 1.84631831751005468180e-5,
             7.86869131145613259100e-4, 1.48753612908506148525e-2, 1.36929880922735805310e-1,
             5.99832206555887937690e-1, 1.0));
}

__device__ inline float normal_of_bits(uint32_t bits) {
  const float k = static_cast<float>(static_cast<int32_t>(bits & 0x7FFFFFFFu));
  const float x = normal_quantile(add(mul(k, 0x1p-32f), 0x1p-33f));
  return (bits >> 31) != 0 ? -x : x;
}
__device__ inline double normal_of_bits(uint64_t bits) {
  const double k = static_cast<double>(static_cast<int64_t>(bits & 0x7FFFFFFFFFFFFFFFu));
  const double x = normal_quantile(add(mul(k, 0x1p-64), 0x1p-65));
  return (bits >> 63) != 0 ? -x : x;
}

#endif  // __CUDACC__

}  // namespace mytorch::cuda::philox
