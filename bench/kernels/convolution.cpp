// Convolutions and the other layers of a network, through the public API.
//
// Each benchmark reports GFLOP/s and the percentage of the multiply-add peak on the same number of
// threads (bench/harness/limits.h), measured beside it. Flops are those of the definition, padding
// included; redundant work of a kernel does not count. Operations bound by memory report GB/s of
// operands and results. The cases of `mnist/` are one step of the network of bench/train_mnist.cpp
// at batch 64; their sum is the time of its kernels.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "bench/harness/limits.h"
#include "mytorch/backends.h"
#include "mytorch/mytorch.h"
#include "mytorch/ops/relu_grad.h"

namespace mytorch::bench {
namespace {

struct Work {
  double flops = 0;
  double bytes = 0;
};

// Makes the function that a benchmark repeats, with its operands.
using Make = std::function<std::function<void()>()>;

void run(benchmark::State& state, const Make& make, Work work, int threads) {
  const NoGradGuard no_grad;
  set_num_threads(threads);
  const std::function<void()> step = make();
  const double before = work.flops != 0 ? measure_peak(threads) : 0;
  for (auto _ : state) step();
  using benchmark::Counter;
  const double done = static_cast<double>(state.iterations());
  if (work.flops != 0) {
    const double peak = std::max(before, measure_peak(threads));
    state.counters["GFLOP/s"] = Counter(1e-9 * work.flops * done, Counter::kIsRate);
    state.counters["peak%"] = Counter(1e-7 * work.flops * done / peak, Counter::kIsRate);
  }
  if (work.bytes != 0) state.counters["GB/s"] = Counter(1e-9 * work.bytes * done, Counter::kIsRate);
}

void add(const std::string& name, int threads, Work work, Make make) {
  auto* benchmark = benchmark::RegisterBenchmark(
      (name + "/threads:" + std::to_string(threads)).c_str(), run, std::move(make), work, threads);
  benchmark->Unit(benchmark::kMicrosecond);
  if (threads > 1) benchmark->UseRealTime();
}

// ---- convolutions -----------------------------------------------------------------------------

struct Shape {
  int64_t batch, in, out, size, kernel;
  int64_t stride = 1, padding = 0, dilation = 1, groups = 1;

  int64_t out_size() const {
    return (size + 2 * padding - dilation * (kernel - 1) - 1) / stride + 1;
  }
  Work work() const {
    return {.flops = 2.0 * static_cast<double>(batch * out * out_size() * out_size()) *
                     static_cast<double>(in / groups * kernel * kernel)};
  }
};

struct Operands {
  Tensor input, weight, bias, grad;

