// The overhead of a libtorch call. `bench/overhead` has the same cases, by the same names, for
// mytorch; `scripts/bench-overhead` runs the two alternately and compares them.
//
// With eight floats the arithmetic is negligible, so the time is that of the framework. Each case
// is written in the cheapest way that libtorch's public C++ API offers: options are built once, and
// gradients are off unless the case needs them.

#include <benchmark/benchmark.h>
#include <torch/torch.h>

#include "blas_library.h"

namespace {

constexpr int64_t kSize = 8;
constexpr int64_t kChain = 100;

void empty(benchmark::State& state) {
  at::NoGradGuard no_grad;
  const at::TensorOptions options = at::TensorOptions().dtype(at::kFloat);
  for (auto _ : state) benchmark::DoNotOptimize(at::empty({kSize}, options));
}
BENCHMARK(empty);

void view(benchmark::State& state) {
  at::NoGradGuard no_grad;
  const at::Tensor a = at::ones({kSize});
  for (auto _ : state) benchmark::DoNotOptimize(a.view({2, 4}));
}
BENCHMARK(view);

void transpose(benchmark::State& state) {
  at::NoGradGuard no_grad;
  const at::Tensor a = at::ones({2, 4});
  for (auto _ : state) benchmark::DoNotOptimize(at::transpose(a, 0, 1));
}
BENCHMARK(transpose);

void add_out(benchmark::State& state) {
  at::NoGradGuard no_grad;
  const at::Tensor a = at::ones({kSize});
  const at::Tensor b = at::ones({kSize});
  at::Tensor out = at::empty({kSize});
  for (auto _ : state) benchmark::DoNotOptimize(at::add_out(out, a, b));
}
BENCHMARK(add_out);

void add(benchmark::State& state) {
  at::NoGradGuard no_grad;
  const at::Tensor a = at::ones({kSize});
  const at::Tensor b = at::ones({kSize});
  for (auto _ : state) benchmark::DoNotOptimize(at::add(a, b));
}
BENCHMARK(add);

void add_inplace(benchmark::State& state) {
  at::NoGradGuard no_grad;
  at::Tensor a = at::ones({kSize});
  const at::Tensor b = at::ones({kSize});  // the sum saturates at 2^24: never inf, never denormal
  for (auto _ : state) benchmark::DoNotOptimize(a.add_(b));
}
BENCHMARK(add_inplace);

void relu(benchmark::State& state) {
  at::NoGradGuard no_grad;
  const at::Tensor a = at::ones({kSize});
  for (auto _ : state) benchmark::DoNotOptimize(at::relu(a));
}
BENCHMARK(relu);

void sum(benchmark::State& state) {
  at::NoGradGuard no_grad;
  const at::Tensor a = at::ones({kSize});
  for (auto _ : state) benchmark::DoNotOptimize(at::sum(a));
}
BENCHMARK(sum);

void square_mm(benchmark::State& state, int64_t n) {
  at::NoGradGuard no_grad;
  const at::Tensor a = at::ones({n, n});
  const at::Tensor b = at::ones({n, n});
  for (auto _ : state) benchmark::DoNotOptimize(at::mm(a, b));
}

void mm_2x2(benchmark::State& state) { square_mm(state, 2); }
BENCHMARK(mm_2x2);

void mm_64x64(benchmark::State& state) { square_mm(state, 64); }
BENCHMARK(mm_64x64);

// Records the graph and drops it without a backward pass.
void add_grad(benchmark::State& state) {
  const at::Tensor a = torch::ones({kSize}, torch::requires_grad());
  const at::Tensor b = torch::ones({kSize});
  for (auto _ : state) benchmark::DoNotOptimize(a + b);
}
BENCHMARK(add_grad);

void mul_grad(benchmark::State& state) {
  const at::Tensor a = torch::ones({kSize}, torch::requires_grad());
  const at::Tensor b = torch::ones({kSize});
  for (auto _ : state) benchmark::DoNotOptimize(a * b);
}
BENCHMARK(mul_grad);

// Forward and backward of a chain; the time is per operator.
void chain100(benchmark::State& state) {
  at::Tensor x = torch::ones({kSize}, torch::requires_grad());
  const at::Tensor y = torch::ones({kSize});
  while (state.KeepRunningBatch(kChain)) {
    at::Tensor h = x;
    for (int64_t i = 0; i < kChain; ++i) h = h * y;
    h.sum().backward();
    x.mutable_grad().reset();
  }
}
BENCHMARK(chain100);

// Forward and backward of a sequence that is read, or written and read, step by step; the time is
// per step of 64 floats.
void steps(benchmark::State& state, bool written) {
  constexpr int64_t kSteps = 1024;
  at::Tensor x = torch::rand({kSteps, 64}, torch::requires_grad());
  while (state.KeepRunningBatch(kSteps)) {
    const at::Tensor out = torch::zeros({kSteps, 64});
    at::Tensor h = torch::zeros({64});
    for (int64_t t = 0; t < kSteps; ++t) {
      h = h * 0.5 + x.select(0, t);
      if (written) out.select(0, t).copy_(h);
    }
    (written ? out : h).sum().backward();
    x.mutable_grad().reset();
  }
}
BENCHMARK_CAPTURE(steps, read, false)->Name("steps_read");
BENCHMARK_CAPTURE(steps, written, true)->Name("steps_written");

}  // namespace

int main(int argc, char** argv) {
  at::set_num_threads(1);
  at::set_num_interop_threads(1);
  benchmark::AddCustomContext("framework", "libtorch " TORCH_VERSION);
  benchmark::AddCustomContext("blas", blas_library());
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
