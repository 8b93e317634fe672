#include <sys/sysinfo.h>

#include <algorithm>
#include <cctype>
#include <chrono>
#include <fstream>
#include <functional>

#include "bench/harness/graph_cost.h"
#include "bench/harness/statistics.h"
#include "core/runtime/device_registry.h"
#include "core/types/errors.h"
#include "dispatcher/choice/state.h"
#include "graph/formats/parse.h"
#include "mytorch/autograd.h"
#include "mytorch/compile.h"
#include "mytorch/device_memory.h"
#include "mytorch/ops/add.h"
#include "mytorch/ops/copy_.h"
#include "mytorch/ops/linear.h"
#include "mytorch/ops/matmul.h"
#include "mytorch/ops/mean.h"
#include "mytorch/ops/randn.h"
#include "mytorch/ops/relu.h"
#include "mytorch/ops/scaled_dot_product_attention.h"
#include "mytorch/ops/to.h"
#include "mytorch/ops/zeros.h"
#include "tools/measure.h"

namespace mytorch::tools {
namespace {

using plan::Point;

constexpr int kDeviceRounds = 5;

// Returns the seconds of a call, the median of rounds without a pause between them.
double time_of(Device device, double seconds, const std::function<void()>& call) {
  const auto of = [&](int64_t calls) {
    synchronize(device);
    const auto begin = std::chrono::steady_clock::now();
    for (int64_t i = 0; i < calls; ++i) call();
    synchronize(device);
    const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - begin;
    return passed.count() / static_cast<double>(calls);
  };
  (void)of(1);
  const double once = std::max(of(2), 1e-9);
  const auto calls =
      static_cast<int64_t>(std::clamp(seconds / (kDeviceRounds * once), 1.0, 10000.0));
  std::vector<double> rounds;
  for (int i = 0; i < kDeviceRounds; ++i) rounds.push_back(of(calls));
  return bench::median(rounds);
}

struct Bench {
  Device device;
  double seconds;
  std::vector<Point> points = {};

