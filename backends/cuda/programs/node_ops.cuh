// A function for each node operation (docs/records.md); follows prelude.cuh. Those of complex
// numbers are in complex.cuh.

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
FN float exact_div(float a, float b) {
  const float quotient = (a == 0 ? 0x1p-60f : a) / b;
  return a == 0 ? a * quotient : quotient;
}
// Within 2 ulp: a product with the reciprocal, which the compiler computes once for all quotients
// by the same number. The power of two just below 1 / b keeps the factors in range: b * power is in
// [0.5, 1) unless b is tiny or huge, so a * power overflows only if the quotient does.
FN float quick_div(float a, float b) {
  const int exponent = static_cast<int>(__float_as_uint(b) >> 23 & 255u);
  const float power = __uint_as_float(static_cast<u32>(exponent < 252 ? 253 - exponent : 1) << 23);
  return a * power * (1.0f / (b * power));
}
#ifdef MYTORCH_QUICK_DIVISION
FN float div(float a, float b) { return quick_div(a, b); }
#else
FN float div(float a, float b) { return exact_div(a, b); }
#endif
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
