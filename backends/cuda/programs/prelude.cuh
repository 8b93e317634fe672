// The prelude of generated kernels: element types and their conversions. NVRTC compiles this text,
// node_ops.cuh and operands.cuh in front of every kernel, so they include nothing. Tests also
// compile them for the host (MYTORCH_PRELUDE_HOST) and define what CUDA provides.
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
