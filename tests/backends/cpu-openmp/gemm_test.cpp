// The matrix product against the definition: naive loops with sums in double (or exact wrapping
// integers), for every dtype, layout, shape class and option, on one thread and on several.
#include "backends/cpu-openmp/gemm/gemm.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <tuple>
#include <vector>

#include "hwy/targets.h"
#include "tests/backends/cpu-openmp/gemm_check.h"

namespace mytorch::cpu {
namespace {

using namespace gemm_test;

// ---- every dtype against the definition --------------------------------------------------------

struct NamedCase {
  const char* name;
  Case x;
};
struct ElementType {
  const char* name;
  void (*check)(const Case&);
};
const ElementType kFloatingTypes[] = {{"float32", &check<float>},
                                      {"float64", &check<double>},
                                      {"float16", &check<Half>},
                                      {"bfloat16", &check<Brain>}};
const ElementType kTypes[] = {
    {"float32", &check<float>},  {"float64", &check<double>}, {"float16", &check<Half>},
    {"bfloat16", &check<Brain>}, {"int8", &check<int8_t>},    {"uint8", &check<uint8_t>},
    {"int16", &check<int16_t>},  {"int32", &check<int32_t>},  {"int64", &check<int64_t>}};

class GemmOf : public ::testing::TestWithParam<ElementType> {};
INSTANTIATE_TEST_SUITE_P(, GemmOf, ::testing::ValuesIn(kTypes),
                         [](const auto& info) { return info.param.name; });

// Sizes around every tile edge of every instruction set: 4, 6 and 14 rows, 8, 16 and 32 columns.
TEST_P(GemmOf, SmallMatricesAgreeWithTheDefinition) {
  for (const int64_t m : {1, 2, 3, 5, 6, 7, 8, 13, 14, 15, 29}) {
    for (const int64_t n : {1, 2, 7, 8, 9, 15, 16, 17, 31, 33, 65}) {
      for (const int64_t k : {1, 2, 3, 4, 5, 8, 17, 64}) GetParam().check({m, n, k});
    }
  }
}

class GemmOfLayouts : public ::testing::TestWithParam<std::tuple<Layout, Layout, ElementType>> {};
INSTANTIATE_TEST_SUITE_P(, GemmOfLayouts,
                         ::testing::Combine(::testing::ValuesIn(kLayouts),
                                            ::testing::ValuesIn(kLayouts),
                                            ::testing::ValuesIn(kTypes)),
                         [](const auto& info) {
                           return std::string(layout_name(std::get<0>(info.param))) + "_times_" +
                                  layout_name(std::get<1>(info.param)) + "_of_" +
                                  std::get<2>(info.param).name;
                         });

TEST_P(GemmOfLayouts, AgreesWithTheDefinition) {
  const auto& [a, b, type] = GetParam();
  for (const Layout c : kLayouts) {
    type.check({17, 35, 19, a, b, c});
    type.check({1, 37, 21, a, b, c, 1, true});
    type.check({37, 1, 21, a, b, c});
    type.check({3, 2, 3, a, b, c, 1, true});
  }
  type.check({61, 150, 47, a, b});
  type.check({150, 61, 47, a, b, Layout::col_major, 1, true, true});
}

class GemmCase : public ::testing::TestWithParam<std::tuple<NamedCase, ElementType>> {};
const auto name_of_case = [](const auto& info) {
  return std::string(std::get<0>(info.param).name) + "_" + std::get<1>(info.param).name;
};

TEST_P(GemmCase, AgreesWithTheDefinition) {
  const auto& [named, type] = GetParam();
  type.check(named.x);
}

// The products are zero, or leave C untouched if they accumulate.
const NamedCase kEmptyProducts[] = {
    {"no_rows", {0, 5, 4}},
    {"no_columns", {5, 0, 4}},
    {"no_sums", {5, 4, 0}},
    {"no_sums_of_batches", {1, 1, 0, {}, {}, {}, 2}},
    {"no_sums_with_gaps", {70, 90, 0, {}, {}, Layout::gaps}},
    {"no_batch", {5, 4, 3, {}, {}, {}, 0}},
    {"nothing", {0, 0, 0}},
};
class EmptyGemm : public GemmCase {};
INSTANTIATE_TEST_SUITE_P(, EmptyGemm,
                         ::testing::Combine(::testing::ValuesIn(kEmptyProducts),
                                            ::testing::ValuesIn(kTypes)),
                         name_of_case);
TEST_P(EmptyGemm, AgreesWithTheDefinition) {
  const auto& [named, type] = GetParam();
  for (const bool accumulate : {false, true}) {
    for (const bool bias : {false, true}) {
      Case x = named.x;
      x.accumulate = accumulate, x.bias = bias;
      type.check(x);
    }
  }
}

// Several blocks of k, whose partial sums are added in C or in the workspace, and several blocks of
// m and n.
const NamedCase kBlocks[] = {
    {"k", {37, 45, 1300}},
    {"k_and_gaps",
     {37, 45, 1301, Layout::col_major, Layout::col_major, Layout::gaps, 1, true, true}},
    {"m", {700, 33, 600, Layout::padded_cols}},
    {"n", {20, 5000, 17, {}, Layout::col_major}},
    {"row_times_matrix", {1, 3000, 700, {}, {}, {}, 1, true, true}},
    {"row_times_columns", {1, 300, 5000, Layout::gaps, Layout::col_major, {}, 1, true, true}},
};
INSTANTIATE_TEST_SUITE_P(Blocks, GemmCase,
                         ::testing::Combine(::testing::ValuesIn(kBlocks),
                                            ::testing::ValuesIn(kTypes)),
                         name_of_case);

const NamedCase kBatches[] = {
    {"tiny", {2, 2, 2, {}, {}, {}, 50}},
    {"rows", {1, 33, 40, {}, {}, {}, 5, true, true}},
    {"columns", {33, 1, 40, {}, {}, {}, 5, true, true}},
    {"matrices", {19, 21, 23, Layout::col_major, {}, {}, 6, false, true}},
    {"tiny_to_columns", {2, 2, 2, {}, {}, Layout::col_major, 50}},
    {"rows_to_columns", {1, 33, 40, {}, {}, Layout::col_major, 5, true, true}},
    {"columns_to_columns", {33, 1, 40, {}, {}, Layout::col_major, 5, true, true}},
    {"matrices_to_columns", {19, 21, 23, Layout::col_major, {}, Layout::col_major, 6, false, true}},
    {"tiny_to_gaps", {2, 2, 2, {}, {}, Layout::gaps, 50}},
    {"rows_to_gaps", {1, 33, 40, {}, {}, Layout::gaps, 5, true, true}},
    {"columns_to_gaps", {33, 1, 40, {}, {}, Layout::gaps, 5, true, true}},
    {"matrices_to_gaps", {19, 21, 23, Layout::col_major, {}, Layout::gaps, 6, false, true}},
};
INSTANTIATE_TEST_SUITE_P(Batches, GemmCase,
                         ::testing::Combine(::testing::ValuesIn(kBatches),
                                            ::testing::ValuesIn(kTypes)),
                         name_of_case);

const NamedCase kThreaded[] = {
    {"square", {150, 170, 190, {}, {}, {}, 1, true, true}},
    {"wide", {9, 1500, 301, {}, Layout::col_major, {}, 1, false, true}},
    {"tall", {1500, 9, 301, Layout::col_major, {}, {}, 1, false, true}},
    {"row", {1, 2000, 700, {}, {}, {}, 1, true}},
    {"batch", {60, 70, 80, {}, {}, {}, 33, true, true}},
};
class ThreadedGemm : public GemmCase {};
INSTANTIATE_TEST_SUITE_P(, ThreadedGemm,
                         ::testing::Combine(::testing::ValuesIn(kThreaded),
                                            ::testing::ValuesIn(kTypes)),
                         name_of_case);
TEST_P(ThreadedGemm, AgreesWithTheDefinition) {
  const auto& [named, type] = GetParam();
  for (const int threads : {2, 3, 8}) {
    Case x = named.x;
    x.threads = threads;
    type.check(x);
  }
}

const NamedCase kRelu[] = {
    {"tiny", {2, 3, 4}},
    {"row", {1, 70, 40, {}, {}, {}, 1, true}},
    {"column", {70, 1, 40, {}, {}, {}, 1, true}},
    {"batch", {65, 47, 30, {}, {}, {}, 2, true}},
    {"threads", {40, 50, 900, {}, {}, {}, 1, true, false, false, 3}},
};
class GemmWithRelu : public GemmCase {};
INSTANTIATE_TEST_SUITE_P(, GemmWithRelu,
                         ::testing::Combine(::testing::ValuesIn(kRelu),
                                            ::testing::ValuesIn(kFloatingTypes)),
                         name_of_case);
TEST_P(GemmWithRelu, AgreesWithTheDefinition) {
  const auto& [named, type] = GetParam();
  for (const Layout c : {Layout::row_major, Layout::col_major, Layout::gaps}) {
    for (const bool bias : {false, true}) {
      Case x = named.x;
      x.c = c, x.bias = bias, x.relu = true;
      type.check(x);
    }
  }
}

class GemmWithAlpha : public GemmCase {};
INSTANTIATE_TEST_SUITE_P(, GemmWithAlpha,
                         ::testing::Combine(::testing::ValuesIn(kRelu),
                                            ::testing::ValuesIn(kFloatingTypes)),
                         name_of_case);
TEST_P(GemmWithAlpha, AgreesWithTheDefinition) {
  const auto& [named, type] = GetParam();
  for (const Layout c : {Layout::row_major, Layout::col_major}) {
    for (const bool bias : {false, true}) {
      Case x = named.x;
      x.c = c, x.bias = bias, x.relu = bias, x.alpha = -0.375;
      type.check(x);
    }
  }
}

// The product alone is infinite as float16.
TEST(GemmTest, AlphaScalesSumsBeforeTheyAreRounded) {
  Tensor3<Half> a(1, 3, 70, Layout::row_major), b(1, 70, 20, Layout::row_major),
      c(1, 3, 20, Layout::row_major);
  for (Half& each : a.buffer) each = nearest<Half>(300);
  for (Half& each : b.buffer) each = nearest<Half>(300);
  Case x{3, 20, 70};
  x.alpha = 0x1p-10;
  Host host(1);
  ASSERT_EQ(gemm(host.ctx(), problem_of(x, a, b, c)), MT_OK) << host.error;
  for (const Half& each : c.buffer) {
    EXPECT_EQ(to_double(each), to_double(nearest<Half>(300. * 300 * 70 / 1024)));
  }
}

// ---- strides, threads and scratch memory
// -----------------------------------------------------------

TEST(GemmTest, OperandsMayBroadcast) {
  // Stride 0 along k, along a row, and over the batch.
  std::vector<float> a = {1, 2, 3}, b = {2, 4};
  std::vector<float> c(4 * 3 * 40);
  GemmProblem p{};
  p.dtype = Traits<float>::dtype;
  p.m = 3, p.n = 40, p.k = 50, p.batch = 4;
  p.a = {a.data(), 1, 0};
  p.b = {b.data(), 0, 0};
  p.c = {c.data(), 40, 1};
  p.c_batch_stride = 120;
  Host host(1);
  ASSERT_EQ(gemm(host.ctx(), p), MT_OK);
  for (int64_t e = 0; e < 480; ++e) {
    ASSERT_EQ(c[static_cast<size_t>(e)], 100.0f * static_cast<float>(e % 120 / 40 + 1));
  }
}

TEST(GemmTest, SharedRightOperandIsOneTallerProduct) {
  Tensor3<float> a = random_tensor<float>(1, 60, 20, Layout::row_major, 1);
  Tensor3<float> b = random_tensor<float>(1, 20, 30, Layout::row_major, 2);
  Tensor3<float> whole(1, 60, 30, Layout::row_major), parts(1, 60, 30, Layout::row_major);
  Host host(1);
  GemmProblem p = problem_of<float>({60, 30, 20}, a, b, whole);
  ASSERT_EQ(gemm(host.ctx(), p), MT_OK);
  p.m = 12, p.batch = 5;
  p.a_batch_stride = 12 * 20, p.b_batch_stride = 0, p.c_batch_stride = 12 * 30;
  p.c.data = parts.data();
  ASSERT_EQ(gemm(host.ctx(), p), MT_OK);
  EXPECT_EQ(whole.buffer, parts.buffer);
}

class GemmBits : public ::testing::TestWithParam<NamedCase> {};
INSTANTIATE_TEST_SUITE_P(
    , GemmBits,
    ::testing::Values(
        NamedCase{"square", {300, 200, 700}},
        NamedCase{"square_of_columns", {300, 200, 700, Layout::col_major, Layout::col_major}},
        NamedCase{"row", {1, 3000, 999}},
        NamedCase{"row_of_columns", {1, 3000, 999, Layout::col_major, Layout::col_major}},
        NamedCase{"wide", {7, 900, 1200}},
        NamedCase{"wide_of_columns", {7, 900, 1200, Layout::col_major, Layout::col_major}}),
    [](const auto& info) { return info.param.name; });

TEST_P(GemmBits, DoNotDependOnTheNumberOfThreads) {
  const Case& x = GetParam().x;
  Tensor3<float> a = random_tensor<float>(1, x.m, x.k, x.a, 1);
  Tensor3<float> b = random_tensor<float>(1, x.k, x.n, x.b, 2);
  std::vector<float> first;
  for (const int threads : {1, 2, 5}) {
    for (const bool one_piece : {false, true}) {
      Tensor3<float> c(1, x.m, x.n, Layout::row_major);
      Host host(threads);
      host.one_piece = one_piece;
      ASSERT_EQ(gemm(host.ctx(), problem_of(x, a, b, c)), MT_OK);
      if (first.empty()) first = c.buffer;
      ASSERT_EQ(c.buffer, first) << threads << " threads" << (one_piece ? ", one piece" : "");
    }
  }
}

TEST(GemmTest, LargeProductsUseTheThreadsAndSmallOnesNeitherThreadsNorScratch) {
  const auto run = [](int64_t size, int64_t batch, Host& host) {
    Tensor3<float> a = random_tensor<float>(batch, size, size, Layout::row_major, 1);
    Tensor3<float> b = random_tensor<float>(batch, size, size, Layout::row_major, 2);
    Tensor3<float> c(batch, size, size, Layout::row_major);
    Case x = {size, size, size};
    x.batch = batch;
    EXPECT_EQ(gemm(host.ctx(), problem_of(x, a, b, c)), MT_OK);
  };
  Host small(4), large(4), batched(4);
  run(32, 1, small);
  EXPECT_EQ(small.pieces, 0);
  EXPECT_EQ(small.scratch_calls(), 0);
  run(300, 1, large);
  EXPECT_GE(large.pieces, 4);
  EXPECT_EQ(large.scratch_calls(), 1);
  run(32, 100, batched);
  EXPECT_EQ(batched.pieces, 4);  // once over the batch, not once per product
}

// ---- errors

class GemmErrors : public ::testing::Test {
 protected:
  GemmErrors() {
    p.dtype = Traits<float>::dtype;
    p.m = p.n = p.k = 2;
    p.a = p.b = {x, 2, 1};
    p.c = {c, 2, 1};
  }
  void expect_untouched() {
    for (const float value : c) EXPECT_EQ(value, 7);
  }

