// Matrix products against the reference.
#include <string>
#include <vector>

#include "backends/cpu-openmp/registry.h"
#include "mytorch/abi_ops/addmm.h"
#include "mytorch/abi_ops/bmm.h"
#include "mytorch/abi_ops/linear.h"
#include "tests/backends/cpu-openmp/primitives_test.h"

namespace mytorch::testing {
namespace {

bool has_products(mt_dtype dtype) { return !sdk::is_bool(dtype); }

// The batched product by the reference.
TestTensor product(const TestTensor& a, const TestTensor& b) {
  TestTensor out =
      TestTensor::empty(a.dtype(), {a.view().size(0), a.view().size(1), b.view().size(2)});
  mt_args_bmm args{};
  args.self = a;
  args.mat2 = b;
  args.out = out;
  EXPECT_EQ(run_op("bmm", args, a.dtype()), "");
  return out;
}

TEST(Matrix, BmmAgreesWithTheReference) {
  Random random(1);
  for (const mt_dtype dtype : dtypes_where(has_products)) {
    for (const Shape& s : {Shape{1, 2, 2, 2}, Shape{3, 5, 7, 4}, Shape{2, 1, 9, 33},
                           Shape{2, 40, 0, 3}, Shape{0, 2, 2, 2}, Shape{2, 33, 65, 1}}) {
      const TestTensor a = random.filled(dtype, {s[0], s[1], s[2]});
      const TestTensor b = random.filled(dtype, {s[0], s[2], s[3]});
      const TestTensor out = random.tensor(dtype, {s[0], s[1], s[3]});
      mt_args_bmm args{};
      args.self = a;
      args.mat2 = b;
      args.out = out;
      TestContext context(3);
      ASSERT_EQ(run_cpu(cpu::register_matrix, "bmm", args, context), MT_OK) << context.error;
      expect_near(out, product(a, b), 4, 20, "bmm");
    }
  }
}

TestTensor matrix_of(const TestTensor& batch) {
  const sdk::TensorView v = batch.view();
  return batch.as_strided({v.size(1), v.size(2)}, {v.stride(1), v.stride(2)});
}

TEST(Matrix, AddmmBroadcastsScalesAndIgnoresSelfIfBetaIsZero) {
  Random random(2);
  const int64_t m = 6, k = 5, n = 9;
  for (const mt_dtype dtype : dtypes_where(has_products)) {
    for (const Shape& shape :
         {Shape{m, n}, Shape{n}, Shape{1, n}, Shape{m, 1}, Shape{}, Shape{1}}) {
      for (const double beta : {0.0, 1.0, 2.0}) {
        for (const double alpha : {1.0, 3.0}) {
          const TestTensor a = random.filled(dtype, {1, m, k});
          const TestTensor b = random.filled(dtype, {1, k, n});
          TestTensor self = random.filled(dtype, shape);
          if (beta == 0 && sdk::same_dtype(dtype, sdk::dtype_of<float>)) {
            sdk::TensorView v = self.view();
            Random::for_each_element(v, [&](int64_t at) { v.data<float>()[at] = NAN; });
          }
          const TestTensor out = random.tensor(dtype, {m, n});
          mt_args_addmm args{};
          args.self = self;
          args.mat1 = matrix_of(a);
          args.mat2 = matrix_of(b);
          const TestTensor mat1 = matrix_of(a), mat2 = matrix_of(b);
          args.mat1 = mat1;
          args.mat2 = mat2;
          args.beta = scalar(static_cast<int64_t>(beta));
          args.alpha =
              sdk::is_floating(dtype) ? scalar(alpha) : scalar(static_cast<int64_t>(alpha));
          args.out = out;
          TestContext context(2);
          ASSERT_EQ(run_cpu(cpu::register_matrix, "addmm", args, context), MT_OK) << context.error;
          // The definition, in doubles; the integers are too small to wrap in 16 bits.
          if (dtype.bits == 8) continue;
          const auto x = a.values<double>(), y = b.values<double>();
          const auto z = self.values<double>();
          std::vector<double> expected;
          for (int64_t i = 0; i < m; ++i) {
            for (int64_t j = 0; j < n; ++j) {
              double sum = 0;
              for (int64_t p = 0; p < k; ++p) {
                sum += x[static_cast<size_t>(i * k + p)] * y[static_cast<size_t>(p * n + j)];
              }
              const int64_t rows = shape.size() == 2 ? shape[0] : 1;
              const int64_t cols = shape.empty() ? 1 : shape.back();
              const int64_t at = (rows == 1 ? 0 : i) * cols + (cols == 1 ? 0 : j);
              expected.push_back(alpha * sum + (beta == 0 ? 0 : beta * z[static_cast<size_t>(at)]));
            }
          }
          // Like the composite, rounds products of 16-bit types before they are scaled: three more
          // units in the last place, for values up to 8.
          const double places = dtype.bits != 16 ? 0
                                : sdk::is_floating(dtype)
                                    ? 3 * 8 * (dtype.code == MT_BFLOAT ? 0x1p16 : 0x1p13) / 8
                                    : 0;
          expect_near(out, TestTensor::of<double>({m, n}, expected), 8, 20 + places, "addmm");
        }
      }
    }
  }
}

TEST(Matrix, LinearTakesAnyLeadingDimensions) {
  Random random(3);
  const int64_t in = 6, features = 4;
  for (const mt_dtype dtype :
       {sdk::dtype_of<float>, sdk::dtype_of<sdk::BFloat16>, sdk::dtype_of<int32_t>}) {
    for (const Shape& lead :
         {Shape{}, Shape{3}, Shape{2, 3}, Shape{2, 3, 2}, Shape{2, 1, 3, 2}, Shape{0, 3}}) {
      for (const bool with_bias : {false, true}) {
        for (const bool flat_weight : {false, true}) {
          Shape shape = lead;
          shape.push_back(in);
          Shape out_shape = lead;
          if (!flat_weight) out_shape.push_back(features);
          const TestTensor x = random.filled(dtype, shape);
          const TestTensor w = random.filled(dtype, flat_weight ? Shape{in} : Shape{features, in});
          const TestTensor b = random.filled(dtype, flat_weight ? Shape{} : Shape{features});
          const TestTensor out = random.tensor(dtype, out_shape);
          mt_args_linear args{};
          args.input = x;
          args.weight = w;
          if (with_bias) args.bias = b;
          args.out = out;
          TestContext context(2);
          ASSERT_EQ(run_cpu(cpu::register_matrix, "linear", args, context), MT_OK) << context.error;
          const auto xs = x.values<double>(), ws = w.values<double>(), bs = b.values<double>();
          std::vector<double> expected;
          const size_t rows = xs.size() / in;
          const size_t n = flat_weight ? 1 : features;
          for (size_t r = 0; r < rows; ++r) {
            for (size_t f = 0; f < n; ++f) {
              double sum = with_bias ? bs[f] : 0;
              for (size_t p = 0; p < in; ++p) sum += xs[r * in + p] * ws[f * in + p];
              expected.push_back(sum);
            }
          }
          expect_near(out, TestTensor::of<double>(out_shape, expected), 4, 20, "linear");
        }
      }
    }
  }
}

}  // namespace
}  // namespace mytorch::testing
