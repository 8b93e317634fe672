// The loss nll_loss and the lookup embedding against plain loops in double.
#include <string>
#include <tuple>
#include <vector>

#include "backends/cpu-openmp/registry.h"
#include "mytorch/abi_ops/embedding.h"
#include "mytorch/abi_ops/embedding_dense_backward.h"
#include "mytorch/abi_ops/nll_loss_backward.h"
#include "mytorch/abi_ops/nll_loss_forward.h"
#include "tests/backends/cpu-openmp/primitives_test.h"

namespace mytorch::testing {
namespace {

using Values = std::vector<double>;

TestTensor doubles(const Shape& shape, const Values& values) {
  return TestTensor::of<double>(shape, values);
}
mt_dtype wide(mt_dtype dtype) { return dtype.bits == 16 ? sdk::dtype_of<float> : dtype; }

class NllLossOf : public ::testing::TestWithParam<std::tuple<std::string, bool, bool, mt_dtype>> {};
INSTANTIATE_TEST_SUITE_P(, NllLossOf,
                         ::testing::Combine(::testing::Values("none", "mean", "sum"),
                                            ::testing::Bool(), ::testing::Bool(),
                                            ::testing::ValuesIn(dtypes_where(sdk::is_floating))),
                         [](const auto& info) {
                           return std::get<0>(info.param) +
                                  (std::get<1>(info.param) ? "_spatial" : "") +
                                  (std::get<2>(info.param) ? "_weighted_" : "_") +
                                  sdk::dtype_name(std::get<3>(info.param));
                         });

TEST_P(NllLossOf, ResultAndGradientSkipIgnoredTargets) {
  const std::string reduction = std::get<0>(GetParam());
  const bool spatial = std::get<1>(GetParam()), weighted = std::get<2>(GetParam());
  const mt_dtype dtype = std::get<3>(GetParam());
  const int64_t ignore = -100;
  Random random(4);
  const Shape shape = spatial ? Shape{3, 5, 4} : Shape{9, 5};
  const Shape targets = spatial ? Shape{3, 4} : Shape{9};
  const size_t inner = spatial ? 4 : 1;
  const bool none = reduction == "none";
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
  args.self = x, args.target = target, args.reduction = reduction.c_str();
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
  if (!none) terms = {reduction == "mean" ? sum / weights : sum};
  expect_near(out, doubles(out_shape, terms), 8, 16, "nll_loss");
  expect_near(total, doubles({}, {none ? 0 : weights}), 8, 8, "total_weight");

  const TestTensor g = random.filled(dtype, out_shape);
  const TestTensor dx = random.tensor(dtype, shape);
  mt_args_nll_loss_backward back{};
  back.grad_output = g, back.input_size = list(shape), back.target = target;
  back.reduction = reduction.c_str(), back.ignore_index = ignore, back.total_weight = total;
  back.out = dx;
  if (weighted) back.weight = w;
  ASSERT_EQ(run_cpu(cpu::register_nll_loss, "nll_loss_backward", back, context), MT_OK);
  const Values gs = g.values<double>();
  Values gradient(xs.size());
  for (size_t i = 0; i < ts.size(); ++i) {
    if (ts[i] == ignore) continue;
    const size_t t = static_cast<size_t>(ts[i]);
    double v = -gs[none ? i : 0] * (weighted ? ws[t] : 1);
    if (reduction == "mean") v /= weights;
    gradient[(i / inner * 5 + t) * inner + i % inner] = v;
  }
  expect_near(dx, doubles(shape, gradient), 16, 4, "nll_loss gradient");
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

// ---- embedding

constexpr int64_t kTableRows = 7, kWidth = 37, kPadding = 2;

struct Indices {
  const char* name;
  Shape shape;
};
const Indices kIndices[] = {{"scalar", {}}, {"vector", {50}}, {"matrix", {4, 6}}, {"empty", {0}}};

class Embedding : public ::testing::TestWithParam<std::tuple<Indices, mt_dtype>> {
 protected:
  Embedding() {
    result_shape.push_back(kWidth);
    const sdk::TensorView v = index.view();
    Random::for_each_element(v, [&](int64_t at) {
      v.data<int32_t>()[at] = static_cast<int32_t>(random.below(kTableRows));
    });
    rows = index.values<int64_t>();
  }
  // Returns the gradient of the table; rows that occur n times are divided by n if `scaled`.
  Values gradient(const Values& grad, bool scaled) const {
    Values count(kTableRows), table(kTableRows * kWidth);
    for (const int64_t row : rows) count[static_cast<size_t>(row)] += 1;
    for (size_t j = 0; j < rows.size(); ++j) {
      if (rows[j] == kPadding) continue;
      for (size_t k = 0; k < kWidth; ++k) {
        table[static_cast<size_t>(rows[j] * kWidth) + k] +=
            grad[j * kWidth + k] / (scaled ? count[static_cast<size_t>(rows[j])] : 1);
      }
    }
    return table;
  }

  mt_dtype dtype = std::get<1>(GetParam());
  Random random{5};
  TestTensor index = random.tensor(sdk::dtype_of<int32_t>, std::get<0>(GetParam()).shape);
  std::vector<int64_t> rows;  // the values of `index`
  Shape result_shape = std::get<0>(GetParam()).shape;
};
INSTANTIATE_TEST_SUITE_P(, Embedding,
                         ::testing::Combine(::testing::ValuesIn(kIndices),
                                            ::testing::ValuesIn(dtypes_where(sdk::is_floating))),
                         [](const auto& info) {
                           return std::string(std::get<0>(info.param).name) + "_" +
                                  sdk::dtype_name(std::get<1>(info.param));
                         });

TEST_P(Embedding, CopiesRowsOfTheTable) {
  const TestTensor weight = random.filled(dtype, {kTableRows, kWidth});
  const TestTensor out = random.tensor(dtype, result_shape);
  mt_args_embedding args{};
  args.weight = weight, args.indices = index, args.padding_idx = -1, args.out = out;
  TestContext context(2);
  ASSERT_EQ(run_cpu(cpu::register_embedding, "embedding", args, context), MT_OK);
  const Values table = weight.values<double>();
  Values expected;
  for (const int64_t row : rows) {
    expected.insert(expected.end(), table.begin() + row * kWidth,
                    table.begin() + (row + 1) * kWidth);
  }
  expect_near(out, doubles(result_shape, expected), 0, 1, "embedding");
}

TEST_P(Embedding, GradientAddsUpRowsExceptForThePadding) {
  for (const bool scaled : {false, true}) {
    const TestTensor grad = random.filled(dtype, result_shape);
    const TestTensor out = random.tensor(dtype, {kTableRows, kWidth});
    mt_args_embedding_dense_backward args{};
    args.grad_output = grad, args.indices = index, args.num_weights = kTableRows;
    args.padding_idx = kPadding, args.scale_grad_by_freq = scaled, args.out = out;
    TestContext context(2);
    ASSERT_EQ(run_cpu(cpu::register_embedding, "embedding_dense_backward", args, context), MT_OK);
    expect_near(out, doubles({kTableRows, kWidth}, gradient(grad.values<double>(), scaled)), 8, 20,
                scaled ? "scaled" : "not scaled");
  }
}

}  // namespace
}  // namespace mytorch::testing
