#include "backends/cpu-openmp/matrix/inner_product.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu-openmp/matrix/inner_product.cpp"
#include "backends/cpu-openmp/simd/foreach_target.h"
// After foreach_target.h, which includes this file once for each instruction set.
#include "backends/cpu-openmp/simd/export.h"
#include "backends/cpu-openmp/simd/highway.h"

HWY_BEFORE_NAMESPACE();
namespace mytorch::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Lanes of `straight` add up to the real part. Lanes of `crossed` hold re(a) * im(b) and
// im(a) * re(b) in turns, whose sums differ by the imaginary part: one exchange of neighbors for
// each vector of b, and none of a.
template <class T>
HWY_INLINE void Conjugated(const T* a, const T* b, int64_t n, double* sum) {
  const int64_t count = 2 * n;
  double re = 0, im = 0;
  int64_t i = 0;
#if HWY_TARGET != HWY_SCALAR
  const hn::ScalableTag<T> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  auto straight0 = hn::Zero(d), straight1 = straight0, straight2 = straight0, straight3 = straight0;
  auto crossed0 = straight0, crossed1 = straight0, crossed2 = straight0, crossed3 = straight0;
  const auto add = [&](int64_t at, auto& straight, auto& crossed) HWY_ATTR {
    const auto x = hn::LoadU(d, a + at), y = hn::LoadU(d, b + at);
    straight = hn::MulAdd(x, y, straight);
    crossed = hn::MulAdd(x, hn::Reverse2(d, y), crossed);
  };
  for (; i + 4 * lanes <= count; i += 4 * lanes) {
    add(i, straight0, crossed0);
    add(i + lanes, straight1, crossed1);
    add(i + 2 * lanes, straight2, crossed2);
    add(i + 3 * lanes, straight3, crossed3);
  }
  for (; i + lanes <= count; i += lanes) add(i, straight0, crossed0);
  const auto straight = hn::Add(hn::Add(straight0, straight1), hn::Add(straight2, straight3));
  const auto crossed = hn::Add(hn::Add(crossed0, crossed1), hn::Add(crossed2, crossed3));
  HWY_ALIGN T parts[2][hn::MaxLanes(d)];
  hn::Store(straight, d, parts[0]);
  hn::Store(crossed, d, parts[1]);
  for (int64_t k = 0; k < lanes; k += 2) {
    re += static_cast<double>(parts[0][k]) + static_cast<double>(parts[0][k + 1]);
    im += static_cast<double>(parts[1][k]) - static_cast<double>(parts[1][k + 1]);
  }
#endif
  for (; i < count; i += 2) {
    const double ar = a[i], ai = a[i + 1], br = b[i], bi = b[i + 1];
    re += ar * br + ai * bi;
    im += ar * bi - ai * br;
  }
  sum[0] += re;
  sum[1] += im;
}

template <class T>
constexpr InnerProducts<T> kInnerProducts = {&Conjugated<T>};

const InnerProducts<float>& FloatInnerProducts() { return kInnerProducts<float>; }
const InnerProducts<double>& DoubleInnerProducts() { return kInnerProducts<double>; }

}  // namespace mytorch::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

MYTORCH_EXPORT_TABLE_OF(float, mytorch::cpu, inner_products, FloatInnerProducts)
MYTORCH_EXPORT_TABLE_OF(double, mytorch::cpu, inner_products, DoubleInnerProducts)