  Host host{1};
  float c[4] = {7, 7, 7, 7};
  float x[4] = {1, 2, 3, 4};
  GemmProblem p{};
};

TEST_F(GemmErrors, BoolHasNoProduct) {
  p.dtype = {MT_BOOL, 8, 1};
  EXPECT_EQ(gemm(host.ctx(), p), MT_ERROR_TYPE);
  EXPECT_EQ(host.error, "[gemm] there is no matrix product for this dtype");
  expect_untouched();
}

TEST_F(GemmErrors, AnUnknownDtypeHasNoProduct) {
  p.dtype = {MT_FLOAT, 8, 1};
  EXPECT_EQ(gemm(host.ctx(), p), MT_ERROR_TYPE);
  expect_untouched();
}

TEST_F(GemmErrors, IntegersHaveNoRelu) {
  p.dtype = Traits<int32_t>::dtype;
  p.activation = GemmProblem::relu;
  EXPECT_EQ(gemm(host.ctx(), p), MT_ERROR_TYPE);
  expect_untouched();
}

TEST_F(GemmErrors, SizesAreNotNegative) {
  p.k = -1;
  EXPECT_EQ(gemm(host.ctx(), p), MT_ERROR_SHAPE);
  expect_untouched();
}

TEST_F(GemmErrors, ASmallProductNeedsNoScratchMemory) {
  host.out_of_memory = true;
  EXPECT_EQ(gemm(host.ctx(), p), MT_OK);
  EXPECT_EQ(c[3], 22);
}

TEST_F(GemmErrors, ALargeProductWithoutScratchMemoryLeavesCUntouched) {
  host.out_of_memory = true;
  Tensor3<float> a = random_tensor<float>(1, 300, 300, Layout::row_major, 1);
  Tensor3<float> b = random_tensor<float>(1, 300, 300, Layout::row_major, 2);
  Tensor3<float> large(1, 300, 300, Layout::row_major);
  EXPECT_EQ(gemm(host.ctx(), problem_of<float>({300, 300, 300}, a, b, large)),
            MT_ERROR_OUT_OF_MEMORY);
  for (const float value : large.buffer) ASSERT_EQ(value, 0);
}

// ---- instruction sets

// The tests above run on the best instruction set of the machine. This one repeats the hard shapes
// on every instruction set that the machine supports.
class GemmTarget : public ::testing::TestWithParam<int64_t> {
 protected:
  void SetUp() override { hwy::SetSupportedTargetsForTest(GetParam()); }
  void TearDown() override { hwy::SetSupportedTargetsForTest(0); }
};
INSTANTIATE_TEST_SUITE_P(, GemmTarget, ::testing::ValuesIn(hwy::SupportedAndGeneratedTargets()),
                         [](const auto& info) { return std::string(hwy::TargetName(info.param)); });

TEST_P(GemmTarget, EveryDtypeAgreesWithTheDefinition) {
  for (const Layout layout : {Layout::row_major, Layout::col_major, Layout::gaps}) {
    for (const int64_t k : {5, 520}) {
      for (const ElementType& type : kTypes) {
        type.check({29, 67, k, layout, layout, {}, 1, true, true, false, 2});
        type.check({1, 67, k, layout, layout, {}, 1, false, true});
        type.check({50, 130, k, layout, layout, layout, 1, true});
      }
    }
  }
}

}  // namespace
}  // namespace mytorch::cpu
