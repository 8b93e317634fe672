// Gather, scatter, selection and concatenation against the reference or the definition.
#include "backends/cpu-openmp/indexing/indexing.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <string>
#include <tuple>
#include <vector>

#include "backends/cpu-openmp/registry.h"
#include "mytorch/abi_ops/cat.h"
#include "mytorch/abi_ops/gather.h"
#include "mytorch/abi_ops/index_select.h"
#include "mytorch/abi_ops/interleave_indices.h"
#include "mytorch/abi_ops/nonzero.h"
#include "mytorch/abi_ops/scatter.h"
#include "mytorch/abi_ops/scatter_add.h"
#include "tests/backends/cpu-openmp/primitives_test.h"

namespace mytorch::testing {
namespace {

constexpr mt_dtype kIndex = sdk::dtype_of<int64_t>;

void fill_indices(const TestTensor& index, Random& random, int64_t below) {
  const sdk::TensorView v = index.view();
  sdk::visit_dtype(v.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    Random::for_each_element(
        v, [&](int64_t at) { v.data<T>()[at] = sdk::convert<T>(random.below(below)); });
  });
}
TestTensor contiguous_indices(Random& random, const Shape& shape, int64_t below) {
  const TestTensor index = TestTensor::empty(kIndex, shape);
  fill_indices(index, random, below);
  return index;
}

// ---- every dtype, in several layouts

struct IndexCase {
  const char* name;
  Shape self, index, src;
  int64_t dim;
};
const IndexCase kIndexCases[] = {
    {"line", {5}, {9}, {9}, 0},
    {"rows", {4, 6}, {4, 11}, {4, 12}, 1},
    {"columns", {4, 6}, {9, 5}, {10, 6}, 0},
    {"middle_dimension", {3, 5, 7}, {2, 8, 6}, {3, 8, 7}, -2},
    {"no_index", {3, 5}, {0, 5}, {0, 5}, 0},
    {"scalar", {}, {}, {}, 0},
    {"long_columns", {20, 40}, {30, 33}, {30, 33}, 0},
    {"long_line", {7000}, {70000}, {70000}, 0},
};

class IndexedBy : public ::testing::TestWithParam<std::tuple<IndexCase, mt_dtype>> {
 protected:
  IndexedBy() {
    const int64_t d = c.dim < 0 ? c.dim + static_cast<int64_t>(c.self.size()) : c.dim;
    const int64_t size = c.self.empty() ? 1 : c.self[static_cast<size_t>(d)];
    index = random.tensor(random.below(2) == 0 ? kIndex : sdk::dtype_of<int32_t>, c.index);
    fill_indices(index, random, size);
    self = random.filled(dtype, c.self, true);
    src = random.filled(dtype, c.src);
  }

