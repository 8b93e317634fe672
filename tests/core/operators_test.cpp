// C++ operators: every one of two tensors, of a tensor and a number, and of a number and a tensor.
#include <gtest/gtest.h>

#include <sstream>
#include <utility>
#include <vector>

#include "mytorch/ops/arange.h"
#include "mytorch/ops/sum.h"
#include "mytorch/ops/zeros.h"
#include "mytorch/tensor.h"
#include "tests/nn/data/expect_error.h"
#include "tests/nn/values.h"

namespace mytorch {
namespace {

using testing::expect_error;
using testing::values;
using Numbers = std::vector<double>;

const Numbers kA{7, -7, 5};
const Numbers kB{2, 2, -3};

Tensor a() { return tensor({7, -7, 5}); }
Tensor b() { return tensor({2, 2, -3}); }

TEST(Operators, Arithmetic) {
  EXPECT_EQ(values(a() + b()), (Numbers{9, -5, 2}));
  EXPECT_EQ(values(a() - b()), (Numbers{5, -9, 8}));
  EXPECT_EQ(values(a() * b()), (Numbers{14, -14, -15}));
  EXPECT_EQ(values(a() / 2), (Numbers{3.5, -3.5, 2.5}));
  EXPECT_EQ((a() / 2).dtype(), kFloat32);
  EXPECT_EQ(values(a() % b()), (Numbers{1, 1, -1}));  // the sign of the divisor
  EXPECT_EQ(values(a() % 4), (Numbers{3, 1, 1}));
  EXPECT_EQ(values(-a()), (Numbers{-7, 7, -5}));
  EXPECT_EQ(values(1 - b()), (Numbers{-1, -1, 4}));
  EXPECT_EQ(values(7 % b()), (Numbers{1, 1, -2}));
  EXPECT_EQ((0.1 % tensor(1, kFloat64)).item<double>(), 0.1);  // not rounded to float32
  EXPECT_EQ(values(1.0 / tensor({2.0, 4.0})), (Numbers{0.5, 0.25}));
}

TEST(Operators, Bits) {
  EXPECT_EQ(values(tensor({6, 5}) & tensor({3, 4})), (Numbers{2, 4}));
  EXPECT_EQ(values(tensor({6, 5}) | 1), (Numbers{7, 5}));
  EXPECT_EQ(values(1 ^ tensor({6, 5})), (Numbers{7, 4}));
  EXPECT_EQ(values(~tensor({0, 5})), (Numbers{-1, -6}));
  EXPECT_EQ(values(~tensor({true, false})), (Numbers{0, 1}));
  EXPECT_EQ(values(tensor({1, 3}) << 2), (Numbers{4, 12}));
  EXPECT_EQ(values(tensor({-8, 9}) >> tensor({1, 3})), (Numbers{-4, 1}));
  EXPECT_EQ(values(1 << tensor({0, 5})), (Numbers{1, 32}));
  EXPECT_EQ((1 << tensor({0, 5}, kInt16)).dtype(), kInt16);
  EXPECT_EQ((1 << tensor(5, kInt16)).dtype(), kInt16);
  expect_error(ErrorCode::kType, {"bitwise_and"}, [] { tensor({1.5}) & 1; });
}

TEST(Operators, Logic) {
  const Tensor x = tensor({0, 2, 0}), y = tensor({0, 1, 3});
  EXPECT_EQ(values(x && y), (Numbers{0, 1, 0}));
  EXPECT_EQ(values(x || y), (Numbers{0, 1, 1}));
  EXPECT_EQ(values(!x), (Numbers{1, 0, 1}));
  EXPECT_EQ(values((y > 0) && (y < 3)), (Numbers{0, 1, 0}));
  EXPECT_EQ(values(true && y), (Numbers{0, 1, 1}));
  EXPECT_EQ((x && y).dtype(), kBool);
}

TEST(Operators, ComparisonsWithANumberOnTheLeft) {
  const Tensor x = tensor({1.0, 2.0, 3.0});
  EXPECT_EQ(values(2 < x), (Numbers{0, 0, 1}));
  EXPECT_EQ(values(2 <= x), (Numbers{0, 1, 1}));
  EXPECT_EQ(values(2 > x), (Numbers{1, 0, 0}));
  EXPECT_EQ(values(2 >= x), (Numbers{1, 1, 0}));
  EXPECT_EQ(values(2 == x), (Numbers{0, 1, 0}));
  EXPECT_EQ(values(2 != x), (Numbers{1, 0, 1}));
}

TEST(Operators, CompoundFormsWriteVariablesViewsAndSelections) {
  Tensor x = tensor({6, 5, 4});
  x += 1;
  x %= 4;
  EXPECT_EQ(values(x), (Numbers{3, 2, 1}));
  x <<= 2;
  x |= 1;
  x ^= 4;
  x >>= 1;
  x &= 7;
  EXPECT_EQ(values(x), (Numbers{4, 6, 0}));
  x[0] -= 4;
  x[x == 6] *= 10;
  x.index({tensor({2, 2})}) += 1;  // as in NumPy, an element that is named twice changes once
  EXPECT_EQ(values(x), (Numbers{0, 60, 1}));
  expect_error(ErrorCode::kType, {"[add]", "float32", "int64"}, [&] { x[x == 60] += 0.5; });
}

TEST(Operators, OutputIsNotAShift) {
  std::ostringstream out;
  out << tensor({1, 2}) << " and " << kFloat32 << " on " << kCPU << " of " << IntList({2, 3});
  EXPECT_EQ(out.str(), "tensor([1, 2], shape=(2,), dtype=int64) and float32 on cpu of [2, 3]");
}

}  // namespace
}  // namespace mytorch
