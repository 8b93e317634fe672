// Operators on a GPU compared with its copy bandwidth, and the host's cost of a call compared with
// a bare launch. bench/peers/torch_cuda.py has the same cases for PyTorch,
// bench/peers/host_cuda_libtorch.cpp those of the host in C++. Prints one line per case: name,
// microseconds, GB/s. The optional argument selects the cases whose name contains it. With
// MYTORCH_CUDA_TF32=1 products of float32 are named tf32.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
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

void fused_norms(int64_t rows, int64_t n) {
  using namespace mytorch;
  const std::string size = std::to_string(rows) + "x" + std::to_string(n);
  const Tensor x = uniform({rows, n}, kBFloat16), residual = uniform({rows, n}, kBFloat16);
  const Tensor grad = uniform({rows, n}, kBFloat16), grad_sum = uniform({rows, n}, kBFloat16);
  const Tensor weight = uniform({n}, kBFloat16), bias = uniform({n}, kBFloat16);
  const double all = 2.0 * static_cast<double>(rows * n);
  const auto forward = [&] {
    return mytorch::native_add_layer_norm(x, residual, {n}, weight, bias, 1e-5);
  };
  const auto [y, sum, mean, rstd] = forward();
  const auto backward = [&, &sum = sum, &mean = mean, &rstd = rstd] {
    return mytorch::native_add_layer_norm_backward(grad, grad_sum, sum, {n}, mean, rstd, weight);
  };
  report(("fused add + layer_norm " + size).c_str(), 4 * all, [&] { forward(); });
  compare([&] { return std::get<0>(forward()); },
          [&] {
            return mytorch::layer_norm(mytorch::add(x, residual).to(kFloat32), {n},
                                       weight.to(kFloat32), bias.to(kFloat32));
          });
  report(("fused add + layer_norm gradient " + size).c_str(), 4 * all, [&] { backward(); });
  compare([&] { return std::get<0>(backward()); },
          [&, &sum = sum, &mean = mean, &rstd = rstd] {
            const Tensor dx = std::get<0>(mytorch::native_layer_norm_backward(
                grad.to(kFloat32), sum.to(kFloat32), {n}, mean, rstd, weight.to(kFloat32)));
            return mytorch::add(dx, grad_sum);
          });
  report(("fused add + layer_norm both " + size).c_str(), 8 * all, [&] {
    forward();
    backward();
  });
  const Tensor inverse = std::get<2>(mytorch::native_add_rms_norm(x, residual, {n}, weight, 1e-5));
  report(("fused add + rms_norm both " + size).c_str(), 8 * all, [&, &sum = sum] {
    mytorch::native_add_rms_norm(x, residual, {n}, weight, 1e-5);
    mytorch::native_add_rms_norm_backward(grad, grad_sum, sum, {n}, inverse, weight);
  });
}