  IndexCase c = std::get<0>(GetParam());
  mt_dtype dtype = std::get<1>(GetParam());
  Random random{5};
  TestTensor index, self, src;
};
INSTANTIATE_TEST_SUITE_P(, IndexedBy,
                         ::testing::Combine(::testing::ValuesIn(kIndexCases),
                                            ::testing::ValuesIn(kAllDtypes)),
                         [](const auto& info) {
                           return std::string(std::get<0>(info.param).name) + "_" +
                                  sdk::dtype_name(std::get<1>(info.param));
                         });

TEST_P(IndexedBy, GatherAgreesWithTheReference) {
  mt_args_gather args{};
  args.self = self, args.dim = c.dim, args.index = index;
  expect_same(cpu::register_gather, "gather", args, &mt_args_gather::out, dtype, c.index, random);
}

TEST_P(IndexedBy, ScatterAgreesWithTheReference) {
  mt_args_scatter_src args{};
  args.self = self, args.dim = c.dim, args.index = index, args.src = src;
  expect_same(cpu::register_scatter, "scatter.src", args, &mt_args_scatter_src::out, dtype, c.self,
              random);
}

TEST_P(IndexedBy, ScatterAddAgreesWithTheReference) {
  mt_args_scatter_add args{};
  args.self = self, args.dim = c.dim, args.index = index, args.src = src;
  expect_same(cpu::register_scatter, "scatter_add", args, &mt_args_scatter_add::out, dtype, c.self,
              random, 8, 40);
}

class Indexing : public ::testing::TestWithParam<mt_dtype> {};
INSTANTIATE_TEST_SUITE_P(, Indexing, ::testing::ValuesIn(kAllDtypes), dtype_case);

TEST_P(Indexing, IndexSelectGathersWholeSlices) {
  Random random(6);
  const Shape shape = {5, 6, 20};
  for (const size_t dim : {0, 1, 2}) {
    const TestTensor self = random.filled(GetParam(), shape);
    const TestTensor index = random.tensor(kIndex, {9});
    fill_indices(index, random, shape[dim]);
    Shape selected = shape;
    selected[dim] = 9;
    const TestTensor out = random.tensor(GetParam(), selected);
    mt_args_index_select args{};
    args.self = self, args.dim = static_cast<int64_t>(dim), args.index = index, args.out = out;
    TestContext context(3);
    ASSERT_EQ(run_cpu(cpu::register_gather, "index_select", args, context), MT_OK);
    // The same index for every element of a slice.
    Shape strides(3, 0);
    strides[dim] = index.view().stride(0);
    const TestTensor broadcast = index.as_strided(selected, strides);
    const TestTensor expected = TestTensor::empty(GetParam(), selected);
    mt_args_gather gather{};
    gather.self = self, gather.dim = args.dim, gather.index = broadcast, gather.out = expected;
    ASSERT_EQ(run_op("gather", gather, GetParam()), "");
    expect_near(out, expected, 0, 1, "index_select");
  }
}

TEST(IndexSelect, OfFewSlicesSharesALongIndex) {
  Random random(14);
  for (const size_t dim : {0, 1}) {
    for (const int64_t layout : {0, 1, 2, 3}) {
      Shape shape = {3, 3};
      shape[dim] = 500;
      const TestTensor self = random.laid_out(kFloat, shape, layout);
      random.fill(self);
      const TestTensor index = contiguous_indices(random, {30000}, 500);
      Shape selected = shape;
      selected[dim] = 30000;
      const TestTensor out = random.tensor(kFloat, selected);
      mt_args_index_select args{};
      args.self = self, args.dim = static_cast<int64_t>(dim), args.index = index, args.out = out;
      TestContext context(3);
      ASSERT_EQ(run_cpu(cpu::register_gather, "index_select", args, context), MT_OK);
      const std::vector<float> from = self.values<float>();
      const std::vector<int64_t> which = index.values<int64_t>();
      std::vector<float> expected;
      for (size_t i = 0; i < static_cast<size_t>(selected[0]); ++i) {
        for (size_t j = 0; j < static_cast<size_t>(selected[1]); ++j) {
          const size_t row = dim == 0 ? static_cast<size_t>(which[i]) : i;
          const size_t column = dim == 1 ? static_cast<size_t>(which[j]) : j;
          expected.push_back(from[row * static_cast<size_t>(shape[1]) + column]);
        }
      }
      ASSERT_EQ(out.values<float>(), expected) << "dim " << dim << " layout " << layout;
    }
  }
}

TEST(IndexSelect, NamesTheFirstWrongIndexWhicheverThreadFindsOne) {
  Random random(15);
  const TestTensor self = random.filled(kFloat, {9});
  const TestTensor index = contiguous_indices(random, {200000}, 9);
  index.view().data<int64_t>()[10] = -10;
  for (const int64_t i : {99999, 149999, 199999}) index.view().data<int64_t>()[i] = 9;
  const TestTensor out = TestTensor::empty(kFloat, {200000});
  mt_args_index_select args{};
  args.self = self, args.index = index, args.out = out;
  for (int repeat = 0; repeat < 20; ++repeat) {
    TestContext context(4);
    ASSERT_EQ(run_cpu(cpu::register_gather, "index_select", args, context), MT_ERROR_VALUE);
    ASSERT_EQ(context.error, "[index_select] index -10 is out of range for dimension 0 of size 9");
  }
}

TEST(InterleaveIndices, OfManyRepeatsRefusesOneThatIsNegative) {
  constexpr int64_t kCount = 100000;
  Random random(16);
  const TestTensor ends = TestTensor::empty(kIndex, {kCount});
  int64_t* const end = ends.view().data<int64_t>();
  std::vector<int64_t> expected;
  for (int64_t i = 0; i < kCount; ++i) {
    expected.resize(expected.size() + static_cast<size_t>(random.below(3)), i);
    end[i] = static_cast<int64_t>(expected.size());
  }
  const TestTensor out = TestTensor::empty(kIndex, {end[kCount - 1]});
  mt_args_interleave_indices args{};
  args.ends = ends, args.size = end[kCount - 1], args.out = out;
  TestContext context(3);
  ASSERT_EQ(run_cpu(cpu::register_search, "interleave_indices", args, context), MT_OK);
  EXPECT_EQ(out.values<int64_t>(), expected);
  for (const int64_t place : {int64_t{0}, int64_t{33334}, int64_t{66667}, kCount - 2}) {
    const int64_t saved = end[place];
    end[place] = place == 0 ? -1 : end[kCount - 1] + 1;
    EXPECT_EQ(run_cpu(cpu::register_search, "interleave_indices", args, context), MT_ERROR_VALUE);
    EXPECT_EQ(context.error, "[repeat_interleave] repeats has a negative number");
    end[place] = saved;
  }
}

TEST_P(Indexing, CatConvertsItsOperandsAndIgnoresEmptyOnes) {
  Random random(7);
  const TestTensor a = random.filled(GetParam(), {3, 2, 5});
  const TestTensor none = TestTensor::empty(GetParam(), {0});
  const TestTensor b = random.filled(sdk::dtype_of<uint8_t>, {3, 4, 5});
  const TestTensor c = random.filled(GetParam(), {3, 0, 5});
  const mt_tensor* tensors[] = {a, none, b, c, a};
  mt_args_cat args{};
  args.tensors = {tensors, 5};
  args.dim = -2;
  expect_same(cpu::register_cat, "cat", args, &mt_args_cat::out, GetParam(), {3, 8, 5}, random);
}

TEST_P(Indexing, NonzeroIsInRowMajorOrder) {
  Random random(8);
  for (const Shape& shape : {Shape{}, Shape{0}, Shape{4, 5, 3}, Shape{70000}, Shape{300, 301}}) {
    const TestTensor self = random.filled(GetParam(), shape, true);
    mt_args_nonzero args{};
    args.self = self;
    TestContext expected, actual(2);
    ASSERT_EQ(run_op("nonzero", args, GetParam(), expected), MT_OK);
    ASSERT_EQ(run_cpu(cpu::register_cat, "nonzero", args, actual), MT_OK) << actual.error;
    ASSERT_EQ(actual.outputs.at(0).values<int64_t>(), expected.outputs.at(0).values<int64_t>());
  }
}

// ---- contiguous lines, of which a kernel handles several elements per step

class LineOfLength : public ::testing::TestWithParam<int64_t> {
 protected:
  LineOfLength() { random.fill(self), random.fill(src); }
  size_t place(int64_t i) const {  // in `self`, of the element with the index `i`
    const int64_t row = i / GetParam();
    return static_cast<size_t>(row * 30 + index.view().data<int64_t>()[i]);
  }

