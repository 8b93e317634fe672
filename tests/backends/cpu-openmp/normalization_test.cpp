// Softmax and normalizations against plain loops in double.
#include <cmath>
#include <string>
#include <tuple>
#include <vector>

#include "backends/cpu-openmp/registry.h"
#include "mytorch/abi_ops/batch_norm_training.h"
#include "mytorch/abi_ops/batch_norm_training_backward.h"
#include "mytorch/abi_ops/log_softmax.h"
#include "mytorch/abi_ops/log_softmax_backward.h"
#include "mytorch/abi_ops/native_layer_norm.h"
#include "mytorch/abi_ops/native_layer_norm_backward.h"
#include "mytorch/abi_ops/softmax.h"
#include "mytorch/abi_ops/softmax_backward.h"
#include "tests/backends/cpu-openmp/primitives_test.h"

namespace mytorch::testing {
namespace {

using Values = std::vector<double>;

TestTensor doubles(const Shape& shape, const Values& values) {
  return TestTensor::of<double>(shape, values);
}
mt_dtype wide(mt_dtype dtype) { return dtype.bits == 16 ? sdk::dtype_of<float> : dtype; }

const std::vector<Shape> kShapes = {{7},       {3, 5}, {4, 33},    {2, 3, 40},
                                    {2, 1000}, {1, 1}, {40, 18, 3}};

// Calls f(index) for each line of a contiguous tensor; index(k) is the position of its k-th
// element.
template <class F>
void for_each_line(const Shape& shape, size_t dim, F&& f) {
  size_t outer = 1, inner = 1;
  for (size_t d = 0; d < dim; ++d) outer *= static_cast<size_t>(shape[d]);
  for (size_t d = dim + 1; d < shape.size(); ++d) inner *= static_cast<size_t>(shape[d]);
  const size_t n = static_cast<size_t>(shape[dim]);
  for (size_t o = 0; o < outer; ++o) {
    for (size_t i = 0; i < inner; ++i) f([=](size_t k) { return (o * n + k) * inner + i; }, n);
  }
}

using SoftmaxCase = std::tuple<Shape, mt_dtype, bool>;  // the last: of the logarithm
class SoftmaxOf : public ::testing::TestWithParam<SoftmaxCase> {};
INSTANTIATE_TEST_SUITE_P(, SoftmaxOf,
                         ::testing::Combine(::testing::ValuesIn(kShapes),
                                            ::testing::ValuesIn(dtypes_where(sdk::is_floating)),
                                            ::testing::Bool()),
                         [](const auto& info) {
                           std::string name = std::get<2>(info.param) ? "log_" : "";
                           for (const int64_t size : std::get<0>(info.param)) {
                             name += std::to_string(size) + "x";
                           }
                           name.back() = '_';
                           return name + sdk::dtype_name(std::get<1>(info.param));
                         });

TEST_P(SoftmaxOf, ResultAndGradientAgreeWithTheDefinition) {
  const Shape shape = std::get<0>(GetParam());
  const mt_dtype dtype = std::get<1>(GetParam());
  const bool log = std::get<2>(GetParam());
  Random random(1);
  for (size_t dim = 0; dim < shape.size(); ++dim) {
    const TestTensor x = random.filled(dtype, shape), g = random.filled(dtype, shape);
    const TestTensor y = random.tensor(dtype, shape), dx = random.tensor(dtype, shape);
    TestContext context(2);
    const auto forward = [&](auto args, const char* op) {
      args.self = x, args.dim = static_cast<int64_t>(dim), args.out = y;
      ASSERT_EQ(run_cpu(cpu::register_softmax, op, args, context), MT_OK) << context.error;
    };
    const auto backward = [&](auto args, const char* op) {
      args.grad_output = g, args.output = y, args.out = dx;
      args.dim = static_cast<int64_t>(dim) - static_cast<int64_t>(shape.size());
      ASSERT_EQ(run_cpu(cpu::register_softmax, op, args, context), MT_OK) << context.error;
    };
    if (log) {
      forward(mt_args_log_softmax_int{}, "log_softmax.int");
      backward(mt_args_log_softmax_backward{}, "log_softmax_backward");
    } else {
      forward(mt_args_softmax_int{}, "softmax.int");
      backward(mt_args_softmax_backward{}, "softmax_backward");
    }
    const Values in = x.values<double>(), grad = g.values<double>();
    Values out(in.size()), gradient(in.size());
    for_each_line(shape, dim, [&](auto at, size_t n) {
      double sum = 0;
      for (size_t k = 0; k < n; ++k) sum += std::exp(in[at(k)]);
      for (size_t k = 0; k < n; ++k) {
        out[at(k)] = log ? in[at(k)] - std::log(sum) : std::exp(in[at(k)]) / sum;
      }
    });
    expect_near(y, doubles(shape, out), 8, 1, log ? "log_softmax" : "softmax");
    const Values got = y.values<double>();
    for_each_line(shape, dim, [&](auto at, size_t n) {
      double total = 0;
      for (size_t k = 0; k < n; ++k) total += grad[at(k)] * (log ? 1 : got[at(k)]);
      for (size_t k = 0; k < n; ++k) {
        const double v = grad[at(k)];
        gradient[at(k)] = log ? v - std::exp(got[at(k)]) * total : got[at(k)] * (v - total);
      }
    });
    expect_near(dx, doubles(shape, gradient), 8, log ? 8 : 1, "softmax gradient");
  }
}

Values softmax(const Values& values) {
  const Shape shape = {static_cast<int64_t>(values.size())};
  const TestTensor x = TestTensor::of<float>(shape, values);
  const TestTensor y = TestTensor::empty(sdk::dtype_of<float>, shape);
  mt_args_softmax_int args{};
  args.self = x, args.out = y;
  TestContext context;
  EXPECT_EQ(run_cpu(cpu::register_softmax, "softmax.int", args, context), MT_OK);
  return y.values<double>();
}

TEST(Softmax, MinusInfinityGivesZero) { EXPECT_EQ(softmax({-kInf, 0, -kInf}), (Values{0, 1, 0})); }

TEST(Softmax, HugeNumbersDoNotOverflow) { EXPECT_EQ(softmax({1e30, 1e30}), (Values{0.5, 0.5})); }

TEST(Softmax, OneNanGivesNanEverywhere) {
  Values many(40, 1.0);
  many[3] = NAN;
  for (const double v : softmax(many)) EXPECT_TRUE(std::isnan(v));
}

TEST(Softmax, InfinityGivesNan) {
  for (const double v : softmax({kInf, 0})) EXPECT_TRUE(std::isnan(v));
}

TEST(Softmax, RowsOfInfinitiesGiveNan) {
  for (const double v : softmax({-kInf, -kInf})) EXPECT_TRUE(std::isnan(v));
}

struct Normalized {
  Values hat, rstd;
};

// Returns x_hat of groups of elements; group(i) is the group of element i.
template <class G>
Normalized normalize(const Values& x, size_t groups, double eps, G&& group, Values& mean,
                     Values& var) {
  mean.assign(groups, 0), var.assign(groups, 0);
  Values count(groups, 0);
  for (size_t i = 0; i < x.size(); ++i) mean[group(i)] += x[i], count[group(i)] += 1;
  for (size_t g = 0; g < groups; ++g) mean[g] /= count[g];
  for (size_t i = 0; i < x.size(); ++i) var[group(i)] += std::pow(x[i] - mean[group(i)], 2);
  Normalized result{Values(x.size()), Values(groups)};
  for (size_t g = 0; g < groups; ++g) {
    var[g] /= count[g];
    result.rstd[g] = 1 / std::sqrt(var[g] + eps);
  }
  for (size_t i = 0; i < x.size(); ++i) {
    result.hat[i] = (x[i] - mean[group(i)]) * result.rstd[group(i)];
  }
  return result;
}

template <class G>
Values input_gradient(const Values& h, const Normalized& n, G&& group) {
  const size_t groups = n.rstd.size();
  Values sum(groups, 0), along(groups, 0), count(groups, 0), result(h.size());
  for (size_t i = 0; i < h.size(); ++i) {
    sum[group(i)] += h[i], along[group(i)] += h[i] * n.hat[i], count[group(i)] += 1;
  }
  for (size_t i = 0; i < h.size(); ++i) {
    const size_t g = group(i);
    result[i] = n.rstd[g] * (h[i] - sum[g] / count[g] - n.hat[i] * along[g] / count[g]);
  }
  return result;
}

class LayerNormOf : public ::testing::TestWithParam<std::tuple<int64_t, int64_t, bool, mt_dtype>> {
};
INSTANTIATE_TEST_SUITE_P(, LayerNormOf,
                         ::testing::Combine(::testing::Values(1, 5, 37),
                                            ::testing::Values(3, 40, 129), ::testing::Bool(),
                                            ::testing::ValuesIn(dtypes_where(sdk::is_floating))),
                         [](const auto& info) {
                           return std::to_string(std::get<0>(info.param)) + "x" +
                                  std::to_string(std::get<1>(info.param)) +
                                  (std::get<2>(info.param) ? "_affine_" : "_") +
                                  sdk::dtype_name(std::get<3>(info.param));
                         });

TEST_P(LayerNormOf, ResultAndGradientAgreeWithTheDefinition) {
  const int64_t rows = std::get<0>(GetParam()), n = std::get<1>(GetParam());
  const bool affine = std::get<2>(GetParam());
  const mt_dtype dtype = std::get<3>(GetParam());
  const double eps = 1e-3;
  Random random(2);
  const Shape shape = {rows, n}, stats = {rows, 1}, width = {n};
  const TestTensor x = random.filled(dtype, shape), w = random.filled(dtype, width);
  const TestTensor b = random.filled(dtype, width), g = random.filled(dtype, shape);
  const TestTensor out = random.tensor(dtype, shape);
  const TestTensor mean = TestTensor::empty(wide(dtype), stats);
  const TestTensor rstd = TestTensor::empty(wide(dtype), stats);
  TestContext context(3);
  mt_args_native_layer_norm args{};
  args.input = x, args.normalized_shape = list(width), args.eps = eps;
  args.out = out, args.mean = mean, args.rstd = rstd;
  if (affine) args.weight = w, args.bias = b;
  ASSERT_EQ(run_cpu(cpu::register_layer_norm, "native_layer_norm", args, context), MT_OK);
  const Values xs = x.values<double>(), ws = w.values<double>(), bs = b.values<double>();
  const Values gs = g.values<double>();
  const size_t columns = static_cast<size_t>(n);
  const auto group = [&](size_t i) { return i / columns; };
  Values means, vars;
  const Normalized hat = normalize(xs, static_cast<size_t>(rows), eps, group, means, vars);
  Values y(xs.size()), h(xs.size()), dw(columns), db(columns);
  for (size_t i = 0; i < xs.size(); ++i) {
    const size_t c = i % columns;
    y[i] = affine ? hat.hat[i] * ws[c] + bs[c] : hat.hat[i];
    h[i] = affine ? gs[i] * ws[c] : gs[i];
    dw[c] += gs[i] * hat.hat[i], db[c] += gs[i];
  }
  expect_near(out, doubles(shape, y), 16, 2, "layer_norm");
  expect_near(mean, doubles(stats, means), 16, 1, "layer_norm mean");
  expect_near(rstd, doubles(stats, hat.rstd), 16, 1, "layer_norm rstd");

  const TestTensor dx = random.tensor(dtype, shape);
  const TestTensor dwt = random.tensor(dtype, width), dbt = random.tensor(dtype, width);
  mt_args_native_layer_norm_backward back{};
  back.grad_out = g, back.input = x, back.normalized_shape = list(width);
  back.mean = mean, back.rstd = rstd;
  if (affine) back.weight = w;
  static const std::vector<int64_t> all = {1, 1, 1};
  back.output_mask = list(all);
  back.grad_input = dx, back.grad_weight = dwt, back.grad_bias = dbt;
  ASSERT_EQ(run_cpu(cpu::register_layer_norm, "native_layer_norm_backward", back, context), MT_OK);
  expect_near(dx, doubles(shape, input_gradient(h, hat, group)), 32, 8, "layer_norm dx");
  expect_near(dwt, doubles(width, dw), 16, 32, "layer_norm dw");
  expect_near(dbt, doubles(width, db), 16, 32, "layer_norm db");
}

TEST(LayerNorm, LargeMeansLeaveTheSpread) {
  const TestTensor x = TestTensor::of<float>({1, 4}, {4096001, 4096002, 4096003, 4096004});
  const TestTensor y = TestTensor::empty(sdk::dtype_of<float>, {1, 4});
  const TestTensor s = TestTensor::empty(sdk::dtype_of<float>, {1, 1});
  mt_args_native_layer_norm args{};
  const std::vector<int64_t> width = {4};
  args.input = x, args.normalized_shape = list(width), args.out = y, args.rstd = s;
  TestContext context;
  ASSERT_EQ(run_cpu(cpu::register_layer_norm, "native_layer_norm", args, context), MT_OK);
  EXPECT_NEAR(s.values<double>()[0], 1 / std::sqrt(1.25), 1e-5);
}

class BatchNorm : public ::testing::TestWithParam<mt_dtype> {};
INSTANTIATE_TEST_SUITE_P(, BatchNorm, ::testing::ValuesIn(dtypes_where(sdk::is_floating)),
                         dtype_case);

TEST_P(BatchNorm, ResultAndGradientAgreeWithTheDefinition) {
  const mt_dtype dtype = GetParam();
  const double eps = 1e-3;
  const Shape shape = {3, 5, 4, 6}, width = {5};
  Random random(3);
  const TestTensor x = random.filled(dtype, shape), w = random.filled(dtype, width);
  const TestTensor b = random.filled(dtype, width), g = random.filled(dtype, shape);
  const TestTensor out = random.tensor(dtype, shape);
  const TestTensor mean = TestTensor::empty(wide(dtype), width);
  const TestTensor var = TestTensor::empty(wide(dtype), width);
  TestContext context(2);
  mt_args_batch_norm_training args{};
  args.input = x, args.weight = w, args.bias = b, args.eps = eps;
  args.out = out, args.mean = mean, args.var = var;
  ASSERT_EQ(run_cpu(cpu::register_batch_norm, "batch_norm_training", args, context), MT_OK);
  const Values xs = x.values<double>(), ws = w.values<double>(), bs = b.values<double>();
  const Values gs = g.values<double>();
  const auto group = [](size_t i) { return i / 24 % 5; };
  Values means, vars;
  const Normalized hat = normalize(xs, 5, eps, group, means, vars);
  Values y(xs.size()), h(xs.size()), dw(5), db(5);
  for (size_t i = 0; i < xs.size(); ++i) {
    const size_t c = group(i);
    y[i] = hat.hat[i] * ws[c] + bs[c];
    h[i] = gs[i] * ws[c];
    dw[c] += gs[i] * hat.hat[i], db[c] += gs[i];
  }
  expect_near(out, doubles(shape, y), 16, 2, "batch_norm");
  expect_near(mean, doubles(width, means), 16, 1, "batch_norm mean");
  expect_near(var, doubles(width, vars), 16, 1, "batch_norm var");
  const TestTensor dx = random.tensor(dtype, shape);
  const TestTensor dwt = random.tensor(dtype, width), dbt = random.tensor(dtype, width);
  mt_args_batch_norm_training_backward back{};
  back.grad_out = g, back.input = x, back.weight = w, back.mean = mean, back.var = var;
  back.eps = eps;
  static const std::vector<int64_t> all = {1, 1, 1};
  back.output_mask = list(all);
  back.grad_input = dx, back.grad_weight = dwt, back.grad_bias = dbt;
  ASSERT_EQ(run_cpu(cpu::register_batch_norm, "batch_norm_training_backward", back, context),
            MT_OK);
  expect_near(dx, doubles(shape, input_gradient(h, hat, group)), 16, 4, "batch_norm dx");
  expect_near(dwt, doubles(width, dw), 16, 32, "batch_norm dw");
  expect_near(dbt, doubles(width, db), 16, 32, "batch_norm db");
}

}  // namespace
}  // namespace mytorch::testing
