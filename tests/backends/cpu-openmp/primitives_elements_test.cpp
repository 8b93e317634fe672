// Random fills, ranges, indexing, sorting, running sums and pooling against the reference.
#include <limits>
#include <string>
#include <vector>

#include "backends/cpu-openmp/indexing/indexing.h"
#include "backends/cpu-openmp/registry.h"
#include "mytorch/abi_ops/arange.h"
#include "mytorch/abi_ops/avg_pool2d.h"
#include "mytorch/abi_ops/avg_pool2d_backward.h"
#include "mytorch/abi_ops/cat.h"
#include "mytorch/abi_ops/cumsum.h"
#include "mytorch/abi_ops/gather.h"
#include "mytorch/abi_ops/index_select.h"
#include "mytorch/abi_ops/max_pool2d_with_indices.h"
#include "mytorch/abi_ops/max_pool2d_with_indices_backward.h"
#include "mytorch/abi_ops/native_dropout.h"
#include "mytorch/abi_ops/nonzero.h"
#include "mytorch/abi_ops/normal_.h"
#include "mytorch/abi_ops/random_.h"
#include "mytorch/abi_ops/scatter.h"
#include "mytorch/abi_ops/scatter_add.h"
#include "mytorch/abi_ops/sort.h"
#include "mytorch/abi_ops/topk.h"
#include "mytorch/abi_ops/uniform_.h"
#include "mytorch/backend/philox.h"
#include "tests/backends/cpu-openmp/primitives_test.h"

