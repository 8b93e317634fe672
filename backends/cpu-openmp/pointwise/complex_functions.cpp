// Elementary functions of complex numbers, element by element. The standard library's functions
// have the branch cuts and the special values of C99's Annex G, as ATen's have. Those that it lacks
// are computed in double, also for float.
#include <cmath>
#include <complex>
#include <cstdint>
#include <numbers>
#include <string_view>

#include "backends/cpu-openmp/pointwise/complex_nodes.h"

namespace mytorch::cpu {
namespace {

using Wide = std::complex<double>;

// Accurate near 0, where exp(z) - 1 would cancel.
Wide expm1(Wide z) {
  const double half = std::sin(z.imag() / 2);
  return {std::expm1(z.real()) * std::cos(z.imag()) - 2 * half * half,
          std::exp(z.real()) * std::sin(z.imag())};
}

Wide log1p(Wide z) {
  const double x = z.real();
  const double y = z.imag();
  const double size =
      std::abs(z) < 0.5 ? std::log1p(x * (2 + x) + y * y) / 2 : std::log(std::hypot(x + 1, y));
  return {size, std::atan2(y, x + 1)};
}

// 1 / (1 + exp(-z)) by the exponential w that does not overflow. Near the poles, where w is near
// -1, 1 + w would cancel: half angles give 1 + cos(y).
Wide sigmoid(Wide z) {
  const double x = z.real();
  const double y = z.imag();
  const Wide w = std::exp(x >= 0 ? -z : z);
  Wide below = 1.0 + w;
  if (std::abs(x) < 1 && w.real() < -0.25) {
    const double c = std::cos(y / 2);
    below.real(2 * c * c + std::expm1(-std::abs(x)) * std::cos(y));
  }
  return (x >= 0 ? Wide(1) : w) / below;
}

Wide pow(Wide a, Wide b) {
  if (b == 0.0) return 1;
  if (a == 0.0) return b.real() > 0 ? Wide(0) : Wide(NAN, NAN);
  return std::pow(a, b);
}

template <class T>
using Z = std::complex<T>;

template <class T, class F>
void for_each(const T* in, T* to, int64_t n, F&& f) {
  for (int64_t i = 0; i < n; ++i) {
    const auto z = f(Z<T>(in[2 * i], in[2 * i + 1]));
    to[2 * i] = static_cast<T>(z.real());
    to[2 * i + 1] = static_cast<T>(z.imag());
  }
}

template <class T>
void pow_each(const T* const* in, T* to, int64_t n) {
  for (int64_t i = 0; i < 2 * n; i += 2) {
    const Wide z = pow(Wide(in[0][i], in[0][i + 1]), Wide(in[1][i], in[1][i + 1]));
    to[i] = static_cast<T>(z.real());
    to[i + 1] = static_cast<T>(z.imag());
  }
}

}  // namespace

template <class T>
ComplexLoop<T> find_complex_function(std::string_view name) {
  struct Row {
    const char* name;
    ComplexLoop<T> loop;
  };
#define STD(name)                                                                            \
  {                                                                                          \
#name, [](const T* const* in, T* to,                                                     \
              int64_t n) { for_each<T>(in[0], to, n, [](Z<T> z) { return std::name(z); }); } \
  }
#define WIDE(name, value)                                 \
  {                                                       \
    name, [](const T* const* in, T* to, int64_t n) {      \
      for_each<T>(in[0], to, n, [](Z<T> narrow) -> Wide { \
        const Wide z(narrow);                             \
        return value;                                     \
      });                                                 \
    }                                                     \
  }
  static constexpr Row rows[] = {
      STD(sqrt),
      STD(log),
      STD(log10),
      STD(sin),
      STD(cos),
      STD(tan),
      STD(asin),
      STD(acos),
      STD(atan),
      STD(sinh),
      STD(cosh),
      STD(tanh),
      STD(asinh),
      STD(acosh),
      STD(atanh),
      WIDE("rsqrt", 1.0 / std::sqrt(z)),
      WIDE("exp2", std::exp(z * std::numbers::ln2)),
      WIDE("expm1", expm1(z)),
      WIDE("log2", std::log(z) * std::numbers::log2e),
      WIDE("log1p", log1p(z)),
      WIDE("sigmoid", sigmoid(z)),
      {"pow", pow_each<T>},
  };
#undef STD
#undef WIDE
  for (const Row& row : rows) {
    if (name == row.name) return row.loop;
  }
  return nullptr;
}

template ComplexLoop<float> find_complex_function<float>(std::string_view);
template ComplexLoop<double> find_complex_function<double>(std::string_view);

}  // namespace mytorch::cpu
