// The prelude of generated kernels: element types, conversions, and a function for each node
// operation. NVRTC compiles this text in front of every kernel, so it includes nothing. Tests also
// compile it for the host (MYTORCH_PRELUDE_HOST) and define what CUDA provides.
#ifdef MYTORCH_PRELUDE_HOST
#define FN static inline
#define FN_MEMBER inline
#define FN_CALLED static
#else
#define FN static __device__ __forceinline__
#define FN_MEMBER __device__ __forceinline__
#define FN_CALLED static __device__ __noinline__
#endif

typedef signed char i8;
typedef unsigned char u8;
typedef short i16;
typedef int i32;
typedef long long i64;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef float f32;
typedef double f64;

// Element types as stored in memory. Any nonzero byte is a true bool.
struct b8 {
  u8 bits;
};
struct f16 {
  unsigned short bits;
};
struct bf16 {
  unsigned short bits;
};

// A complex number, and how one lies in memory. Its node operations are in complex.cuh.
template <class R>
struct Complex {
  R re, im;
  Complex() = default;
  FN_MEMBER Complex(R re_, R im_ = 0) : re(re_), im(im_) {}
};
typedef Complex<f32> c64;
typedef Complex<f64> c128;
template <class R>
FN bool operator==(Complex<R> a, Complex<R> b) {
  return a.re == b.re && a.im == b.im;
}
template <class R>
FN bool operator!=(Complex<R> a, Complex<R> b) {
  return !(a == b);
}

template <class A, class B>
constexpr bool same = false;
template <class A>
constexpr bool same<A, A> = true;
template <class T>
constexpr bool is_real = same<T, float> || same<T, double>;
template <class T>
constexpr bool is_half = same<T, f16> || same<T, bf16>;
template <class T>
constexpr bool is_complex = same<T, c64> || same<T, c128>;

// The C++ type in which values of a compute type are computed.
template <class C>
struct Computed {
  typedef int type;
};
template <>
struct Computed<i64> {
  typedef i64 type;
};
template <>
struct Computed<f64> {
  typedef double type;
};
template <>
struct Computed<f32> {
  typedef float type;
};
template <>
struct Computed<f16> {
  typedef float type;
};
template <>
struct Computed<bf16> {
  typedef float type;
};
template <class R>
struct Computed<Complex<R>> {
  typedef Complex<R> type;
};
template <class C>
using Value = typename Computed<C>::type;

// ---- conversions, as mytorch/backend/dtype.h defines them

#ifdef MYTORCH_PRELUDE_HOST
float to_float(f16 x);
float to_float(bf16 x);
void round_to(f16& to, float x);
void round_to(bf16& to, float x);
template <class T>
u32 round_two(T, float low, float high) {
  T two[2];
  round_to(two[0], low);
  round_to(two[1], high);
  return two[0].bits | static_cast<u32>(two[1].bits) << 16;
}
#else
FN float to_float(f16 x) {
  float y;
  asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits));
  return y;
}
FN float to_float(bf16 x) { return __uint_as_float(static_cast<u32>(x.bits) << 16); }
FN void round_to(f16& to, float x) { asm("cvt.rn.f16.f32 %0, %1;" : "=h"(to.bits) : "f"(x)); }
FN void round_to(bf16& to, float x) { asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(to.bits) : "f"(x)); }
// Converts two elements with one instruction.
FN u32 round_two(f16, float low, float high) {
  u32 y;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(high), "f"(low));
  return y;
}
FN u32 round_two(bf16, float low, float high) {
  u32 y;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(high), "f"(low));
  return y;
}
#endif

