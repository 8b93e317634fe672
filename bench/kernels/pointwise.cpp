// Pointwise, reduce and copy kernels against the machine's own limit: the bandwidth of the best
// copy, measured before every benchmark in the same run. Calls go through the candidates' pointers,
// as the dispatcher's do; the small ones show what a kernel costs before its first element.
#include <benchmark/benchmark.h>
#include <omp.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string_view>
#include <vector>

#include "backends/cpu-openmp/copy/stream.h"
#include "mytorch/abi_ops.h"
#include "mytorch/backend/dtype.h"

extern "C" int mytorch_cpu_openmp_init(const mt_host*, mt_backend*);

namespace mytorch::bench {
namespace {

constexpr int64_t kLarge = int64_t{16} << 20;  // floats: 64 MiB an operand

// ---- a host

struct Context : mt_ctx {
  std::vector<std::unique_ptr<char[]>> blocks;
  char* arena = nullptr;

  Context() : mt_ctx{} {
    size = sizeof(mt_ctx);
    device = {MT_DEVICE_CPU, 0};
    num_threads = omp_get_max_threads();
    parallel_for = [](mt_ctx* ctx, int64_t begin, int64_t end, int64_t grain, mt_range_fn body,
                      void* user) {
      const int64_t pieces = std::clamp<int64_t>((end - begin) / grain, 1, ctx->num_threads);
#pragma omp parallel for schedule(static, 1) num_threads(static_cast <int>(pieces))
      for (int64_t i = 0; i < pieces; ++i) {
        body(user, begin + (end - begin) * i / pieces, begin + (end - begin) * (i + 1) / pieces);
      }
    };
    scratch = [](mt_ctx* ctx, size_t bytes) -> void* {
      Context& self = *static_cast<Context*>(ctx);
      if (self.arena == nullptr) {
        self.arena = static_cast<char*>(std::aligned_alloc(64, size_t{64} << 20));
      }
      return bytes <= size_t{64} << 20 ? self.arena : nullptr;
    };
    set_error = [](mt_ctx*, int, const char* message) { std::abort(); };
  }
};

Context& context() {
  static Context ctx;
  return ctx;
}

const mt_candidate& kernel(std::string_view op) {
  static const mt_backend backend = [] {
    static mt_host host{};
    host.size = sizeof(host);
    host.abi_major = MT_ABI_MAJOR;
    mt_backend filled{};
    filled.size = sizeof(filled);
    mytorch_cpu_openmp_init(&host, &filled);
    return filled;
  }();
  for (int64_t i = 0; i < backend.num_candidates; ++i) {
    if (backend.candidates[i].op == op) return backend.candidates[i];
  }
  std::abort();
}

// A float tensor of up to two dimensions, over memory of its own or another's.
struct Matrix {
  int64_t shape[2], strides[2];
  mt_tensor tensor{};
  std::shared_ptr<float> memory;

  Matrix(int ndim, int64_t rows, int64_t cols)
      : memory(static_cast<float*>(
                   std::aligned_alloc(64, static_cast<size_t>((rows * cols * 4 + 63) / 64 * 64))),
               std::free) {
    std::fill_n(memory.get(), rows * cols, 1.0f);
    set(ndim, rows, cols, cols, 1);
  }
  Matrix(const Matrix& of, int ndim, int64_t rows, int64_t cols, int64_t row_stride,
         int64_t col_stride)
      : memory(of.memory) {
    set(ndim, rows, cols, row_stride, col_stride);
  }
  void set(int ndim, int64_t rows, int64_t cols, int64_t row_stride, int64_t col_stride) {
    const bool dense = col_stride == 1 && (ndim < 2 || row_stride == cols);
    shape[0] = ndim == 2 ? rows : rows * cols;
    shape[1] = cols;
    strides[0] = ndim == 2 ? row_stride : col_stride;
    strides[1] = col_stride;
    tensor.dl = {memory.get(), {MT_DEVICE_CPU, 0}, ndim, {MT_FLOAT, 32, 1}, shape, strides, 0};
    tensor.flags = dense ? MT_TENSOR_DENSE : 0;
  }
};

// ---- the limit

double seconds(const std::chrono::steady_clock::time_point& since) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - since).count();
}

