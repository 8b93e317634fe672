// Row kernels of softmax and normalization: row lengths around the vector length, rows next to rows
// of infinities and NaNs, and results large enough for non-temporal stores.
#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <string>
#include <vector>

#include "backends/cpu-openmp/registry.h"
#include "hwy/targets.h"
#include "mytorch/abi_ops/batch_norm_training.h"
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

struct Case {
  int64_t rows, n;
};
std::string name(const ::testing::TestParamInfo<Case>& info) {
  return std::to_string(info.param.rows) + "RowsOf" + std::to_string(info.param.n);
}
// The last three results are large enough for non-temporal stores. Short rows also need whole cache
// lines for them, as with 1024 elements.
const Case kCases[] = {{3, 1},    {4, 2},    {5, 7},       {5, 8},       {3, 9},
                       {3, 16},   {2, 31},   {7, 33},      {2, 65},      {1, 1000},
                       {4, 2048}, {3, 2049}, {2100, 1024}, {2100, 1023}, {260, 8192}};

// Rows of ordinary numbers, except for a few with numbers whose exponential is subnormal or 0, with
// a NaN, or with infinities.
TestTensor rows_of(mt_dtype dtype, const Case& c, uint32_t seed) {
  Random random(seed);
  const TestTensor x = TestTensor::empty(dtype, {c.rows, c.n});
  random.fill(x);
  sdk::visit_floating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    T* data = x.view().data<T>();
    const auto put = [&](int64_t row, double value) {
      if (row >= 0 && row < c.rows) data[row * c.n + random.below(c.n)] = sdk::convert<T>(value);
    };
    put(1, -100), put(1, -740), put(2, NAN), put(3, -kInf), put(4, kInf), put(c.rows - 2, 95);
    if (c.rows > 6) {
      for (int64_t i = 0; i < c.n; ++i) data[6 * c.n + i] = sdk::convert<T>(-kInf);
    }
  });
  return x;
}

// Returns whether to compare a row: the first and last ones, and some of the others.
bool is_compared(int64_t row, int64_t rows) { return row < 12 || row > rows - 4 || row % 61 == 0; }

// Expects elements within `ulps` units in the last place of the value, of `scale`, or of the
// smallest normal number.
template <class T>
void expect_row(const T* got, const Values& expected, double ulps, double scale, int64_t row,
                int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    const double value = expected[static_cast<size_t>(i)], actual = static_cast<double>(got[i]);
    if (std::isnan(value) ? std::isnan(actual) : actual == value) continue;
    const double unit = static_cast<double>(std::numeric_limits<T>::epsilon());
    const double least = static_cast<double>(std::numeric_limits<T>::min());
    ASSERT_NEAR(actual, value, ulps * unit * std::max({std::abs(value), scale, least}))
        << "row " << row << " of length " << n << ", element " << i;
  }
}

// Units in the last place that a sum over a row may be off. Without vectors a row is one chain of
// additions, where vectors have a chain in each lane.
double sum_ulps() {
  return (hwy::SupportedTargets() & (HWY_AVX2 | HWY_AVX3 | HWY_NEON)) != 0 ? 6 : 16;
}