  Random random{1};
  TestTensor self = TestTensor::empty(kFloat, {5, 30});
  TestTensor src = TestTensor::empty(kFloat, {5, GetParam()});
  TestTensor index = contiguous_indices(random, {5, GetParam()}, 30);
  TestContext context{2};
};
INSTANTIATE_TEST_SUITE_P(, LineOfLength, ::testing::Range<int64_t>(1, 20),
                         ::testing::PrintToStringParamName());

TEST_P(LineOfLength, GatherReadsTheIndexedElements) {
  const TestTensor out = TestTensor::empty(kFloat, {5, GetParam()});
  mt_args_gather args{};
  args.self = self, args.dim = 1, args.index = index, args.out = out;
  ASSERT_EQ(run_cpu(cpu::register_gather, "gather", args, context), MT_OK);
  const auto x = self.values<float>(), y = out.values<float>();
  for (int64_t i = 0; i < 5 * GetParam(); ++i) {
    ASSERT_EQ(y[static_cast<size_t>(i)], x[place(i)]) << i;
  }
}

TEST_P(LineOfLength, ScatterAddAddsInOrder) {
  const TestTensor out = TestTensor::empty(kFloat, {5, 30});
  mt_args_scatter_add args{};
  args.self = self, args.dim = 1, args.index = index, args.src = src, args.out = out;
  ASSERT_EQ(run_cpu(cpu::register_scatter, "scatter_add", args, context), MT_OK);
  std::vector<float> sums = self.values<float>();
  const auto s = src.values<float>();
  for (int64_t i = 0; i < 5 * GetParam(); ++i) sums[place(i)] += s[static_cast<size_t>(i)];
  ASSERT_EQ(out.values<float>(), sums);
}

// ---- invalid indices

// An index of this value at each place of a tensor of 2 x 11 indices into rows of 30.
struct BadIndex {
  const char* name;
  int64_t value;
};
class IndexOutOfRange : public ::testing::TestWithParam<BadIndex> {
 protected:
  std::string message(const char* op) const {
    return std::string("[") + op + "] index " + std::to_string(GetParam().value) +
           " is out of range for dimension 1 of size 30";
  }
  TestTensor index_with_bad(int64_t place) {
    const TestTensor index = contiguous_indices(random, {2, 11}, 30);
    index.view().data<int64_t>()[place] = GetParam().value;
    return index;
  }

