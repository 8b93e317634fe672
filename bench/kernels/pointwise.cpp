// Pointwise, reduce and copy kernels compared with the machine's bandwidth, with one and with two
// threads. Kernel and limit alternate on the same memory. A line has
//   GB/s                   the bytes of the operands, each counted once, over the kernel's time
//   copy, read, write      the bandwidth of the best of three copies (vectors, non-temporal stores,
//                          memcpy), and of the best loops that only read or only write
//   %copy, %read, %write   the kernel's fraction of the bandwidth; %read and %write are for kernels
//                          that mostly read or write
// All numbers are medians over the rounds. `threads` is the last argument; the others are sizes.
#include <benchmark/benchmark.h>

#include <chrono>
#include <functional>

#include "bench/harness/limits.h"
#include "bench/harness/statistics.h"
#include "bench/kernels/host.h"
#include "mytorch/abi_ops/add.h"
#include "mytorch/abi_ops/amax.h"
#include "mytorch/abi_ops/argmax.h"
#include "mytorch/abi_ops/copy_.h"
#include "mytorch/abi_ops/exp.h"
#include "mytorch/abi_ops/fill_.h"
#include "mytorch/abi_ops/gt.h"
#include "mytorch/abi_ops/mul.h"
#include "mytorch/abi_ops/relu.h"
#include "mytorch/abi_ops/relu_grad.h"
#include "mytorch/abi_ops/sum.h"
#include "mytorch/abi_ops/var.h"

namespace mytorch::bench {
namespace {

constexpr mt_dtype kF32 = sdk::dtype_of<float>;
constexpr int64_t kCached = 1 << 14;    // floats: 64 KiB an operand, in the L2 cache
constexpr int64_t kMedium = 1 << 18;    // 1 MiB, in the L3 cache
constexpr int64_t kLarge = 1 << 24;     // 64 MiB, in memory
constexpr double kRoundSeconds = 1e-3;  // of each contender, before the next one's turn
constexpr double kSeconds = 0.4;        // of all rounds
constexpr int kMinRounds = 9, kMaxRounds = 101;

// ---- the limits

// A function under measurement: its repetitions per round, and the seconds of each round.
class Contender {
 public:
  Contender(std::function<void()> run, double bytes) : run_(std::move(run)), bytes_(bytes) {
    run_();
    const double once = seconds_of(run_);
    repeats_ = std::clamp<int>(static_cast<int>(kRoundSeconds / once), 1, 10000);
  }
  void round() {
    const double seconds = seconds_of([&] {
                             for (int i = 0; i < repeats_; ++i) run_();
                           }) /
                           repeats_;
    seconds_.push_back(seconds);
  }
  double seconds() const { return median(seconds_); }
  double rate() const { return bytes_ / seconds() / 1e9; }

