// The overhead of a call: operators on 8 floats, or 64 in sequences, one thread. bench/peers has
// the same cases for libtorch; scripts/bench-overhead prints both side by side.
#include <benchmark/benchmark.h>

#include "mytorch/backends.h"
#include "mytorch/mytorch.h"

namespace {

using mytorch::Tensor;

Tensor random8(bool requires_grad = false) {
  Tensor x = mytorch::rand({8});
  if (requires_grad) x.requires_grad_();
  return x;
}

void empty(benchmark::State& state) {
  for (auto _ : state) benchmark::DoNotOptimize(mytorch::empty({8}));
}

void view(benchmark::State& state) {
  const mytorch::NoGradGuard no_grad;
  const Tensor x = random8();
  for (auto _ : state) benchmark::DoNotOptimize(x.view({2, 4}));
}

void transpose(benchmark::State& state) {
  const mytorch::NoGradGuard no_grad;
  const Tensor x = random8().view({2, 4});
  for (auto _ : state) benchmark::DoNotOptimize(x.transpose(0, 1));
}

void add_out(benchmark::State& state) {
  const mytorch::NoGradGuard no_grad;
  const Tensor a = random8(), b = random8(), out = random8();
  for (auto _ : state) {
    mytorch::add_out(out, a, b);
    benchmark::ClobberMemory();
  }
}

void add(benchmark::State& state) {
  const mytorch::NoGradGuard no_grad;
  const Tensor a = random8(), b = random8();
  for (auto _ : state) benchmark::DoNotOptimize(mytorch::add(a, b));
}

void add_inplace(benchmark::State& state) {
  const mytorch::NoGradGuard no_grad;
  const Tensor a = random8(), b = mytorch::zeros({8});
  for (auto _ : state) {
    a.add_(b);
    benchmark::ClobberMemory();
  }
}

void relu(benchmark::State& state) {
  const mytorch::NoGradGuard no_grad;
  const Tensor a = random8();
  for (auto _ : state) benchmark::DoNotOptimize(mytorch::relu(a));
}

void sum(benchmark::State& state) {
  const mytorch::NoGradGuard no_grad;
  const Tensor a = random8();
  for (auto _ : state) benchmark::DoNotOptimize(mytorch::sum(a));
}

void mm(benchmark::State& state, int64_t n) {
  const mytorch::NoGradGuard no_grad;
  const Tensor a = mytorch::rand({n, n}), b = mytorch::rand({n, n});
  for (auto _ : state) benchmark::DoNotOptimize(mytorch::mm(a, b));
}

void add_grad(benchmark::State& state) {
  const Tensor a = random8(true), b = random8();
  for (auto _ : state) benchmark::DoNotOptimize(mytorch::add(a, b));
}

void mul_grad(benchmark::State& state) {
  const Tensor a = random8(true), b = random8();
  for (auto _ : state) benchmark::DoNotOptimize(mytorch::mul(a, b));
}

// Forward and backward of 100 multiplications; the time is per multiplication.
void chain100(benchmark::State& state) {
  const Tensor x = random8(true), y = mytorch::ones({8});
  while (state.KeepRunningBatch(100)) {
    Tensor z = x;
    for (int i = 0; i < 100; ++i) z = z * y;
    mytorch::sum(z).backward();
    x.set_grad({});
  }
}

// Forward and backward of a sequence that is read, or written and read, step by step; the time is
// per step of 64 floats.
void steps(benchmark::State& state, bool written) {
  constexpr int64_t kSteps = 1024;
  const Tensor x = mytorch::rand({kSteps, 64}).requires_grad_();
  while (state.KeepRunningBatch(kSteps)) {
    const Tensor out = mytorch::zeros({kSteps, 64});
    Tensor h = mytorch::zeros({64});
    for (int64_t t = 0; t < kSteps; ++t) {
      h = h * 0.5 + x.select(0, t);
      if (written) out.select(0, t).copy_(h);
    }
    mytorch::sum(written ? out : h).backward();
    x.set_grad({});
  }
}

BENCHMARK(empty);
BENCHMARK(view);
BENCHMARK(transpose);
BENCHMARK(add_out);
BENCHMARK(add);
BENCHMARK(add_inplace);
BENCHMARK(relu);
BENCHMARK(sum);
BENCHMARK_CAPTURE(mm, 2, 2)->Name("mm_2x2");
BENCHMARK_CAPTURE(mm, 64, 64)->Name("mm_64x64");
BENCHMARK(add_grad);
BENCHMARK(mul_grad);
BENCHMARK(chain100);
BENCHMARK_CAPTURE(steps, read, false)->Name("steps_read");
BENCHMARK_CAPTURE(steps, written, true)->Name("steps_written");

}  // namespace

int main(int argc, char** argv) {
  mytorch::set_num_threads(1);
  mytorch::load_default_backends();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
