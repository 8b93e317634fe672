// Matrix products compared with the machine's peak.
//
// The peak is measured before and after every benchmark: independent multiply-adds in registers, on
// the same number of threads. A benchmark reports GFLOP/s, the percentage of the peak and, for
// products bound by memory, GB/s of operands. With a CBLAS (MYTORCH_BENCH_CBLAS), the same products
// run through it as `blas/...`, right after ours.
#include "backends/cpu-openmp/gemm/gemm.h"

#include <benchmark/benchmark.h>
#include <omp.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "bench/harness/limits.h"

#ifdef MYTORCH_BENCH_CBLAS
#include <cblas.h>
extern "C" void openblas_set_num_threads(int) __attribute__((weak));
#endif

namespace mytorch::bench {
namespace {

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
  // A 784-32-10 perceptron at batch 64: forward, weight gradients, gradient of the hidden layer.
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