template <class To, class From>
FN To convert(From x) {
  if constexpr (same<To, From> && !same<From, b8>) {
    return x;
  } else if constexpr (is_complex<From> && is_complex<To>) {
    return To(x.re, x.im);
  } else if constexpr (is_complex<From> && (same<To, b8> || same<To, bool>)) {
    return convert<To>(x != From(0));
  } else if constexpr (is_complex<From>) {
    return convert<To>(x.re);
  } else if constexpr (is_complex<To>) {
    return To(convert<decltype(To::re)>(x));
  } else if constexpr (same<From, b8>) {
    return convert<To>(x.bits != 0);
  } else if constexpr (is_half<From>) {
    return convert<To>(to_float(x));
  } else if constexpr (is_half<To>) {
    To y;
    round_to(y, static_cast<float>(x));
    return y;
  } else if constexpr (same<To, b8>) {
    return b8{static_cast<u8>(x != From(0))};
  } else if constexpr (same<To, bool>) {
    return x != From(0);
  } else if constexpr (is_real<From> && !is_real<To>) {
    const bool fits = x >= From(-0x1p63) && x < From(0x1p63);
    return static_cast<To>(fits ? static_cast<i64>(x) : -0x7fffffffffffffffLL - 1);
  } else {
    return static_cast<To>(x);
  }
}

// Wraps an integer result to the compute type's width. Bools are kept as numbers.
template <class C, class V>
FN V wrap(V x) {
  if constexpr (same<C, i8> || same<C, u8> || same<C, i16>) {
    return static_cast<C>(x);
  } else {
    return x;
  }
}
// Converts an element to a value of the compute type C; implements "input" and "cast" nodes.
template <class C, class T>
FN Value<C> input(T x) {
  return convert<Value<C>>(convert<C>(x));
}
template <class C, class T>
FN Value<C> cast(T x) {
  return wrap<C>(static_cast<Value<C>>(x));
}

// ---- node operations (docs/records.md)

template <class I>
struct Bits {
  typedef u32 type;
};
template <>
struct Bits<i64> {
  typedef u64 type;
};

