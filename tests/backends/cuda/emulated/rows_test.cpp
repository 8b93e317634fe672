// batch_norm_training and linear_gelu_backward on an emulated device, compared with sums in double.
// Needs no GPU.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "backends/cuda/matrix/product.h"
#include "backends/cuda/registry.h"
#include "mytorch/abi_ops/batch_norm_training.h"
#include "mytorch/abi_ops/batch_norm_training_backward.h"
#include "mytorch/abi_ops/linear_gelu_backward.h"
#include "mytorch/backend/philox.h"
#include "tests/backends/reference/fake_host.h"

namespace mytorch::testing {
namespace {

using Values = std::vector<double>;

// Numbers in [low, high], the same for the same seed, in bfloat16's digits.
Values numbers(int64_t n, uint64_t seed, double low = -1, double high = 1) {
  const sdk::philox::Stream stream(seed, 0);
  Values values;
  for (int64_t i = 0; i < n; ++i) {
    const double x = low + (high - low) * stream.bits32(i) * 0x1p-32;
    values.push_back(static_cast<double>(static_cast<float>(sdk::BFloat16(static_cast<float>(x)))));
  }
  return values;
}

template <class Args>
std::string run(void (*registers)(cuda::KernelEntries&), const char* op, Args& args,
                mt_dtype compute) {
  cuda::KernelEntries kernels;
  registers(kernels);
  args.header.size = sizeof(Args);
  args.header.compute = compute;
  for (const mt_kernel_entry& kernel : kernels) {
    if (std::string(op) != kernel.op) continue;
    TestContext context;
    const int status = kernel.run(kernel.self, context.get(), &args);
    return status == MT_OK ? "" : status == MT_DECLINED ? "declined" : context.error;
  }
  return "no kernel";
}

void expect_near(const TestTensor& found, const Values& expected, double tolerance,
                 const std::string& what) {
  const Values values = found.values<double>();
  ASSERT_EQ(values.size(), expected.size()) << what;
  for (size_t i = 0; i < values.size(); ++i) {
    ASSERT_NEAR(values[i], expected[i], tolerance * (1 + std::abs(expected[i])))
        << what << ", element " << i;
  }
}

struct Place {
  int64_t n, c, hw;
};

// A tensor (N, C, P) of values in the order (N, P, C), whose channels lie side by side or, if
// `planes`, apart.
template <class T>
TestTensor images(const Place& at, const Values& values, bool planes) {
  if (!planes) {
    return TestTensor::of<T>({at.n * at.hw * at.c}, values)
        .as_strided({at.n, at.c, at.hw}, {at.hw * at.c, 1, at.c});
  }
  Values moved;
  for (int64_t n = 0; n < at.n; ++n) {
    for (int64_t c = 0; c < at.c; ++c) {
      for (int64_t p = 0; p < at.hw; ++p) moved.push_back(values[(n * at.hw + p) * at.c + c]);
    }
  }
  return TestTensor::of<T>({at.n, at.c, at.hw}, moved);
}

// The values in the order (N, C, P), as TestTensor gives them.
Values by_channel(const Place& at, const Values& values) {
  Values moved;
  for (int64_t n = 0; n < at.n; ++n) {
    for (int64_t c = 0; c < at.c; ++c) {
      for (int64_t p = 0; p < at.hw; ++p) moved.push_back(values[(n * at.hw + p) * at.c + c]);
    }
  }
  return moved;
}

template <class T>
void expect_batch_norm(const Place& at, bool planes, double tolerance) {
  SCOPED_TRACE(::testing::Message() << at.n << " x " << at.c << " x " << at.hw << " planes "
                                    << planes << " bytes " << sizeof(T));
  constexpr double kEps = 1e-3;
  const int64_t rows = at.n * at.hw, count = rows * at.c;
  const auto n = static_cast<double>(rows);
  const Values x = numbers(count, 1, 2, 4), g = numbers(count, 2),
               weight = numbers(at.c, 3, 0.5, 2), bias = numbers(at.c, 4);
  Values mean(at.c), var(at.c), y(count), dx(count), dw(at.c), db(at.c);
  for (int64_t c = 0; c < at.c; ++c) {
    for (int64_t r = 0; r < rows; ++r) mean[c] += x[r * at.c + c] / n;
    for (int64_t r = 0; r < rows; ++r) var[c] += std::pow(x[r * at.c + c] - mean[c], 2) / n;
    const double rstd = 1 / std::sqrt(var[c] + kEps);
    for (int64_t r = 0; r < rows; ++r) {
      const double normal = (x[r * at.c + c] - mean[c]) * rstd;
      y[r * at.c + c] = normal * weight[c] + bias[c];
      dw[c] += g[r * at.c + c] * normal;
      db[c] += g[r * at.c + c];
    }
    for (int64_t r = 0; r < rows; ++r) {
      const double normal = (x[r * at.c + c] - mean[c]) * rstd;
      dx[r * at.c + c] = weight[c] * rstd * (g[r * at.c + c] - (db[c] + normal * dw[c]) / n);
    }
  }
  const TestTensor input = images<T>(at, x, planes), grad = images<T>(at, g, planes);
  const TestTensor scale = TestTensor::of<float>({at.c}, weight),
                   shift = TestTensor::of<float>({at.c}, bias);
  const TestTensor out = images<T>(at, Values(count, NAN), planes),
                   grad_input = images<T>(at, Values(count, NAN), planes);
  const auto statistics = [&] { return TestTensor::of<float>({at.c}, Values(at.c, NAN)); };
  const TestTensor means = statistics(), vars = statistics(), grad_weight = statistics(),
                   grad_bias = statistics();
  {
    mt_args_batch_norm_training args{};
    args.input = input;
    args.weight = scale;
    args.bias = shift;
    args.eps = kEps;
    args.out = out;
    args.mean = means;
    args.var = vars;
    ASSERT_EQ(run(cuda::register_batch_norm, "batch_norm_training", args, sdk::dtype_of<T>), "");
  }
  expect_near(means, mean, 1e-6, "mean");
  expect_near(vars, var, 1e-5, "var");
  expect_near(out, by_channel(at, y), tolerance, "out");
  {
    mt_args_batch_norm_training_backward args{};
    const int64_t mask[] = {1, 1, 1};
    args.grad_out = grad;
    args.input = input;
    args.weight = scale;
    args.mean = means;
    args.var = vars;
    args.eps = kEps;
    args.output_mask = {mask, 3};
    args.grad_input = grad_input;
    args.grad_weight = grad_weight;
    args.grad_bias = grad_bias;
    ASSERT_EQ(
        run(cuda::register_batch_norm, "batch_norm_training_backward", args, sdk::dtype_of<T>), "");
  }
  expect_near(grad_bias, db, 1e-4, "grad_bias");
  expect_near(grad_weight, dw, 1e-4, "grad_weight");
  expect_near(grad_input, by_channel(at, dx), tolerance, "grad_input");
}

TEST(EmulatedRows, BatchNorm) {
  // Channels in one and several packs, packs that do not fill the threads, columns of two blocks,
  // rows of one and of several blocks, and channels that are no whole packs.
  for (const Place& at : {Place{2, 8, 5}, {3, 24, 700}, {1, 264, 9}, {2, 16, 1}, {2, 5, 7}}) {
    for (const bool planes : {false, true}) {
      expect_batch_norm<sdk::BFloat16>(at, planes, 1e-2);
      expect_batch_norm<float>(at, planes, 1e-5);
    }
  }
}

double gelu_slope(double x, bool tanh) {
  if (!tanh) {
    return 0.5 * std::erfc(-x / std::sqrt(2.0)) +
           x * std::exp(-x * x / 2) / std::sqrt(2 * std::acos(-1.0));
  }
  const double scale = std::sqrt(2 / std::acos(-1.0)),
               t = std::tanh(scale * (x + 0.044715 * x * x * x));
  return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * scale * (1 + 3 * 0.044715 * x * x);
}

template <class T>
void expect_gelu(int64_t rows, int64_t channels, const char* approximate, std::vector<int64_t> mask,
                 double tolerance) {
  SCOPED_TRACE(::testing::Message()
               << rows << " x " << channels << " " << approximate << " bytes " << sizeof(T));
  Values x = numbers(rows * channels, 1, -7, 7);
  const Values g = numbers(rows * channels, 2);
  // Far from 0 the slope is 0 or 1.
  x[0] = 1e4;
  x[1] = -1e4;
  Values dx, db(channels);
  for (size_t i = 0; i < x.size(); ++i) {
    const bool far = std::abs(x[i]) > 100;
    const double slope =
        far ? double(x[i] > 0) : gelu_slope(x[i], std::string(approximate) == "tanh");
    dx.push_back(g[i] * slope);
    db[i % channels] += dx.back();
  }
  const TestTensor linear = TestTensor::of<T>({rows, channels}, x),
                   grad = TestTensor::of<T>({rows, channels}, g),
                   out = TestTensor::of<T>({rows, channels}, Values(x.size(), NAN)),
                   bias = TestTensor::of<T>({channels}, Values(channels, NAN));
  mt_args_linear_gelu_backward args{};
  args.grad_output = grad;
  args.linear = linear;
  args.approximate = approximate;
  args.output_mask = {mask.data(), 2};
  args.grad_linear = out;
  args.grad_bias = bias;
  const std::string error =
      run(cuda::register_linear_gelu_backward, "linear_gelu_backward", args, sdk::dtype_of<T>);
  if (channels % (16 / sizeof(T)) != 0) {
    EXPECT_NE(error, "");
    return;
  }
  ASSERT_EQ(error, "");
  if (mask[0] != 0) expect_near(out, dx, tolerance, "grad_linear");
  if (mask[1] != 0) expect_near(bias, db, tolerance, "grad_bias");
}

TEST(EmulatedRows, LinearGeluBackward) {
  for (const char* approximate : {"none", "tanh"}) {
    expect_gelu<sdk::BFloat16>(70, 264, approximate, {1, 1}, 1e-2);
    expect_gelu<sdk::BFloat16>(1500, 8, approximate, {1, 1}, 1e-2);
    expect_gelu<float>(3, 12, approximate, {1, 1}, 1e-5);
    expect_gelu<double>(5, 6, approximate, {1, 0}, 1e-12);
    expect_gelu<float>(9, 4, approximate, {0, 1}, 1e-5);
    expect_gelu<float>(2, 5, approximate, {1, 1}, 1e-5);
  }
}

}  // namespace
}  // namespace mytorch::testing