// From here on, the last column is TFLOP/s.
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
    const Tensor x = uniform({8, 32, 4096, 128}, kBFloat16);
    const Tensor cos = uniform({4096, 64}), sin = uniform({4096, 64});
    report("fused rotary 8x32x4096x128", 4.0 * static_cast<double>(x.numel()),
           [&] { mytorch::rotary_embedding_(x, cos, sin); });
    const Tensor up = uniform({16384, 11008}, kBFloat16), gate = uniform({16384, 11008}, kBFloat16);
    report("fused swiglu 16384x11008", 6.0 * 16384 * 11008, [&] { mytorch::swiglu(gate, up); });
    report("fused swiglu gradient", 10.0 * 16384 * 11008,
           [&] { mytorch::swiglu_backward(up, gate, up); });
  }
  {
    std::vector<Tensor> parameters;
    for (int i = 0; i < 116; ++i) {  // 122 M parameters
      for (const std::vector<int64_t>& sizes : {std::vector<int64_t>{1024, 1024}, {1024}}) {
        parameters.push_back(uniform(sizes).requires_grad_());
        parameters.back().set_grad(uniform(sizes));
      }
    }
    double most = 1;
    report("fused clip_grad_norm 122 M", 12.0 * 116 * 1025 * 1024,
           [&] { nn::optim::clip_grad_norm_(parameters, most *= 0.99); });
    report("fused clip_grad_norm, none cut", 4.0 * 116 * 1025 * 1024,
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
  const double n = 64 << 20;
  if (any_wanted({"copy", "fill", "add", "gelu", "cast"})) {
    const Tensor x = uniform({64 << 20}), y = uniform({64 << 20});
    const Tensor out = mytorch::empty({64 << 20}, kFloat32, "cuda");
    report("copy f32 64M", 8 * n, [&] { out.copy_(x); });
    report("fill f32 64M", 4 * n, [&] { out.fill_(1); });
    report("add f32 64M", 12 * n, [&] { mytorch::add_out(out, x, y); });
    report("gelu f32 64M", 8 * n, [&] { mytorch::gelu(x); });
    const Tensor xh = x.to(kBFloat16), yh = y.to(kBFloat16);
    report("cast f32 to bf16 64M", 6 * n, [&] { x.to(kBFloat16); });
    report("add bf16 64M", 6 * n, [&] { mytorch::add(xh, yh); });
    const Tensor bytes = mytorch::empty({1 << 28}, kUInt8, "cuda").fill_(1);
    report("cast u8 to f32 256M", 5.0 * (1 << 28), [&] { bytes.to(kFloat32); });
  }
  if (any_wanted({"host to", "device to"})) {
    const Tensor host = mytorch::rand({64 << 20}, kFloat32, kCPU);
    const Tensor x = host.to("cuda");
    report("host to device 256 MB", 4 * n, [&] { x.copy_(host); });
    report("device to host 256 MB", 4 * n, [&] { host.copy_(x); });
    const Tensor small = mytorch::rand({16}, kFloat32, kCPU), y = small.to("cuda");
    report("host to device 64 B", 64, [&] { y.copy_(small); });
    report("device to host 64 B", 64, [&] { small.copy_(y); });
  }
  if (any_wanted({"sum", "transpose", "A + A^T", "permute", "slice", "cat"})) {
    const int64_t side = 8192;
    const double all = 4.0 * side * side;
    const Tensor a = uniform({side, side});
    const Tensor out = mytorch::empty({side, side}, kFloat32, "cuda");
    const Tensor half = a.to(kBFloat16), halves = mytorch::empty_like(half);
    const Tensor byte = mytorch::empty({side, side}, kUInt8, "cuda").fill_(1);
    report("sum all 8192^2", all, [&] { mytorch::sum(a); });
    report("sum rows 8192^2", all, [&] { mytorch::sum(a, {1}); });
    report("sum columns 8192^2", all, [&] { mytorch::sum(a, {0}); });
    report("transpose f32 8192^2", 2 * all, [&] { out.copy_(mytorch::transpose(a, 0, 1)); });
    report("transpose bf16 8192^2", all, [&] { mytorch::transpose(half, 0, 1).contiguous(); });
    report("transpose u8 8192^2", all / 2, [&] { mytorch::transpose(byte, 0, 1).contiguous(); });
    report("transpose f32 to bf16 8192^2", 1.5 * all,
           [&] { halves.copy_(mytorch::transpose(a, 0, 1)); });
    report("A + A^T 8192^2", 3 * all, [&] { mytorch::add(a, mytorch::transpose(a, 0, 1)); });
    const Tensor box = a.view({256, 64, 64, 64});
    report("permute 0231 f32", 2 * all, [&] { mytorch::permute(box, {0, 2, 3, 1}).contiguous(); });
    report("permute 0213 f32", 2 * all, [&] { mytorch::permute(box, {0, 2, 1, 3}).contiguous(); });
    const Tensor left = mytorch::slice(a, 1, 0, 4096), right = mytorch::slice(a, 1, 4096);
    report("slice copy f32", all, [&] { left.contiguous(); });
    const Tensor l = left.contiguous(), r = right.contiguous();
    report("cat columns f32", 2 * all, [&] { mytorch::cat({l, r}, 1); });
  }
  if (any_wanted({"softmax", "layer_norm", "rms_norm", "dropout"})) {
    const Tensor x = uniform({16384, 4096}, kBFloat16), grad = uniform({16384, 4096}, kBFloat16);
    const Tensor weight = uniform({4096}, kBFloat16), bias = uniform({4096}, kBFloat16);
    const double all = 2.0 * 16384 * 4096;
    report("softmax bf16 16384x4096", 2 * all, [&] { mytorch::softmax(x, -1); });
    report("layer_norm bf16 16384x4096", 2 * all,
           [&] { mytorch::native_layer_norm(x, {4096}, weight, bias, 1e-5); });
    const auto [y, mean, rstd] = mytorch::native_layer_norm(x, {4096}, {}, {}, 1e-5);
    const Tensor wide_x = x.to(kFloat32), wide_grad = grad.to(kFloat32);
    const Tensor wide_weight = weight.to(kFloat32), wide_bias = bias.to(kFloat32);
    compare([&] { return mytorch::layer_norm(x, {4096}, weight, bias); },
            [&] { return mytorch::layer_norm(wide_x, {4096}, wide_weight, wide_bias); });
    const auto layer_norm_backward = [&, &mean = mean, &rstd = rstd](
                                         const Tensor& g, const Tensor& of, const Tensor& w) {
      return mytorch::native_layer_norm_backward(g, of, {4096}, mean, rstd, w);
    };
    report("layer_norm backward", 3 * all, [&] { layer_norm_backward(grad, x, weight); });
    compare([&] { return std::get<0>(layer_norm_backward(grad, x, weight)); },
            [&] { return std::get<0>(layer_norm_backward(wide_grad, wide_x, wide_weight)); });
    compare([&] { return std::get<1>(layer_norm_backward(grad, x, weight)); },
            [&] { return mytorch::sum(mytorch::mul(wide_grad, y), {0}, false, kFloat32); });
    report("rms_norm bf16 16384x4096", 2 * all,
           [&] { mytorch::rms_norm(x, {4096}, weight, 1e-5); });
    const Tensor inverse = mytorch::rsqrt(mytorch::mean(mytorch::square(wide_x), {-1}, true));
    const Tensor normal = mytorch::mul(wide_x, inverse);
    compare([&] { return mytorch::rms_norm(x, {4096}, weight, 1e-5); },
            [&] { return mytorch::mul(normal, wide_weight); });
    const auto rms_norm_backward = [&] {
      return mytorch::native_rms_norm_backward(grad, x, {4096}, inverse, weight);
    };
    report("rms_norm backward", 3 * all, [&] { rms_norm_backward(); });
    compare([&] { return std::get<1>(rms_norm_backward()); },
            [&] { return mytorch::sum(mytorch::mul(wide_grad, normal), {0}); });
    compare([&] { return std::get<0>(rms_norm_backward()); },
            [&] {
              const Tensor h = mytorch::mul(wide_grad, wide_weight);
              const Tensor along = mytorch::mean(mytorch::mul(h, normal), {-1}, true);
              return mytorch::mul(mytorch::sub(h, mytorch::mul(normal, along)), inverse);
            });
    report("dropout bf16 16384x4096", 2.5 * all, [&] { mytorch::dropout(x, 0.5, true); });
  }
  if (any_wanted({"group_norm"})) {
    const Tensor weight = uniform({256}, kBFloat16), bias = uniform({256}, kBFloat16);
    const Tensor wide_weight = weight.to(kFloat32), wide_bias = bias.to(kFloat32);
    // Groups in shared memory, channels-last, and groups too long for a block.
    const auto cases = [&](const std::string& name, const Tensor& x, const Tensor& grad) {
      const double all = 2.0 * static_cast<double>(x.numel());
      const Tensor wide_x = x.to(kFloat32), wide_grad = grad.to(kFloat32);
      report(("group_norm bf16 " + name).c_str(), 2 * all,
             [&] { mytorch::group_norm(x, 32, weight, bias); });
      // Compares with layer_norm, in which each group is a row, and which is tested on its own.
      const Tensor rows = wide_x.contiguous().view({x.size(0), 32, -1});
      const auto [normal, mean, rstd] =
          mytorch::native_layer_norm(rows, {rows.size(2)}, {}, {}, 1e-5);
      const Tensor normals = normal.reshape(x.sizes());
      const Tensor by_weight = wide_weight.view({1, 256, 1, 1});
      compare([&] { return mytorch::group_norm(x, 32, weight, bias); },
              [&] {
                return mytorch::addcmul(wide_bias.view({1, 256, 1, 1}), normals, by_weight);
              });
      const Tensor means = mean.reshape({x.size(0), 32}), rstds = rstd.reshape({x.size(0), 32});
      const auto backward = [&] {
        return mytorch::native_group_norm_backward(grad, x, means, rstds, weight, 32);
      };
      report(("group_norm backward " + name).c_str(), 3 * all, [&] { backward(); });
      compare([&] { return std::get<0>(backward()); },
              [&, &mean = mean, &rstd = rstd] {
                const Tensor h = mytorch::mul(wide_grad, by_weight).reshape(rows.sizes());
                return std::get<0>(mytorch::native_layer_norm_backward(h, rows, {rows.size(2)},
                                                                       mean, rstd, {}, {1, 0, 0}))
                    .reshape(x.sizes());
              });
      compare([&] { return std::get<1>(backward()); },
              [&] {
                return mytorch::sum(mytorch::mul(wide_grad, normals), {0, 2, 3});
              });
      compare([&] { return std::get<2>(backward()); },
              [&] {
                return mytorch::sum(wide_grad, {0, 2, 3});
              });
    };
    const auto image = [&](mytorch::IntList sizes) {
      return std::pair{uniform(sizes, kBFloat16), uniform(sizes, kBFloat16)};
    };
    const auto [x, grad] = image({32, 256, 56, 56});
    cases("32x256x56", x, grad);
    const auto [big_x, big_grad] = image({64, 256, 56, 56});
    cases("64x256x56", big_x, big_grad);
    const auto [nhwc_x, nhwc_grad] = image({32, 56, 56, 256});
    cases("32x256x56 NHWC", nhwc_x.permute({0, 3, 1, 2}), nhwc_grad.permute({0, 3, 1, 2}));
    const auto [long_x, long_grad] = image({4, 256, 160, 160});
    cases("4x256x160", long_x, long_grad);
  }
  if (any_wanted({"cross_entropy"})) {
    const Tensor x = uniform({8192, 50304}, kBFloat16);
    const Tensor target = mytorch::randint(50304, {8192}, kInt64, kCPU).to("cuda");
    const double all = 2.0 * 8192 * 50304;
    report("cross_entropy bf16", all, [&] { mytorch::cross_entropy(x, target); });
    const Tensor log_p = mytorch::log_softmax(x.to(kFloat32), 1);
    compare([&] { return mytorch::cross_entropy(x, target); },
            [&] { return mytorch::nll_loss(log_p, target); });
    {
      const auto [loss, log_sum, total] =
          mytorch::cross_entropy_forward(x, target, {}, "mean", -100, 0);
      const Tensor one = mytorch::ones_like(loss);
      const auto backward = [&, &log_sum = log_sum, &total = total] {
        return mytorch::cross_entropy_backward(one, x, target, {}, log_sum, total, "mean", -100, 0);
      };
      report("cross_entropy backward", 2 * all, [&] { backward(); });
      const Tensor share = mytorch::full({8192, 1}, -1.0, kFloat32, "cuda");
      const Tensor expected =
          mytorch::scatter_add(mytorch::exp(log_p), 1, mytorch::unsqueeze(target, 1), share);
      compare([&] { return mytorch::mul(backward().to(kFloat32), 8192); },
              [&] { return expected; });
    }
    const Tensor leaf = x.detach().requires_grad_();
    report("cross_entropy + backward", 4 * all, [&] {
      const EnableGradGuard gradients;
      mytorch::cross_entropy(leaf, target).backward();
      leaf.set_grad({});
    });
  }
  if (any_wanted({"embedding"})) {
    const Tensor grad = uniform({16, 1024, 1024}, kBFloat16);
    const Tensor index = mytorch::randint(50304, {16, 1024}, kInt64, kCPU).to("cuda");
    report("embedding gradient bf16", 2.0 * 50304 * 1024 + 2.0 * 16 * 1024 * 1024,
           [&] { mytorch::embedding_dense_backward(grad, index, 50304, -1, false); });
  }
  // From here on, the last column is TFLOP/s.
  const char* tf32 = std::getenv("MYTORCH_CUDA_TF32");
  const char* f32 = tf32 != nullptr && std::string(tf32) == "1" ? "tf32" : "f32";
  for (const auto& [dtype, name] : {std::pair{kBFloat16, "bf16"}, {kFloat32, f32}}) {
    for (const int64_t side : {4096, 8192}) {
      if (!any_wanted({"matmul"})) continue;
      const Tensor a = uniform({side, side}, dtype), b = uniform({side, side}, dtype);
      report(("matmul " + std::string(name) + " " + std::to_string(side)).c_str(),
             2e-3 * static_cast<double>(side) * side * side, [&] { mytorch::matmul(a, b); });
    }
  }
  if (any_wanted({"linear"})) {
    const Tensor x = mytorch::sub(uniform({16384, 1024}, kBFloat16), 0.5);
    const Tensor weight = mytorch::mul(mytorch::sub(uniform({4096, 1024}, kBFloat16), 0.5), 0.25);
    const Tensor bias = mytorch::sub(uniform({4096}, kBFloat16), 0.5);
    report("linear + bias + gelu bf16", 2e-3 * 16384 * 1024 * 4096,
           [&] { mytorch::linear_gelu(x, weight, bias); });
    report("linear + bias + gelu tanh", 2e-3 * 16384 * 1024 * 4096,
           [&] { mytorch::linear_gelu(x, weight, bias, "tanh"); });
    compare([&] { return mytorch::linear_gelu(x, weight, bias, "tanh"); },
            [&] { return mytorch::gelu(mytorch::linear(x, weight, bias).to(kFloat32), "tanh"); });
    const Tensor leaf = weight.detach().requires_grad_();
    report("linear + gelu tanh, kept", 2e-3 * 16384 * 1024 * 4096, [&] {
      const EnableGradGuard gradients;
      mytorch::linear_gelu(x, leaf, bias, "tanh");
    });
  }
  struct Conv {
    int64_t channels, size, kernel, stride, filters;
  };
  for (const Conv& c :
       {Conv{64, 56, 3, 1, 64}, {128, 28, 3, 1, 128}, {256, 14, 3, 1, 256}, {3, 224, 7, 2, 64}}) {
    if (!any_wanted({"conv"})) continue;
    const auto last = [](const Tensor& t) {
      return mytorch::permute(mytorch::permute(t, {0, 2, 3, 1}).contiguous(), {0, 3, 1, 2});
    };
    const Tensor x = last(uniform({64, c.channels, c.size, c.size}, kBFloat16));
    const Tensor w = last(uniform({c.filters, c.channels, c.kernel, c.kernel}, kBFloat16));
    const int64_t padding = c.kernel / 2;
    const std::string name = "conv " + std::to_string(c.channels) + "x" + std::to_string(c.size);
    Tensor y = mytorch::conv2d(x, w, {}, {c.stride, c.stride}, {padding, padding});
    const double flops = 2e-3 * static_cast<double>(y.numel()) * c.channels * c.kernel * c.kernel;
    const Tensor wide_x = x.to(kFloat32), wide_w = w.to(kFloat32), wide_y = y.to(kFloat32);
    report((name + " forward").c_str(), flops, [&] {
      mytorch::conv2d(x, w, {}, {c.stride, c.stride}, {padding, padding});
    });
    compare(
        [&] {
          return mytorch::conv2d(x, w, {}, {c.stride, c.stride}, {padding, padding});
        },
        [&] {
          return mytorch::conv2d(wide_x, wide_w, {}, {c.stride, c.stride}, {padding, padding});
        });
    const auto input_gradient = [&](const Tensor& grad, const Tensor& weight) {
      return mytorch::convolution_backward_input(grad, weight, x.sizes(), {c.stride, c.stride},
                                                 {padding, padding}, {1, 1}, false, {0, 0}, 1);
    };
    const auto weight_gradient = [&](const Tensor& grad, const Tensor& input) {
      return mytorch::convolution_backward_weight(grad, input, w.sizes(), {c.stride, c.stride},
                                                  {padding, padding}, {1, 1}, false, {0, 0}, 1,
                                                  w.strides());
    };
    if (c.channels != 3) {
      report((name + " input gradient").c_str(), flops, [&] { input_gradient(y, w); });
      compare([&] { return input_gradient(y, w); }, [&] { return input_gradient(wide_y, wide_w); });
    }
    report((name + " weight gradient").c_str(), flops, [&] { weight_gradient(y, x); });
    compare([&] { return weight_gradient(y, x); }, [&] { return weight_gradient(wide_y, wide_x); });
  }
  struct Heads {
    int64_t batch, heads, key_heads, length, width;
    bool causal;
  };
  for (const Heads& c : {Heads{8, 16, 16, 4096, 128, false},
                         {8, 16, 16, 4096, 128, true},
                         {2, 64, 8, 8192, 128, true},
                         {8, 16, 16, 4096, 64, false},
                         {8, 16, 16, 4096, 64, true},
                         {4, 48, 48, 4096, 32, true},
                         {8, 16, 16, 4096, 96, false},
                         {8, 8, 8, 4096, 256, false}}) {
    if (!any_wanted({"attention"})) continue;
    const std::string name = "attention " + std::to_string(c.batch) + "x" +
                             std::to_string(c.heads) + "x" + std::to_string(c.length) + "x" +
                             std::to_string(c.width) + (c.causal ? " causal" : "");
    const Tensor q = uniform({c.batch, c.heads, c.length, c.width}, kBFloat16);
    const Tensor k = uniform({c.batch, c.key_heads, c.length, c.width}, kBFloat16);
    const Tensor v = uniform({c.batch, c.key_heads, c.length, c.width}, kBFloat16);
    const double flops = (c.causal ? 2e-3 : 4e-3) * static_cast<double>(q.numel()) * c.length;
    const int64_t right = c.causal ? 0 : -1;
    const auto forward = [&] {
      return mytorch::attention_forward(q, k, v, {}, {}, -1, right, 0, 0.0, 0.088, 0.0);
    };
    report((name + " forward").c_str(), flops, [&] { forward(); });
    const auto [output, logsumexp, draw] = forward();
    const Tensor grad = uniform(q.sizes(), kBFloat16);
    report((name + " backward").c_str(), 2.5 * flops, [&, &o = output, &l = logsumexp, &d = draw] {
      mytorch::attention_backward(grad, {}, q, k, v, {}, {}, o, l, d, -1, right, 0, 0.0, 0.088, 0.0,
                                  {1, 1, 1, 1});
    });
  }
  for (const auto& [type, type_name] : {std::pair{kBFloat16, "bf16"}, {kFloat32, "float32"}}) {
    if (!any_wanted({"attention decode"})) continue;
    // 64 sequences of 8192 keys in shuffled pages, and the same number of keys without pages.
    const Tensor k = uniform({32768, 16, 8, 128}, type), v = uniform({32768, 16, 8, 128}, type);
    const Tensor q = uniform({64, 64, 1, 128}, type);
    const Tensor table =
        mytorch::arange(32768, kInt64, "cuda").mul(12345).remainder(32768).reshape({64, 512});
    const Tensor lengths = mytorch::full({64}, 8192, kInt64, "cuda");
    const double bytes = 2.0 * static_cast<double>(k.numel()) * (type == kFloat32 ? 4 : 2);
    const auto name = [&, named = type_name](const char* part) {
      return std::string("attention decode ") + part + " " + named;
    };
    report(name("paged").c_str(), bytes,
           [&] { mytorch::attention_paged(q, k, v, table, lengths, {}, -1, 0, 0.0, 0.088); });
    const auto heads = [](const Tensor& x) { return x.view({64, 8, 8192, 128}); };
    report(name("one tensor").c_str(), bytes, [&] {
      mytorch::attention_forward(q, heads(k), heads(v), {}, {}, -1, -1, 0, 0.0, 0.088, 0.0);
    });
  }
  for (const std::string mask : {"bool mask", "additive mask", "dropout"}) {
    if (!any_wanted({"attention 8x16x2048x128"})) continue;
    const std::string name = "attention 8x16x2048x128 " + mask;
    const Tensor q = uniform({8, 16, 2048, 128}, kBFloat16), k = uniform(q.sizes(), kBFloat16),
                 v = uniform(q.sizes(), kBFloat16), grad = uniform(q.sizes(), kBFloat16);
    const double p = mask == "dropout" ? 0.1 : 0;
    Tensor m;
    if (mask == "bool mask") m = uniform({8, 1, 2048, 2048}).gt(0.1);
    if (mask == "additive mask") m = uniform({1, 16, 2048, 2048}, kBFloat16);
    const double flops = 4e-3 * static_cast<double>(q.numel()) * 2048;
    const auto forward = [&] {
      return mytorch::attention_forward(q, k, v, m, {}, -1, -1, 0, 0.0, 0.088, p);
    };
    report((name + " forward").c_str(), flops, [&] { forward(); });
    const auto [output, logsumexp, draw] = forward();
    report((name + " backward").c_str(), 2.5 * flops, [&, &o = output, &l = logsumexp, &d = draw] {
      mytorch::attention_backward(grad, {}, q, k, v, m, {}, o, l, d, -1, -1, 0, 0.0, 0.088, p,
                                  {1, 1, 1, 1});
    });
  }
  if (any_wanted({"fused"})) fused_cases();
  if (any_wanted({"AdamW"})) {
    std::vector<Tensor> parameters;
    for (int i = 0; i < 116; ++i) {  // 122 M parameters
      parameters.push_back(uniform({1024, 1024}).requires_grad_());
      parameters.push_back(uniform({1024}).requires_grad_());
    }
    nn::optim::AdamW optimizer(parameters);
    for (const Tensor& p : parameters) p.set_grad(mytorch::zeros(p.sizes(), kFloat32, "cuda"));
    report("AdamW 122 M", 28.0 * 116 * 1025 * 1024, [&] { optimizer.step(); });
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
