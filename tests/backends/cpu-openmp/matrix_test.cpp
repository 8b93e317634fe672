// Products of matrices, as operators, against the definition in double.
#include <string>
#include <tuple>
#include <vector>

#include "backends/cpu-openmp/registry.h"
#include "mytorch/abi_ops/addmm.h"
#include "mytorch/abi_ops/bmm.h"
#include "mytorch/abi_ops/linear.h"
#include "tests/backends/cpu-openmp/primitives_test.h"

namespace mytorch::testing {
namespace {

// Returns the product of matrices of m x k and k x n elements, in row-major order.
std::vector<double> product(const std::vector<double>& a, const std::vector<double>& b, int64_t m,
                            int64_t k, int64_t n) {
  std::vector<double> result;
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      double sum = 0;
      for (int64_t p = 0; p < k; ++p) {
        sum += a[static_cast<size_t>(i * k + p)] * b[static_cast<size_t>(p * n + j)];
      }
      result.push_back(sum);
    }
  }
  return result;
}

bool has_products(mt_dtype dtype) { return !sdk::is_bool(dtype); }

// ---- bmm

struct Batch {
  const char* name;
  int64_t batch, m, k, n;
};
const Batch kBatches[] = {{"one", 1, 2, 2, 2},        {"three", 3, 5, 7, 4},
                          {"rows", 2, 1, 9, 33},      {"empty_sums", 2, 40, 0, 3},
                          {"no_product", 0, 2, 2, 2}, {"columns", 2, 33, 65, 1}};

class Bmm : public ::testing::TestWithParam<std::tuple<Batch, mt_dtype>> {};
INSTANTIATE_TEST_SUITE_P(, Bmm,
                         ::testing::Combine(::testing::ValuesIn(kBatches),
                                            ::testing::ValuesIn(dtypes_where(has_products))),
                         [](const auto& info) {
                           return std::string(std::get<0>(info.param).name) + "_" +
                                  sdk::dtype_name(std::get<1>(info.param));
                         });

TEST_P(Bmm, AgreesWithTheReference) {
  const auto& [s, dtype] = GetParam();
  Random random(1);
  const TestTensor a = random.filled(dtype, {s.batch, s.m, s.k});
  const TestTensor b = random.filled(dtype, {s.batch, s.k, s.n});
  mt_args_bmm args{};
  args.self = a, args.mat2 = b;
  expect_same(cpu::register_matrix, "bmm", args, &mt_args_bmm::out, dtype, {s.batch, s.m, s.n},
              random, 4, 20);
}

// ---- addmm

constexpr int64_t kRows = 6, kInner = 5, kColumns = 9;

struct Addend {
  const char* name;
  Shape shape;
};
const Addend kAddends[] = {
    {"matrix", {kRows, kColumns}}, {"row", {kColumns}}, {"row_matrix", {1, kColumns}},
    {"column_matrix", {kRows, 1}}, {"scalar", {}},      {"one_element", {1}}};

class Addmm : public ::testing::TestWithParam<std::tuple<Addend, mt_dtype>> {
 protected:
  // Runs beta * self + alpha * a @ b.
  TestTensor run(int64_t beta, int64_t alpha) {
    const TestTensor out = random.tensor(dtype, {kRows, kColumns});
    const TestTensor mat1 = matrix_of(a), mat2 = matrix_of(b);
    mt_args_addmm args{};
    args.self = self, args.mat1 = mat1, args.mat2 = mat2;
    args.beta = scalar(beta);
    args.alpha = sdk::is_floating(dtype) ? scalar(static_cast<double>(alpha)) : scalar(alpha);
    args.out = out;
    TestContext context(2);
    EXPECT_EQ(run_cpu(cpu::register_matrix, "addmm", args, context), MT_OK) << context.error;
    return out;
  }
  TestTensor expected(int64_t beta, int64_t alpha) {
    const auto z = self.values<double>();
    std::vector<double> sums =
        product(a.values<double>(), b.values<double>(), kRows, kInner, kColumns);
    const Shape& shape = std::get<0>(GetParam()).shape;
    const bool one_row = shape.size() < 2 || shape[0] == 1;
    const bool one_column = shape.empty() || shape.back() == 1;
    for (int64_t i = 0; i < kRows; ++i) {
      for (int64_t j = 0; j < kColumns; ++j) {
        const int64_t at = (one_row ? 0 : i) * (one_column ? 1 : kColumns) + (one_column ? 0 : j);
        double& sum = sums[static_cast<size_t>(i * kColumns + j)];
        sum *= static_cast<double>(alpha);
        if (beta != 0) sum += static_cast<double>(beta) * z[static_cast<size_t>(at)];
        const auto integer = static_cast<int64_t>(sum);  // 8-bit sums wrap
        if (dtype.bits == 8) sum = dtype.code == MT_UINT ? uint8_t(integer) : int8_t(integer);
      }
    }
    return TestTensor::of<double>({kRows, kColumns}, sums);
  }
  // Like the composite, kernels round products of 16-bit types before they are scaled: three more
  // units in the last place, for values up to 8.
  double scale() const {
    if (dtype.bits != 16 || !sdk::is_floating(dtype)) return 20;
    return 20 + 3 * (dtype.code == MT_BFLOAT ? 0x1p16 : 0x1p13);
  }

