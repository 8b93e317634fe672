// The vector functions of cpu-openmp: one function over 4096 elements in the L1 cache, on one
// thread. `time_per_element` is in seconds.
#include <benchmark/benchmark.h>

#include <cstddef>
#include <vector>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "bench/kernels/simd_math.cpp"
#include "backends/cpu-openmp/simd/foreach_target.h"
// After foreach_target.h, which includes this file once per target.
#include "backends/cpu-openmp/simd/highway.h"

// name, expression in vectors x (from the interval) and y (from 0.1 to 3), interval
#ifndef MYTORCH_SIMD_BENCH_LIST
#define MYTORCH_SIMD_BENCH_LIST(X)                                                              \
  X(Exp, NodeExp(d, x), -10, 10)                                                                \
  X(Exp2, NodeExp2(d, x), -10, 10)                                                              \
  X(Expm1, NodeExpm1(d, x), -3, 3)                                                              \
  X(Log, NodeLog(d, x), 0.1, 10)                                                                \
  X(Log2, NodeLog2(d, x), 0.1, 10)                                                              \
  X(Log10, NodeLog10(d, x), 0.1, 10)                                                            \
  X(Log1p, NodeLog1p(d, x), -0.5, 10)                                                           \
  X(Sin, NodeSin(d, x), -10, 10)                                                                \
  X(Cos, NodeCos(d, x), -10, 10)                                                                \
  X(Tan, NodeTan(d, x), -10, 10)                                                                \
  X(SinLarge, NodeSin(d, x), 1e5, 1e6)                                                          \
  X(Asin, NodeAsin(d, x), -1, 1)                                                                \
  X(Acos, NodeAcos(d, x), -1, 1)                                                                \
  X(Atan, NodeAtan(d, x), -5, 5)                                                                \
  X(Atan2, NodeAtan2(d, x, y), -5, 5)                                                           \
  X(Sinh, NodeSinh(d, x), -5, 5)                                                                \
  X(Cosh, NodeCosh(d, x), -5, 5)                                                                \
  X(Tanh, NodeTanh(d, x), -5, 5)                                                                \
  X(Asinh, NodeAsinh(d, x), -5, 5)                                                              \
  X(Acosh, NodeAcosh(d, x), 1, 5)                                                               \
  X(Atanh, NodeAtanh(d, x), -1, 1)                                                              \
  X(Erf, NodeErf(d, x), -3, 3)                                                                  \
  X(Erfc, NodeErfc(d, x), -3, 3)                                                                \
  X(Sigmoid, NodeSigmoid(d, x), -10, 10)                                                        \
  X(Sqrt, NodeSqrt(d, x), 0, 10)                                                                \
  X(Rsqrt, NodeRsqrt(d, x), 0.1, 10)                                                            \
  X(Pow, NodePow(d, x, y), 0.1, 3)                                                              \
  X(Fmod, NodeFmod(d, x, y), -10, 10)                                                           \
  X(Remainder, NodeRemainder(d, x, y), -10, 10)                                                 \
  X(FloorDivide, NodeFloorDivide(d, x, y), -10, 10)                                             \
  X(GeluErf,                                                                                    \
    hn::Mul(                                                                                    \
        hn::Mul(hn::Set(d, T(0.5)), x),                                                         \
        hn::Add(hn::Set(d, T(1)), NodeErf(d, hn::Mul(x, hn::Set(d, T(0.70710678118654752)))))), \
    -3, 3)
#endif

HWY_BEFORE_NAMESPACE();
namespace mytorch::simd::HWY_NAMESPACE {

#define MYTORCH_SIMD_LOOP(Name, expression, low, high)                         \
  template <typename T>                                                        \
  void Run##Name(const T* a, const T* b, T* to, size_t n) {                    \
    const hn::ScalableTag<T> d;                                                \
    for (size_t i = 0; i < n; i += hn::Lanes(d)) {                             \
      const auto x = hn::LoadU(d, a + i);                                      \
      const auto y = hn::LoadU(d, b + i);                                      \
      (void)y;                                                                 \
      hn::StoreU(expression, d, to + i);                                       \
    }                                                                          \
  }                                                                            \
  void F32Loop##Name(const float* a, const float* b, float* to, size_t n) {    \
    Run##Name(a, b, to, n);                                                    \
  }                                                                            \
  void F64Loop##Name(const double* a, const double* b, double* to, size_t n) { \
    Run##Name(a, b, to, n);                                                    \
  }
MYTORCH_SIMD_BENCH_LIST(MYTORCH_SIMD_LOOP)
#undef MYTORCH_SIMD_LOOP

}  // namespace mytorch::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mytorch::simd {
namespace {

template <typename T>
void measure(benchmark::State& state, void (*run)(const T*, const T*, T*, size_t), double low,
             double high) {
  constexpr size_t count = 4096;
  std::vector<T> x(count), y(count), out(count);
  for (size_t i = 0; i < count; ++i) {
    // Low-discrepancy points: like real data, any few neighbours cover the whole interval.
    const double u = static_cast<double>(i * 2654435761u % 4294967296u) / 4294967296.0;
    const double v = static_cast<double>(i * 2246822519u % 4294967296u) / 4294967296.0;
    x[i] = static_cast<T>(low + (high - low) * u);
    y[i] = static_cast<T>(0.1 + 2.9 * v);
  }
  for (auto _ : state) {
    run(x.data(), y.data(), out.data(), count);
    benchmark::DoNotOptimize(out.data());
    benchmark::ClobberMemory();
  }
  state.counters["time_per_element"] =
      benchmark::Counter(static_cast<double>(count) * static_cast<double>(state.iterations()),
                         benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}

#define MYTORCH_SIMD_BENCH(Name, expression, low, high)                     \
  HWY_EXPORT(F32Loop##Name);                                                \
  void float32_##Name(benchmark::State& state) {                            \
    measure<float>(state, HWY_DYNAMIC_DISPATCH(F32Loop##Name), low, high);  \
  }                                                                         \
  BENCHMARK(float32_##Name);                                                \
  HWY_EXPORT(F64Loop##Name);                                                \
  void float64_##Name(benchmark::State& state) {                            \
    measure<double>(state, HWY_DYNAMIC_DISPATCH(F64Loop##Name), low, high); \
  }                                                                         \
  BENCHMARK(float64_##Name);
MYTORCH_SIMD_BENCH_LIST(MYTORCH_SIMD_BENCH)

}  // namespace
}  // namespace mytorch::simd

BENCHMARK_MAIN();
#endif  // HWY_ONCE
