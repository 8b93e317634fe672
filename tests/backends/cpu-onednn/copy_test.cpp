// Copies that reorder elements: every bit is preserved, and conversions in which oneDNN differs are
// declined.
#include <gtest/gtest.h>

#include <bit>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "mytorch/abi_ops/copy_.h"
#include "tests/backends/cpu-onednn/onednn_backend.h"

namespace mytorch::testing {
namespace {

std::string copy(const TestTensor& to, const TestTensor& from, int threads = 1) {
  mt_args_copy_ args{};
  args.self = to, args.src = from;
  return run_onednn("copy_", args, threads);
}

template <class T>
std::vector<double> numbers(int64_t n) {
  std::vector<double> values(static_cast<size_t>(n));
  uint32_t seed = 1;
  for (double& value : values) {
    seed = seed * 1664525u + 1013904223u;
    value = std::is_same_v<T, bool> ? seed >> 31 : static_cast<double>(seed >> 25);
    if (std::is_signed_v<T>) value -= 64;
  }
  return values;
}

// A tensor of this shape in memory, with its dimensions permuted by `dims`.
TestTensor permuted(const TestTensor& t, const std::vector<int>& dims) {
  Shape shape, strides;
  for (const int d : dims) {
    shape.push_back(t.view().size(d));
    strides.push_back(t.view().stride(d));
  }
  return t.as_strided(shape, strides);
}

template <class From, class To>
void expect_copies(const Shape& shape, const std::vector<int>& dims) {
  const int64_t n = std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
  const TestTensor from = permuted(TestTensor::of<From>(shape, numbers<From>(n)), dims);
  const sdk::TensorView v = from.view();
  const TestTensor to =
      TestTensor::empty(sdk::dtype_of<To>, Shape(v.shape().begin(), v.shape().end()));
  for (const int threads : {1, 2}) {
    ASSERT_EQ(copy(to, from, threads), "");
    ASSERT_EQ(to.values<double>(), from.values<double>());
  }
  const TestTensor back = permuted(TestTensor::empty(sdk::dtype_of<To>, shape), dims);
  const TestTensor contiguous =
      TestTensor::of<From>(Shape(v.shape().begin(), v.shape().end()), from.values<double>());
  ASSERT_EQ(copy(back, contiguous, 2), "");
  ASSERT_EQ(back.values<double>(), from.values<double>());
}

template <class From, class To>
void expect_copies() {
  expect_copies<From, To>({64, 33}, {1, 0});
  expect_copies<From, To>({2, 3, 40, 7}, {0, 2, 3, 1});
  expect_copies<From, To>({2, 19, 3, 8}, {0, 2, 1, 3});
  expect_copies<From, To>({5, 1, 6, 1, 7}, {4, 3, 2, 1, 0});
  expect_copies<From, To>({2, 2, 2, 3, 2, 2, 2, 2, 1, 2, 2, 2},
                          {11, 3, 5, 8, 0, 10, 1, 9, 7, 6, 4, 2});
}

TEST(OnednnCopy, PermutesElements) {
  expect_copies<float, float>();
  expect_copies<int32_t, int32_t>();
  expect_copies<int8_t, int8_t>();
  expect_copies<uint8_t, uint8_t>();
  expect_copies<bool, bool>();
}

TEST(OnednnCopy, ConvertsIntegersToFloat) {
  expect_copies<int32_t, float>();
  expect_copies<int8_t, float>();
  expect_copies<uint8_t, float>();
  expect_copies<bool, float>();
}

TEST(OnednnCopy, LargeIntegersRoundToEven) {
  const std::vector<int64_t> values = {(1 << 24) + 1, (1 << 24) + 3, -(1 << 24) - 1, INT32_MIN,
                                       INT32_MAX};
  std::vector<int64_t> rows;
  for (int i = 0; i < 16; ++i) rows.insert(rows.end(), values.begin(), values.end());
  const TestTensor from = TestTensor::of<int32_t, int64_t>({16, 5}, rows);
  const TestTensor to = TestTensor::empty(sdk::dtype_of<float>, {5, 16});
  ASSERT_EQ(copy(to, from.reversed()), "");
  const double rounded[] = {16777216, 16777220, -16777216, -2147483648.0, 2147483648.0};
  const std::vector<double> found = to.values<double>();
  for (size_t i = 0; i < found.size(); ++i) EXPECT_EQ(found[i], rounded[i / 16]);
}

TEST(OnednnCopy, PreservesEveryBit) {
  const uint32_t bits[] = {0x80000000, 0x7f800001, 0xffc12345, 0x00000001, 0x7f800000, 0x807fffff};
  const TestTensor from = TestTensor::empty(sdk::dtype_of<float>, {6, 40});
  for (int64_t i = 0; i < 240; ++i) from.view().data<uint32_t>()[i] = bits[i % 6] ^ (i / 6 % 2);
  const TestTensor to = TestTensor::empty(sdk::dtype_of<float>, {40, 6});
  ASSERT_EQ(copy(to, from.reversed()), "");
  for (int64_t i = 0; i < 240; ++i) {
    EXPECT_EQ(to.view().data<uint32_t>()[i % 40 * 6 + i / 40], bits[i % 6] ^ (i / 6 % 2)) << i;
  }
}

template <class From, class To>
std::string pair() {
  return copy(TestTensor::empty(sdk::dtype_of<To>, {4, 4}),
              TestTensor::of<From>({4, 4}, std::vector<double>(16)).reversed());
}

TEST(OnednnCopy, DeclinesWithAReason) {
  for (const std::string& why :
       {pair<float, int32_t>(), pair<float, uint8_t>(), pair<float, bool>(),
        pair<int32_t, uint8_t>(), pair<double, double>(), pair<int64_t, float>(),
        pair<float, sdk::BFloat16>(), pair<sdk::Half, float>()}) {
    EXPECT_NE(why.find("[dtype]"), std::string::npos) << why;
  }
  const TestTensor square = TestTensor::empty(sdk::dtype_of<float>, {4, 4});
  const auto says = [&](const TestTensor& to, const TestTensor& from, const char* what) {
    const std::string why = copy(to, from);
    EXPECT_NE(why.find(what), std::string::npos) << why;
  };
  says(square, square, "keep their order");
  says(square, TestTensor::empty(sdk::dtype_of<int32_t>, {4, 4}), "keep their order");
  says(square.reversed(), square.reversed(), "keep their order");
  says(square, TestTensor::empty(sdk::dtype_of<float>, {4}), "broadcasts");
  says(square, square.as_strided({4, 4}, {0, 1}), "gaps");
  says(square, TestTensor::empty(sdk::dtype_of<float>, {8, 4}).as_strided({4, 4}, {1, 8}), "gaps");
  says(TestTensor::empty(sdk::dtype_of<float>, {0, 4}),
       TestTensor::empty(sdk::dtype_of<float>, {4, 0}).reversed(), "no elements");
  const TestTensor many = TestTensor::empty(sdk::dtype_of<float>, Shape(13, 2));
  says(many, many.reversed(), "12 dimensions");
}

}  // namespace
}  // namespace mytorch::testing