namespace node {

// The compiler never contracts these intrinsics to fused operations, which it would choose
// differently in the kernels of one program. Program::text() chooses for all of them.
#define ARITHMETIC(name, op)                                          \
  FN float name(float a, float b) { return __f##name##_rn(a, b); }    \
  FN double name(double a, double b) { return __d##name##_rn(a, b); } \
  template <class I>                                                  \
  FN I name(I a, I b) {                                               \
    typedef typename Bits<I>::type U;                                 \
    return static_cast<I>(static_cast<U>(a) op static_cast<U>(b));    \
  }
ARITHMETIC(add, +)
ARITHMETIC(sub, -)
ARITHMETIC(mul, *)
#undef ARITHMETIC
// Returns a * b + c, rounded once.
FN float multiply_add(float a, float b, float c) { return ::fmaf(a, b, c); }
FN double multiply_add(double a, double b, double c) { return ::fma(a, b, c); }

template <class I>
FN I neg(I a) {
  if constexpr (is_real<I>) {
    return -a;
  } else {
    return sub(I(0), a);
  }
}

// Division by -1 negates, so the smallest integer wraps to itself. The quotient by 0 is 0.
template <class I>
FN I trunc_divide(I a, I b) {
  return b == -1 ? neg(a) : b == 0 ? I(0) : a / b;
}
FN float trunc_divide(float a, float b) { return ::truncf(a / b); }
FN double trunc_divide(double a, double b) { return ::trunc(a / b); }

// Division and square root are correctly rounded. Their instruction sequences leave the fast path
// for zeros, which are common, so zeros are handled separately.
FN float div(float a, float b) {
  const float quotient = (a == 0 ? 0x1p-60f : a) / b;
  return a == 0 ? a * quotient : quotient;
}
FN double div(double a, double b) { return a / b; }
template <class I>
FN I div(I a, I b) {
  return trunc_divide(a, b);
}
FN float sqrt(float a) {
  const float root = ::sqrtf(a == 0 ? 1.0f : a);
  return a == 0 ? a : root;
}
FN double sqrt(double a) { return ::sqrt(a); }
template <class I>
FN I sqrt(I a) {
  return static_cast<I>(convert<i64>(::sqrt(static_cast<double>(a))));
}

template <class I>
FN I fmod(I a, I b) {
  return b == -1 || b == 0 ? I(0) : a % b;
}
FN float fmod(float a, float b) { return ::fmodf(a, b); }
FN double fmod(double a, double b) { return ::fmod(a, b); }

FN float floor(float a) { return ::floorf(a); }
FN double floor(double a) { return ::floor(a); }
FN float sign_of(float to, float from) { return ::copysignf(to, from); }
FN double sign_of(double to, double from) { return ::copysign(to, from); }

// ATen's definition, exact through fmod.
template <class V>
FN V floor_divide(V a, V b) {
  const V mod = fmod(a, b);
  if constexpr (is_real<V>) {
    if (b == 0) return a / b;
    V quotient = (a - mod) / b;
    if (mod != 0 && (b < 0) != (mod < 0)) quotient -= 1;
    if (quotient == 0) return sign_of(V(0), a / b);
    const V whole = floor(quotient);
    return quotient - whole > V(0.5) ? whole + 1 : whole;
  } else {
    return sub(trunc_divide(a, b), V((a < 0) != (b < 0) && mod != 0));
  }
}
// The result has the divisor's sign.
template <class V>
FN V remainder(V a, V b) {
  const V mod = fmod(a, b);
  return mod != 0 && (b < 0) != (mod < 0) ? mod + b : mod;
}

template <class I>
FN I pow(I a, I b) {
  if (b < 0) return a == 1 ? I(1) : a == -1 ? (b % 2 == 0 ? I(1) : I(-1)) : I(0);
  I power = 1;
  for (; b != 0; b >>= 1) {
    if ((b & 1) != 0) power = mul(power, a);
    a = mul(a, a);
  }
  return power;
}
FN float pow(float a, float b) { return ::powf(a, b); }
FN double pow(double a, double b) { return ::pow(a, b); }

template <class I>
FN I atan2(I a, I b) {
  return static_cast<I>(convert<i64>(::atan2(static_cast<double>(a), static_cast<double>(b))));
}
FN float atan2(float a, float b) { return ::atan2f(a, b); }
FN double atan2(double a, double b) { return ::atan2(a, b); }

// Propagates NaN.
template <class V>
FN V maximum(V a, V b) {
  if constexpr (is_real<V>) {
    if (a != a) return a;
    return b != b || a < b ? b : a;
  } else {
    return a < b ? b : a;
  }
}
template <class V>
FN V minimum(V a, V b) {
  if constexpr (is_real<V>) {
    if (a != a) return a;
    return b != b || b < a ? b : a;
  } else {
    return b < a ? b : a;
  }
}

template <class V>
FN V conj_physical(V a) {  // of real numbers
  return a;
}
template <class I>
FN I abs(I a) {
  return a < 0 ? neg(a) : a;
}
FN float abs(float a) { return ::fabsf(a); }
FN double abs(double a) { return ::fabs(a); }
template <class V>
FN V sign(V a) {
  return V((a > 0) - (a < 0));
}

// Integers are computed in double.
#define FUNCTION(name, in_float, in_double)                            \
  FN float name(float a) { return in_float; }                          \
  FN double name(double a) { return in_double; }                       \
  template <class I>                                                   \
  FN I name(I a) {                                                     \
    return static_cast<I>(convert<i64>(name(static_cast<double>(a)))); \
  }
#define SAME_NAME(name) FUNCTION(name, ::name##f(a), ::name(a))
SAME_NAME(rsqrt)
SAME_NAME(exp)
SAME_NAME(exp2)
SAME_NAME(expm1)
SAME_NAME(log)
SAME_NAME(log2)
SAME_NAME(log10)
SAME_NAME(log1p)
SAME_NAME(sin)
SAME_NAME(cos)
SAME_NAME(tan)
SAME_NAME(asin)
SAME_NAME(acos)
SAME_NAME(atan)
SAME_NAME(sinh)
SAME_NAME(cosh)
SAME_NAME(tanh)
SAME_NAME(asinh)
SAME_NAME(acosh)
SAME_NAME(atanh)
SAME_NAME(erf)
SAME_NAME(erfc)
#undef SAME_NAME

// Uses exp(-|a|), so that small results keep their precision.
template <class V>
FN V sigmoid_of(V a) {
  const V e = exp(-abs(a));
  return (a >= 0 ? V(1) : e) / (V(1) + e);
}
FUNCTION(sigmoid, a != a ? a : sigmoid_of(a), a != a ? a : sigmoid_of(a))
#undef FUNCTION

#define ROUNDING(name, function)                      \
  FN float name(float a) { return ::function##f(a); } \
  FN double name(double a) { return ::function(a); }  \
  template <class I>                                  \
  FN I name(I a) {                                    \
    return a;                                         \
  }
ROUNDING(ceil, ceil)
ROUNDING(round, rint)
ROUNDING(trunc, trunc)
#undef ROUNDING
template <class I>
FN I floor(I a) {
  return a;
}

#define COMPARISON(name, expression) \
  template <class V>                 \
  FN bool name(V a, V b) {           \
    return expression;               \
  }
COMPARISON(eq, a == b)
COMPARISON(ne, a != b)
COMPARISON(lt, a < b)
COMPARISON(le, a <= b)
COMPARISON(gt, a > b)
COMPARISON(ge, a >= b)
COMPARISON(logical_and, a != V(0) && b != V(0))
COMPARISON(logical_or, a != V(0) || b != V(0))
COMPARISON(logical_xor, (a != V(0)) != (b != V(0)))
#undef COMPARISON
template <class V>
FN bool logical_not(V a) {
  return a == V(0);
}
template <class V>
FN bool isnan(V a) {
  return a != a;
}
template <class V>
FN V where(bool condition, V a, V b) {
  return condition ? a : b;
}

template <class I>
FN I bitwise_and(I a, I b) {
  return a & b;
}
template <class I>
FN I bitwise_or(I a, I b) {
  return a | b;
}
template <class I>
FN I bitwise_xor(I a, I b) {
  return a ^ b;
}
// The complement of a bool is logical: ~1 would be true.
template <class C, class I>
FN I bitwise_not(I a) {
  if constexpr (same<C, b8> || same<I, bool>) {
    return a == 0;
  } else {
    return ~a;
  }
}
// Shifts by a negative count or by at least the type's width leave only the sign.
template <class C, class I>
FN I bitwise_left_shift(I a, I b) {
  const I width = sizeof(C) * 8;
  typedef typename Bits<I>::type U;
  return b < 0 || b >= width ? I(0) : static_cast<I>(static_cast<U>(a) << b);
}
template <class C, class I>
FN I bitwise_right_shift(I a, I b) {
  const bool has_sign = same<C, i8> || same<C, i16> || same<C, i32> || same<C, i64>;
  const I most = sizeof(C) * 8 - (has_sign ? 1 : 0);
  return a >> (b < 0 || b >= most ? most : b);
}

}  // namespace node

// ---- kernels

// Every kernel calls this first. If it was launched to overlap with the previous kernel of its
// stream (MYTORCH_CUDA_OVERLAP), it starts once all blocks of that kernel have started, and waits
// here for its end. The next kernel may then start likewise.
FN void begin() {
#if !defined(MYTORCH_PRELUDE_HOST) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// ---- operands of kernels

// A scalar parameter, padded to eight bytes so that the host can lay out the parameters.
template <class T>
struct alignas(8) Scalar {
  T value;
};

// The fault record of a kernel (backends/cuda/runtime/faults.h).
struct Faults {
  u32* fault;
  u64 site;
  FN_MEMBER void note() const { atomicCAS(fault, 0u, static_cast<u32>(site)); }
};

template <class T, int N>
struct alignas(N == 1 ? alignof(T) : sizeof(T) * N) Pack {
  T at[N];
};
template <int N, class T>
FN Pack<T, N> load(const T* from) {
  return *reinterpret_cast<const Pack<T, N>*>(from);
}
// A streaming load (evict-first), for data that is read once and exceeds the caches.
template <int N, class T>
FN Pack<T, N> load_streaming(const T* from) {
#ifdef __CUDA_ARCH__
  if constexpr (sizeof(Pack<T, N>) == 16) {
    u32 words[4];
    asm("ld.global.cs.v4.u32 {%0, %1, %2, %3}, [%4];"
        : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
        : "l"(from));
    Pack<T, N> pack;
    memcpy(&pack, words, 16);
    return pack;
  }
#endif
  return load<N>(from);
}
template <int N, class T, class V>
FN void store(T* to, const V (&values)[N]) {
  if constexpr (is_half<T> && same<V, float> && N > 1) {
    Pack<u32, N / 2> pack;
#pragma unroll
    for (int k = 0; k < N / 2; ++k) {
      pack.at[k] = round_two(T(), values[2 * k], values[2 * k + 1]);
    }
    *reinterpret_cast<Pack<u32, N / 2>*>(to) = pack;
  } else {
    Pack<T, N> pack;
#pragma unroll
    for (int k = 0; k < N; ++k) pack.at[k] = convert<T>(values[k]);
    *reinterpret_cast<Pack<T, N>*>(to) = pack;
  }
}

// Operands whose type is known only at run time. The codes of dtypes are those of
// backends/cuda/programs/program.h; code 0 is a scalar parameter.
#define FOR_EACH_TYPE(F) \
  F(1, b8) F(2, u8) F(3, i8) F(4, i16) F(5, i32) F(6, i64) F(7, f16) F(8, bf16) F(9, f32) F(10, f64)
template <class C>
FN_CALLED Value<C> any_input(u64 word, u32 code, i64 at) {
#define CASE(number, T) \
  case number:          \
    return input<C>(reinterpret_cast<const T*>(word)[at]);
  switch (code) { FOR_EACH_TYPE(CASE) }
#undef CASE
  Value<C> value;
  memcpy(&value, &word, sizeof(value));
  return value;
}
template <class V>
FN_CALLED void any_output(u64 word, u32 code, i64 at, V value) {
#define CASE(number, T)                                 \
  case number:                                          \
    reinterpret_cast<T*>(word)[at] = convert<T>(value); \
    break;
  switch (code) { FOR_EACH_TYPE(CASE) }
#undef CASE
}
#undef FOR_EACH_TYPE

// Division of numbers below 2^31 (backends/cuda/common/divisor.h); `high` holds the upper half of
// larger divisors.
struct Divisor {
  u32 by, factor, shift, high;
};

// A loop over N operands with D dimensions, innermost first; the last dimension needs no division.
// `wide`: indices and sizes may reach 2^31.
template <int N, int D, bool wide>
struct Strided {
  Divisor size[D];
  i64 stride[D][N];
};
template <bool wide, int N, int D>
FN void offsets(const Strided<N, D, wide>& loop, i64 i, i64 (&at)[N]) {
#pragma unroll
  for (int k = 0; k < N; ++k) at[k] = 0;
  if constexpr (wide) {
    for (int d = 0; d < D; ++d) {
      const i64 by = static_cast<i64>(loop.size[d].high) << 32 | loop.size[d].by;
      const i64 outer = d + 1 < D ? i / by : 0;
      const i64 index = i - outer * by;
#pragma unroll
      for (int k = 0; k < N; ++k) at[k] += index * loop.stride[d][k];
      i = outer;
    }
  } else {
    u32 rest = static_cast<u32>(i);
#pragma unroll
    for (int d = 0; d < D; ++d) {
      const Divisor& size = loop.size[d];
      const u32 outer = d + 1 < D ? (__umulhi(rest, size.factor) + rest) >> size.shift : 0;
      const u32 index = rest - outer * size.by;
#pragma unroll
      for (int k = 0; k < N; ++k) at[k] += index * loop.stride[d][k];
      rest = outer;
    }
  }
}