  static TestTensor matrix_of(const TestTensor& batch) {
    const sdk::TensorView v = batch.view();
    return batch.as_strided({v.size(1), v.size(2)}, {v.stride(1), v.stride(2)});
  }

  mt_dtype dtype = std::get<1>(GetParam());
  Random random{2};
  TestTensor a = random.filled(dtype, {1, kRows, kInner});
  TestTensor b = random.filled(dtype, {1, kInner, kColumns});
  TestTensor self = random.filled(dtype, std::get<0>(GetParam()).shape);
};
INSTANTIATE_TEST_SUITE_P(, Addmm,
                         ::testing::Combine(::testing::ValuesIn(kAddends),
                                            ::testing::ValuesIn(dtypes_where(has_products))),
                         [](const auto& info) {
                           return std::string(std::get<0>(info.param).name) + "_" +
                                  sdk::dtype_name(std::get<1>(info.param));
                         });

TEST_P(Addmm, BroadcastsAndScalesSelf) {
  for (const int64_t beta : {1, 2}) {
    for (const int64_t alpha : {1, 3}) {
      expect_near(run(beta, alpha), expected(beta, alpha), 8, scale(),
                  "beta " + std::to_string(beta) + ", alpha " + std::to_string(alpha));
    }
  }
}

TEST_P(Addmm, IgnoresSelfIfBetaIsZero) {
  if (sdk::is_floating(dtype)) {
    const sdk::TensorView v = self.view();
    sdk::visit_floating(dtype, [&](auto tag) {
      using T = typename decltype(tag)::type;
      Random::for_each_element(
          v, [&](int64_t at) { v.data<T>()[at] = sdk::convert<T>(std::nan("")); });
    });
  }
  expect_near(run(0, 3), expected(0, 3), 8, scale(), "alpha 3");
}

// ---- linear

struct Input {
  const char* name;
  Shape leading;  // the dimensions before the features
};
class Linear : public ::testing::TestWithParam<std::tuple<Input, mt_dtype>> {
 protected:
  void check(bool with_bias, bool weight_is_vector) {
    const int64_t in = 6, features = weight_is_vector ? 1 : 4;
    Shape shape = leading, out_shape = leading;
    shape.push_back(in);
    if (!weight_is_vector) out_shape.push_back(features);
    const TestTensor x = random.filled(dtype, shape);
    const TestTensor w = random.filled(dtype, weight_is_vector ? Shape{in} : Shape{features, in});
    const TestTensor b = random.filled(dtype, weight_is_vector ? Shape{} : Shape{features});
    const TestTensor out = random.tensor(dtype, out_shape);
    mt_args_linear args{};
    args.input = x, args.weight = w, args.out = out;
    if (with_bias) args.bias = b;
    TestContext context(2);
    ASSERT_EQ(run_cpu(cpu::register_matrix, "linear", args, context), MT_OK) << context.error;

    const auto ws = w.values<double>(), bs = b.values<double>();
    std::vector<double> transposed;
    for (int64_t p = 0; p < in; ++p) {
      for (int64_t f = 0; f < features; ++f) {
        transposed.push_back(ws[static_cast<size_t>(f * in + p)]);
      }
    }
    const auto xs = x.values<double>();
    std::vector<double> sums =
        product(xs, transposed, static_cast<int64_t>(xs.size()) / in, in, features);
    for (size_t i = 0; with_bias && i < sums.size(); ++i) sums[i] += bs[i % bs.size()];
    expect_near(out, TestTensor::of<double>(out_shape, sums), 4, 20, "linear");
  }

  Shape leading = std::get<0>(GetParam()).leading;
  mt_dtype dtype = std::get<1>(GetParam());
  Random random{3};
};
INSTANTIATE_TEST_SUITE_P(
    , Linear,
    ::testing::Combine(::testing::Values(Input{"vector", {}}, Input{"matrix", {3}},
                                         Input{"batch", {2, 3}}, Input{"two_batches", {2, 3, 2}},
                                         Input{"three_batches", {2, 1, 3, 2}},
                                         Input{"empty", {0, 3}}),
                       ::testing::Values(sdk::dtype_of<float>, sdk::dtype_of<sdk::BFloat16>,
                                         sdk::dtype_of<int32_t>)),
    [](const auto& info) {
      return std::string(std::get<0>(info.param).name) + "_" +
             sdk::dtype_name(std::get<1>(info.param));
    });

TEST_P(Linear, MultipliesByTheTransposedWeight) { check(false, false); }
TEST_P(Linear, AddsABias) { check(true, false); }
TEST_P(Linear, AVectorAsWeightRemovesTheDimension) { check(false, true); }
TEST_P(Linear, AVectorAsWeightHasAScalarAsBias) { check(true, true); }

}  // namespace
}  // namespace mytorch::testing
