// The node operations of complex values; follows node_ops.cuh in kernels whose compute type is
// complex. Functions are computed in double, also for complex64, and have the branch cuts and the
// limits of C99's Annex G, as ATen's have.

namespace node {

template <class R>
FN Complex<R> add(Complex<R> a, Complex<R> b) {
  return Complex<R>(add(a.re, b.re), add(a.im, b.im));
}
template <class R>
FN Complex<R> sub(Complex<R> a, Complex<R> b) {
  return Complex<R>(sub(a.re, b.re), sub(a.im, b.im));
}
template <class R>
FN Complex<R> mul(Complex<R> a, Complex<R> b) {
  return Complex<R>(sub(mul(a.re, b.re), mul(a.im, b.im)), add(mul(a.re, b.im), mul(a.im, b.re)));
}
template <class R>
FN Complex<R> neg(Complex<R> a) {
  return Complex<R>(-a.re, -a.im);
}
template <class R>
FN Complex<R> conj_physical(Complex<R> a) {
  return Complex<R>(a.re, -a.im);
}
FN float size_of(Complex<float> a) { return ::hypotf(a.re, a.im); }
FN double size_of(Complex<double> a) { return ::hypot(a.re, a.im); }
template <class R>
FN Complex<R> abs(Complex<R> a) {
  return Complex<R>(size_of(a));
}
// Divides by the larger part first (Smith, 1962), so that no square overflows.
template <class R>
FN Complex<R> div(Complex<R> a, Complex<R> b) {
  const R x = abs(b.re);
  const R y = abs(b.im);
  if (x == 0 && y == 0) return Complex<R>(a.re / x, a.im / x);
  if (x >= y) {
    const R ratio = b.im / b.re;
    const R scale = b.re + b.im * ratio;
    return Complex<R>((a.re + a.im * ratio) / scale, (a.im - a.re * ratio) / scale);
  }
  const R ratio = b.re / b.im;
  const R scale = b.re * ratio + b.im;
  return Complex<R>((a.re * ratio + a.im) / scale, (a.im * ratio - a.re) / scale);
}
template <class R>
FN Complex<R> sign(Complex<R> a) {
  const R size = size_of(a);
  return size == 0 ? Complex<R>(0) : Complex<R>(a.re / size, a.im / size);
}

// The order is that of the real parts, which are magnitudes where a program compares.
#define ORDER(name, op)                      \
  template <class R>                         \
  FN bool name(Complex<R> a, Complex<R> b) { \
    return a.re op b.re;                     \
  }
ORDER(lt, <)
ORDER(le, <=)
ORDER(gt, >)
ORDER(ge, >=)
#undef ORDER
template <class R>
FN bool isnan(Complex<R> a) {
  return a.re != a.re || a.im != a.im;
}

namespace wide {

typedef Complex<double> Z;

constexpr double kPi = 0x1.921fb54442d18p+1;
constexpr double kLn2 = 0x1.62e42fefa39efp-1;
constexpr double kHuge = 0x1p1000;  // beyond it, squares and sums are scaled

FN bool is_infinite(double x) { return x - x != 0 && x == x; }
FN bool is_finite(double x) { return x - x == 0; }
FN Z times_i(Z z) { return Z(-z.im, z.re); }
FN Z over_i(Z z) { return Z(z.im, -z.re); }

// Returns growth * (c + i s) with growth = exp(x), which may overflow where the result does not.
FN Z turned(double x, double c, double s) {
  if (x > 700) {
    const double half = ::exp(x / 2);
    return Z(half * c * half, half * s * half);
  }
  const double growth = ::exp(x);
  return Z(growth * c, growth * s);
}
FN_CALLED Z exp(Z z) {
  if (z.im == 0) return Z(::exp(z.re), z.im);
  if (!is_finite(z.im)) {
    if (z.re < 0 && is_infinite(z.re)) return Z(0);
    if (is_infinite(z.re)) return Z(z.re, z.im - z.im);
  }
  double s, c;
  ::sincos(z.im, &s, &c);
  return turned(z.re, c, s);
}
FN_CALLED Z exp2(Z z) {
  if (z.im == 0) return Z(::exp2(z.re), z.im);
  return exp(Z(z.re * kLn2, z.im * kLn2));
}
FN_CALLED Z expm1(Z z) {
  if (z.im == 0) return Z(::expm1(z.re), z.im);
  double s, c;
  ::sincos(z.im, &s, &c);
  const double half = ::sin(z.im / 2);
  return Z(::expm1(z.re) * c - 2 * half * half, ::exp(z.re) * s);
}

// Returns log(|x + iy|), accurate also near 1: squares are subtracted with their rounding errors.
FN double log_size(double x, double y) {
  x = ::fabs(x);
  y = ::fabs(y);
  const double most = x > y ? x : y;
  const double least = x > y ? y : x;
  const double size = ::hypot(x, y);
  if (!(size > 0.5 && size < 2)) {
    if (most > kHuge && is_finite(most)) {
      return ::log(::hypot(x * 0x1p-8, y * 0x1p-8)) + 8 * kLn2;
    }
    return ::log(size);
  }
  const double a = most * most;
  const double b = least * least;
  const double errors = ::fma(most, most, -a) + ::fma(least, least, -b);
  const double beyond = a - 1;
  const double sum = beyond + b;
  const double part = sum - beyond;
  const double lost = (beyond - (sum - part)) + (b - part);
  return ::log1p(sum + (lost + errors)) / 2;
}
FN_CALLED Z log(Z z) { return Z(log_size(z.re, z.im), ::atan2(z.im, z.re)); }
FN_CALLED Z log1p(Z z) {
  const double x = z.re;
  const double y = z.im;
  const bool near = ::hypot(x, y) < 0.5;
  return Z(near ? ::log1p(x * (2 + x) + y * y) / 2 : log_size(1 + x, y), ::atan2(y, 1 + x));
}

FN_CALLED Z sqrt(Z z) {
  double x = z.re;
  double y = z.im;
  if (is_infinite(y)) return Z(::fabs(y), y);
  if (x == 0 && y == 0) return Z(0, y);
  const double most = ::fmax(::fabs(x), ::fabs(y));
  const bool large = most >= kHuge;
  const bool small = most < 1 / kHuge;
  const double in = large ? 0x1p-4 : small ? 0x1p108 : 1;
  const double out = large ? 0x1p2 : small ? 0x1p-54 : 1;
  x *= in;
  y *= in;
  const double t = ::sqrt((::fabs(x) + ::hypot(x, y)) / 2);
  const Z root = x >= 0 ? Z(t, y / (2 * t)) : Z(::fabs(y) / (2 * t), ::copysign(t, y));
  return x != x ? Z(x, x) : Z(root.re * out, root.im * out);
}

FN_CALLED Z sinh(Z z) {
  if (z.im == 0) return Z(::sinh(z.re), z.im);
  if (is_infinite(z.re) && !is_finite(z.im)) return Z(::fabs(z.re), z.im - z.im);
  double s, c;
  ::sincos(z.im, &s, &c);
  if (::fabs(z.re) > 700) {
    const Z half = turned(::fabs(z.re), c / 2, s / 2);
    return Z(::copysign(1.0, z.re) * half.re, half.im);
  }
  return Z(z.re == 0 ? z.re : ::sinh(z.re) * c, ::cosh(z.re) * s);
}
FN_CALLED Z cosh(Z z) {
  if (z.im == 0)
    return Z(::cosh(z.re), z.re == 0 || z.re != z.re ? z.im : ::copysign(1.0, z.re) * z.im);
  if (is_infinite(z.re) && !is_finite(z.im)) return Z(::fabs(z.re), z.im - z.im);
  double s, c;
  ::sincos(z.im, &s, &c);
  if (::fabs(z.re) > 700) {
    const Z half = turned(::fabs(z.re), c / 2, s / 2);
    return Z(half.re, ::copysign(1.0, z.re) * half.im);
  }
  return Z(::cosh(z.re) * c, z.re == 0 ? z.re : ::sinh(z.re) * s);
}
// By the tangent of the imaginary part, so that nothing cancels (Kahan, 1987).
FN_CALLED Z tanh(Z z) {
  if (z.im == 0) return Z(::tanh(z.re), z.im);
  if (is_infinite(z.re) && !is_finite(z.im)) return Z(::copysign(1.0, z.re), 0);
  if (::fabs(z.re) > 22 && is_finite(z.im)) {
    const double decay = 4 * ::exp(-2 * ::fabs(z.re));
    return Z(::copysign(1.0, z.re), ::sin(z.im) * ::cos(z.im) * decay);
  }
  if (z.re == 0 && !is_finite(z.im)) return Z(z.re, z.im - z.im);
  const double t = ::tan(z.im);
  const double beta = 1 + t * t;
  const double s = ::sinh(z.re);
  const double rho = ::sqrt(1 + s * s);
  if (is_infinite(t)) return Z(rho / s, 1 / t);
  const double scale = 1 + beta * s * s;
  return Z(beta * rho * s / scale, t / scale);
}

// The parts of the arc sine or cosine of |x| + i|y|, without cancellation (Hull, Fairgrieve and
// Tang, 1997).
FN void arc(double x, double y, bool cosine, double* re, double* im) {
  if (x < 1e-10 && y < 1e-10) {
    *re = cosine ? kPi / 2 - x : x;
    *im = y;
    return;
  }
  const double r = ::hypot(x + 1, y);
  const double s = ::hypot(x - 1, y);
  const double a = r / 2 + s / 2;
  const double b = x / a;
  const double right = r + (x + 1);
  if (b <= 0.6417) {
    *re = cosine ? ::acos(b) : ::asin(b);
  } else {
    const double u = x <= 1 ? ::sqrt((a + x) / 2 * (y * (y / right) + (s + (1 - x))))
                            : y * ::sqrt((a + x) / 2 / right + (a + x) / 2 / (s + (x - 1)));
    *re = ::atan2(cosine ? u : x, cosine ? x : u);
  }
  if (a <= 1.5) {
    const double beyond = x < 1 ? (y * (y / right) + y * (y / (s + (1 - x)))) / 2
                                : (y * (y / right) + (s + (x - 1))) / 2;
    *im = ::log1p(beyond + ::sqrt(beyond * (a + 1)));
  } else {
    *im = a > 1e10 ? log_size(x, y) + kLn2 : ::log(a + ::sqrt(a * a - 1));
  }
}
// The arc sine's real part of an infinite x + iy: a multiple of pi / 4, or NaN.
FN double angle_of_infinity(double x, double y) {
  if (x != x || y != y) return x + y - (x + y);
  return ::atan2(is_infinite(x) ? 1.0 : 0.0, is_infinite(y) ? 1.0 : 0.0);
}
FN_CALLED Z asin(Z z) {
  const double x = ::fabs(z.re);
  const double y = ::fabs(z.im);
  double re, im;
  if (is_infinite(x) || is_infinite(y)) {
    re = angle_of_infinity(x, y);
    im = is_infinite(x) ? x : y;
  } else if (x == 0 && y != y) {
    return z;
  } else if (x != x || y != y) {
    return Z(x + y, x + y);
  } else {
    arc(x, y, false, &re, &im);
  }
  return Z(::copysign(re, z.re), ::copysign(im, z.im));
}
FN_CALLED Z acos(Z z) {
  const double x = ::fabs(z.re);
  const double y = ::fabs(z.im);
  double re, im;
  if (is_infinite(x) || is_infinite(y)) {
    re = angle_of_infinity(y, x);
    im = is_infinite(x) ? x : y;
  } else if (x == 0 && y != y) {
    return Z(kPi / 2, y);
  } else if (x != x || y != y) {
    return Z(x + y, x + y);
  } else {
    arc(x, y, true, &re, &im);
  }
  return Z(::copysign(1.0, z.re) < 0 ? kPi - re : re, ::copysign(im, -::copysign(1.0, z.im)));
}
FN_CALLED Z atanh(Z z) {
  const double x = ::fabs(z.re);
  const double y = ::fabs(z.im);
  double re, im;
  if (is_infinite(x) || is_infinite(y)) {
    re = 0;
    im = y != y ? y : kPi / 2;
  } else if (x == 0 && y != y) {
    return z;
  } else if (x != x || y != y) {
    return Z(x + y, x + y);
  } else if (x > 1e100 || y > 1e100) {
    const double size = ::hypot(x * 0.25, y * 0.25);
    re = x / size / size * 0.0625;
    im = kPi / 2;
  } else {
    re = ::log1p(4 * x / ((1 - x) * (1 - x) + y * y)) / 4;
    im = ::atan2(2 * y, (1 - x) * (1 + x) - y * y) / 2;
  }
  return Z(::copysign(re, z.re), ::copysign(im, z.im));
}
FN_CALLED Z acosh(Z z) {
  const Z w = acos(z);
  return w.re != w.re && w.im == w.im ? Z(::fabs(w.im), w.re)
                                      : Z(::fabs(w.im), ::copysign(w.re, z.im));
}
FN Z asinh(Z z) { return over_i(asin(times_i(z))); }
FN Z atan(Z z) { return over_i(atanh(times_i(z))); }
FN Z sin(Z z) { return over_i(sinh(times_i(z))); }
FN Z cos(Z z) { return cosh(times_i(z)); }
FN Z tan(Z z) { return over_i(tanh(times_i(z))); }
FN Z log2(Z z) {
  const Z w = log(z);
  return Z(w.re / kLn2, w.im / kLn2);
}
FN Z log10(Z z) {
  constexpr double kLn10 = 0x1.26bb1bbb55516p+1;
  const Z w = log(z);
  return Z(w.re / kLn10, w.im / kLn10);
}
FN Z rsqrt(Z z) { return div(Z(1), sqrt(z)); }
// By the exponential w that does not overflow. Near the poles, where w is near -1, 1 + w would
// cancel: half angles give 1 + cos(y).
FN_CALLED Z sigmoid(Z z) {
  const Z w = exp(z.re >= 0 ? neg(z) : z);
  Z below = add(Z(1), w);
  if (::fabs(z.re) < 1 && w.re < -0.25) {
    const double c = ::cos(z.im / 2);
    below.re = 2 * c * c + ::expm1(-::fabs(z.re)) * ::cos(z.im);
  }
  return div(z.re >= 0 ? Z(1) : w, below);
}
FN_CALLED Z pow(Z a, Z b) {
  if (b == Z(0)) return Z(1);
  if (a == Z(0)) {
    const double none = a.re / a.re;
    return b.re > 0 ? Z(0) : Z(none, none);
  }
  return exp(mul(b, log(a)));
}

}  // namespace wide

#define WIDE(name)                                            \
  template <class R>                                          \
  FN Complex<R> name(Complex<R> a) {                          \
    return convert<Complex<R>>(wide::name(convert<c128>(a))); \
  }
WIDE(sqrt)
WIDE(rsqrt)
WIDE(exp)
WIDE(exp2)
WIDE(expm1)
WIDE(log)
WIDE(log2)
WIDE(log10)
WIDE(log1p)
WIDE(sin)
WIDE(cos)
WIDE(tan)
WIDE(asin)
WIDE(acos)
WIDE(atan)
WIDE(sinh)
WIDE(cosh)
WIDE(tanh)
WIDE(asinh)
WIDE(acosh)
WIDE(atanh)
WIDE(sigmoid)
#undef WIDE
template <class R>
FN Complex<R> pow(Complex<R> a, Complex<R> b) {
  return convert<Complex<R>>(wide::pow(convert<c128>(a), convert<c128>(b)));
}

}  // namespace node
