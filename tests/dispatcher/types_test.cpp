// Types that a record does not accept are rejected in every form, before anything is written.
#include <cmath>
#include <vector>

#include "mytorch/ops/add.h"
#include "mytorch/ops/bitwise_or.h"
#include "mytorch/ops/logsumexp.h"
#include "mytorch/ops/mean.h"
#include "mytorch/ops/neg.h"
#include "mytorch/ops/sub.h"
#include "mytorch/ops/where.h"
#include "mytorch/ops/zeros.h"
#include "mytorch/result_type.h"
#include "tests/dispatcher/util.h"

namespace mytorch {
namespace {

using testing::expect_error;
using testing::Values;
using testing::values;

TEST(TypesTest, ResultTypeIsThatOfASum) {
  const std::vector<Tensor> tensors = {
      zeros({2}, kFloat16), zeros({}, kFloat32), zeros({}, kFloat64),  zeros({2}, kInt32),
      zeros({}, kInt64),    zeros({2}, kBool),   zeros({}, kBFloat16), zeros({2}, kComplex64)};
  for (const Tensor& a : tensors) {
    for (const Tensor& b : tensors) EXPECT_EQ(result_type(a, b), add(a, b).dtype());
    EXPECT_EQ(result_type(a, 2.5), add(a, 2.5).dtype());
    EXPECT_EQ(result_type(3, a), add(a, 3).dtype());
  }
  EXPECT_EQ(result_type(zeros({2}, kFloat16), 2.5), kFloat16);
  EXPECT_EQ(result_type(zeros({2}, kInt64), 2.5), kFloat32);
}

TEST(TypesTest, RejectsOperandsOfUnacceptedTypes) {
  const Tensor bools = tensor({1, 0}, kBool);
  const Tensor integers = tensor({5, 6}, kInt64);
  const Tensor floats = tensor({0.5, 1.5});
  const auto refused = [](const std::initializer_list<std::string>& parts, auto call) {
    expect_error(ErrorCode::kType, parts, call);
  };
  // Contiguous operands of one type take the fast path.
  refused({"[sub]", "self is bool", "logical"}, [&] { sub(bools, bools); });
  refused({"[sub]", "other is bool"}, [&] { sub(floats, bools); });
  refused({"[sub]", "other is bool"}, [&] { sub(integers.view({2, 1}), bools); });
  refused({"[sub]", "other is bool"}, [&] { sub(integers, true); });
  refused({"[neg]", "self is bool"}, [&] { neg(bools); });
  refused({"[bitwise_or]", "other is float32"}, [&] { bitwise_or(integers, floats); });
  refused({"[bitwise_or]", "other is float64"}, [&] { bitwise_or(integers, 0.5); });
  refused({"[where]", "condition is float32", "compare"}, [&] { where(floats, floats, floats); });
  refused({"[mean]", "int64"}, [&] { mean(integers); });
  EXPECT_EQ(values(sub(integers, integers)), (Values{0, 0}));
  EXPECT_EQ(values(bitwise_or(bools, bools)), (Values{1, 0}));
  EXPECT_EQ(logsumexp(tensor({0, 0}, kInt64), 0).dtype(), kFloat32);
}

TEST(TypesTest, NumbersAreNotTruncated) {
  const Tensor integers = tensor({5, 6}, kInt64);
  expect_error(ErrorCode::kType, {"[add]", "alpha is 1.5", "int64", "whole number"},
               [&] { add(integers, integers, 1.5); });
  expect_error(ErrorCode::kType, {"[add]", "alpha is inf"},
               [&] { add(integers, integers, INFINITY); });
  EXPECT_EQ(values(add(integers, integers, 2.0)), (Values{15, 18}));
  EXPECT_EQ(values(add(integers, 0.5, 1.5)), (Values{5.75, 6.75}));  // computed in floating point
}

TEST(TypesTest, RejectedCallsWriteNothing) {
  const Tensor bools = tensor({1, 0}, kBool);
  const Tensor integers = tensor({5, 6}, kInt64);
  const Tensor out = tensor({7, 7}, kInt64);
  expect_error(ErrorCode::kType, {"[sub]"}, [&] { bools.sub_(bools); });
  expect_error(ErrorCode::kType, {"[sub]"}, [&] { integers.sub_(true); });
  expect_error(ErrorCode::kType, {"[add]", "alpha"}, [&] { integers.add_(integers, 0.5); });
  expect_error(ErrorCode::kType, {"[sub]"}, [&] { sub_out(out, integers, bools); });
  expect_error(ErrorCode::kType, {"[add]", "alpha"}, [&] { add_out(out, integers, 2, 0.5); });
  expect_error(ErrorCode::kType, {"[where]"}, [&] { where_out(out, integers, 1, 2); });
  EXPECT_EQ(values(bools), (Values{1, 0}));
  EXPECT_EQ(values(integers), (Values{5, 6}));
  EXPECT_EQ(values(out), (Values{7, 7}));
  EXPECT_EQ(out.version(), 0);
}

}  // namespace
}  // namespace mytorch