 private:
  std::function<void()> run_;
  double bytes_;
  int repeats_ = 1;
  std::vector<double> seconds_;
};

std::vector<Contender> contenders(const Loops& loops, double bytes) {
  std::vector<Contender> all;
  for (const auto& loop : loops) all.emplace_back(loop, bytes);
  return all;
}
std::vector<Contender> copies(const float* from, float* to, int64_t n) {
  return contenders(copy_loops(from, to, n, context().num_threads), 8.0 * static_cast<double>(n));
}
std::vector<Contender> reads(const float* from, int64_t n) {
  return contenders(read_loops(from, n, context().num_threads), 4.0 * static_cast<double>(n));
}
std::vector<Contender> writes(float* to, int64_t n) {
  return contenders(write_loops(to, n, context().num_threads), 4.0 * static_cast<double>(n));
}

// ---- a kernel

// Measures the kernel alternately with the limits that fit `inputs` and `out`.
template <class Args>
void measure(benchmark::State& state, const char* op, Args& args,
             std::initializer_list<const Tensor*> inputs, const Tensor& out,
             mt_dtype compute = kF32) {
  args.header.size = sizeof(args);
  args.header.compute = compute;
  const mt_kernel_entry& kernel = bench::kernel(op);
  if (kernel.run(kernel.self, &context(), &args) != MT_OK) {
    state.SkipWithError("the kernel refused");
    return;
  }
  double read = 0;
  const Tensor* large = *inputs.begin();
  for (const Tensor* input : inputs) {
    read += static_cast<double>(input->bytes());
    if (input->bytes() > large->bytes() || large->data() == out.data()) large = input;
  }
  const auto written = static_cast<double>(out.bytes());
  Contender ours([&] { kernel.run(kernel.self, &context(), &args); }, read + written);

  auto* from = reinterpret_cast<float*>(large->data());
  auto* to = reinterpret_cast<float*>(out.data());
  const int64_t n = large->bytes() / 4, m = out.bytes() / 4;
  std::vector<Contender> copy = 8 * m < n   ? copies(from, from + n / 2, n / 2)
                                : 8 * n < m ? copies(to, to + m / 2, m / 2)
                                            : copies(from, to, std::min(n, m));
  const char* other_name = 8 * m < n ? "read" : "write";
  std::vector<Contender> other;
  if (8 * m < n) other = reads(from, n);
  if (8 * n < m) other = writes(to, m);
  const auto start = std::chrono::steady_clock::now();
  for (int rounds = 0; rounds < kMaxRounds; ++rounds) {
    const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - start;
    if (rounds >= kMinRounds && spent.count() > kSeconds) break;
    ours.round();
    for (Contender& c : copy) c.round();
    for (Contender& c : other) c.round();
  }
  for (auto _ : state) state.SetIterationTime(ours.seconds());
  const auto best = [](const std::vector<Contender>& all) {
    double rate = 0;
    for (const Contender& c : all) rate = std::max(rate, c.rate());
    return rate;
  };
  state.counters["GB/s"] = ours.rate();
  state.counters["copy"] = best(copy);
  state.counters["%copy"] = 100 * ours.rate() / best(copy);
  if (other.empty()) return;
  state.counters[other_name] = best(other);
  state.counters[std::string("%") + other_name] = 100 * ours.rate() / best(other);
}

using Shape = std::vector<int64_t>;

template <class Args>
void unary(benchmark::State& state, const char* op, const Tensor& a, const Tensor& out) {
  Args args{};
  args.self = a.get();
  args.out = out.get();
  measure(state, op, args, {&a}, out);
}
template <class Args>
void binary(benchmark::State& state, const char* op, const Tensor& a, const Tensor& b,
            const Tensor& out, mt_dtype compute = kF32) {
  Args args{};
  args.self = a.get();
  args.other = b.get();
  args.out = out.get();
  measure(state, op, args, {&a, &b}, out, compute);
}
void add_to(benchmark::State& state, const Tensor& a, const Tensor& b, const Tensor& out,
            mt_dtype compute = kF32) {
  binary<mt_args_add_Tensor>(state, "add.Tensor", a, b, out, compute);
}

// ---- contiguous operands of one type

void add(benchmark::State& state) {
  const Shape shape{state.range(0)};
  const Tensor a(kF32, shape), b(kF32, shape), out(kF32, shape);
  add_to(state, a, b, out);
}
void mul(benchmark::State& state) {
  const Shape shape{state.range(0)};
  const Tensor a(kF32, shape), b(kF32, shape), out(kF32, shape);
  binary<mt_args_mul_Tensor>(state, "mul.Tensor", a, b, out);
}
void relu(benchmark::State& state) {
  const Shape shape{state.range(0)};
  const Tensor a(kF32, shape), out(kF32, shape);
  unary<mt_args_relu>(state, "relu", a, out);
}
void relu_grad(benchmark::State& state) {
  const Shape shape{state.range(0)};
  const Tensor grad(kF32, shape), result(kF32, shape), out(kF32, shape);
  mt_args_relu_grad args{};
  args.grad = grad.get();
  args.result = result.get();
  args.out = out.get();
  measure(state, "relu_grad", args, {&grad, &result}, out);
}
void add_in_place(benchmark::State& state) {
  const Shape shape{state.range(0)};
  const Tensor a(kF32, shape), b(kF32, shape);
  add_to(state, a, b, a);
}
void add_number(benchmark::State& state) {
  const Shape shape{state.range(0)};
  const Tensor a(kF32, shape), number(kF32, {}), out(kF32, shape);
  add_to(state, a, number, out);
}
void greater(benchmark::State& state) {
  const Shape shape{state.range(0)};
  const Tensor a(kF32, shape), b(kF32, shape), out(sdk::dtype_of<bool>, shape);
  binary<mt_args_gt_Tensor>(state, "gt.Tensor", a, b, out);
}
void add_double(benchmark::State& state) {
  const Shape shape{state.range(0)};
  const mt_dtype f64 = sdk::dtype_of<double>;
  const Tensor a(f64, shape), b(f64, shape), out(f64, shape);
  add_to(state, a, b, out, f64);
}
void exp(benchmark::State& state) {
  const Shape shape{state.range(0)};
  const Tensor a(kF32, shape), out(kF32, shape);
  unary<mt_args_exp>(state, "exp", a, out);
}

// ---- other dtypes

template <class T>
void add_same(benchmark::State& state) {
  const Shape shape{state.range(0)};
  const mt_dtype dtype = sdk::dtype_of<T>;
  const Tensor a(dtype, shape), b(dtype, shape), out(dtype, shape);
  add_to(state, a, b, out, dtype);
}
template <class T>
void add_to_float(benchmark::State& state) {
  const Shape shape{state.range(0)};
  const Tensor a(kF32, shape), b(sdk::dtype_of<T>, shape), out(kF32, shape);
  add_to(state, a, b, out);
}
template <class From, class To>
void convert(benchmark::State& state) {
  const Shape shape{state.range(0)};
  const Tensor from(sdk::dtype_of<From>, shape), to(sdk::dtype_of<To>, shape);
  mt_args_copy_ args{};
  args.self = to.get();
  args.src = from.get();
  measure(state, "copy_", args, {&from}, to);
}

// ---- broadcasts and strides: rows of state.range(0), as many as make state.range(1) elements

void add_row(benchmark::State& state) {
  const int64_t cols = state.range(0), rows = state.range(1) / cols;
  const Tensor a(kF32, {rows, cols}), b(kF32, {cols}), out(kF32, {rows, cols});
  add_to(state, a, b, out);
}
void add_column(benchmark::State& state) {
  const int64_t cols = state.range(0), rows = state.range(1) / cols;
  const Tensor a(kF32, {rows, cols}), b(kF32, {rows, 1}), out(kF32, {rows, cols});
  add_to(state, a, b, out);
}
void add_outer(benchmark::State& state) {
  const int64_t cols = state.range(0), rows = state.range(1) / cols;
  const Tensor a(kF32, {rows, 1}), b(kF32, {1, cols}), out(kF32, {rows, cols});
  add_to(state, a, b, out);
}
void add_channel(benchmark::State& state) {
  const int64_t pixels = state.range(0), images = state.range(1) / pixels / 64;
  const Tensor a(kF32, {images, 64, pixels}), b(kF32, {64, 1}), out(kF32, {images, 64, pixels});
  add_to(state, a, b, out);
}
// The left half of rows of twice the width.
void add_sliced(benchmark::State& state) {
  const int64_t cols = state.range(0), rows = state.range(1) / cols;
  const Tensor whole(kF32, {rows, 2 * cols}), b(kF32, {rows, cols}), out(kF32, {rows, cols});
  add_to(state, whole.view({rows, cols}, {2 * cols, 1}), b, out);
}
void add_transposed(benchmark::State& state) {
  const int64_t side = state.range(0);
  const Tensor a(kF32, {side, side}), out(kF32, {side, side});
  add_to(state, a, a.view({side, side}, {1, side}), out);
}
void copy_transposed(benchmark::State& state) {
  const int64_t side = state.range(0);
  const Tensor a(kF32, {side, side}), out(kF32, {side, side});
  mt_args_copy_ args{};
  const Tensor turned = a.view({side, side}, {1, side});
  args.self = out.get();
  args.src = turned.get();
  measure(state, "copy_", args, {&a}, out);
}

// ---- reductions

template <class Args>
void reduce(benchmark::State& state, const char* op, const Tensor& a, int64_t dim,
            const Tensor& out) {
  Args args{};
  args.self = a.get();
  args.dim = {dim < 0 ? nullptr : &dim, dim < 0 ? 0 : 1};
  args.out = out.get();
  measure(state, op, args, {&a}, out);
}
void sum(benchmark::State& state) {
  const Tensor a(kF32, {state.range(0)}), out(kF32, {});
  reduce<mt_args_sum_dim_IntList>(state, "sum.dim_IntList", a, -1, out);
}
void sum_rows(benchmark::State& state) {
  const int64_t cols = state.range(0), rows = state.range(1) / cols;
  const Tensor a(kF32, {rows, cols}), out(kF32, {rows});
  reduce<mt_args_sum_dim_IntList>(state, "sum.dim_IntList", a, 1, out);
}
void sum_columns(benchmark::State& state) {
  const int64_t cols = state.range(0), rows = state.range(1) / cols;
  const Tensor a(kF32, {rows, cols}), out(kF32, {cols});
  reduce<mt_args_sum_dim_IntList>(state, "sum.dim_IntList", a, 0, out);
}
void amax_rows(benchmark::State& state) {
  const int64_t cols = state.range(0), rows = state.range(1) / cols;
  const Tensor a(kF32, {rows, cols}), out(kF32, {rows});
  reduce<mt_args_amax>(state, "amax", a, 1, out);
}
void amax_columns(benchmark::State& state) {
  const int64_t cols = state.range(0), rows = state.range(1) / cols;
  const Tensor a(kF32, {rows, cols}), out(kF32, {cols});
  reduce<mt_args_amax>(state, "amax", a, 0, out);
}
void argmax_rows(benchmark::State& state) {
  const int64_t cols = state.range(0), rows = state.range(1) / cols;
  const Tensor a(kF32, {rows, cols}), out(sdk::dtype_of<int64_t>, {rows});
  mt_args_argmax args{};
  args.self = a.get();
  args.dim = {1, 1};
  args.out = out.get();
  measure(state, "argmax", args, {&a}, out);
}
void var_rows(benchmark::State& state) {
  const int64_t cols = state.range(0), rows = state.range(1) / cols;
  const Tensor a(kF32, {rows, cols}), out(kF32, {rows});
  const int64_t dim = 1;
  mt_args_var_correction args{};
  args.self = a.get();
  args.dim = {&dim, 1};
  args.correction.kind = MT_SCALAR_INT;
  args.correction.v.i = 1;
  args.out = out.get();
  measure(state, "var.correction", args, {&a}, out);
}

// ---- copies and fills

void copy(benchmark::State& state) {
  const Shape shape{state.range(0)};
  const Tensor from(kF32, shape), to(kF32, shape);
  mt_args_copy_ args{};
  args.self = to.get();
  args.src = from.get();
  measure(state, "copy_", args, {&from}, to);
}
void fill(benchmark::State& state) {
  const Tensor to(kF32, {state.range(0)}), number(kF32, {});
  mt_args_fill_ args{};
  args.self = to.get();
  args.value = number.get();
  measure(state, "fill_", args, {&number}, to);
}

// ---- small calls: the fixed cost of a kernel

void small_add(benchmark::State& state) {
  const Shape shape{state.range(0)};
  const Tensor a(kF32, shape), b(kF32, shape), out(kF32, shape);
  mt_args_add_Tensor args{};
  args.header.size = sizeof(args);
  args.header.compute = kF32;
  args.self = a.get();
  args.other = b.get();
  args.out = out.get();
  const mt_kernel_entry& kernel = bench::kernel("add.Tensor");
  for (auto _ : state) kernel.run(kernel.self, &context(), &args);
}

void small_sum(benchmark::State& state) {
  const Tensor a(kF32, {state.range(0)}), out(kF32, {});
  mt_args_sum_dim_IntList args{};
  args.header.size = sizeof(args);
  args.header.compute = kF32;
  args.self = a.get();
  args.out = out.get();
  const mt_kernel_entry& kernel = bench::kernel("sum.dim_IntList");
  for (auto _ : state) kernel.run(kernel.self, &context(), &args);
}

// Registers the benchmark with each number of threads.
void add_benchmark(const char* name, void (*run)(benchmark::State&),
                   std::initializer_list<Shape> all) {
  const size_t last = all.begin()->size();
  auto* b = benchmark::RegisterBenchmark(name, [=](benchmark::State& state) {
    context().num_threads = static_cast<int>(state.range(last));
    run(state);
  });
  for (const Shape& args : all) {
    for (const int64_t threads : {1, 2}) {
      Shape with = args;
      with.push_back(threads);
      b->Args(with);
    }
  }
  b->UseManualTime()->Iterations(1);
}

void add_all() {
  add_benchmark("add", add, {{kCached}, {kMedium}, {kLarge}});
  add_benchmark("mul", mul, {{kLarge}});
  add_benchmark("relu", relu, {{kCached}, {kMedium}, {kLarge}});
  add_benchmark("relu_grad", relu_grad, {{kLarge}});
  add_benchmark("add_in_place", add_in_place, {{kMedium}, {kLarge}});
  add_benchmark("add_number", add_number, {{kMedium}, {kLarge}});
  add_benchmark("greater", greater, {{kLarge}});
  add_benchmark("add_double", add_double, {{kLarge / 2}});
  add_benchmark("exp", exp, {{kLarge}});
  add_benchmark("add_same<Half>", add_same<sdk::Half>, {{kMedium}, {kLarge}});
  add_benchmark("add_same<BFloat16>", add_same<sdk::BFloat16>, {{kMedium}, {kLarge}});
  add_benchmark("add_same<int64>", add_same<int64_t>, {{kLarge / 2}});
  add_benchmark("add_same<uint8>", add_same<uint8_t>, {{kLarge}});
  add_benchmark("add_to_float<int32>", add_to_float<int32_t>, {{kMedium}, {kLarge}});
  add_benchmark("add_to_float<int64>", add_to_float<int64_t>, {{kMedium}, {kLarge}});
  add_benchmark("add_to_float<uint8>", add_to_float<uint8_t>, {{kLarge}});
  add_benchmark("add_to_float<bool>", add_to_float<bool>, {{kLarge}});
  add_benchmark("convert<int64, float>", convert<int64_t, float>, {{kMedium}, {kLarge}});
  add_benchmark("convert<float, int64>", convert<float, int64_t>, {{kLarge}});
  add_benchmark("convert<uint8, float>", convert<uint8_t, float>, {{kLarge}});
  add_benchmark("convert<float, BFloat16>", convert<float, sdk::BFloat16>, {{kLarge}});
  add_benchmark("convert<Half, float>", convert<sdk::Half, float>, {{kLarge}});
  add_benchmark("add_row", add_row,
                {{3, kLarge},
                 {10, kLarge},
                 {33, kLarge},
                 {64, kLarge},
                 {1000, kLarge},
                 {4096, kLarge},
                 {64, kMedium},
                 {1000, kMedium}});
  add_benchmark("add_column", add_column,
                {{3, kLarge},
                 {10, kLarge},
                 {33, kLarge},
                 {64, kLarge},
                 {1000, kLarge},
                 {4096, kLarge},
                 {64, kMedium}});
  add_benchmark("add_outer", add_outer, {{64, kLarge}, {4096, kLarge}, {512, kMedium}});
  add_benchmark("add_channel", add_channel, {{49, kLarge}, {784, kLarge}});
  add_benchmark("add_sliced", add_sliced, {{10, kLarge}, {64, kLarge}, {1000, kLarge}});
  add_benchmark("add_transposed", add_transposed, {{256}, {1024}, {4096}, {4000}});
  add_benchmark("copy_transposed", copy_transposed, {{256}, {1024}, {4096}, {4000}});
  add_benchmark("sum", sum, {{kCached}, {kMedium}, {kLarge}, {4 * kLarge}});
  add_benchmark("sum_rows", sum_rows,
                {{3, kLarge},
                 {8, kLarge},
                 {10, kLarge},
                 {33, kLarge},
                 {64, kLarge},
                 {200, kLarge},
                 {4096, kLarge},
                 {10, kMedium},
                 {512, kMedium}});
  add_benchmark("sum_columns", sum_columns,
                {{3, kLarge},
                 {10, kLarge},
                 {33, kLarge},
                 {64, kLarge},
                 {1000, kLarge},
                 {4096, kLarge},
                 {64, kMedium},
                 {512, kMedium}});
  add_benchmark("amax_rows", amax_rows, {{10, kLarge}, {64, kLarge}, {4096, kLarge}});
  add_benchmark("amax_columns", amax_columns, {{64, kLarge}, {4096, kLarge}});
  add_benchmark("argmax_rows", argmax_rows, {{10, kLarge}, {4096, kLarge}});
  add_benchmark("var_rows", var_rows, {{64, kLarge}, {4096, kLarge}});
  add_benchmark("copy", copy, {{kMedium}, {kLarge}});
  add_benchmark("fill", fill, {{kMedium}, {kLarge}});
  for (const int64_t n : {8, 1024}) {
    benchmark::RegisterBenchmark("small_add", small_add)->Arg(n);
    benchmark::RegisterBenchmark("small_sum", small_sum)->Arg(n);
  }
}

}  // namespace
}  // namespace mytorch::bench

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  mytorch::bench::add_all();
  benchmark::RunSpecifiedBenchmarks();
}
