// Pointwise and reduction kernels of mytorch and libtorch, measured alternately on the same memory.
// Prints microseconds per call, nanoseconds per element, and the speedup of mytorch (the median
// over the rounds of each round's ratio). Results go to existing tensors, except in the cases named
// "fresh", which allocate them.
//
//   kernels_libtorch [SUBSTRING]    only cases whose name contains it
#include <torch/torch.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "mytorch/backends.h"
#include "mytorch/mytorch.h"
#include "mytorch/ops/relu_grad.h"
#include "mytorch/threads.h"

namespace {

using Run = std::function<void()>;

double seconds_of(const Run& run, int64_t repeats) {
  const auto start = std::chrono::steady_clock::now();
  for (int64_t i = 0; i < repeats; ++i) run();
  const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - start;
  return spent.count() / static_cast<double>(repeats);
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

const char* wanted = "";

void compare(const std::string& name, int64_t elements, const Run& ours, const Run& theirs) {
  if (name.find(wanted) == std::string::npos) return;
  constexpr double kRound = 2e-3;
  constexpr int kRounds = 21;
  for (const int threads : {1, 2}) {
    mytorch::set_num_threads(threads);
    at::set_num_threads(threads);
    const auto repeats = [](const Run& run) {
      run();
      return std::max<int64_t>(1, static_cast<int64_t>(kRound / seconds_of(run, 1)));
    };
    const int64_t our_repeats = repeats(ours), their_repeats = repeats(theirs);
    std::vector<double> a, b, ratios;
    for (int round = 0; round < kRounds; ++round) {
      a.push_back(seconds_of(ours, our_repeats));
      b.push_back(seconds_of(theirs, their_repeats));
      ratios.push_back(b.back() / a.back());
    }
    const double n = static_cast<double>(elements);
    std::printf("%-34s %d  %10.2f %10.2f us  %7.3f %7.3f ns  %6.2fx\n", name.c_str(), threads,
                median(a) * 1e6, median(b) * 1e6, median(a) / n * 1e9, median(b) / n * 1e9,
                median(ratios));
    std::fflush(stdout);
  }
}

// ---- tensors of both libraries over the same memory

struct Pair {
  mytorch::Tensor ours;
  at::Tensor theirs;
};

Pair share(const mytorch::Tensor& ours, at::ScalarType dtype) {
  const std::vector<int64_t> sizes(ours.sizes().begin(), ours.sizes().end());
  return {ours, at::from_blob(ours.raw_mutable_data(), sizes, dtype)};
}
// Uniform in [low, high).
Pair uniform(std::vector<int64_t> shape, double low = 0.5, double high = 1.5) {
  return share(mytorch::add(mytorch::mul(mytorch::rand(shape), high - low), low), at::kFloat);
}
Pair cast(const Pair& x, mytorch::ScalarType ours, at::ScalarType theirs) {
  return share(x.ours.to(ours), theirs);
}
Pair transposed(const Pair& x) { return {x.ours.transpose(0, 1), x.theirs.transpose(0, 1)}; }

std::string sized(const std::string& name, std::initializer_list<int64_t> sizes) {
  std::string result = name;
  for (const int64_t size : sizes)
    result += (&size == sizes.begin() ? " " : "x") + std::to_string(size);
  return result;
}

#define UNARY(op, theirs_out, low, high, n)                                  \
  {                                                                          \
    const Pair x = uniform({n}, low, high), out = uniform({n});              \
    compare(                                                                 \
        sized(#op, {n}), n, [&] { mytorch::op##_out(out.ours, x.ours); },    \
        [&] { theirs_out(const_cast<at::Tensor&>(out.theirs), x.theirs); }); \
  }

void mathematics() {
  constexpr int64_t n = 8192;
  UNARY(exp, at::exp_out, -10, 10, n)
  UNARY(log, at::log_out, 0.1, 10, n)
  UNARY(log1p, at::log1p_out, -0.5, 10, n)
  UNARY(expm1, at::expm1_out, -3, 3, n)
  UNARY(tanh, at::tanh_out, -5, 5, n)
  UNARY(sigmoid, at::sigmoid_out, -10, 10, n)
  UNARY(erf, at::erf_out, -3, 3, n)
  UNARY(gelu, at::gelu_out, -3, 3, n)
  UNARY(silu, at::silu_out, -10, 10, n)
  UNARY(sin, at::sin_out, -10, 10, n)
  UNARY(cos, at::cos_out, -10, 10, n)
  UNARY(sqrt, at::sqrt_out, 0, 10, n)
  UNARY(rsqrt, at::rsqrt_out, 0.1, 10, n)
  const Pair x = uniform({n}, 0.1, 3), y = uniform({n}, -3, 3), out = uniform({n});
  compare(
      sized("pow", {n}), n, [&] { mytorch::pow_out(out.ours, x.ours, y.ours); },
      [&] { at::pow_out(const_cast<at::Tensor&>(out.theirs), x.theirs, y.theirs); });
  const Pair dx = cast(x, mytorch::kFloat64, at::kDouble),
             dy = cast(y, mytorch::kFloat64, at::kDouble);
  const Pair dout = cast(out, mytorch::kFloat64, at::kDouble);
  compare(
      sized("pow float64", {n}), n, [&] { mytorch::pow_out(dout.ours, dx.ours, dy.ours); },
      [&] { at::pow_out(const_cast<at::Tensor&>(dout.theirs), dx.theirs, dy.theirs); });
  compare(
      sized("exp float64", {n}), n, [&] { mytorch::exp_out(dout.ours, dx.ours); },
      [&] { at::exp_out(const_cast<at::Tensor&>(dout.theirs), dx.theirs); });
}

void add(const std::string& name, const Pair& a, const Pair& b, const Pair& out) {
  compare(
      name, out.ours.numel(), [&] { mytorch::add_out(out.ours, a.ours, b.ours); },
      [&] { at::add_out(const_cast<at::Tensor&>(out.theirs), a.theirs, b.theirs); });
}

void elements() {
  for (const int64_t n : {int64_t{1} << 14, int64_t{1} << 18, int64_t{1} << 24}) {
    const Pair a = uniform({n}), b = uniform({n}), out = uniform({n});
    add(sized("add", {n}), a, b, out);
    compare(
        sized("relu", {n}), n, [&] { mytorch::relu_out(out.ours, a.ours); },
        [&] { at::relu_out(const_cast<at::Tensor&>(out.theirs), a.theirs); });
    compare(
        sized("relu backward, fresh", {n}), n, [&] { mytorch::relu_grad(a.ours, b.ours); },
        [&] { at::threshold_backward(a.theirs, b.theirs, 0); });
    compare(
        sized("add, fresh", {n}), n, [&] { mytorch::add(a.ours, b.ours); },
        [&] { at::add(a.theirs, b.theirs); });
    compare(
        sized("sum", {n}), n, [&] { mytorch::sum(a.ours); }, [&] { at::sum(a.theirs); });
    for (const auto [ours, theirs, type] :
         {std::tuple(mytorch::kBFloat16, at::kBFloat16, "bfloat16"),
          std::tuple(mytorch::kFloat16, at::kHalf, "float16")}) {
      add(sized(std::string("add ") + type, {n}), cast(a, ours, theirs), cast(b, ours, theirs),
          cast(out, ours, theirs));
    }
    add(sized("add int32 to float32", {n}), a, cast(b, mytorch::kInt32, at::kInt), out);
    add(sized("add int64 to float32", {n}), a, cast(b, mytorch::kInt64, at::kLong), out);
  }
}

void shapes() {
  for (const int64_t n : {int64_t{1} << 18, int64_t{1} << 24}) {
    for (const int64_t cols : {3, 10, 64, 1000}) {
      const int64_t rows = n / cols;
      const Pair a = uniform({rows, cols}), out = uniform({rows, cols});
      const Pair row = uniform({cols}), column = uniform({rows, 1});
      add(sized("row", {rows, cols}), a, row, out);
      add(sized("column", {rows, cols}), a, column, out);
      add(sized("outer", {rows, cols}), column, row, out);
      const Pair rows_out = uniform({rows}), cols_out = uniform({cols});
      compare(
          sized("sum of rows", {rows, cols}), n,
          [&] { mytorch::sum_out(rows_out.ours, a.ours, {1}); },
          [&] { at::sum_out(const_cast<at::Tensor&>(rows_out.theirs), a.theirs, {1}); });
      compare(
          sized("sum of columns", {rows, cols}), n,
          [&] { mytorch::sum_out(cols_out.ours, a.ours, {0}); },
          [&] { at::sum_out(const_cast<at::Tensor&>(cols_out.theirs), a.theirs, {0}); });
      compare(
          sized("amax of rows", {rows, cols}), n,
          [&] { mytorch::amax_out(rows_out.ours, a.ours, {1}); },
          [&] { at::amax_out(const_cast<at::Tensor&>(rows_out.theirs), a.theirs, {1}); });
      compare(
          sized("argmax of rows", {rows, cols}), n, [&] { mytorch::argmax(a.ours, 1); },
          [&] { at::argmax(a.theirs, 1); });
    }
    const int64_t side = n == (1 << 18) ? 512 : 4096;
    const Pair a = uniform({side, side}), out = uniform({side, side});
    add(sized("transposed", {side, side}), a, transposed(a), out);
    compare(
        sized("copy transposed", {side, side}), n, [&] { out.ours.copy_(a.ours.transpose(0, 1)); },
        [&] { const_cast<at::Tensor&>(out.theirs).copy_(a.theirs.transpose(0, 1)); });
  }
}

// Steps of optimizers over one parameter.
template <class Ours, class Theirs>
void step(const std::string& name, int64_t n,
          const std::function<Ours(std::vector<mytorch::Tensor>)>& make_ours,
          const std::function<Theirs(std::vector<at::Tensor>)>& make_theirs) {
  const Pair start = uniform({n}), gradient = uniform({n});
  mytorch::Tensor p = start.ours.clone().requires_grad_();
  p.set_grad(gradient.ours.clone());
  at::Tensor q = start.theirs.clone().set_requires_grad(true);
  q.mutable_grad() = gradient.theirs.clone();
  Ours ours = make_ours({p});
  Theirs theirs = make_theirs({q});
  compare(
      sized(name, {n}), n, [&] { ours.step(); }, [&] { theirs.step(); });
}

void optimizers() {
  namespace optim = mytorch::nn::optim;
  for (const int64_t n : {10000, 10000000}) {
    step<optim::AdamW, torch::optim::AdamW>(
        "AdamW", n, [](auto p) { return optim::AdamW(p, {.lr = 1e-3}); },
        [](auto p) { return torch::optim::AdamW(p, torch::optim::AdamWOptions(1e-3)); });
    step<optim::SGD, torch::optim::SGD>(
        "SGD with momentum", n, [](auto p) { return optim::SGD(p, {.lr = 1e-3, .momentum = 0.9}); },
        [](auto p) { return torch::optim::SGD(p, torch::optim::SGDOptions(1e-3).momentum(0.9)); });
    step<optim::RMSprop, torch::optim::RMSprop>(
        "RMSprop", n, [](auto p) { return optim::RMSprop(p, {.lr = 1e-3}); },
        [](auto p) { return torch::optim::RMSprop(p, torch::optim::RMSpropOptions(1e-3)); });
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1) wanted = argv[1];
  const at::NoGradGuard theirs;
  const mytorch::NoGradGuard ours;
  std::printf("%-34s %s  %10s %10s     %7s %7s\n", "", "threads", "mytorch", "libtorch", "mytorch",
              "libtorch");
  mathematics();
  elements();
  shapes();
  optimizers();
}
