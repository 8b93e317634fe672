// Softmax, normalizations, nll_loss and embedding against plain loops in double.
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "backends/cpu-openmp/registry.h"
#include "mytorch/abi_ops/batch_norm_training.h"
#include "mytorch/abi_ops/batch_norm_training_backward.h"
#include "mytorch/abi_ops/embedding.h"
#include "mytorch/abi_ops/embedding_dense_backward.h"
#include "mytorch/abi_ops/log_softmax.h"
#include "mytorch/abi_ops/log_softmax_backward.h"
#include "mytorch/abi_ops/native_layer_norm.h"
#include "mytorch/abi_ops/native_layer_norm_backward.h"
#include "mytorch/abi_ops/nll_loss_backward.h"
#include "mytorch/abi_ops/nll_loss_forward.h"
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

TEST(Softmax, ForwardAndBackward) {
  Random random(1);
  for (const Shape& shape : kShapes) {
    for (size_t dim = 0; dim < shape.size(); ++dim) {
      for (const mt_dtype dtype : dtypes_where(sdk::is_floating)) {
        for (const bool log : {false, true}) {
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
    }
  }
}

TEST(Softmax, InfinitiesAndNan) {
  const double inf = std::numeric_limits<double>::infinity();
  const auto softmax = [](const Values& values) {
    const Shape shape = {static_cast<int64_t>(values.size())};
    const TestTensor x = TestTensor::of<float>(shape, values);
    const TestTensor y = TestTensor::empty(sdk::dtype_of<float>, shape);
    mt_args_softmax_int args{};
    args.self = x, args.out = y;
    TestContext context;
    EXPECT_EQ(run_cpu(cpu::register_softmax, "softmax.int", args, context), MT_OK);
    return y.values<double>();
  };
  EXPECT_EQ(softmax({-inf, 0, -inf}), (Values{0, 1, 0}));
  EXPECT_EQ(softmax({1e30, 1e30}), (Values{0.5, 0.5}));
  Values many(40, 1.0);
  many[3] = NAN;
  for (const double v : softmax(many)) EXPECT_TRUE(std::isnan(v));
  for (const double v : softmax({inf, 0})) EXPECT_TRUE(std::isnan(v));
  for (const double v : softmax({-inf, -inf})) EXPECT_TRUE(std::isnan(v));
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

TEST(LayerNorm, ForwardAndBackward) {
  Random random(2);
  const double eps = 1e-3;
  for (const mt_dtype dtype : dtypes_where(sdk::is_floating)) {
    for (const int64_t rows : {1, 5, 37}) {
      for (const int64_t n : {3, 40, 129}) {
        for (const bool affine : {false, true}) {
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
          ASSERT_EQ(run_cpu(cpu::register_layer_norm, "native_layer_norm_backward", back, context),
                    MT_OK);
          expect_near(dx, doubles(shape, input_gradient(h, hat, group)), 32, 8, "layer_norm dx");
          expect_near(dwt, doubles(width, dw), 16, 32, "layer_norm dw");
          expect_near(dbt, doubles(width, db), 16, 32, "layer_norm db");
        }
      }
    }
  }
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

TEST(BatchNorm, ForwardAndBackward) {
  Random random(3);
  const double eps = 1e-3;
  const Shape shape = {3, 5, 4, 6}, width = {5};
  for (const mt_dtype dtype : dtypes_where(sdk::is_floating)) {
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
}

TEST(NllLoss, EveryReductionWithWeightsAndIgnoredTargets) {
  Random random(4);
  const int64_t ignore = -100;
  for (const mt_dtype dtype : dtypes_where(sdk::is_floating)) {
    for (const bool spatial : {false, true}) {
      for (const bool weighted : {false, true}) {
        for (const char* reduction : {"none", "mean", "sum"}) {
          const Shape shape = spatial ? Shape{3, 5, 4} : Shape{9, 5};
          const Shape targets = spatial ? Shape{3, 4} : Shape{9};
          const size_t inner = spatial ? 4 : 1;
          const bool none = std::string(reduction) == "none";
          const TestTensor x = random.filled(dtype, shape), w = random.filled(dtype, {5});
          const TestTensor target = random.tensor(sdk::dtype_of<int64_t>, targets);
          const sdk::TensorView tv = target.view();
          int64_t drawn = 0;
          Random::for_each_element(tv, [&](int64_t at) {
            tv.data<int64_t>()[at] = ++drawn % 4 == 0 ? ignore : random.below(5);
          });
          const Shape out_shape = none ? targets : Shape{};
          const TestTensor out = random.tensor(dtype, out_shape);
          const TestTensor total = TestTensor::empty(wide(dtype), {});
          mt_args_nll_loss_forward args{};
          args.self = x, args.target = target, args.reduction = reduction;
          args.ignore_index = ignore, args.output = out, args.total_weight = total;
          if (weighted) args.weight = w;
          TestContext context(2);
          ASSERT_EQ(run_cpu(cpu::register_nll_loss, "nll_loss_forward", args, context), MT_OK);
          const Values xs = x.values<double>(), ws = w.values<double>();
          const auto ts = target.values<int64_t>();
          Values terms(ts.size());
          double sum = 0, weights = 0;
          for (size_t i = 0; i < ts.size(); ++i) {
            if (ts[i] == ignore) continue;
            const size_t t = static_cast<size_t>(ts[i]);
            const double weight = weighted ? ws[t] : 1;
            terms[i] = -xs[(i / inner * 5 + t) * inner + i % inner] * weight;
            sum += terms[i], weights += weight;
          }
          if (!none) terms = {std::string(reduction) == "mean" ? sum / weights : sum};
          expect_near(out, doubles(out_shape, terms), 8, 16, "nll_loss");
          expect_near(total, doubles({}, {none ? 0 : weights}), 8, 8, "total_weight");

          const TestTensor g = random.filled(dtype, out_shape);
          const TestTensor dx = random.tensor(dtype, shape);
          mt_args_nll_loss_backward back{};
          back.grad_output = g, back.input_size = list(shape), back.target = target;
          back.reduction = reduction, back.ignore_index = ignore, back.total_weight = total;
          back.out = dx;
          if (weighted) back.weight = w;
          ASSERT_EQ(run_cpu(cpu::register_nll_loss, "nll_loss_backward", back, context), MT_OK);
          const Values gs = g.values<double>();
          Values gradient(xs.size());
          for (size_t i = 0; i < ts.size(); ++i) {
            if (ts[i] == ignore) continue;
            const size_t t = static_cast<size_t>(ts[i]);
            double v = -gs[none ? i : 0] * (weighted ? ws[t] : 1);
            if (std::string(reduction) == "mean") v /= weights;
            gradient[(i / inner * 5 + t) * inner + i % inner] = v;
          }
          expect_near(dx, doubles(shape, gradient), 16, 4, "nll_loss gradient");
        }
      }
    }
  }
}

TEST(NllLoss, TargetsOutOfRangeAreErrors) {
  const TestTensor x = TestTensor::of<float>({1, 2}, {0, 1});
  const TestTensor target = TestTensor::of<int64_t>({1}, {2});
  const TestTensor out = TestTensor::empty(sdk::dtype_of<float>, {});
  mt_args_nll_loss_forward args{};
  args.self = x, args.target = target, args.reduction = "sum", args.ignore_index = -100;
  args.output = out;
  TestContext context;
  EXPECT_EQ(run_cpu(cpu::register_nll_loss, "nll_loss_forward", args, context), MT_ERROR_VALUE);
  EXPECT_EQ(context.error, "[nll_loss] index 2 is out of range for dimension 1 of size 2");
}

TEST(Embedding, RowsAndTheirGradient) {
  Random random(5);
  const int64_t rows = 7, width = 37;
  for (const mt_dtype dtype : dtypes_where(sdk::is_floating)) {
    for (const Shape& shape : {Shape{}, Shape{50}, Shape{4, 6}, Shape{0}}) {
      const TestTensor weight = random.filled(dtype, {rows, width});
      const TestTensor index = random.tensor(sdk::dtype_of<int32_t>, shape);
      const sdk::TensorView iv = index.view();
      Random::for_each_element(iv, [&](int64_t at) {
        iv.data<int32_t>()[at] = static_cast<int32_t>(random.below(rows));
      });
      Shape out_shape = shape;
      out_shape.push_back(width);
      const TestTensor out = random.tensor(dtype, out_shape);
      mt_args_embedding args{};
      args.weight = weight, args.indices = index, args.padding_idx = -1, args.out = out;
      TestContext context(2);
      ASSERT_EQ(run_cpu(cpu::register_embedding, "embedding", args, context), MT_OK);
      const Values ws = weight.values<double>();
      const auto is = index.values<int64_t>();
      Values expected;
      for (const int64_t i : is) {
        for (int64_t k = 0; k < width; ++k)
          expected.push_back(ws[static_cast<size_t>(i * width + k)]);
      }
      expect_near(out, doubles(out_shape, expected), 0, 1, "embedding");

      for (const bool scaled : {false, true}) {
        const TestTensor g = random.filled(dtype, out_shape);
        const TestTensor dw = random.tensor(dtype, {rows, width});
        mt_args_embedding_dense_backward back{};
        back.grad_output = g, back.indices = index, back.num_weights = rows;
        back.padding_idx = 2, back.scale_grad_by_freq = scaled, back.out = dw;
        ASSERT_EQ(run_cpu(cpu::register_embedding, "embedding_dense_backward", back, context),
                  MT_OK);
        const Values gs = g.values<double>();
        Values count(rows), table(static_cast<size_t>(rows * width));
        for (const int64_t i : is) count[static_cast<size_t>(i)] += 1;
        for (size_t j = 0; j < is.size(); ++j) {
          if (is[j] == 2) continue;
          for (size_t k = 0; k < static_cast<size_t>(width); ++k) {
            table[static_cast<size_t>(is[j] * width) + k] +=
                gs[j * static_cast<size_t>(width) + k] /
                (scaled ? count[static_cast<size_t>(is[j])] : 1);
          }
        }
        expect_near(dw, doubles({rows, width}, table), 8, 20, "embedding gradient");
      }
    }
  }
}

}  // namespace
}  // namespace mytorch::testing