  bool small() const { return device.is_cpu(); }
  void add(Point point, const std::function<void()>& call) {
    point.seconds = time_of(device, seconds, call);
    points.push_back(std::move(point));
  }
  Tensor random(std::initializer_list<int64_t> sizes, ScalarType dtype) const {
    return randn(sizes, kFloat32, device).to(dtype);
  }
};

Point point_of(const char* kind, std::initializer_list<int64_t> sizes) {
  Point point;
  point.kind = kind;
  size_t at = 0;
  for (const int64_t size : sizes) point.sizes[at++] = static_cast<double>(size);
  return point;
}

void products(Bench& bench) {
  struct Sizes {
    int64_t m, n, k;
  };
  std::vector<Sizes> all = {{8192, 8192, 8192},  {4096, 4096, 4096}, {2048, 16384, 4096},
                            {2048, 4096, 16384}, {16384, 3072, 768}, {16384, 768, 3072},
                            {16384, 768, 768},   {1024, 1024, 1024}, {512, 4096, 4096}};
  if (bench.small()) all = {{512, 512, 512}, {256, 1024, 256}, {128, 128, 128}};
  for (const ScalarType dtype : {kBFloat16, kFloat32}) {
    for (const auto& [m, n, k] : all) {
      if (dtype == kFloat32 && m * n * k > int64_t{1} << 37) continue;  // long, and says no more
      const Tensor a = bench.random({m, k}, dtype), b = bench.random({k, n}, dtype);
      Point point = point_of("matmul", {m, n, k});
      point.single = dtype == kFloat32;
      bench.add(point, [&] { (void)matmul(a, b); });
    }
  }
}

void attention(Bench& bench) {
  struct Sizes {
    int64_t batch, heads, length, width;
  };
  std::vector<Sizes> all = {{8, 16, 4096, 128}, {16, 12, 1024, 64}, {4, 16, 2048, 128}};
  if (bench.small()) all = {{1, 4, 256, 64}, {2, 4, 128, 32}};
  const ScalarType dtype = bench.small() ? kFloat32 : kBFloat16;
  for (const auto& [batch, heads, length, width] : all) {
    Tensor q = bench.random({batch, heads, length, width}, dtype);
    Tensor k = bench.random({batch, heads, length, width}, dtype);
    Tensor v = bench.random({batch, heads, length, width}, dtype);
    const Tensor grad = bench.random({batch, heads, length, width}, dtype);
    const auto forward = [&] {
      return scaled_dot_product_attention(q, k, v, {}, 0.0, /*is_causal=*/true);
    };
    Point point = point_of("attention", {batch, heads, length, width});
    point.causal = true;
    {
      const NoGradGuard no_grad;
      bench.add(point, [&] { (void)forward(); });
    }
    const double alone = bench.points.back().seconds;
    for (Tensor* x : {&q, &k, &v}) x->requires_grad_();
    point.backward = true;
    bench.add(point, [&] {
      for (Tensor* x : {&q, &k, &v}) x->set_grad({});
      forward().backward(grad);
    });
    double& both = bench.points.back().seconds;
    both = std::max(both - alone, 0.1 * both);
  }
}

void copies(Bench& bench) {
  for (const int64_t numel : {int64_t{1} << 22, int64_t{1} << (bench.small() ? 24 : 28)}) {
    const Tensor from = zeros({numel}, kFloat32, bench.device);
    const Tensor to = zeros({numel}, kFloat32, bench.device);
    bench.add(point_of("copy", {8 * numel}), [&] { to.copy_(from); });
  }
}

// Small kernels that a queue holds behind a long one, so that the host is ahead of the device.
void kernels(Bench& bench) {
  constexpr int64_t kCount = 200;
  const int64_t n = bench.small() ? 64 : 8192;
  const ScalarType dtype = bench.small() ? kFloat32 : kBFloat16;
  const Tensor a = bench.random({n, n}, dtype), x = zeros({16}, kFloat32, bench.device);
  const auto queue = [&](int64_t count) {
    return time_of(bench.device, bench.seconds, [&, count] {
      for (int i = 0; i < 3; ++i) (void)matmul(a, a);
      for (int64_t i = 0; i < count; ++i) x.add_(1);
    });
  };
  const NoGradGuard no_grad;
  const double with = queue(kCount), without = queue(0);
  Point point = point_of("kernels", {kCount});
  point.seconds = std::max(with - without, 1e-9 * kCount);
  bench.points.push_back(point);
}

// Forward and backward of small layers, for which a device takes less time than the host. The
// kernels are those of the recorded step.
void host(Bench& bench) {
  constexpr int64_t kWidth = 16, kLayers = 50;
  const Tensor x = bench.random({kWidth, kWidth}, kFloat32);
  std::vector<Tensor> weights, biases;
  for (int64_t i = 0; i < kLayers; ++i) {
    weights.push_back(bench.random({kWidth, kWidth}, kFloat32).requires_grad_());
    biases.push_back(bench.random({kWidth}, kFloat32).requires_grad_());
  }
  const auto step = [&](const Tensor& input) {
    for (const auto* list : {&weights, &biases}) {
      for (const Tensor& parameter : *list) parameter.set_grad({});
    }
    Tensor h = input;
    for (size_t i = 0; i < weights.size(); ++i) h = relu(linear(h, weights[i], biases[i]));
    const Tensor loss = h.mean();
    loss.backward();
    return loss.detach();
  };
  auto compiled = compile(step);
  (void)compiled(x);
  const plan::Captured captured = bench::captured_step(graph::parse_text(compiled.text()));
  bench.add(point_of("host", {static_cast<int64_t>(captured.kernels.size())}),
            [&] { (void)step(x); });
}

// A batch that goes to the device, and a loss that the host reads.
void step(Bench& bench) {
  const Tensor batch = zeros({1 << 14}, kFloat32), x = zeros({1 << 14}, kFloat32, bench.device);
  bench.add(point_of("step", {}), [&] {
    x.copy_(batch);
    (void)x.mean().item<double>();
  });
}

}  // namespace

std::vector<Point> measure_device_points(Device device, double seconds) {
  Bench bench{device, seconds};
  for (const auto measure : {products, attention, copies, kernels, host, step}) measure(bench);
  return bench.points;
}

plan::Machine machine_of_device(Device device, const std::string& gpu, const std::string& network,
                                const std::vector<Point>& points) {
  std::string label = device_label(checked_device_slot(device));
  std::transform(label.begin(), label.end(), label.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  std::string known = gpu;
  for (const char* name : {"a100", "h100", "h200", "b200"}) {
    if (known.empty() && label.find(name) != std::string::npos) known = name;
  }
  if (!known.empty()) return plan::machine_of(known, network);
  if (!device.is_cpu()) {
    fail(ErrorCode::kValue, "[plan] no data sheet of ", label,
         " is known: give --gpu, the GPU that is nearest to it");
  }
  plan::Machine machine = plan::machine_of("h100", network);
  machine.gpu.name = label;
  machine.gpu.flops = machine.gpu.single = machine.gpu.bandwidth = 0;
  for (const Point& point : points) {
    const double* s = point.sizes;
    if (point.kind == "copy") {
      machine.gpu.bandwidth = std::max(machine.gpu.bandwidth, s[0] / point.seconds);
    }
    if (point.kind == "matmul") {
      double& rate = point.single ? machine.gpu.single : machine.gpu.flops;
      rate = std::max(rate, 2 * s[0] * s[1] * s[2] / point.seconds);
    }
  }
  struct sysinfo memory {};
  ::sysinfo(&memory);
  machine.gpu.memory = static_cast<double>(memory.totalram) * memory.mem_unit;
  machine.gpu.reserved = 1e9;
  return machine;
}

void write_points(const std::vector<Point>& points, const std::string& path) {
  std::ofstream file(path);
  if (!(file << plan::points_text(points)).flush()) {
    fail(ErrorCode::kIo, "[bench] file ", path, " cannot be written");
  }
}

}  // namespace mytorch::tools
