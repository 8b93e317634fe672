// What is not a single operator on a GPU, as those of the suite `gpu` are (bench/suites.yaml):
// copies from and to the host, forward and backward together, peaks of memory, optimizers, and the
// host's cost of a call compared with a bare launch. bench/peers/torch_cuda.py has the same cases
// for PyTorch, bench/peers/host_cuda_libtorch.cpp those of the host in C++. Prints one line per
// case: name, microseconds, GB/s. The optional argument selects the cases whose name contains it.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <initializer_list>
#include <string>
#include <vector>

#include "bench/cuda/host_cost.h"
#include "bench/cuda/launch.h"
#include "mytorch/error.h"
#include "mytorch/grad_mode.h"
#include "mytorch/mytorch.h"

namespace {

using mytorch::Tensor;
using Clock = std::chrono::steady_clock;

double since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

void wait() { mytorch::empty({1}, mytorch::kFloat32, "cuda").to(mytorch::kCPU); }

// Returns the microseconds of a call: the median of five batches that keep the queue full.
double measure(const std::function<void()>& run) {
  for (int i = 0; i < 3; ++i) run();
  wait();
  auto start = Clock::now();
  run();
  wait();
  const int times = static_cast<int>(std::clamp(0.02 / since(start), 5.0, 2000.0));
  std::vector<double> batches;
  for (int batch = 0; batch < 5; ++batch) {
    start = Clock::now();
    for (int i = 0; i < times; ++i) run();
    wait();
    batches.push_back(since(start) / times * 1e6);
  }
  std::sort(batches.begin(), batches.end());
  return batches[2];
}

std::string wanted;  // runs only cases whose name contains this

// Whether a case whose name begins with one of these may be wanted. Operands of others are not
// created.
bool any_wanted(std::initializer_list<const char*> begins) {
  return std::any_of(begins.begin(), begins.end(), [](const std::string begin) {
    return begin.find(wanted) != std::string::npos || wanted.find(begin) != std::string::npos;
  });
}

bool reported = false;  // whether the last case ran, so that its result is compared

void report(const char* name, double bytes, const std::function<void()>& run) {
  reported = std::string(name).find(wanted) != std::string::npos;
  if (!reported) return;
  try {
    const double us = measure(run);
    std::printf("%-30s %10.2f %9.1f\n", name, us, bytes / us / 1e3);
  } catch (const mytorch::Error& error) {
    std::printf("%-30s failed: %.120s\n", name, error.what());
  }
  std::fflush(stdout);
}

// Returns the relative distance, in norm, between two computations of a result.
void compare(const std::function<Tensor()>& found, const std::function<Tensor()>& expected) try {
  using namespace mytorch;
  if (!reported) return;
  const Tensor a = found().to(kFloat32), b = expected().to(kFloat32);
  const double error =
      mytorch::sqrt(mytorch::sum(mytorch::square(mytorch::sub(a, b)))).item<double>();
  const double size = mytorch::sqrt(mytorch::sum(mytorch::square(b))).item<double>();
  const bool fits = error <= 1e-2 * size;
  std::printf("%-30s %10.2e %s\n", "    relative difference", error / size, fits ? "" : "WRONG");
  std::fflush(stdout);
} catch (const mytorch::Error& error) {
  std::printf("    comparison failed: %.120s\n", error.what());
  std::fflush(stdout);
}

Tensor uniform(mytorch::IntList sizes, mytorch::ScalarType dtype = mytorch::kFloat32) {
  return mytorch::rand(sizes, mytorch::kFloat32, "cuda").to(dtype);
}

constexpr double kParameters = 116.0 * 1025 * 1024;  // 122 M

// Returns parameters with gradients.
std::vector<Tensor> many_parameters() {
  std::vector<Tensor> parameters;
  for (int i = 0; i < 116; ++i) {
    for (const std::vector<int64_t>& sizes : {std::vector<int64_t>{1024, 1024}, {1024}}) {
      parameters.push_back(uniform(sizes).requires_grad_());
      parameters.back().set_grad(uniform(sizes));
    }
  }
  return parameters;
}

// Prints the most device memory that a call needs beyond `before`, which was allocated before the
// first call.
void report_peak(uint64_t before, const std::function<void()>& run) {
  if (!reported) return;
  mytorch::synchronize();
  mytorch::reset_peak_memory();
  run();
  mytorch::synchronize();
  const uint64_t peak = mytorch::memory_stats().allocated_peak;
  std::printf("%-30s %10.1f MiB\n", "    peak memory",
              static_cast<double>(peak - before) / (1 << 20));
  std::fflush(stdout);
}

// The forward and the backward call of the norms of a sum.
void fused_norms(int64_t rows, int64_t n) {
  using namespace mytorch;
  const std::string size = std::to_string(rows) + "x" + std::to_string(n);
  const Tensor x = uniform({rows, n}, kBFloat16), residual = uniform({rows, n}, kBFloat16);
  const Tensor grad = uniform({rows, n}, kBFloat16), grad_sum = uniform({rows, n}, kBFloat16);
  const Tensor weight = uniform({n}, kBFloat16), bias = uniform({n}, kBFloat16);
  const double bytes = 16.0 * static_cast<double>(rows * n);
  report(("fused add + layer_norm both " + size).c_str(), bytes, [&] {
    const auto [y, sum, mean, rstd] =
        mytorch::native_add_layer_norm(x, residual, {n}, weight, bias, 1e-5);
    mytorch::native_add_layer_norm_backward(grad, grad_sum, sum, {n}, mean, rstd, weight);
  });
  report(("fused add + rms_norm both " + size).c_str(), bytes, [&] {
    const auto [y, sum, rstd] = mytorch::native_add_rms_norm(x, residual, {n}, weight, 1e-5);
    mytorch::native_add_rms_norm_backward(grad, grad_sum, sum, {n}, rstd, weight);
  });
}

// The last column is TFLOP/s.
void fused_cross_entropy(int64_t rows, int64_t width, int64_t classes) {
  using namespace mytorch;
  const EnableGradGuard gradients;
  const std::string name = "fused linear_cross_entropy " + std::to_string(rows) + "x" +
                           std::to_string(width) + "x" + std::to_string(classes);
  const Tensor x = mytorch::sub(uniform({rows, width}, kBFloat16), 0.5).detach().requires_grad_();
  const Tensor weight = mytorch::mul(mytorch::sub(uniform({classes, width}, kBFloat16), 0.5), 0.125)
                            .detach()
                            .requires_grad_();
  const Tensor target = mytorch::randint(classes, {rows}, kInt64, kCPU).to("cuda");
  const auto loss = [&] { return mytorch::linear_cross_entropy(x, weight, target); };
  const auto step = [&] {
    loss().backward();
    x.set_grad({});
    weight.set_grad({});
  };
  const uint64_t before = mytorch::memory_stats().allocated;
  report(name.c_str(), 6e-3 * static_cast<double>(rows * width) * static_cast<double>(classes),
         step);
  report_peak(before, step);
  if (rows > 16384) return;
  const auto gradient = [&](const Tensor& of, bool fused) {
    const Tensor value = fused ? loss()
                               : mytorch::cross_entropy(
                                     mytorch::linear(x.to(kFloat32), weight.to(kFloat32)), target);
    value.backward();
    const Tensor result = of.grad();
    x.set_grad({});
    weight.set_grad({});
    return mytorch::mul(result.to(kFloat32), 1e4);
  };
  const auto plain = [](const Tensor& t) { return t.detach(); };
  compare([&] { return plain(gradient(x, true)); }, [&] { return plain(gradient(x, false)); });
  compare([&] { return plain(gradient(weight, true)); },
          [&] { return plain(gradient(weight, false)); });
}

void fused_cases() {
  using namespace mytorch;
  fused_norms(16384, 768);
  fused_norms(8192, 4096);
  {
    const std::vector<Tensor> parameters = many_parameters();
    double most = 1;
    report("fused clip_grad_norm 122 M", 12 * kParameters,
           [&] { nn::optim::clip_grad_norm_(parameters, most *= 0.99); });
    report("fused clip_grad_norm, none cut", 4 * kParameters,
           [&] { nn::optim::clip_grad_norm_(parameters, 1e9); });
  }
  if (!any_wanted({"fused linear_cross_entropy"})) return;
  mytorch::empty_cache();
  fused_cross_entropy(16384, 768, 50304);
  fused_cross_entropy(8192, 4096, 128256);
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc > 1) wanted = argv[1];
  using namespace mytorch;
  const NoGradGuard no_grad;
  if (any_wanted({"host to", "device to"})) {
    const double bytes = 4.0 * (64 << 20);
    const Tensor host = mytorch::rand({64 << 20}, kFloat32, kCPU);
    const Tensor x = host.to("cuda");
    report("host to device 256 MB", bytes, [&] { x.copy_(host); });
    report("device to host 256 MB", bytes, [&] { host.copy_(x); });
    const Tensor small = mytorch::rand({16}, kFloat32, kCPU), y = small.to("cuda");
    report("host to device 64 B", 64, [&] { y.copy_(small); });
    report("device to host 64 B", 64, [&] { small.copy_(y); });
  }
  if (any_wanted({"cross_entropy"})) {
    const Tensor x = uniform({8192, 50304}, kBFloat16).requires_grad_();
    const Tensor target = mytorch::randint(50304, {8192}, kInt64, kCPU).to("cuda");
    report("cross_entropy + backward", 8.0 * 8192 * 50304, [&] {
      const EnableGradGuard gradients;
      mytorch::cross_entropy(x, target).backward();
      x.set_grad({});
    });
  }
  if (any_wanted({"fused"})) fused_cases();
  if (any_wanted({"AdamW"})) {
    nn::optim::AdamW optimizer(many_parameters());
    report("AdamW 122 M", 28 * kParameters, [&] { optimizer.step(); });
  }
  if (any_wanted({"host:"})) {
    const Tensor x = uniform({8}), y = uniform({8});
    const Tensor out = mytorch::empty({8}, kFloat32, "cuda");
    bench::print_host_costs({
        {"bare launch", &launch_nothing, &wait_for_nothing},
        {"bare launch, <<<>>>", &launch_nothing_by_runtime, &wait_for_nothing},
        {"add, 8 floats", [&] { mytorch::add(x, y); }, &wait},
        {"add_out, 8 floats", [&] { mytorch::add_out(out, x, y); }, &wait},
        {"fill_, 8 floats", [&] { out.fill_(1); }, &wait},
        {"empty, 8 floats", [&] { mytorch::empty({8}, kFloat32, "cuda"); }, &wait},
    });
  }
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
