// Compiled functions beside the same functions, run as usual: the time of a call of each, in turns.
// bench/peers/compiled_torch.py has the same cases; scripts/bench-compiled prints both side by
// side.
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "bench/in_turns.h"
#include "mytorch/compile.h"
#include "mytorch/grad_mode.h"
#include "mytorch/mytorch.h"

namespace {

using mytorch::Tensor;
namespace nn = mytorch::nn;
using bench::compare;
using bench::device;
using bench::median;
using bench::seconds;

void chain(const std::string& name, int64_t size, int operators, int64_t bytes = 0) {
  const mytorch::NoGradGuard no_grad;
  const Tensor x = mytorch::randn({size}).to(device);
  const auto function = [operators](Tensor y) {
    for (int i = 0; i < operators; i += 2) y = y * 1.0001 + 0.5;
    return y;
  };
  auto compiled = mytorch::compile(function);
  compare(
      name, [&] { function(x); }, [&] { compiled(x); }, bytes);
}

// A chain whose operators stay calls of their own: what a replay costs for each.
void chain_apart(const std::string& name, int64_t size, int operators) {
  setenv("MYTORCH_COMPILE_WITHOUT", "fusion", 1);
  chain(name, size, operators);
  unsetenv("MYTORCH_COMPILE_WITHOUT");
}

// The rate of copies, beside which the rates of other cases are limits: the times of copy_, which
// reads and writes what a chain over as many elements does.
double copy_time(int64_t size) {
  const mytorch::NoGradGuard no_grad;
  const Tensor x = mytorch::randn({size}).to(device);
  Tensor y = mytorch::empty_like(x);
  std::vector<double> times;
  for (int round = 0; round < 15; ++round) {
    times.push_back(seconds([&] { y.copy_(x); }, 5));
  }
  return median(times);
}

// Functions of a matrix of bfloat16, written from primitives; all compute in float32.
Tensor layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  const Tensor wide = x.to(mytorch::kFloat32);
  const Tensor centered = wide - wide.mean({-1}, true);
  const Tensor scale = rsqrt(centered.square().mean({-1}, true) + 1e-5);
  return (centered * scale * weight + bias).to(x.dtype());
}
Tensor softmax_of(const Tensor& x) {
  const Tensor wide = x.to(mytorch::kFloat32);
  const Tensor e = exp(wide - wide.amax({-1}, true));
  return (e / e.sum({-1}, true)).to(x.dtype());
}
Tensor residual_rms_norm(const Tensor& x, const Tensor& residual, const Tensor& weight) {
  const Tensor sum = x.to(mytorch::kFloat32) + residual.to(mytorch::kFloat32);
  const Tensor scale = rsqrt(sum.square().mean({-1}, true) + 1e-6);
  return (sum * scale * weight).to(x.dtype());
}

// With the variance as an operator: the mean may be large beside the deviations.
Tensor layer_norm_of_var(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  const auto [variance, mean] = var_mean(x.to(mytorch::kFloat32), {-1}, 0, true);
  return ((x - mean) * rsqrt(variance + 1e-5) * weight + bias).to(x.dtype());
}
Tensor cross_entropy_of(const Tensor& x, const Tensor& labels) {
  const Tensor wide = x.to(mytorch::kFloat32);
  const Tensor own = wide.gather(-1, labels.unsqueeze(-1)).squeeze(-1);
  return (logsumexp(wide, {-1}) - own).mean();
}

// The input is an argument: what follows from tensors from outside alone is kept from call to call.
template <class F>
void compare_function(const std::string& name, const F& function, const Tensor& x, int64_t bytes) {
  const mytorch::NoGradGuard no_grad;
  auto compiled = mytorch::compile([&](const Tensor& input) { return function(input); });
  compare(
      name, [&] { function(x); }, [&] { compiled(x); }, bytes);
}

// Classes of a language model, of bfloat16.
void losses(int64_t count, int64_t classes) {
  const Tensor x = mytorch::randn({count, classes}).to(mytorch::kBFloat16).to(device);
  const Tensor labels = mytorch::randint(0, classes, {count}).to(device);
  compare_function(
      "cross_entropy", [&](const Tensor& in) { return cross_entropy_of(in, labels); }, x,
      2 * count * classes);
}

void rows(int64_t count, int64_t width) {
  const auto bf16 = [](const Tensor& x) { return x.to(mytorch::kBFloat16).to(device); };
  const Tensor x = bf16(mytorch::randn({count, width})), y = bf16(mytorch::randn({count, width}));
  const Tensor weight = mytorch::randn({width}).to(device),
               bias = mytorch::randn({width}).to(device);
  const int64_t once = 2 * count * width;  // bytes of a matrix
  compare_function(
      "layer_norm", [&](const Tensor& in) { return layer_norm(in, weight, bias); }, x, 2 * once);
  compare_function(
      "layer_norm_of_var", [&](const Tensor& in) { return layer_norm_of_var(in, weight, bias); }, x,
      2 * once);
  compare_function(
      "softmax", [&](const Tensor& in) { return softmax_of(in); }, x, 2 * once);
  compare_function(
      "residual_rms_norm", [&](const Tensor& in) { return residual_rms_norm(in, y, weight); }, x,
      3 * once);
}

struct Mlp : nn::Module {
  nn::Linear fc1{register_module("fc1", nn::Linear(784, 256))};
  nn::Linear fc2{register_module("fc2", nn::Linear(256, 256))};
  nn::Linear fc3{register_module("fc3", nn::Linear(256, 10))};
  Tensor forward(const Tensor& x) { return fc3(relu(fc2(relu(fc1(x))))); }
};

void train_mlp(int64_t batch) {
  Mlp model;
  model.to(device);
  nn::optim::SGD sgd(model.parameters(), nn::optim::SGDOptions(0.01));
  const Tensor x = mytorch::randn({batch, 784}).to(device);
  const Tensor y = mytorch::randint(0, 10, {batch}).to(device);
  const auto step = [&](const Tensor& images, const Tensor& labels) {
    sgd.zero_grad();
    Tensor loss = nn::functional::cross_entropy(model.forward(images), labels);
    loss.backward();
    sgd.step();
    return loss.detach();
  };
  auto compiled = mytorch::compile(step);
  compare(
      "mlp_step_" + std::to_string(batch), [&] { step(x, y); }, [&] { compiled(x, y); });
}

}  // namespace

// bench_compiled [DEVICE]
int main(int argc, char** argv) try {
  if (argc > 1) device = mytorch::Device(argv[1]);
  const bool cpu = device.is_cpu();
  const int64_t large = cpu ? 1 << 24 : 1 << 26;
  const double copied = copy_time(large);
  bench::copy_seconds = copied / (8 * static_cast<double>(large));
  std::printf("copy_of_%dM %.3f %.3f\n", static_cast<int>(large >> 20), 1e6 * copied, 1e6 * copied);
  if (cpu) {
    chain("chain_100_of_8", 8, 100);
    chain_apart("chain_100_of_8_apart", 8, 100);
    chain("chain_10_of_16M", large, 10, 8 * large);
    rows(1024, 1024);
    losses(512, 50304);
  } else {
    chain("chain_100_of_64", 64, 100);
    chain("chain_10_of_64M", large, 10, 8 * large);
    rows(16384, 4096);
    losses(8192, 50304);
  }
  train_mlp(1);
  train_mlp(64);
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "bench_compiled: %s\n", error.what());
  return 1;
}
