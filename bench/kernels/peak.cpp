#include "bench/kernels/peak.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "bench/kernels/peak.cpp"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace mytorch::bench {
namespace HWY_NAMESPACE {

// Runs 12 independent sums, enough for any latency up to 6 cycles on two pipes and few enough to
// stay in 16 registers. Returns the floating-point operations done, and a value that depends on
// them all.
double multiply_adds(long steps, float* result) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::ScalableTag<float> d;
  constexpr int kSums = 12;
  using V = hn::VFromD<decltype(d)>;
  const V factor = hn::Set(d, 0.5f + result[0]);
  const V term = hn::Set(d, 1.0f + result[0]);
  // Equal sums would be the same sum to a compiler, and the peak would come out several times too
  // high.
  const auto start = [&](int i) HWY_ATTR { return hn::Set(d, static_cast<float>(i) + result[0]); };
  V s0 = start(0), s1 = start(1), s2 = start(2), s3 = start(3), s4 = start(4), s5 = start(5);
  V s6 = start(6), s7 = start(7), s8 = start(8), s9 = start(9), s10 = start(10), s11 = start(11);
  for (long i = 0; i < steps; ++i) {
    s0 = hn::MulAdd(s0, factor, term);
    s1 = hn::MulAdd(s1, factor, term);
    s2 = hn::MulAdd(s2, factor, term);
    s3 = hn::MulAdd(s3, factor, term);
    s4 = hn::MulAdd(s4, factor, term);
    s5 = hn::MulAdd(s5, factor, term);
    s6 = hn::MulAdd(s6, factor, term);
    s7 = hn::MulAdd(s7, factor, term);
    s8 = hn::MulAdd(s8, factor, term);
    s9 = hn::MulAdd(s9, factor, term);
    s10 = hn::MulAdd(s10, factor, term);
    s11 = hn::MulAdd(s11, factor, term);
  }
  const V low = hn::Add(hn::Add(hn::Add(s0, s1), hn::Add(s2, s3)), hn::Add(s4, s5));
  const V high = hn::Add(hn::Add(hn::Add(s6, s7), hn::Add(s8, s9)), hn::Add(s10, s11));
  result[0] = hn::GetLane(hn::SumOfLanes(d, hn::Add(low, high)));
  return 2.0 * kSums * static_cast<double>(steps) * static_cast<double>(hn::Lanes(d));
}

}  // namespace HWY_NAMESPACE
}  // namespace mytorch::bench
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

#include <benchmark/benchmark.h>
#include <time.h>

#include <algorithm>

namespace mytorch::bench {
namespace {

HWY_EXPORT(multiply_adds);

// One thread is timed by its processor time, which other programs cannot stretch; several by the
// clock on the wall, since they wait for each other.
double seconds(int threads) {
  timespec now;
  clock_gettime(threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

}  // namespace

double measure_peak(int threads) {
  constexpr long kSteps = 200'000;
  double best = 0;
  for (int round = 0; round < 10; ++round) {
    double flops = 0;
    const double start = seconds(threads);
#pragma omp parallel num_threads(threads) reduction(+ : flops)
    {
      float value = 0;
      flops += HWY_DYNAMIC_DISPATCH(multiply_adds)(kSteps, &value);
      benchmark::DoNotOptimize(value);
    }
    best = std::max(best, flops / (seconds(threads) - start) * 1e-9);
  }
  return best;
}

}  // namespace mytorch::bench
#endif  // HWY_ONCE