template <class T>
void check_softmax(const Case& c, bool log) {
  const mt_dtype dtype = sdk::dtype_of<T>;
  const TestTensor x = rows_of(dtype, c, 5), g = rows_of(dtype, {c.rows, c.n}, 6);
  const TestTensor y = TestTensor::empty(dtype, {c.rows, c.n}),
                   dx = TestTensor::empty(dtype, {c.rows, c.n});
  TestContext context(2);
  const auto run = [&](auto forward, const char* op, auto backward, const char* back) {
    forward.self = x, forward.dim = 1, forward.out = y;
    ASSERT_EQ(run_cpu(cpu::register_softmax, op, forward, context), MT_OK) << context.error;
    backward.grad_output = g, backward.output = y, backward.dim = 1, backward.out = dx;
    ASSERT_EQ(run_cpu(cpu::register_softmax, back, backward, context), MT_OK) << context.error;
  };
  if (log) {
    run(mt_args_log_softmax_int{}, "log_softmax.int", mt_args_log_softmax_backward{},
        "log_softmax_backward");
  } else {
    run(mt_args_softmax_int{}, "softmax.int", mt_args_softmax_backward{}, "softmax_backward");
  }
  const size_t n = static_cast<size_t>(c.n);
  Values out(n), gradient(n);
  for (int64_t row = 0; row < c.rows; ++row) {
    if (!is_compared(row, c.rows)) continue;
    const T* in = x.view().template data<T>() + row * c.n;
    const T* grad = g.view().template data<T>() + row * c.n;
    const T* result = y.view().template data<T>() + row * c.n;
    double high = -kInf, size = 0;
    long double sum = 0, total = 0;  // more precise than the tested sums of doubles
    for (size_t i = 0; i < n; ++i) high = std::max(high, static_cast<double>(in[i]));
    for (size_t i = 0; i < n; ++i) sum += std::exp(static_cast<double>(in[i]) - high);
    for (size_t i = 0; i < n; ++i) {
      const double v = static_cast<double>(in[i]) - high, r = static_cast<double>(result[i]);
      out[i] =
          log ? v - static_cast<double>(std::log(sum)) : std::exp(v) / static_cast<double>(sum);
      total += static_cast<double>(grad[i]) * (log ? 1 : r);
      size += std::abs(static_cast<double>(grad[i]) * (log ? 1 : r));
    }
    for (size_t i = 0; i < n; ++i) {
      const double v = static_cast<double>(grad[i]), r = static_cast<double>(result[i]);
      // As in the kernel: infinity - infinity is NaN.
      const double all = static_cast<double>(total);
      gradient[i] = log ? v - std::exp(r) * all : v * r - r * all;
    }
    ASSERT_NO_FATAL_FAILURE(expect_row(result, out, sum_ulps(), log ? 4 : 0, row, c.n));
    ASSERT_NO_FATAL_FAILURE(expect_row(dx.view().template data<T>() + row * c.n, gradient,
                                       sum_ulps() + 2, std::isfinite(size) ? size : 0, row, c.n));
  }
}

class SoftmaxRows : public ::testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(, SoftmaxRows, ::testing::ValuesIn(kCases), name);

TEST_P(SoftmaxRows, SoftmaxAndItsGradientAgreeWithTheDefinition) {
  check_softmax<float>(GetParam(), false);
  if (GetParam().n < 5000) check_softmax<double>(GetParam(), false);
}
TEST_P(SoftmaxRows, LogSoftmaxAndItsGradientAgreeWithTheDefinition) {
  check_softmax<float>(GetParam(), true);
  if (GetParam().n < 5000) check_softmax<double>(GetParam(), true);
}

TEST(NormalizationRows, SoftmaxOfNoRowsOrNoElementsIsEmpty) {
  TestContext context(2);
  for (const Shape& shape : {Shape{0, 5}, Shape{5, 0}}) {
    const TestTensor x = TestTensor::empty(sdk::dtype_of<float>, shape);
    mt_args_softmax_int args{};
    args.self = x, args.dim = 1, args.out = x;
    EXPECT_EQ(run_cpu(cpu::register_softmax, "softmax.int", args, context), MT_OK);
  }
}