namespace mytorch::testing {
namespace {

using Family = void (*)(cpu::KernelEntries&);

// Runs an op with `out` (a field of Args) from both backends and expects the same bits.
template <class Args>
void expect_same(Family family, std::string_view op, Args& args, const mt_tensor* Args::*field,
                 mt_dtype dtype, const Shape& shape, Random& random, double ulps = 0,
                 double scale = 1) {
  const TestTensor expected = TestTensor::empty(dtype, shape);
  const TestTensor actual = random.tensor(dtype, shape);
  args.*field = expected;
  ASSERT_EQ(run_op(op, args, dtype), "");
  args.*field = actual;
  TestContext context(3);
  ASSERT_EQ(run_cpu(family, op, args, context), MT_OK) << context.error;
  expect_near(actual, expected, ulps, scale, std::string(op));
}

// ---- random

TEST(RandomFills, AreTheDefinitionBitForBit) {
  Random random(1);
  for (const Shape& shape :
       {Shape{}, Shape{1}, Shape{7}, Shape{3000}, Shape{5, 13, 33}, Shape{0}}) {
    for (const mt_dtype dtype : dtypes_where(sdk::is_floating)) {
      mt_args_uniform_ uniform{};
      uniform.from = -1.5;
      uniform.to = 2.25;
      uniform.generator = {0x123456789ABCDEFull, 0xFFFFFFFF00000007ull, nullptr};
      expect_same(cpu::register_random, "uniform_", uniform, &mt_args_uniform_::self, dtype, shape,
                  random);
      mt_args_normal_ normal{};
      normal.mean = 0.3;
      normal.std = 1.7;
      normal.generator = {42, 7, nullptr};
      expect_same(cpu::register_random, "normal_", normal, &mt_args_normal_::self, dtype, shape,
                  random);
    }
    for (const mt_dtype dtype : all_dtypes()) {
      for (const mt_optional_int to :
           {mt_optional_int{1, 1}, mt_optional_int{100, 1}, mt_optional_int{int64_t{3} << 31, 1},
            mt_optional_int{int64_t{3} << 61, 1}, mt_optional_int{0, 0}}) {
        mt_args_random__from args{};
        args.from = to.present != 0 ? -3 : 0;
        args.to = to;
        args.generator = {99, 3, nullptr};
        expect_same(cpu::register_random, "random_.from", args, &mt_args_random__from::self, dtype,
                    shape, random);
      }
    }
  }
}

TEST(RandomFills, NormalHasTheDefinitionsTails) {
  // Long enough for every branch of the float quantile.
  Random random(2);
  for (const mt_dtype dtype : {sdk::dtype_of<float>, sdk::dtype_of<double>}) {
    mt_args_normal_ args{};
    args.std = 1;
    args.generator = {5, 0, nullptr};
    expect_same(cpu::register_random, "normal_", args, &mt_args_normal_::self, dtype, {200000},
                random);
  }
}

TEST(RandomFills, DropoutKeepsWhereTheUniformNumberIsSmall) {
  Random random(3);
  for (const mt_dtype dtype : dtypes_where(sdk::is_floating)) {
    for (const Shape& shape : {Shape{2500}, Shape{3, 5, 7}, Shape{}}) {
      const TestTensor input = random.filled(dtype, shape);
      const TestTensor output = random.tensor(dtype, shape);
      const TestTensor mask = random.tensor(sdk::dtype_of<bool>, shape);
      mt_args_native_dropout args{};
      args.input = input;
      args.p = 0.3;
      args.train = {1, 1};
      args.generator = {11, 4, nullptr};
      args.output = output;
      args.mask = mask;
      TestContext context(2);
      ASSERT_EQ(run_cpu(cpu::register_random, "native_dropout", args, context), MT_OK);
      const sdk::philox::Stream stream(args.generator);
      const auto x = input.values<double>(), y = output.values<double>(), m = mask.values<double>();
      for (size_t i = 0; i < x.size(); ++i) {
        const float u = sdk::philox::uniform_of_bits<float>(stream.bits32(static_cast<int64_t>(i)));
        const bool kept = u < static_cast<float>(0.7);
        ASSERT_EQ(m[i], kept ? 1 : 0) << i;
        ASSERT_NEAR(y[i], kept ? x[i] / 0.7 : 0, 0.02) << i;
      }
    }
  }
}

TEST(Arange, IsStartPlusStepTimesIndex) {
  Random random(4);
  for (const mt_dtype dtype : all_dtypes()) {
    if (sdk::is_bool(dtype)) continue;
    mt_args_arange_start_step args{};
    args.start = sdk::is_floating(dtype) ? scalar(0.1) : scalar(int64_t{-5});
    args.step = sdk::is_floating(dtype) ? scalar(0.7) : scalar(int64_t{3});
    expect_same(cpu::register_creation, "arange.start_step", args, &mt_args_arange_start_step::out,
                dtype, {101}, random);
  }
}

// ---- indexing

TestTensor indices(Random& random, const Shape& shape, int64_t below, mt_dtype dtype) {
  const TestTensor index = random.tensor(dtype, shape);
  const sdk::TensorView v = index.view();
  sdk::visit_dtype(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    Random::for_each_element(
        v, [&](int64_t at) { v.data<T>()[at] = sdk::convert<T>(random.below(below)); });
  });
  return index;
}

struct IndexCase {
  Shape self, index, src;
  int64_t dim;
};
const std::vector<IndexCase> kIndexCases = {
    {{5}, {9}, {9}, 0},
    {{4, 6}, {4, 11}, {4, 12}, 1},
    {{4, 6}, {9, 5}, {10, 6}, 0},
    {{3, 5, 7}, {2, 8, 6}, {3, 8, 7}, -2},
    {{3, 5}, {0, 5}, {0, 5}, 0},
    {{}, {}, {}, 0},
    {{20, 40}, {30, 33}, {30, 33}, 0},
    {{7000}, {70000}, {70000}, 0},
};

TEST(Indexing, GatherScatterAndScatterAdd) {
  Random random(5);
  for (const IndexCase& c : kIndexCases) {
    for (const mt_dtype dtype : all_dtypes()) {
      const int64_t d = c.dim < 0 ? c.dim + static_cast<int64_t>(c.self.size()) : c.dim;
      const int64_t size = c.self.empty() ? 1 : c.self[static_cast<size_t>(d)];
      const mt_dtype type = random.below(2) == 0 ? sdk::dtype_of<int64_t> : sdk::dtype_of<int32_t>;
      const TestTensor index = indices(random, c.index, size, type);
      const TestTensor self = random.filled(dtype, c.self, true);
      const TestTensor src = random.filled(dtype, c.src);
      mt_args_gather gather{};
      gather.self = self;
      gather.dim = c.dim;
      gather.index = index;
      expect_same(cpu::register_gather, "gather", gather, &mt_args_gather::out, dtype, c.index,
                  random);
      mt_args_scatter_src scatter{};
      scatter.self = self;
      scatter.dim = c.dim;
      scatter.index = index;
      scatter.src = src;
      expect_same(cpu::register_scatter, "scatter.src", scatter, &mt_args_scatter_src::out, dtype,
                  c.self, random);
      mt_args_scatter_add add{};
      add.self = self;
      add.dim = c.dim;
      add.index = index;
      add.src = src;
      expect_same(cpu::register_scatter, "scatter_add", add, &mt_args_scatter_add::out, dtype,
                  c.self, random, 8, 40);
    }
  }
}

TEST(Indexing, IndicesOutOfRangeAreErrors) {
  const TestTensor self = TestTensor::of<float>({2, 3}, {1, 2, 3, 4, 5, 6});
  for (const int64_t bad : {int64_t{-1}, int64_t{3}}) {
    const TestTensor index = TestTensor::of<int64_t>({1, 1}, {static_cast<double>(bad)});
    const std::string text =
        "index " + std::to_string(bad) + " is out of range for dimension 1 of size 3";
    const TestTensor one = TestTensor::empty(sdk::dtype_of<float>, {1, 1});
    const TestTensor out = TestTensor::empty(sdk::dtype_of<float>, {2, 3});
    TestContext context;
    mt_args_gather gather{};
    gather.self = self, gather.dim = -1, gather.index = index, gather.out = one;
    EXPECT_EQ(run_cpu(cpu::register_gather, "gather", gather, context), MT_ERROR_VALUE);
    EXPECT_EQ(context.error, "[gather] " + text);
    mt_args_scatter_add add{};
    add.self = self, add.dim = 1, add.index = index, add.src = one, add.out = out;
    EXPECT_EQ(run_cpu(cpu::register_scatter, "scatter_add", add, context), MT_ERROR_VALUE);
    EXPECT_EQ(context.error, "[scatter_add] " + text);
    const TestTensor flat = TestTensor::of<int64_t>({1}, {static_cast<double>(bad)});
    const TestTensor column = TestTensor::empty(sdk::dtype_of<float>, {2, 1});
    mt_args_index_select select{};
    select.self = self, select.dim = 1, select.index = flat, select.out = column;
    EXPECT_EQ(run_cpu(cpu::register_gather, "index_select", select, context), MT_ERROR_VALUE);
    EXPECT_EQ(context.error, "[index_select] " + text);
  }
}

TEST(Indexing, IndexSelectIsGatherOfWholeSlices) {
  Random random(6);
  for (const mt_dtype dtype : all_dtypes()) {
    for (const int64_t dim : {0, 1, 2}) {
      const Shape shape = {5, 6, 20};
      const TestTensor self = random.filled(dtype, shape);
      const TestTensor index =
          indices(random, {9}, shape[static_cast<size_t>(dim)], sdk::dtype_of<int64_t>);
      Shape out_shape = shape;
      out_shape[static_cast<size_t>(dim)] = 9;
      const TestTensor out = random.tensor(dtype, out_shape);
      mt_args_index_select args{};
      args.self = self, args.dim = dim, args.index = index, args.out = out;
      TestContext context(3);
      ASSERT_EQ(run_cpu(cpu::register_gather, "index_select", args, context), MT_OK);
      Shape strides(3, 0);
      strides[static_cast<size_t>(dim)] = index.view().stride(0);
      const TestTensor spread = index.as_strided(out_shape, strides);
      const TestTensor expected = TestTensor::empty(dtype, out_shape);
      mt_args_gather gather{};
      gather.self = self, gather.dim = dim, gather.index = spread, gather.out = expected;
      ASSERT_EQ(run_op("gather", gather, dtype), "");
      expect_near(out, expected, 0, 1, "index_select");
    }
  }
}

TEST(Indexing, CatJoinsConvertsAndPassesEmptyOnesOver) {
  Random random(7);
  for (const mt_dtype dtype : all_dtypes()) {
    const TestTensor a = random.filled(dtype, {3, 2, 5});
    const TestTensor none = TestTensor::empty(dtype, {0});
    const TestTensor b = random.filled(sdk::dtype_of<uint8_t>, {3, 4, 5});
    const TestTensor c = random.filled(dtype, {3, 0, 5});
    const mt_tensor* tensors[] = {a, none, b, c, a};
    mt_args_cat args{};
    args.tensors = {tensors, 5};
    args.dim = -2;
    expect_same(cpu::register_cat, "cat", args, &mt_args_cat::out, dtype, {3, 8, 5}, random);
  }
}

TEST(Indexing, NonzeroCountsInRowMajorOrder) {
  Random random(8);
  for (const mt_dtype dtype : all_dtypes()) {
    for (const Shape& shape : {Shape{}, Shape{0}, Shape{4, 5, 3}, Shape{70000}, Shape{300, 301}}) {
      const TestTensor self = random.filled(dtype, shape, true);
      mt_args_nonzero args{};
      args.self = self;
      TestContext expected, actual(2);
      ASSERT_EQ(run_op("nonzero", args, dtype, expected), MT_OK);
      ASSERT_EQ(run_cpu(cpu::register_cat, "nonzero", args, actual), MT_OK) << actual.error;
      ASSERT_EQ(actual.outputs.at(0).values<int64_t>(), expected.outputs.at(0).values<int64_t>());
    }
  }
}

// ---- along a dimension

TEST(Lines, CumsumOfEveryPairOfTypes) {
  Random random(9);
  for (const mt_dtype from : all_dtypes()) {
    for (const mt_dtype to : all_dtypes()) {
      for (const int64_t dim : {0, 1, 2}) {
        const TestTensor self = random.filled(from, {3, 20, 4});
        mt_args_cumsum args{};
        args.self = self;
        args.dim = dim;
        expect_same(cpu::register_scan, "cumsum", args, &mt_args_cumsum::out, to, {3, 20, 4},
                    random, 8, 20);
      }
    }
  }
}

TEST(Lines, SortIsStableWithNanLast) {
  Random random(10);
  for (const mt_dtype dtype : all_dtypes()) {
    for (const Shape& shape : {Shape{}, Shape{3, 20, 4}, Shape{2, 300}, Shape{3000}, Shape{2, 0}}) {
      for (const bool descending : {false, true}) {
        const TestTensor self = random.filled(dtype, shape, true);
        const int64_t dim = shape.size() == 3 ? 1 : -1;
        const TestTensor values[] = {TestTensor::empty(dtype, shape), random.tensor(dtype, shape)};
        const TestTensor places[] = {TestTensor::empty(sdk::dtype_of<int64_t>, shape),
                                     random.tensor(sdk::dtype_of<int64_t>, shape)};
        mt_args_sort_stable args{};
        args.self = self, args.dim = dim, args.descending = descending;
        args.values = values[0], args.indices = places[0];
        ASSERT_EQ(run_op("sort.stable", args, dtype), "");
        args.values = values[1], args.indices = places[1];
        TestContext context(2);
        ASSERT_EQ(run_cpu(cpu::register_sorting, "sort.stable", args, context), MT_OK);
        expect_near(values[1], values[0], 0, 1, "sort values");
        ASSERT_EQ(places[1].values<int64_t>(), places[0].values<int64_t>());
        if (shape.empty()) continue;
        // topk is the beginning of the sorted line.
        const int64_t n = shape[static_cast<size_t>(dim < 0 ? dim + 2 - (shape.size() == 1) : dim)];
        for (const int64_t k : {n / 20, n / 2, n}) {
          Shape kept = shape;
          kept[kept.size() == 3 ? 1 : kept.size() - 1] = k;
          const TestTensor top = random.tensor(dtype, kept);
          const TestTensor where = random.tensor(sdk::dtype_of<int64_t>, kept);
          mt_args_topk topk{};
          topk.self = self, topk.k = k, topk.dim = dim, topk.largest = descending, topk.sorted = 1;
          topk.values = top, topk.indices = where;
          ASSERT_EQ(run_cpu(cpu::register_sorting, "topk", topk, context), MT_OK);
          const TestTensor head = places[0].as_strided(
              kept, Shape(places[0].view().strides().begin(), places[0].view().strides().end()));
          ASSERT_EQ(where.values<int64_t>(), head.values<int64_t>());
        }
      }
    }
  }
}

// ---- pooling

struct Pool {
  Shape self, kernel, stride, padding, dilation, out;
};
const std::vector<Pool> kPools = {
    {{2, 3, 8, 8}, {2}, {}, {0}, {1}, {2, 3, 4, 4}},
    {{3, 28, 28}, {2, 2}, {2, 2}, {0, 0}, {1, 1}, {3, 14, 14}},
    {{2, 2, 9, 40}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {2, 2, 9, 40}},
    {{2, 2, 9, 40}, {3, 2}, {2, 3}, {1, 1}, {2, 1}, {2, 2, 4, 14}},
    {{1, 2, 7, 7}, {3, 3}, {2, 2}, {0, 0}, {1, 1}, {1, 2, 3, 3}},
    {{1, 1, 5, 5}, {2, 2}, {2, 2}, {0, 0}, {1, 1}, {1, 1, 3, 3}},  // ceil_mode
    {{0, 2, 5, 5}, {2, 2}, {2, 2}, {0, 0}, {1, 1}, {0, 2, 2, 2}},
};

TEST(Pooling, MaximaAndTheirGradient) {
  Random random(11);
  for (const Pool& p : kPools) {
    for (const mt_dtype dtype : all_dtypes()) {
      const TestTensor self = random.filled(dtype, p.self, true);
      mt_args_max_pool2d_with_indices args{};
      args.self = self;
      args.kernel_size = list(p.kernel), args.stride = list(p.stride);
      args.padding = list(p.padding), args.dilation = list(p.dilation);
      args.header.compute = dtype;
      const TestTensor places = TestTensor::empty(sdk::dtype_of<int64_t>, p.out);
      const TestTensor own = random.tensor(sdk::dtype_of<int64_t>, p.out);
      const TestTensor best = TestTensor::empty(dtype, p.out);
      const TestTensor own_best = random.tensor(dtype, p.out);
      args.out = best, args.indices = places;
      ASSERT_EQ(run_op("max_pool2d_with_indices", args, dtype), "");
      args.out = own_best, args.indices = own;
      TestContext context(2);
      ASSERT_EQ(run_cpu(cpu::register_pooling, "max_pool2d_with_indices", args, context), MT_OK);
      expect_near(own_best, best, 0, 1, "max_pool2d");
      ASSERT_EQ(own.values<int64_t>(), places.values<int64_t>());
      const TestTensor only = random.tensor(dtype, p.out);
      args.out = only, args.indices = nullptr;
      ASSERT_EQ(run_cpu(cpu::register_pooling, "max_pool2d_with_indices", args, context), MT_OK);
      expect_near(only, best, 0, 1, "max_pool2d without indices");

      const TestTensor grad = random.filled(dtype, p.out);
      mt_args_max_pool2d_with_indices_backward back{};
      back.grad_output = grad, back.indices = own, back.input_size = list(p.self);
      back.header.compute = dtype;
      expect_same(cpu::register_pooling, "max_pool2d_with_indices_backward", back,
                  &mt_args_max_pool2d_with_indices_backward::out, dtype, p.self, random, 4, 4);
    }
  }
}

// Vectors may extend over the end of a row, but not over the end of a plane.
TEST(Pooling, HalvesOfEveryWidth) {
  Random random(13);
  const mt_dtype dtype = sdk::dtype_of<float>;
  const Shape kernel = {2}, padding = {0}, dilation = {1};
  for (int64_t h = 2; h <= 6; ++h) {
    for (int64_t w = 2; w <= 37; ++w) {
      const Shape shape = {2, h / 2, w / 2};
      const TestTensor self = TestTensor::empty(dtype, {2, h, w});
      random.fill(self, true);
      mt_args_max_pool2d_with_indices args{};
      args.self = self;
      args.kernel_size = list(kernel), args.padding = list(padding);
      args.dilation = list(dilation);
      args.header.compute = dtype;
      TestTensor best[2], places[2];
      for (int i = 0; i < 2; ++i) {
        best[i] = TestTensor::empty(dtype, shape);
        places[i] = TestTensor::empty(sdk::dtype_of<int64_t>, shape);
        args.out = best[i], args.indices = places[i];
        if (i == 0) {
          ASSERT_EQ(run_op("max_pool2d_with_indices", args, dtype), "");
        } else {
          TestContext context(2);
          ASSERT_EQ(run_cpu(cpu::register_pooling, "max_pool2d_with_indices", args, context),
                    MT_OK);
        }
      }
      expect_near(best[1], best[0], 0, 1, "max_pool2d");
      ASSERT_EQ(places[1].values<int64_t>(), places[0].values<int64_t>()) << h << " x " << w;
    }
  }
}

// Vectors run along the channels, with a remainder.
TEST(Pooling, MaximaOfChannelsLastImages) {
  Random random(14);
  const Shape kernel = {3, 2}, stride = {2, 1}, padding = {1, 1}, dilation = {1, 2};
  const auto last = [](mt_dtype dtype, int64_t c, int64_t h, int64_t w) {
    const TestTensor memory = TestTensor::empty(dtype, {2, h, w, c});
    return memory.as_strided({2, c, h, w}, {h * w * c, 1, w * c, c});
  };
  for (const mt_dtype dtype : all_dtypes()) {
    for (const int64_t c : {2, 3, 4, 7, 8, 13, 50}) {
      const TestTensor self = last(dtype, c, 5, 6), grad = last(dtype, c, 3, 6);
      random.fill(self, true);
      random.fill(grad);
      const TestTensor best[2] = {TestTensor::empty(dtype, {2, c, 3, 6}), last(dtype, c, 3, 6)};
      const mt_dtype index = sdk::dtype_of<int64_t>;
      const TestTensor places[2] = {TestTensor::empty(index, {2, c, 3, 6}), last(index, c, 3, 6)};
      const TestTensor back[2] = {TestTensor::empty(dtype, {2, c, 5, 6}), last(dtype, c, 5, 6)};
      mt_args_max_pool2d_with_indices args{};
      args.header.compute = dtype;
      args.self = self;
      args.kernel_size = list(kernel), args.stride = list(stride);
      args.padding = list(padding), args.dilation = list(dilation);
      mt_args_max_pool2d_with_indices_backward gradient{};
      gradient.header.compute = dtype;
      gradient.grad_output = grad;
      const Shape size = {2, c, 5, 6};
      gradient.input_size = list(size);
      TestContext context(5);
      args.out = best[0], args.indices = places[0];
      ASSERT_EQ(run_op("max_pool2d_with_indices", args, dtype), "");
      args.out = best[1], args.indices = places[1];
      ASSERT_EQ(run_cpu(cpu::register_pooling, "max_pool2d_with_indices", args, context), MT_OK);
      const std::string what = std::to_string(c) + " channels";
      expect_near(best[1], best[0], 0, 1, what);
      ASSERT_EQ(places[1].values<int64_t>(), places[0].values<int64_t>()) << what;
      gradient.indices = places[0], gradient.out = back[0];
      ASSERT_EQ(run_op("max_pool2d_with_indices_backward", gradient, dtype), "");
      gradient.indices = places[1], gradient.out = back[1];
      ASSERT_EQ(
          run_cpu(cpu::register_pooling, "max_pool2d_with_indices_backward", gradient, context),
          MT_OK);
      expect_near(back[1], back[0], 4, 4, what);
    }
  }
}

TEST(Pooling, MeansAndTheirGradient) {
  Random random(12);
  for (const Pool& p : kPools) {
    if (p.dilation[0] != 1) continue;
    for (const mt_dtype dtype : dtypes_where(sdk::is_floating)) {
      for (const bool padding_counts : {false, true}) {
        for (const int64_t divisor : {0, 3}) {
          const TestTensor self = random.filled(dtype, p.self);
          mt_args_avg_pool2d args{};
          args.self = self;
          args.kernel_size = list(p.kernel), args.stride = list(p.stride);
          args.padding = list(p.padding);
          args.count_include_pad = padding_counts;
          args.divisor_override = {divisor, divisor != 0};
          expect_same(cpu::register_pooling, "avg_pool2d", args, &mt_args_avg_pool2d::out, dtype,
                      p.out, random, 4, 2);
          const TestTensor grad = random.filled(dtype, p.out);
          mt_args_avg_pool2d_backward back{};
          back.grad_output = grad, back.input_size = list(p.self);
          back.kernel_size = list(p.kernel), back.stride = list(p.stride);
          back.padding = list(p.padding);
          back.count_include_pad = padding_counts;
          back.divisor_override = args.divisor_override;
          expect_same(cpu::register_pooling, "avg_pool2d_backward", back,
                      &mt_args_avg_pool2d_backward::out, dtype, p.self, random, 4, 4);
        }
      }
    }
  }
}

}  // namespace
}  // namespace mytorch::testing
