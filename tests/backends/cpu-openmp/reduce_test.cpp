// Reductions: every fold against the reference, with various layouts, dtypes, dims and thread
// counts.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "mytorch/abi_ops/linalg_vector_norm.h"
#include "mytorch/abi_ops/max.h"
#include "mytorch/abi_ops/sum.h"
#include "mytorch/abi_ops/var.h"
#include "tests/backends/cpu-openmp/built_program.h"
#include "tests/backends/cpu-openmp/cpu_backend.h"

namespace mytorch::testing {
namespace {

constexpr mt_dtype kIndex = sdk::dtype_of<int64_t>;
constexpr const char* kFolds[] = {"sum",    "prod", "max", "min",     "argmax",
                                  "argmin", "all",  "any", "welford", "logsumexp"};

// A program whose outputs are the components of the state.
BuiltProgram states_of(const std::string& fold) {
  BuiltProgram program;
  const int32_t x = program.input(0);
  const bool logic = fold == "all" || fold == "any", arg = fold.substr(0, 3) == "arg";
  const int32_t step = logic ? program.op("cast", MT_TYPE_BOOL, x) : x;
  for (const char* name : kFolds) {
    if (fold == name) program.fold(name, step);
  }
  program.output(0, program.state(0, logic ? MT_TYPE_BOOL : arg ? MT_TYPE_INDEX : MT_TYPE_COMPUTE));
  if (arg || fold == "logsumexp" || fold == "welford") program.output(1, program.state(1));
  if (fold == "welford") program.output(2, program.state(2));
  return program;
}

// Runs both backends and compares. `tolerance` is relative to the larger magnitude.
void compare(const std::string& fold, const TestTensor& x, mt_dtype compute,
             std::vector<int64_t> dims, Shape out_shape, int threads, double tolerance) {
  TestTensor out[2][3];
  for (int i = 0; i < 2; ++i) {
    BuiltProgram program = states_of(fold);
    ProgramArgs args;
    args.in[0] = x;
    args.dims = list(dims);
    for (int k = 0; k < 3; ++k) {
      const bool index = k == 0 && fold.substr(0, 3) == "arg";
      const bool logic = fold == "all" || fold == "any";
      out[i][k] = TestTensor::empty(index   ? kIndex
                                    : logic ? sdk::dtype_of<bool>
                                            : compute,
                                    out_shape);
      args.out[k] = out[i][k];
    }
    ASSERT_EQ(program.run(i == 0 ? cpu() : reference(), args, compute, threads), "");
  }
  const int outputs = fold == "welford"                                   ? 3
                      : fold.substr(0, 3) == "arg" || fold == "logsumexp" ? 2
                                                                          : 1;
  for (int k = 0; k < outputs; ++k) {
    const auto got = out[0][k].values<double>(), want = out[1][k].values<double>();
    for (size_t i = 0; i < got.size(); ++i) {
      if (std::isnan(want[i]) || std::isinf(want[i])) {
        // The reference's running mean is NaN after an infinity; a sum divided by a count is
        // infinite.
        if (fold == "welford" && k == 1 && std::isinf(got[i])) continue;
        EXPECT_TRUE(got[i] == want[i] || (std::isnan(got[i]) && std::isnan(want[i])))
            << fold << " " << got[i] << " for " << want[i];
      } else {
        ASSERT_NEAR(got[i], want[i], tolerance * std::max(1.0, std::abs(want[i])))
            << fold << " of " << sdk::dtype_name(compute) << ", output " << k << " at " << i;
      }
    }
  }
}

class ReduceFold : public ::testing::TestWithParam<const char*> {};

TEST_P(ReduceFold, ReducesEachSetOfDimensionsOfEachLayout) {
  const Shape shape{6, 35, 50};
  const TestTensor base = tensor_of(kFloat, {21000}, small_values(21000, kFloat));
  // Products of thousands of elements stay finite only if the elements are near one.
  for (int64_t i = 0; i < 21000; i += 1) {
    float& x = base.view().data<float>()[i];
    x = 1 + x / 4096;
  }
  const TestTensor layouts[] = {
      base.as_strided(shape, {1750, 50, 1}), base.as_strided(shape, {1, 6, 210}),
      base.as_strided(shape, {1750, 1, 35}), base.as_strided(shape, {3500, 100, 2}),
      base.as_strided(shape, {-1750, 50, -1}, 5 * 1750 + 49)};
  for (const TestTensor& x : layouts) {
    for (int mask = 1; mask < 8; ++mask) {
      std::vector<int64_t> dims;
      Shape out;
      for (int d = 0; d < 3; ++d) {
        if ((mask >> d & 1) != 0) {
          dims.push_back(d);
        } else {
          out.push_back(shape[d]);
        }
      }
      compare(GetParam(), x, kFloat, dims, out, 3, 1e-5);
    }
  }
}

TEST_P(ReduceFold, TakesEveryDtype) {
  const std::string fold = GetParam();
  for (const mt_dtype dtype : kAllDtypes) {
    if ((fold == "welford" || fold == "logsumexp") && !sdk::is_floating(dtype)) continue;
    const TestTensor x = tensor_of(dtype, {9, 70}, small_values(630, dtype));
    compare(fold, x, dtype, {1}, {9}, 1, 2e-2);
    compare(fold, x, dtype, {0}, {70}, 1, 2e-2);
  }
}

TEST_P(ReduceFold, PassesOnNaNAndInfinity) {
  for (const auto& values : std::vector<std::vector<double>>{{1, kNaN, 3},
                                                             {kInf, 1, 2},
                                                             {-kInf, -kInf, -kInf},
                                                             {kInf, -kInf, 0},
                                                             {kNaN, kNaN, kInf}}) {
    std::vector<double> along, across;
    for (int repeat = 0; repeat < 50; ++repeat) {
      along.insert(along.end(), values.begin(), values.end());
    }
    for (const double value : values) across.insert(across.end(), 50, value);
    compare(GetParam(), tensor_of(kFloat, {150}, along), kFloat, {}, {}, 1, 1e-5);
    compare(GetParam(), tensor_of(kFloat, {3, 50}, across), kFloat, {0}, {50}, 1, 1e-5);
  }
}

TEST_P(ReduceFold, ReducesAScalar) {
  compare(GetParam(), tensor_of(kFloat, {}, {2.5}), kFloat, {}, {}, 1, 1e-6);
}

const auto fold_case = [](const auto& info) { return std::string(info.param); };
INSTANTIATE_TEST_SUITE_P(All, ReduceFold, ::testing::ValuesIn(kFolds), fold_case);

class ReduceFoldWithIdentity : public ::testing::TestWithParam<const char*> {};

TEST_P(ReduceFoldWithIdentity, GivesItForNoElements) {
  compare(GetParam(), TestTensor::empty(kFloat, {4, 0}), kFloat, {1}, {4}, 1, 0);
  compare(GetParam(), TestTensor::empty(kFloat, {0, 4}), kFloat, {1}, {0}, 1, 0);
}

INSTANTIATE_TEST_SUITE_P(All, ReduceFoldWithIdentity,
                         ::testing::Values("sum", "prod", "all", "any", "logsumexp"), fold_case);

TEST(Reduce, LargeSumsAreAccurateAndDoNotDependOnThreads) {
  const int64_t n = 1 << 22;
  const TestTensor x = contiguous(tensor_of(kFloat, {n}, std::vector<double>(n, 0.1)));
  std::vector<float> results;
  for (int threads : {1, 2, 5}) {
    mt_args_sum_dim_IntList args{};
    const TestTensor out = TestTensor::empty(kFloat, {});
    args.self = x;
    args.out = out;
    ASSERT_EQ(run_cpu("sum.dim_IntList", args, kFloat, threads), "");
    results.push_back(out.values<float>()[0]);
  }
  EXPECT_NEAR(results[0], n * static_cast<double>(0.1f), 0.2);  // relative error 5e-7
  EXPECT_EQ(results[0], results[1]);
  EXPECT_EQ(results[0], results[2]);
  compare("argmax", x, kFloat, {}, {}, 3, 0);
  compare("welford", x, kFloat, {}, {}, 3, 1e-5);
  const TestTensor columns = x.as_strided({1 << 19, 8}, {8, 1});
  for (const char* fold : {"sum", "max", "argmin", "welford", "logsumexp"}) {
    compare(fold, columns, kFloat, {0}, {8}, 3, 1e-4);
  }
}

// Lengths around those of vectors, of blocks, and of one or two streams of blocks.
class ReduceLength : public ::testing::TestWithParam<int64_t> {};

TEST_P(ReduceLength, SumsEachElementOnce) {
  const int64_t n = GetParam();
  std::vector<double> values(static_cast<size_t>(n));
  double expected = 0;
  for (int64_t i = 0; i < n; ++i) {
    values[static_cast<size_t>(i)] = static_cast<double>(i * 7919 % 1013 - 500);
    expected += values[static_cast<size_t>(i)];
  }
  for (const mt_dtype dtype : {kFloat, sdk::dtype_of<double>, sdk::dtype_of<int64_t>}) {
    mt_args_sum_dim_IntList args{};
    const TestTensor x = contiguous(tensor_of(dtype, {n}, values));
    const TestTensor out = TestTensor::empty(dtype, {});
    args.self = x;
    args.out = out;
    ASSERT_EQ(run_cpu("sum.dim_IntList", args, dtype), "");
    EXPECT_EQ(out.values<double>()[0], expected) << sdk::dtype_name(dtype);
  }
}

INSTANTIATE_TEST_SUITE_P(Of, ReduceLength,
                         ::testing::Values(1, 7, 8, 63, 64, 65, 2047, 2048, 2049, 5001, 32768,
                                           32784, 40001),
                         ::testing::PrintToStringParamName());

TEST(Reduce, OpsWithStepsAndEnds) {
  const TestTensor x = tensor_of(kFloat, {2, 3}, {1, 2, 4, -3, 0, 3});
  const TestTensor out = TestTensor::empty(kFloat, {2, 1});
  mt_args_var_correction var{};
  const std::vector<int64_t> dims{-1};
  var.self = x;
  var.dim = list(dims);
  var.correction = scalar(1);
  var.keepdim = 1;
  var.out = out;
  ASSERT_EQ(run_cpu("var.correction", var, kFloat), "");
  EXPECT_NEAR(out.values<double>()[0], 7.0 / 3, 1e-6);
  EXPECT_NEAR(out.values<double>()[1], 9, 1e-6);
  mt_args_linalg_vector_norm norm{};
  norm.self = x;
  norm.dim = list(dims);
  norm.keepdim = 1;
  norm.ord = scalar(3);
  norm.out = out;
  norm.header.variant = 5;
  ASSERT_EQ(run_cpu("linalg_vector_norm", norm, kFloat), "");
  EXPECT_NEAR(out.values<double>()[0], std::cbrt(73), 1e-5);
  mt_args_max_dim max{};
  const TestTensor indices = TestTensor::empty(kIndex, {3});
  max.self = x;
  max.indices = indices;  // values are not requested
  ASSERT_EQ(run_cpu("max.dim", max, kFloat), "");
  EXPECT_EQ(indices.values<int>(), (std::vector<int>{0, 0, 0}));
}

}  // namespace
}  // namespace mytorch::testing