// Layer normalization of numbers far from zero, of rows whose first elements differ greatly from
// the others, and of infinities at the first and the last element.
template <class T>
void check_layer_norm(const Case& c) {
  const mt_dtype dtype = sdk::dtype_of<T>;
  Random random(7);
  const Shape shape = {c.rows, c.n}, width = {c.n}, stats = {c.rows, 1};
  const TestTensor x = TestTensor::empty(dtype, shape), g = TestTensor::empty(dtype, shape);
  const TestTensor w = TestTensor::empty(dtype, width), b = TestTensor::empty(dtype, width);
  for (const TestTensor* t : {&x, &g, &w, &b}) random.fill(*t);
  T* in = x.view().template data<T>();
  const int64_t n = c.n;
  for (int64_t i = 0; i < n; ++i) {
    if (c.rows > 1) in[n + i] += T(1000);
    if (c.rows > 2 && i < 64) in[2 * n + i] += T(3000);
  }
  if (c.rows > 3) in[3 * n] = T(kInf);
  if (c.rows > 4) in[4 * n + n - 1] = T(-kInf);
  if (c.rows > 5) in[5 * n + n / 2] = T(NAN);
  const TestTensor y = TestTensor::empty(dtype, shape), dx = TestTensor::empty(dtype, shape);
  const TestTensor mean = TestTensor::empty(dtype, stats), rstd = TestTensor::empty(dtype, stats);
  const TestTensor dw = TestTensor::empty(dtype, width), db = TestTensor::empty(dtype, width);
  TestContext context(2);
  mt_args_native_layer_norm args{};
  args.input = x, args.normalized_shape = list(width), args.weight = w, args.bias = b;
  args.eps = 1e-5, args.out = y, args.mean = mean, args.rstd = rstd;
  ASSERT_EQ(run_cpu(cpu::register_layer_norm, "native_layer_norm", args, context), MT_OK);
  const T* ws = w.view().template data<T>();
  const T* bs = b.view().template data<T>();
  const T* means = mean.view().template data<T>();
  const T* rstds = rstd.view().template data<T>();
  for (int64_t row = 0; row < c.rows; ++row) {
    if (!is_compared(row, c.rows)) continue;
    double largest = 0.1;
    long double sum = 0, squares = 0;
    for (int64_t i = 0; i < n; ++i) sum += static_cast<double>(in[row * n + i]);
    for (int64_t i = 0; i < n; ++i) {
      const double size = std::abs(static_cast<double>(in[row * n + i]));
      if (std::isfinite(size)) largest = std::max(largest, size);
    }
    const double m = static_cast<double>(sum / static_cast<long double>(n));
    for (int64_t i = 0; i < n; ++i)
      squares += std::pow(static_cast<double>(in[row * n + i]) - m, 2);
    const double r =
        1 / std::sqrt(static_cast<double>(squares / static_cast<long double>(n)) + 1e-5);
    Values expected(static_cast<size_t>(n));
    for (int64_t i = 0; i < n; ++i) {
      expected[static_cast<size_t>(i)] =
          (static_cast<double>(in[row * n + i]) - m) * r * static_cast<double>(ws[i]) +
          static_cast<double>(bs[i]);
    }
    ASSERT_NO_FATAL_FAILURE(expect_row(means + row, {m}, 4, largest, row, 1));
    ASSERT_NO_FATAL_FAILURE(expect_row(rstds + row, {r}, 64, 0, row, 1));
    // The mean is as precise as the elements. In row 2, a factor of 16 cancels.
    ASSERT_NO_FATAL_FAILURE(expect_row(y.view().template data<T>() + row * n, expected,
                                       row == 2 ? 64 : 4, r * (8 + largest), row, n));
  }

  // The gradients.
  mt_args_native_layer_norm_backward back{};
  for (int64_t row = 0; row < c.rows; ++row) {  // infinities would make dw NaN
    if (row < 3 || row > 5) continue;
    for (int64_t i = 0; i < n; ++i) in[row * n + i] = g.view().template data<T>()[i];
    const_cast<T*>(means)[row] = T(0), const_cast<T*>(rstds)[row] = T(1);
  }
  back.grad_out = g, back.input = x, back.normalized_shape = list(width), back.weight = w;
  back.mean = mean, back.rstd = rstd, back.grad_input = dx;
  back.grad_weight = dw, back.grad_bias = db;
  static const std::vector<int64_t> all = {1, 1, 1};
  back.output_mask = list(all);
  ASSERT_EQ(run_cpu(cpu::register_layer_norm, "native_layer_norm_backward", back, context), MT_OK);
  const T* gs = g.view().template data<T>();
  Values dws(static_cast<size_t>(n)), dbs(dws), size(dws);
  for (int64_t row = 0; row < c.rows; ++row) {
    const double m = static_cast<double>(means[row]), r = static_cast<double>(rstds[row]);
    double sum = 0, along = 0, largest = 0;
    Values expected(static_cast<size_t>(n));
    for (int64_t i = 0; i < n; ++i) {
      const double hat = (static_cast<double>(in[row * n + i]) - m) * r;
      const double v = static_cast<double>(gs[row * n + i]), h = v * static_cast<double>(ws[i]);
      sum += h, along += h * hat, largest = std::max(largest, std::abs(hat));
      dws[static_cast<size_t>(i)] += v * hat, dbs[static_cast<size_t>(i)] += v;
    }
    if (!is_compared(row, c.rows)) continue;
    for (int64_t i = 0; i < n; ++i) {
      const double hat = (static_cast<double>(in[row * n + i]) - m) * r;
      const double h = static_cast<double>(gs[row * n + i]) * static_cast<double>(ws[i]);
      expected[static_cast<size_t>(i)] =
          r * (h - sum / static_cast<double>(n) - hat * along / static_cast<double>(n));
    }
    ASSERT_NO_FATAL_FAILURE(expect_row(dx.view().template data<T>() + row * n, expected, 64,
                                       r * 4 * (1 + largest * largest), row, n));
  }
  const double count = static_cast<double>(c.rows);
  ASSERT_NO_FATAL_FAILURE(expect_row(dw.view().template data<T>(), dws, 64 + count / 8, 16, -1, n));
  ASSERT_NO_FATAL_FAILURE(expect_row(db.view().template data<T>(), dbs, 64 + count / 8, 16, -2, n));
}