  Random random{2};
  TestTensor self = TestTensor::of<float>({2, 30}, std::vector<double>(60));
};
INSTANTIATE_TEST_SUITE_P(, IndexOutOfRange,
                         ::testing::Values(BadIndex{"negative", -1}, BadIndex{"size", 30},
                                           BadIndex{"smallest",
                                                    std::numeric_limits<int64_t>::min()}),
                         [](const auto& info) { return info.param.name; });

TEST_P(IndexOutOfRange, GatherNamesIt) {
  const TestTensor out = TestTensor::empty(kFloat, {2, 11});
  for (int64_t place = 0; place < 22; ++place) {
    const TestTensor index = index_with_bad(place);
    mt_args_gather args{};
    args.self = self, args.dim = -1, args.index = index, args.out = out;
    TestContext context(2);
    EXPECT_EQ(run_cpu(cpu::register_gather, "gather", args, context), MT_ERROR_VALUE);
    EXPECT_EQ(context.error, message("gather")) << "at " << place;
  }
}

TEST_P(IndexOutOfRange, ScatterAddNamesIt) {
  const TestTensor out = TestTensor::empty(kFloat, {2, 30});
  for (int64_t place = 0; place < 22; ++place) {
    const TestTensor index = index_with_bad(place);
    mt_args_scatter_add args{};
    args.self = self, args.dim = 1, args.index = index, args.src = self, args.out = out;
    TestContext context(2);
    EXPECT_EQ(run_cpu(cpu::register_scatter, "scatter_add", args, context), MT_ERROR_VALUE);
    EXPECT_EQ(context.error, message("scatter_add")) << "at " << place;
  }
}

TEST_P(IndexOutOfRange, IndexSelectNamesIt) {
  const TestTensor index = TestTensor::of<int64_t, int64_t>({1}, {GetParam().value});
  const TestTensor out = TestTensor::empty(kFloat, {2, 1});
  mt_args_index_select args{};
  args.self = self, args.dim = 1, args.index = index, args.out = out;
  TestContext context;
  EXPECT_EQ(run_cpu(cpu::register_gather, "index_select", args, context), MT_ERROR_VALUE);
  EXPECT_EQ(context.error, message("index_select"));
}

// ---- lines that several threads share

struct ScatterCase {
  const char* name;
  Shape self, index;
  int64_t dim;
};
class ScatterAdd : public ::testing::TestWithParam<std::tuple<ScatterCase, mt_dtype>> {};
INSTANTIATE_TEST_SUITE_P(
    , ScatterAdd,
    ::testing::Combine(::testing::Values(ScatterCase{"long_line", {9000}, {100000}, 0},
                                         ScatterCase{"few_indices", {100000}, {50}, 0},
                                         ScatterCase{"rows", {40, 700}, {40, 900}, 1},
                                         ScatterCase{"columns", {700, 40}, {900, 40}, 0},
                                         ScatterCase{"short_rows", {40, 50}, {30, 60}, 1}),
                       ::testing::Values(kFloat, sdk::dtype_of<sdk::BFloat16>)),
    [](const auto& info) {
      return std::string(std::get<0>(info.param).name) + "_" +
             sdk::dtype_name(std::get<1>(info.param));
    });

// The sums depend on their order: equal bits prove that the order is kept.
TEST_P(ScatterAdd, HasTheSameBitsForAnyNumberOfThreadsAndInPlace) {
  const auto& [c, dtype] = GetParam();
  Random random(3);
  const TestTensor self = TestTensor::empty(dtype, c.self), src = TestTensor::empty(dtype, c.index);
  random.fill(self), random.fill(src);
  const TestTensor index = contiguous_indices(random, c.index, c.self[static_cast<size_t>(c.dim)]);
  std::vector<float> expected;
  for (const int threads : {1, 2, 5}) {
    for (const bool inplace : {false, true}) {
      const TestTensor out = TestTensor::empty(dtype, c.self);
      if (inplace) {
        std::memcpy(out.view().raw(), self.view().raw(),
                    static_cast<size_t>(self.view().numel() * self.view().itemsize()));
      }
      mt_args_scatter_add args{};
      args.self = inplace ? out : self;
      args.dim = c.dim, args.index = index, args.src = src, args.out = out;
      TestContext context(threads);
      ASSERT_EQ(run_cpu(cpu::register_scatter, "scatter_add", args, context), MT_OK);
      if (expected.empty()) expected = out.values<float>();
      ASSERT_EQ(out.values<float>(), expected) << threads << (inplace ? " in place" : "");
    }
  }
}

}  // namespace
}  // namespace mytorch::testing
