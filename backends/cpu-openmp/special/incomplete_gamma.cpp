// The regularized incomplete gamma functions P(a, x) and Q(a, x) = 1 - P(a, x).
//
// As ops/incomplete_gamma.cpp explains, either is computed where it is the smaller one: by the
// power series of P, by a series of Q, or by quadrature of the rest of an integral. Elements are
// sorted by method, a chunk at a time, so that each takes one. Powers and series are in double.
// Results of float have 29 digits more than they need, so P's series serves more of them, and the
// quadrature is in float.
#include <cmath>
#include <cstdint>
#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu-openmp/special/incomplete_gamma.cpp"
#include "backends/cpu-openmp/simd/foreach_target.h"
// After foreach_target.h, which includes this file once for each instruction set.
#include "backends/cpu-openmp/pointwise/driver.h"
#include "backends/cpu-openmp/registry.h"
#include "backends/cpu-openmp/simd/export.h"
#include "backends/cpu-openmp/special/gamma-inl.h"
#include "mytorch/abi_ops.h"

HWY_BEFORE_NAMESPACE();
namespace mytorch::cpu::HWY_NAMESPACE {
namespace {

using Doubles = hn::ScalableTag<double>;
using Double = hn::VFromD<Doubles>;
using DoubleMask = hn::Mask<Doubles>;

enum Method { kSeriesOfP, kSeriesOfQ, kLower, kUpper, kMethods };

// The elements of one method. `index` is the place in the chunk.
constexpr size_t kChunk = 256;
constexpr size_t kRoom = kChunk + 64;
struct Elements {
  alignas(64) double a[kRoom], x[kRoom], log_x[kRoom], index[kRoom], value[kRoom];
  size_t count = 0;
};

// x^a exp(-x) / Gamma(1 + a).
template <class T>
HWY_INLINE Double Power(Doubles d, Double a, Double x, Double log_x) {
  const DoubleMask small = hn::Lt(a, hn::Set(d, 10.0));
  Double result = hn::Zero(d);
  if (!hn::AllFalse(d, small)) {
    const Double near = hn::Min(a, hn::Set(d, 10.0));
    const SmallGamma<Double> g = GammaFactors(d, near);
    const Double power = NodeExp(d, hn::MulSub(near, log_x, x));
    result = hn::Div(hn::MulAdd(power, g.rest, power), g.product);
  }
  if (!hn::AllTrue(d, small)) {
    result = hn::IfThenElse(small, result, LargePower<sizeof(T) == 8>(d, a, x));
  }
  return result;
}

// P is the power times the sum of x^n / ((a + 1) ... (a + n)), over a common denominator.
template <class T>
void SeriesOfP(Elements& e) {
  const Doubles d;
  // Also for float, whose Q may be a small difference from 1.
  const Double rest = hn::Set(d, 0x1p-56);
  for (size_t i = 0; i < e.count; i += hn::Lanes(d)) {
    const Double a = hn::Load(d, e.a + i), x = hn::Load(d, e.x + i);
    const Double one = hn::Set(d, 1.0);
    Double above = one, below = one, power = one;
    // Beyond 300 the result is 0, and denominators must not overflow.
    Double factor = hn::Min(a, hn::Set(d, 300.0));
    // A lane that has enough terms keeps its sum, so that it does not depend on the others.
    DoubleMask done = hn::FirstN(d, 0);
    for (int n = 0; n < 128 && !hn::AllTrue(d, done); n += 4) {
      Double numerator = above, denominator = below;
      for (int k = 0; k < 4; ++k) {
        factor = hn::Add(factor, one);
        power = hn::Mul(power, x);
        denominator = hn::Mul(denominator, factor);
        numerator = hn::MulAdd(numerator, factor, power);
      }
      above = hn::IfThenElse(done, above, numerator);
      below = hn::IfThenElse(done, below, denominator);
      done = hn::Or(done, hn::Le(power, hn::Mul(rest, above)));
    }
    const Double p = Power<T>(d, a, x, hn::Load(d, e.log_x + i));
    hn::Store(hn::Mul(p, hn::Div(above, below)), d, e.value + i);
  }
}

// Q of x up to 1.1 and small a: with y = x^a / Gamma(a + 1), 1 - y less a y times the sum of
// (-x)^n / (n! (a + n)).
template <class T>
void SeriesOfQ(Elements& e) {
  const Doubles d;
  constexpr int kTerms = sizeof(T) == 4 ? 12 : 22;
  for (size_t i = 0; i < e.count; i += hn::Lanes(d)) {
    const Double a = hn::Load(d, e.a + i), x = hn::Load(d, e.x + i);
    Double above = hn::Zero(d), below = hn::Set(d, 1.0), power = hn::Set(d, 1.0);
    for (int n = 1; n <= kTerms; ++n) {
      const Double factor = hn::Add(a, hn::Set(d, static_cast<double>(n)));
      power = hn::Mul(power, hn::Mul(x, hn::Set(d, -1.0 / n)));
      above = hn::MulAdd(above, factor, hn::Mul(power, below));
      below = hn::Mul(below, factor);
    }
    const Double exponent = hn::MulAdd(a, hn::Load(d, e.log_x + i), MinusLogGamma(d, a));
    const Double y = hn::Mul(NodeExp(d, exponent), a);
    const Double rest = hn::Mul(y, hn::Div(above, below));
    hn::Store(hn::Sub(hn::Neg(NodeExpm1(d, exponent)), rest), d, e.value + i);
  }
}

// Nodes and weights of Gauss and Legendre on [0, 1]; the other half lies symmetrically.
constexpr double kFloatNodes[] = {
    0.00685809565159383058, 0.0357825581682132413, 0.0863993424651175034, 0.156353547594157265,
    0.242375681820922954,   0.34044381553605512,   0.445972525646328169,
};
constexpr double kFloatWeights[] = {
    0.0175597301658759315, 0.0400790435798801049, 0.0607592853439515923, 0.0786015835790967673,
    0.0927691987389689069, 0.102599231860647802,  0.107631926731578895,
};
constexpr double kDoubleNodes[] = {
    0.00240639000148931991, 0.0126357220143452509, 0.0308627239986336207, 0.0567922364977994829,
    0.089999007013048539,   0.129937904210722818,  0.175953174031512215,  0.227289264305580232,
    0.283103246186977431,   0.342478660151918313,  0.404440566263191845,  0.467971553568697187,
};
constexpr double kDoubleWeights[] = {
    0.00617061489999359977, 0.0142656943144668316, 0.0221387194087099031, 0.0296492924577183904,
    0.0366732407055401529,  0.043095080765976638,  0.0488093260520569441, 0.0537221350579828174,
    0.0577528340268628007,  0.0608352364639016956, 0.0629187281734141481, 0.0639690976733760785,
};

// exp(u) - 1 - u without cancellation, for u in [-3, 3.2] (float).
template <class D, class V>
HWY_INLINE V ExpRest(D d, V u) {
  const V square = hn::Mul(u, u);
  if constexpr (is_f32<D>) {
    return hn::Mul(square, Poly(d, u, 0x1.906fb8p-33, 0x1.4f92d4p-29, 0x1.ab78f4p-26,
                                0x1.23bf36p-22, 0x1.71e240p-19, 0x1.a06b86p-16, 0x1.a01bc6p-13,
                                0x1.6c13fep-10, 0x1.1110fcp-7, 0x1.555566p-5, 0x1.555556p-3, 0.5));
  } else {
    const auto near = hn::Lt(hn::Abs(u), hn::Set(d, 1.0));
    const V small = hn::Mul(
        square, Poly(d, u, 1 / 6402373705728000.0, 1 / 355687428096000.0, 1 / 20922789888000.0,
                     1 / 1307674368000.0, 1 / 87178291200.0, 1 / 6227020800.0, 1 / 479001600.0,
                     1 / 39916800.0, 1 / 3628800.0, 1 / 362880.0, 1 / 40320.0, 1 / 5040.0,
                     1 / 720.0, 1 / 120.0, 1 / 24.0, 1 / 6.0, 0.5));
    if (hn::AllTrue(d, near)) return small;
    return hn::IfThenElse(near, small, hn::Sub(NodeExpm1(d, u), u));
  }
}

// With t = x exp(+-v), the integral of t^(a - 1) exp(-t) from x to infinity (Q), or from 0 to x, is
// x^a exp(-x) times that of exp(-|x - a| v - x (exp(+-v) - 1 -+ v)) over v from 0, which has no
// singularity. Its end is where the exponent reaches `least`.
template <bool kIsQ, class D, class V>
HWY_INLINE V Integral(D d, V distance, V x) {
  using T = hn::TFromD<D>;
  constexpr T least = sizeof(T) == 4 ? 20 : 38;
  const auto set = [&](double c) HWY_ATTR { return hn::Set(d, static_cast<T>(c)); };
  const V limit = set(least);
  const V sign = set(kIsQ ? 1 : -1);
  const V c = hn::Div(limit, x);
  const V q = hn::Sqrt(hn::Add(c, c));
  V end;
  if constexpr (kIsQ) {
    end = NodeLog1p(d, hn::Add(c, NodeLog1p(d, hn::Add(c, q))));
  } else {
    end = hn::Mul(q, Poly(d, q, 1.0 / 36, 1.0 / 6, 1.0));
  }
  end = hn::Min(end, hn::Div(limit, hn::Max(distance, set(1e-30))));
  // Newton's method; the exponent is convex, so that no step passes the end.
  for (int step = 0; step < (sizeof(T) == 4 ? 1 : 3); ++step) {
    const V u = hn::Mul(sign, end);
    const V rest = ExpRest(d, u);
    const V slope = hn::MulAdd(hn::Mul(x, sign), hn::Add(rest, u), distance);
    const V over = hn::MulAdd(x, rest, hn::MulSub(distance, end, limit));
    end = hn::Sub(end, hn::Div(hn::Max(over, hn::Zero(d)), slope));
  }
  V sum = hn::Zero(d);
  const auto add = [&](double node, double weight) HWY_ATTR {
    const V v = hn::Mul(end, set(node));
    const V exponent = hn::MulAdd(x, ExpRest(d, hn::Mul(sign, v)), hn::Mul(distance, v));
    sum = hn::MulAdd(NodeExp(d, hn::Neg(exponent)), set(weight), sum);
  };
  constexpr const double* nodes = sizeof(T) == 4 ? kFloatNodes : kDoubleNodes;
  constexpr const double* weights = sizeof(T) == 4 ? kFloatWeights : kDoubleWeights;
  for (int k = 0; k < (sizeof(T) == 4 ? 7 : 12); ++k) {
    add(nodes[k], weights[k]);
    add(1 - nodes[k], weights[k]);
  }
  return hn::Mul(sum, end);
}

template <class T, bool kIsQ>
void Quadrature(Elements& e) {
  const hn::ScalableTag<T> dt;
  alignas(64) T distance[kRoom], x[kRoom];
  const size_t padded = e.count + hn::MaxLanes(dt);
  for (size_t i = 0; i < padded; ++i) {
    distance[i] = static_cast<T>(std::abs(e.x[i] - e.a[i]));
    x[i] = static_cast<T>(e.x[i]);
  }
  for (size_t i = 0; i < e.count; i += hn::Lanes(dt)) {
    hn::Store(Integral<kIsQ>(dt, hn::Load(dt, distance + i), hn::Load(dt, x + i)), dt,
              distance + i);
  }
  for (size_t i = 0; i < padded; ++i) e.value[i] = static_cast<double>(distance[i]);
  const Doubles d;
  for (size_t i = 0; i < e.count; i += hn::Lanes(d)) {
    const Double a = hn::Load(d, e.a + i);
    const Double p = Power<T>(d, a, hn::Load(d, e.x + i), hn::Load(d, e.log_x + i));
    hn::Store(hn::Mul(hn::Mul(a, p), hn::Load(d, e.value + i)), d, e.value + i);
  }
}

template <class T>
HWY_INLINE void Choose(Doubles d, Double a, Double x, Double log_x, DoubleMask* takes) {
  const auto set = [&](double c) HWY_ATTR { return hn::Set(d, c); };
  const DoubleMask tiny = hn::Le(x, set(1.1));
  const DoubleMask above = hn::Ge(x, a);
  DoubleMask p, q;
  if constexpr (sizeof(T) == 4) {
    q = hn::And(tiny, hn::Lt(a, set(1e-6)));
    // Q is at least 1e-8 there.
    const DoubleMask middle = hn::And(hn::Ge(a, set(0.1)), hn::Lt(a, set(10.0)));
    p = hn::And(hn::Le(x, set(12.0)), hn::Or(middle, above));
    p = hn::And(p, hn::Or(hn::Ge(a, set(0.1)), tiny));
    p = hn::AndNot(q, hn::Or(p, tiny));
  } else {
    const DoubleMask near_1 =
        hn::Or(hn::And(hn::Le(x, set(0.5)), hn::Ge(hn::Mul(a, log_x), set(-0.4))),
               hn::And(hn::Gt(x, set(0.5)), hn::Ge(hn::Mul(x, set(1.1)), a)));
    q = hn::And(tiny, near_1);
    const DoubleMask under = hn::AndNot(above, hn::Lt(a, set(10.0)));
    p = hn::AndNot(q, hn::Or(tiny, under));
  }
  takes[kSeriesOfP] = p;
  takes[kSeriesOfQ] = q;
  const DoubleMask rest = hn::Not(hn::Or(p, q));
  takes[kUpper] = hn::And(rest, above);
  takes[kLower] = hn::AndNot(above, rest);
}

// Outside of positive numbers: P is 1 where a is 0 or x is infinite, and 0 where a is infinite or x
// is 0.
double Limit(double a, double x, bool complement) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  if (!(a >= 0 && x >= 0)) return nan;
  const bool one = a == 0 || std::isinf(x), none = std::isinf(a) || x == 0;
  if (one && none) return nan;
  return one != complement ? 1 : 0;
}

template <class T, bool kComplement>
void ComputeChunk(const T* a, const T* x, T* out, size_t n, Elements* methods) {
  const Doubles d;
  const size_t lanes = hn::Lanes(d);
  alignas(64) double as[kRoom], xs[kRoom];
  for (size_t i = 0; i < n; ++i) as[i] = static_cast<double>(a[i]);
  for (size_t i = 0; i < n; ++i) xs[i] = static_cast<double>(x[i]);
  for (size_t i = n; i < n + lanes; ++i) as[i] = xs[i] = 1;
  for (int m = 0; m < kMethods; ++m) methods[m].count = 0;
  bool regular = true;
  for (size_t i = 0; i < n; i += lanes) {
    const Double va = hn::Load(d, as + i), vx = hn::Load(d, xs + i), zero = hn::Zero(d);
    DoubleMask good = hn::And(hn::And(hn::Gt(va, zero), hn::Lt(va, SetInf(d))),
                              hn::And(hn::Gt(vx, zero), hn::Lt(vx, SetInf(d))));
    regular = regular && hn::AllTrue(d, good);
    good = hn::And(good, hn::FirstN(d, n - i));
    const Double log_x = NodeLog(d, hn::IfThenElse(good, vx, hn::Set(d, 1.0)));
    const Double index = hn::Iota(d, static_cast<double>(i));
    DoubleMask takes[kMethods];
    Choose<T>(d, va, vx, log_x, takes);
    for (int m = 0; m < kMethods; ++m) {
      const DoubleMask mask = hn::And(takes[m], good);
      if (hn::AllFalse(d, mask)) continue;
      Elements& e = methods[m];
      hn::CompressStore(va, mask, d, e.a + e.count);
      hn::CompressStore(vx, mask, d, e.x + e.count);
      hn::CompressStore(log_x, mask, d, e.log_x + e.count);
      e.count += hn::CompressStore(index, mask, d, e.index + e.count);
    }
  }
  for (int m = 0; m < kMethods; ++m) {
    Elements& e = methods[m];
    if (e.count == 0) continue;
    // Ordinary numbers up to a whole vector.
    for (size_t i = e.count; i < e.count + 2 * hn::MaxLanes(hn::ScalableTag<T>()); ++i) {
      e.a[i] = 20, e.x[i] = 20, e.log_x[i] = 3;
    }
    if (m == kSeriesOfP) SeriesOfP<T>(e);
    if (m == kSeriesOfQ) SeriesOfQ<T>(e);
    if (m == kLower) Quadrature<T, false>(e);
    if (m == kUpper) Quadrature<T, true>(e);
    const bool is_q = m == kSeriesOfQ || m == kUpper;
    for (size_t i = 0; i < e.count; ++i) {
      const double value = is_q == kComplement ? e.value[i] : 1 - e.value[i];
      out[static_cast<size_t>(e.index[i])] = static_cast<T>(value);
    }
  }
  if (regular) return;
  for (size_t i = 0; i < n; ++i) {
    if (as[i] > 0 && xs[i] > 0 && std::isfinite(as[i]) && std::isfinite(xs[i])) continue;
    out[i] = static_cast<T>(Limit(as[i], xs[i], kComplement));
  }
}

template <class T, bool kComplement>
bool Compute(const void* const* in, void* const* out, const Scalars& /*scalars*/, int64_t n) {
  const T* a = static_cast<const T*>(in[0]);
  const T* x = static_cast<const T*>(in[1]);
  T* to = static_cast<T*>(out[0]);
  Elements methods[kMethods];
  for (size_t i = 0, end = static_cast<size_t>(n); i < end; i += kChunk) {
    ComputeChunk<T, kComplement>(a + i, x + i, to + i, HWY_MIN(kChunk, end - i), methods);
  }
  return true;
}

const InnerLoops* IncompleteGammaLoops() {
  static constexpr InnerLoops table[] = {
      {{Compute<float, false>, Compute<double, false>, nullptr, nullptr}},
      {{Compute<float, true>, Compute<double, true>, nullptr, nullptr}},
  };
  return table;
}

}  // namespace
}  // namespace mytorch::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mytorch::cpu {
namespace {

MYTORCH_TABLE_FUNCTION(incomplete_gamma_loops, IncompleteGammaLoops)

using Args = mt_args_incomplete_gamma;
constexpr OperandField kInputs[] = {{offsetof(Args, self), MT_TYPE_COMPUTE},
                                    {offsetof(Args, other), MT_TYPE_COMPUTE}};
constexpr OperandField kOutput[] = {{offsetof(Args, out), MT_TYPE_COMPUTE}};

int incomplete_gamma(void* /*self*/, mt_ctx* ctx, const void* args) noexcept {
  const auto& given = *static_cast<const Args*>(args);
  PointwiseProgram program{};
  program.inputs = kInputs;
  program.outputs = kOutput;
  program.num_inputs = 2;
  program.num_outputs = 1;
  program.cost = 400;
  program.loops = incomplete_gamma_loops()[given.complement != 0 ? 1 : 0];
  PointwiseCall call(program, "incomplete_gamma", given.header.compute, args);
  call.set_operands();
  return run_call(ctx, call);
}

}  // namespace

void register_gamma(KernelEntries& kernels) {
  mt_kernel_entry kernel{};
  kernel.size = sizeof(kernel);
  kernel.op = "incomplete_gamma";
  kernel.hash = MT_HASH_incomplete_gamma;
  kernel.name = "by_method";
  kernel.flags = MT_TAKES_STRIDED | MT_TAKES_BROADCAST | MT_TAKES_MIXED_DTYPES | MT_TAKES_ALIAS;
  kernel.run = &incomplete_gamma;
  kernels.push_back(kernel);
}

}  // namespace mytorch::cpu
#endif  // HWY_ONCE
