// How near the matrix product comes to the machine's own limit.
//
// The limit is measured in the same run, before and after every benchmark: multiply-adds on
// independent sums in registers, on as many threads. A benchmark reports GFLOP/s, their percentage
// of that peak and, for products bound by memory, GB/s of operands. Built with a CBLAS
// (MYTORCH_BENCH_CBLAS), the same products go through it as `blas/...`, right after ours, so that
// both see the same machine.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "bench/kernels/gemm.cpp"
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
#include <omp.h>
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "backends/cpu-openmp/gemm/gemm.h"

#ifdef MYTORCH_BENCH_CBLAS
#include <cblas.h>
extern "C" void openblas_set_num_threads(int) __attribute__((weak));
#endif

namespace mytorch::bench {
namespace {

HWY_EXPORT(multiply_adds);

using cpu::GemmProblem;

// ---- a context --------------------------------------------------------------------------------

void openmp_for(mt_ctx* ctx, int64_t begin, int64_t end, int64_t grain, mt_range_fn body,
                void* user) {
  const int64_t most = std::max<int64_t>(1, (end - begin) / std::max<int64_t>(1, grain));
  const int pieces = static_cast<int>(std::min<int64_t>(ctx->num_threads, most));
#pragma omp parallel for num_threads(pieces) schedule(static, 1)
  for (int piece = 0; piece < pieces; ++piece) {
    const int64_t b = begin + (end - begin) * piece / pieces;
    const int64_t e = begin + (end - begin) * (piece + 1) / pieces;
    if (b < e) body(user, b, e);
  }
}

void* pooled_scratch(mt_ctx*, size_t bytes) {
  static void* memory = nullptr;
  static size_t size = 0;
  if (bytes > size) {
    std::free(memory);
    size = (bytes + 4095) / 4096 * 4096;
    memory = std::aligned_alloc(4096, size);
    std::memset(memory, 0, size);
  }
  return memory;
}

mt_ctx make_context(int threads) {
  mt_ctx ctx{};
  ctx.size = sizeof(ctx);
  ctx.device = {MT_DEVICE_CPU, 0};
  ctx.num_threads = threads;
  ctx.parallel_for = openmp_for;
  ctx.scratch = pooled_scratch;
  return ctx;
}

// ---- the peak ---------------------------------------------------------------------------------

// One thread is timed by its processor time, which other programs cannot stretch; several by the
// clock on the wall, since they wait for each other.
double seconds(int threads) {
  timespec now;
  clock_gettime(threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// GFLOP/s of `threads` threads that only multiply and add: the best of a few milliseconds. Clocks
// move from minute to minute, so it is measured anew beside every benchmark.
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

// ---- products ---------------------------------------------------------------------------------

struct Shape {
  int64_t m, n, k;
  bool transpose_a, transpose_b;
  int64_t batch = 1;
};

struct Operands {
  std::vector<float> a, b, c;
};

Operands make_operands(const Shape& shape) {
  Operands x;
  x.a.resize(static_cast<size_t>(shape.batch * shape.m * shape.k));
  x.b.resize(static_cast<size_t>(shape.batch * shape.k * shape.n));
  x.c.resize(static_cast<size_t>(shape.batch * shape.m * shape.n));
  uint32_t state = 1;
  const auto fill = [&](std::vector<float>& to) {
    for (float& value : to) {
      state = state * 1664525u + 1013904223u;
      value = static_cast<float>(state >> 8) * 0x1p-23f - 1.0f;
    }
  };
  fill(x.a);
  fill(x.b);
  return x;
}

GemmProblem make_problem(const Shape& s, Operands& x) {
  GemmProblem p{};
  p.dtype = {MT_FLOAT, 32, 1};
  p.m = s.m;
  p.n = s.n;
  p.k = s.k;
  p.a = s.transpose_a ? cpu::ConstMatrix{x.a.data(), 1, s.m} : cpu::ConstMatrix{x.a.data(), s.k, 1};
  p.b = s.transpose_b ? cpu::ConstMatrix{x.b.data(), 1, s.k} : cpu::ConstMatrix{x.b.data(), s.n, 1};
  p.c = {x.c.data(), s.n, 1};
  p.batch = s.batch;
  p.a_batch_stride = s.m * s.k;
  p.b_batch_stride = s.k * s.n;
  p.c_batch_stride = s.m * s.n;
  return p;
}

void report(benchmark::State& state, const Shape& s, int threads, double peak_before) {
  const double peak = std::max(peak_before, measure_peak(threads));
  const double products = static_cast<double>(s.batch) * s.m * s.n * s.k;
  const double elements = static_cast<double>(s.batch) * (s.m * s.k + s.k * s.n + s.m * s.n);
  const double done = static_cast<double>(state.iterations());
  using benchmark::Counter;
  state.counters["GFLOP/s"] = Counter(2e-9 * products * done, Counter::kIsRate);
  state.counters["peak%"] = Counter(2e-7 * products * done / peak, Counter::kIsRate);
  state.counters["GB/s"] = Counter(4e-9 * elements * done, Counter::kIsRate);
}

void ours(benchmark::State& state, Shape shape, int threads) {
  Operands x = make_operands(shape);
  const GemmProblem problem = make_problem(shape, x);
  mt_ctx ctx = make_context(threads);
  const double peak = measure_peak(threads);
  for (auto _ : state) {
    if (cpu::gemm(&ctx, problem) != MT_OK) state.SkipWithError("gemm failed");
    benchmark::ClobberMemory();
  }
  report(state, shape, threads, peak);
}

#ifdef MYTORCH_BENCH_CBLAS
void blas(benchmark::State& state, Shape s, int threads) {
  Operands x = make_operands(s);
  if (openblas_set_num_threads != nullptr) openblas_set_num_threads(threads);
  const int m = static_cast<int>(s.m), n = static_cast<int>(s.n), k = static_cast<int>(s.k);
  const double peak = measure_peak(threads);
  for (auto _ : state) {
    for (int64_t g = 0; g < s.batch; ++g) {
      cblas_sgemm(CblasRowMajor, s.transpose_a ? CblasTrans : CblasNoTrans,
                  s.transpose_b ? CblasTrans : CblasNoTrans, m, n, k, 1.0f,
                  x.a.data() + g * s.m * s.k, s.transpose_a ? m : k, x.b.data() + g * s.k * s.n,
                  s.transpose_b ? k : n, 0.0f, x.c.data() + g * s.m * s.n, n);
    }
    benchmark::ClobberMemory();
  }
  report(state, s, threads, peak);
}
#endif

void add(const std::string& name, Shape shape, int threads) {
  const std::string size =
      std::to_string(shape.m) + "x" + std::to_string(shape.n) + "x" + std::to_string(shape.k);
  const std::string tail = name + "/" + size + "/threads:" + std::to_string(threads);
  const auto configure = [threads](benchmark::internal::Benchmark* benchmark) {
    if (threads > 1) benchmark->UseRealTime();
  };
  configure(benchmark::RegisterBenchmark(("gemm/" + tail).c_str(), ours, shape, threads));
#ifdef MYTORCH_BENCH_CBLAS
  configure(benchmark::RegisterBenchmark(("blas/" + tail).c_str(), blas, shape, threads));
#endif
}

void add_all(int threads) {
  for (const int64_t size : {2, 4, 8, 16, 32, 64, 128, 256, 512, 1024}) {
    add("square", {size, size, size, false, false}, threads);
  }
  for (const int64_t size : {64, 1024}) {
    add("transposed_a", {size, size, size, true, false}, threads);
    add("transposed_b", {size, size, size, false, true}, threads);
  }
  // A 784-32-10 perceptron at batch 64: forward, the gradients of weights, that of the hidden
  // layer.
  add("mlp_forward1", {64, 32, 784, false, true}, threads);
  add("mlp_weight1", {32, 784, 64, true, false}, threads);
  add("mlp_input1", {64, 784, 32, false, false}, threads);
  add("mlp_forward2", {64, 10, 32, false, true}, threads);
  add("mlp_weight2", {10, 32, 64, true, false}, threads);
  add("mlp_input2", {64, 32, 10, false, false}, threads);
  // A row or column times a matrix, bound by memory.
  add("row", {1, 4096, 4096, false, false}, threads);
  add("row_transposed", {1, 4096, 4096, false, true}, threads);
  add("column", {4096, 1, 4096, false, false}, threads);
  // Few rows; attention; an odd shape; a long sum.
  add("rows4_transposed", {4, 1024, 1024, false, true}, threads);
  add("rows8", {8, 1024, 1024, false, false}, threads);
  add("attention", {128, 128, 64, false, true, 32}, threads);
  add("odd", {509, 511, 513, false, false}, threads);
  add("deep", {64, 64, 16384, false, true}, threads);
}

}  // namespace
}  // namespace mytorch::bench

int main(int argc, char** argv) {
  const int threads = omp_get_max_threads();
  std::printf("multiply-add peak: %.1f GFLOP/s on 1 thread, %.1f on %d\n",
              mytorch::bench::measure_peak(1), mytorch::bench::measure_peak(threads), threads);
  std::fflush(stdout);
  mytorch::bench::add_all(1);
  if (threads > 1) mytorch::bench::add_all(threads);
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
#endif  // HWY_ONCE