// Bytes read and written per second by the better of memcpy and streaming stores.
double copy_bandwidth() {
  static const Matrix from(1, 1, kLarge), to(1, 1, kLarge);
  double best = 0;
  for (int repeat = 0; repeat < 6; ++repeat) {
    const auto start = std::chrono::steady_clock::now();
#pragma omp parallel
    {
      const int64_t threads = omp_get_num_threads(), part = kLarge / threads;
      float* t = to.memory.get() + part * omp_get_thread_num();
      const float* f = from.memory.get() + part * omp_get_thread_num();
      if (repeat % 2 == 0) {
        std::memcpy(t, f, static_cast<size_t>(part) * 4);
      } else {
        cpu::stream_copy(t, f, part * 4);
        cpu::stream_fence();
      }
    }
    best = std::max(best, 2.0 * 4 * kLarge / seconds(start));
  }
  return best;
}

template <class Args>
void run(benchmark::State& state, const char* op, Args& args, double bytes) {
  args.header.size = sizeof(args);
  args.header.compute = {MT_FLOAT, 32, 1};
  const mt_candidate& candidate = kernel(op);
  const double copy = bytes > 1e6 ? copy_bandwidth() : 0;
  if (candidate.run(candidate.self, &context(), &args) != MT_OK) {
    state.SkipWithError("the kernel refused");
    return;
  }
  const auto start = std::chrono::steady_clock::now();
  for (auto _ : state) candidate.run(candidate.self, &context(), &args);
  if (bytes <= 1e6) return;
  const double rate = bytes * static_cast<double>(state.iterations()) / seconds(start);
  const double limit = std::max(copy, copy_bandwidth());
  state.counters["GB/s"] = rate / 1e9;
  state.counters["%copy"] = 100 * rate / limit;
}

void add(benchmark::State& state) {
  const int64_t n = state.range(0);
  const Matrix a(1, 1, n), b(1, 1, n), out(1, 1, n);
  mt_args_add_Tensor args{};
  args.self = &a.tensor;
  args.other = &b.tensor;
  args.out = &out.tensor;
  run(state, "add.Tensor", args, 12.0 * static_cast<double>(n));
}
BENCHMARK(add)->Arg(8)->Arg(1024)->Arg(kLarge)->UseRealTime();

void mul(benchmark::State& state) {
  const int64_t n = state.range(0);
  const Matrix a(1, 1, n), b(1, 1, n), out(1, 1, n);
  mt_args_mul_Tensor args{};
  args.self = &a.tensor;
  args.other = &b.tensor;
  args.out = &out.tensor;
  run(state, "mul.Tensor", args, 12.0 * static_cast<double>(n));
}
BENCHMARK(mul)->Arg(kLarge)->UseRealTime();

void add_number(benchmark::State& state) {
  const int64_t n = state.range(0);
  const Matrix a(1, 1, n), out(1, 1, n);
  Matrix number(1, 1, 1);
  number.tensor.dl.ndim = 0;
  number.tensor.flags |= MT_TENSOR_HOST;
  mt_args_add_Tensor args{};
  args.self = &a.tensor;
  args.other = &number.tensor;
  args.out = &out.tensor;
  run(state, "add.Tensor", args, 8.0 * static_cast<double>(n));
}
BENCHMARK(add_number)->Arg(8)->Arg(kLarge)->UseRealTime();

void add_in_place(benchmark::State& state) {
  const int64_t n = state.range(0);
  const Matrix a(1, 1, n), b(1, 1, n);
  mt_args_add_Tensor args{};
  args.self = &a.tensor;
  args.other = &b.tensor;
  args.out = &a.tensor;
  run(state, "add.Tensor", args, 12.0 * static_cast<double>(n));
}
BENCHMARK(add_in_place)->Arg(kLarge)->UseRealTime();

template <class Args>
void unary(benchmark::State& state, const char* op) {
  const int64_t n = state.range(0);
  const Matrix a(1, 1, n), out(1, 1, n);
  Args args{};
  args.self = &a.tensor;
  args.out = &out.tensor;
  run(state, op, args, 8.0 * static_cast<double>(n));
}
void relu(benchmark::State& state) { unary<mt_args_relu>(state, "relu"); }
void exp(benchmark::State& state) { unary<mt_args_exp>(state, "exp"); }
BENCHMARK(relu)->Arg(kLarge)->UseRealTime();
BENCHMARK(exp)->Arg(1024)->Arg(kLarge)->UseRealTime();

