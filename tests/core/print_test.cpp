// Printed tensors.
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "mytorch/ops/arange.h"
#include "mytorch/ops/zeros.h"
#include "mytorch/print_options.h"
#include "mytorch/tensor.h"
#include "tests/nn/data/expect_error.h"

namespace mytorch {
namespace {

class Print : public ::testing::Test {
 protected:
  Print() { set_print_options({.line_width = 80}); }
  ~Print() override { set_print_options({}); }
};

TEST_F(Print, NumbersOfOneDimension) {
  EXPECT_EQ(tensor({1.0, 2.0}).str(), "tensor([1., 2.], shape=(2,), dtype=float32)");
  EXPECT_EQ(tensor({0.5, -10.25}).str(), "tensor([  0.5000, -10.2500], shape=(2,), dtype=float32)");
  EXPECT_EQ(tensor({1, -20}).str(), "tensor([  1, -20], shape=(2,), dtype=int64)");
  EXPECT_EQ(tensor({true, false}).str(), "tensor([ true, false], shape=(2,), dtype=bool)");
  EXPECT_EQ(tensor(3.0).str(), "tensor(3., shape=(), dtype=float32)");
  EXPECT_EQ(zeros({0}).str(), "tensor([], shape=(0,), dtype=float32)");
  EXPECT_EQ(zeros({2, 0}).str(), "tensor([[],\n        []], shape=(2, 0), dtype=float32)");
  EXPECT_EQ(tensor({1.0}).requires_grad_().str(),
            "tensor([1.], shape=(1,), dtype=float32, requires_grad)");
  EXPECT_EQ(Tensor().str(), "tensor(undefined)");
}

TEST_F(Print, InfinitiesAndNaNHaveNoPoint) {
  EXPECT_EQ(tensor({NAN, INFINITY, -INFINITY, 1.0}).str(),
            "tensor([ nan,  inf, -inf,   1.], shape=(4,), dtype=float32)");
}

TEST_F(Print, AWideRangeIsScientific) {
  EXPECT_EQ(tensor({1e-6, 1.0}).str(),
            "tensor([1.0000e-06, 1.0000e+00], shape=(2,), dtype=float32)");
  EXPECT_EQ(tensor({0.5, 2000.0}).str(),
            "tensor([5.0000e-01, 2.0000e+03], shape=(2,), dtype=float32)");
  EXPECT_EQ(tensor({1e9}).str(), "tensor([1.0000e+09], shape=(1,), dtype=float32)");
  set_print_options({.precision = 2, .sci_mode = false});
  EXPECT_EQ(tensor({1e-6, 1.5}).str(), "tensor([0.00, 1.50], shape=(2,), dtype=float32)");
}

TEST_F(Print, RowsAreAlignedAndBlocksApart) {
  EXPECT_EQ(arange(4).reshape({2, 2}).str(),
            "tensor([[0, 1],\n        [2, 3]], shape=(2, 2), dtype=int64)");
  EXPECT_EQ(arange(4).reshape({2, 1, 2}).str(),
            "tensor([[[0, 1]],\n\n        [[2, 3]]], shape=(2, 1, 2), dtype=int64)");
}

TEST_F(Print, LongLinesWrap) {
  set_print_options({.line_width = 24});
  EXPECT_EQ(arange(8).str(), "tensor([0, 1, 2, 3, 4,\n        5, 6, 7], shape=(8,), dtype=int64)");
}

TEST_F(Print, ManyElementsAreAbbreviated) {
  EXPECT_EQ(arange(2000).str(),
            "tensor([   0,    1,    2, ..., 1997, 1998, 1999], shape=(2000,), dtype=int64)");
  set_print_options({.threshold = 5, .edge_items = 1});
  EXPECT_EQ(arange(9).reshape({3, 3}).str(),
            "tensor([[0, ..., 2],\n        ...,\n        [6, ..., 8]], shape=(3, 3), dtype=int64)");
  // Only what is shown is read: this tensor has 2^40 elements.
  EXPECT_EQ(zeros({1}).expand({int64_t{1} << 40}).str(),
            "tensor([0., ..., 0.], shape=(1099511627776,), dtype=float32)");
}

TEST_F(Print, OptionsAreChecked) {
  testing::expect_error(ErrorCode::kValue, {"[set_print_options]"},
                        [] { set_print_options({.precision = -1}); });
}

}  // namespace
}  // namespace mytorch