// Skips rows of one element, whose variance is 0 up to rounding.
class LayerNormRows : public ::testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(, LayerNormRows,
                         ::testing::ValuesIn(std::begin(kCases) + 1, std::end(kCases)), name);

TEST_P(LayerNormRows, ResultAndGradientsAgreeWithTheDefinition) {
  check_layer_norm<float>(GetParam());
  if (GetParam().n < 5000) check_layer_norm<double>(GetParam());
}

TEST(NormalizationRows, BatchNormOfAChannelWhoseFirstPlaneDiffersFromTheOthersIsAccurate) {
  const int64_t batch = 40, size = 50;
  Random random(8);
  const TestTensor x = TestTensor::empty(sdk::dtype_of<float>, {batch, 1, size});
  random.fill(x);
  float* in = x.view().data<float>();
  for (int64_t i = 0; i < size; ++i) in[i] += 5000;
  double sum = 0, squares = 0;
  const double count = static_cast<double>(batch * size);
  for (int64_t i = 0; i < batch * size; ++i) sum += static_cast<double>(in[i]);
  for (int64_t i = 0; i < batch * size; ++i) {
    squares += std::pow(static_cast<double>(in[i]) - sum / count, 2);
  }
  const TestTensor mean = TestTensor::empty(sdk::dtype_of<float>, {1});
  const TestTensor var = TestTensor::empty(sdk::dtype_of<float>, {1});
  mt_args_batch_norm_training args{};
  args.input = x, args.eps = 1e-5, args.mean = mean, args.var = var;
  TestContext context(2);
  ASSERT_EQ(run_cpu(cpu::register_batch_norm, "batch_norm_training", args, context), MT_OK);
  EXPECT_NEAR(mean.values<double>()[0] / (sum / count), 1, 1e-6);
  EXPECT_NEAR(var.values<double>()[0] / (squares / count), 1, 1e-5);
}

}  // namespace
}  // namespace mytorch::testing