void add_transposed(benchmark::State& state) {
  const int64_t side = state.range(0);
  const Matrix a(2, side, side), out(2, side, side);
  const Matrix turned(a, 2, side, side, 1, side);
  mt_args_add_Tensor args{};
  args.self = &a.tensor;
  args.other = &turned.tensor;
  args.out = &out.tensor;
  run(state, "add.Tensor", args, 12.0 * static_cast<double>(side * side));
}
BENCHMARK(add_transposed)->Arg(4096)->UseRealTime();

void add_row(benchmark::State& state) {
  const int64_t cols = state.range(0), rows = kLarge / cols;
  const Matrix a(2, rows, cols), out(2, rows, cols), row(1, 1, cols);
  mt_args_add_Tensor args{};
  args.self = &a.tensor;
  args.other = &row.tensor;
  args.out = &out.tensor;
  run(state, "add.Tensor", args, 8.0 * static_cast<double>(kLarge));
}
BENCHMARK(add_row)->Arg(64)->Arg(4096)->UseRealTime();

void sum(benchmark::State& state, int64_t dim) {
  const int64_t n = state.range(0), cols = state.range(1);
  const Matrix a(dim < 0 && cols == n ? 1 : 2, n / cols, cols);
  Matrix out(1, 1, dim < 0 ? 1 : dim == 0 ? cols : n / cols);
  if (dim < 0) out.tensor.dl.ndim = 0;
  mt_args_sum_dim_IntList args{};
  args.self = &a.tensor;
  args.dim = {dim < 0 ? nullptr : &dim, dim < 0 ? 0 : 1};
  args.out = &out.tensor;
  run(state, "sum.dim_IntList", args, 4.0 * static_cast<double>(n));
}
BENCHMARK_CAPTURE(sum, all, -1)->Args({8, 8})->Args({kLarge, kLarge})->UseRealTime();
BENCHMARK_CAPTURE(sum, rows, 1)
    ->Args({kLarge, 4096})
    ->Args({kLarge, 64})
    ->Args({kLarge, 8})
    ->UseRealTime();
BENCHMARK_CAPTURE(sum, columns, 0)->Args({kLarge, 4096})->Args({kLarge, 64})->UseRealTime();

void argmax(benchmark::State& state) {
  const Matrix a(1, 1, kLarge);
  Matrix out(1, 1, 2);
  out.tensor.dl = {out.memory.get(), {MT_DEVICE_CPU, 0}, 0, {MT_INT, 64, 1},
                   out.shape,        out.strides,        0};
  mt_args_argmax args{};
  args.self = &a.tensor;
  args.out = &out.tensor;
  run(state, "argmax", args, 4.0 * kLarge);
}
BENCHMARK(argmax)->UseRealTime();

void var(benchmark::State& state) {
  const Matrix a(2, 4096, kLarge / 4096), out(1, 1, 4096);
  const int64_t dim = 1;
  mt_args_var_correction args{};
  args.self = &a.tensor;
  args.dim = {&dim, 1};
  args.correction.kind = MT_SCALAR_INT;
  args.correction.v.i = 1;
  args.out = &out.tensor;
  run(state, "var.correction", args, 4.0 * kLarge);
}
BENCHMARK(var)->UseRealTime();

void copy(benchmark::State& state) {
  const Matrix a(2, 4096, 4096), out(2, 4096, 4096);
  const Matrix turned(a, 2, 4096, 4096, 1, 4096);
  mt_args_copy_ args{};
  args.self = &out.tensor;
  args.src = state.range(0) != 0 ? &turned.tensor : &a.tensor;
  run(state, "copy_", args, 8.0 * kLarge);
}
BENCHMARK(copy)->ArgName("transposed")->Arg(0)->Arg(1)->UseRealTime();

void fill(benchmark::State& state) {
  const Matrix out(1, 1, kLarge);
  Matrix number(1, 1, 1);
  number.tensor.dl.ndim = 0;
  mt_args_fill_ args{};
  args.self = &out.tensor;
  args.value = &number.tensor;
  run(state, "fill_", args, 4.0 * kLarge);
}
BENCHMARK(fill)->UseRealTime();

}  // namespace
}  // namespace mytorch::bench

BENCHMARK_MAIN();