  explicit Operands(const Shape& s)
      : input(rand({s.batch, s.in, s.size, s.size})),
        weight(rand({s.out, s.in / s.groups, s.kernel, s.kernel})),
        bias(rand({s.out})),
        grad(rand({s.batch, s.out, s.out_size(), s.out_size()})) {}
};

enum Parts { kForward = 1, kInput = 2, kWeight = 4, kAll = 7 };

void add_convolution(const std::string& name, int threads, const Shape& s, int parts = kAll) {
  if (parts & kForward) {
    add(name + "/forward", threads, s.work(), [s] {
      return [s, x = Operands(s)] {
        benchmark::DoNotOptimize(convolution(x.input, x.weight, x.bias, {s.stride, s.stride},
                                             {s.padding, s.padding}, {s.dilation, s.dilation},
                                             false, {0, 0}, s.groups));
      };
    });
  }
  if (parts & kInput) {
    add(name + "/input_gradient", threads, s.work(), [s] {
      return [s, x = Operands(s)] {
        benchmark::DoNotOptimize(convolution_backward_input(
            x.grad, x.weight, x.input.sizes(), {s.stride, s.stride}, {s.padding, s.padding},
            {s.dilation, s.dilation}, false, {0, 0}, s.groups));
      };
    });
  }
  if (parts & kWeight) {
    add(name + "/weight_gradient", threads, s.work(), [s] {
      return [s, x = Operands(s)] {
        benchmark::DoNotOptimize(convolution_backward_weight(
            x.grad, x.input, x.weight.sizes(), {s.stride, s.stride}, {s.padding, s.padding},
            {s.dilation, s.dilation}, false, {0, 0}, s.groups));
      };
    });
  }
}

// ---- the rest of a network --------------------------------------------------------------------

double bytes(double elements, double item = sizeof(float)) { return elements * item; }

void add_activation(const std::string& name, int threads, IntList shape) {
  const std::vector<int64_t> sizes(shape.begin(), shape.end());
  double n = 1;
  for (const int64_t size : sizes) n *= static_cast<double>(size);
  add(name + "/forward", threads, {.bytes = bytes(2 * n)},
      [sizes] { return [x = rand(sizes) - 0.5] { benchmark::DoNotOptimize(relu(x)); }; });
  add(name + "/gradient", threads, {.bytes = bytes(3 * n)}, [sizes] {
    return [x = relu(rand(sizes) - 0.5), grad = rand(sizes)] {
      benchmark::DoNotOptimize(relu_grad(grad, x));
    };
  });
}

// Halves planes of `size` x `size`.
void add_pooling(const std::string& name, int threads, int64_t batch, int64_t channels,
                 int64_t size) {
  const double n = static_cast<double>(batch * channels * size * size);
  const Work work = {.bytes = bytes(n + n / 4) + bytes(n / 4, sizeof(int64_t))};
  const auto input = [=] { return rand({batch, channels, size, size}) - 0.5; };
  add(name + "/forward", threads, work, [=] {
    return [x = relu(input())] { benchmark::DoNotOptimize(max_pool2d_with_indices(x, {2, 2})); };
  });
  add(name + "/gradient", threads, work, [=] {
    const auto [out, indices] = max_pool2d_with_indices(input(), {2, 2});
    return [x = input(), grad = rand(out.sizes()), indices] {
      benchmark::DoNotOptimize(max_pool2d_with_indices_backward(grad, x.sizes(), indices));
    };
  });
}

void add_bias_gradient(const std::string& name, int threads, int64_t batch, int64_t channels,
                       int64_t size) {
  add(name, threads, {.bytes = bytes(static_cast<double>(batch * channels * size * size))}, [=] {
    return [grad = rand({batch, channels, size, size})] {
      benchmark::DoNotOptimize(sum(grad, {0, 2, 3}));
    };
  });
}

void add_linear(const std::string& name, int threads, int64_t batch, int64_t in, int64_t out) {
  const Work work = {.flops = 2.0 * static_cast<double>(batch * in * out)};
  add(name + "/forward", threads, work, [=] {
    return [x = rand({batch, in}), weight = rand({out, in}), bias = rand({out})] {
      benchmark::DoNotOptimize(linear(x, weight, bias));
    };
  });
  add(name + "/input_gradient", threads, work, [=] {
    return [grad = rand({batch, out}), weight = rand({out, in})] {
      benchmark::DoNotOptimize(mm(grad, weight));
    };
  });
  add(name + "/weight_gradient", threads, work, [=] {
    return [grad = rand({batch, out}), x = rand({batch, in})] {
      benchmark::DoNotOptimize(mm(grad.t(), x));
    };
  });
}

void add_step(const std::string& name, int threads, std::vector<std::vector<int64_t>> shapes) {
  double n = 0;
  for (const auto& shape : shapes) {
    double numel = 1;
    for (const int64_t size : shape) numel *= static_cast<double>(size);
    n += numel;
  }
  // Reads parameter, gradient and momentum, writes parameter and momentum.
  add(name, threads, {.bytes = bytes(5 * n)}, [shapes = std::move(shapes)] {
    std::vector<Tensor> parameters;
    for (const auto& shape : shapes) {
      const Tensor parameter = rand(shape);
      parameter.requires_grad_();
      {
        const EnableGradGuard grad;
        parameter.sum().backward();
      }
      parameters.push_back(parameter);
    }
    auto sgd = std::make_shared<nn::optim::SGD>(parameters,
                                                nn::optim::SGDArgs{.lr = 0.01, .momentum = 0.9});
    return [sgd] { sgd->step(); };
  });
}

void add_all(int threads) {
  add_convolution("mnist/conv1", threads, {64, 1, 16, 28, 3, 1, 1}, kForward | kWeight);
  add_bias_gradient("mnist/conv1/bias_gradient", threads, 64, 16, 28);
  add_activation("mnist/relu1", threads, {64, 16, 28, 28});
  add_pooling("mnist/pool1", threads, 64, 16, 28);
  add_convolution("mnist/conv2", threads, {64, 16, 32, 14, 3, 1, 1});
  add_bias_gradient("mnist/conv2/bias_gradient", threads, 64, 32, 14);
  add_activation("mnist/relu2", threads, {64, 32, 14, 14});
  add_pooling("mnist/pool2", threads, 64, 32, 14);
  add_linear("mnist/linear1", threads, 64, 1568, 128);
  add_linear("mnist/linear2", threads, 64, 128, 10);
  add_step("mnist/sgd", threads,
           {{16, 1, 3, 3}, {16}, {32, 16, 3, 3}, {32}, {128, 1568}, {128}, {10, 128}, {10}});
  // Layers of ResNet-50 and MobileNet.
  add_convolution("stem7x7s2", threads, {4, 3, 64, 224, 7, 2, 3}, kForward | kWeight);
  add_convolution("resnet3x3x64", threads, {4, 64, 64, 56, 3, 1, 1});
  add_convolution("resnet3x3x256", threads, {4, 256, 256, 14, 3, 1, 1});
  add_convolution("resnet3x3x512", threads, {4, 512, 512, 7, 3, 1, 1});
  add_convolution("resnet3x3x128s2", threads, {4, 128, 128, 56, 3, 2, 1});
  add_convolution("resnet1x1x256", threads, {4, 64, 256, 56, 1});
  add_convolution("depthwise3x3", threads, {4, 96, 96, 56, 3, 1, 1, 1, 96});
  add_convolution("dilated3x3", threads, {4, 64, 64, 32, 3, 1, 2, 2});
}

}  // namespace
}  // namespace mytorch::bench

int main(int argc, char** argv) {
  mytorch::load_default_backends();
  const int threads = mytorch::num_threads();
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
