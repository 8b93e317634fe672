// Outputs of out= and in-place forms: valid targets, and rejection without any write.
#include "mytorch/backends.h"
#include "mytorch/grad_mode.h"
#include "mytorch/ops/add.h"
#include "mytorch/ops/arange.h"
#include "mytorch/ops/bmm.h"
#include "mytorch/ops/cat.h"
#include "mytorch/ops/copy_.h"
#include "mytorch/ops/cumsum.h"
#include "mytorch/ops/eq.h"
#include "mytorch/ops/mm.h"
#include "mytorch/ops/mul.h"
#include "mytorch/ops/neg.h"
#include "mytorch/ops/sgd_step.h"
#include "mytorch/ops/softmax.h"
#include "mytorch/ops/sort.h"
#include "mytorch/ops/sum.h"
#include "tests/dispatcher/util.h"

namespace mytorch {
namespace {

using testing::expect_error;
using testing::Values;
using testing::values;

Tensor slice(const Tensor& x, int64_t first, int64_t n) {
  return Tensor::adopt(new_view(x.impl(), {n}, {1}, first));
}

TEST(OutTest, MustHaveTheResultsShape) {
  const Tensor x = tensor({1.0, 2, 3});
  const Tensor out = tensor({7.0, 7});
  const uint64_t version = out.version();
  expect_error(ErrorCode::kShape, {"[add]", "(3,)", "out has shape (2,)", "give an out"},
               [&] { add_out(out, x, x); });
  expect_error(ErrorCode::kShape, {"[sum]", "out has shape (2,)"}, [&] { sum_out(out, x); });
  expect_error(ErrorCode::kShape, {"[mm]", "(1, 1)"}, [&] {
    mm_out(out, x.view({1, 3}), x.view({3, 1}));
  });
  expect_error(ErrorCode::kShape, {"[softmax]"}, [&] { softmax_out(out, x, 0); });
  EXPECT_EQ(values(out), (Values{7, 7}));
  EXPECT_EQ(out.version(), version);
  // Shapes that would broadcast are also rejected: `out` is not resized, and results are not
  // repeated.
  expect_error(ErrorCode::kShape, {"[add]"}, [&] {
    add_out(tensor({0.0, 0, 0}), tensor({1.0}), 1);
  });
}

TEST(OutTest, ReturnsItsOuts) {
  const Tensor x = tensor({3.0, 1, 2});
  const Tensor out = tensor({7.0, 7, 7});
  EXPECT_EQ(&add_out(out, x, 1), &out);
  EXPECT_EQ(values(neg(add_out(out, x, 1))), (Values{-4, -2, -3}));
  const Tensor indices = tensor({0, 0, 0}, kInt64);
  const auto [sorted, order] = sort_out(out, indices, x);
  EXPECT_EQ(&sorted, &out);
  EXPECT_EQ(&order, &indices);
  EXPECT_EQ(values(sorted), (Values{1, 2, 3}));
}

TEST(OutTest, InPlaceFormsKeepTheirShape) {
  const Tensor x = tensor({1.0, 2, 3});
  const Tensor one = tensor({1.0});
  one.add_(1);
  EXPECT_EQ(values(one), Values{2});
  expect_error(ErrorCode::kShape, {"[add]", "self has shape (1,)", "not in-place"},
               [&] { one.add_(x); });
  x.add_(one);
  EXPECT_EQ(values(x), (Values{3, 4, 5}));
}

TEST(OutTest, TypesMayWidenButNotChangeCategory) {
  const Tensor x = tensor({1.5, 2.5});
  const Tensor wide = tensor({0, 0}, kFloat64);
  add_out(wide, x, x);
  EXPECT_EQ(values(wide), (Values{3, 5}));
  const Tensor narrow = tensor({0, 0}, kFloat16);
  add_out(narrow, x, x);
  EXPECT_EQ(values(narrow), (Values{3, 5}));
  const Tensor integers = tensor({7, 7}, kInt32);
  expect_error(ErrorCode::kType, {"[add]", "float32", "out of type int32"},
               [&] { add_out(integers, x, x); });
  expect_error(ErrorCode::kType, {"[add]", "self of type int32"}, [&] { integers.add_(x); });
  expect_error(ErrorCode::kType, {"[mul]"}, [&] { integers.mul_(0.5); });
  expect_error(ErrorCode::kType, {"[bmm]", "float32", "int32"}, [&] {
    const Tensor m = tensor({1.0}).view({1, 1, 1});
    bmm_out(tensor({1}, kInt32).view({1, 1, 1}), m, m);
  });
  EXPECT_EQ(values(integers), (Values{7, 7}));
  integers.mul_(true);
  integers.add_(1);
  EXPECT_EQ(values(integers), (Values{8, 8}));
  const Tensor bools = tensor({0, 0}, kBool);
  expect_error(ErrorCode::kType, {"bool"}, [&] { add_out(bools, integers, integers); });
  // Comparisons return bools, which convert to any type.
  eq_out(wide, x, x);
  EXPECT_EQ(values(wide), (Values{1, 1}));
}

TEST(OutTest, DevicesMustAgree) {
  const Tensor x = tensor({1.0, 2});
  const Tensor far = x.to(testing::full().device());
  expect_error(ErrorCode::kDevice, {"[add]", "different devices", "cpu", "full:0"},
               [&] { add(x, far); });
  expect_error(ErrorCode::kDevice, {"[add]", "on cpu", "full:0"}, [&] { add_out(far, x, x); });
  expect_error(ErrorCode::kDevice, {"[bmm]", "self on cpu", "mat2 on full:0"}, [&] {
    bmm(x.view({1, 1, 2}), far.view({1, 2, 1}));
  });
  expect_error(ErrorCode::kDevice, {"[cat]", "cpu", "full:0"}, [&] { cat({x, far}); });
  expect_error(ErrorCode::kDevice, {"full:0", "full:1"},
               [&] { add(far, x.to(testing::full().device(1))); });
  EXPECT_EQ(values(far), (Values{1, 2}));
  // A 0-dim CPU tensor is accepted on any device, like a number.
  EXPECT_EQ(values(add(far, scalar_tensor(10))), (Values{11, 12}));
  EXPECT_EQ(values(mul(scalar_tensor(10), far)), (Values{10, 20}));
}

TEST(OutTest, RejectsOutputsThatOverlapThemselves) {
  const Tensor x = tensor({1.0, 2, 3});
  const Tensor wide = tensor({7.0}).expand({3});
  expect_error(ErrorCode::kValue, {"[add]", "share memory", "(3,)", "clone()"},
               [&] { add_out(wide, x, x); });
  expect_error(ErrorCode::kValue, {"[add]", "share memory"}, [&] { wide.add_(1); });
  expect_error(ErrorCode::kValue, {"[copy_]", "share memory"}, [&] { wide.copy_(x); });
  expect_error(ErrorCode::kValue, {"[fill_]", "share memory"}, [&] { wide.fill_(1); });
  expect_error(ErrorCode::kValue, {"[sum]", "share memory"}, [&] {
    sum_out(wide, x.view({3, 1}), IntList(1));
  });
  EXPECT_EQ(values(wide), (Values{7, 7, 7}));
  EXPECT_EQ(values(add(wide, wide)), (Values{14, 14, 14}));  // reading it is allowed
}

TEST(OutTest, MayBeExactlyAnInput) {
  const Tensor x = tensor({1.0, 2, 3});
  const uint64_t version = x.version();
  add_out(x, x, x);
  EXPECT_EQ(values(x), (Values{2, 4, 6}));
  EXPECT_EQ(x.version(), version + 1);
  x.mul_(x);
  EXPECT_EQ(values(x), (Values{4, 16, 36}));
  const Tensor m = tensor({1.0, 1, 0, 1}).view({2, 2});
  mm_out(m, m, m);
  EXPECT_EQ(values(m), (Values{1, 2, 0, 1}));
  cumsum_out(x, x, 0);
  EXPECT_EQ(values(x), (Values{4, 20, 56}));
}

TEST(OutTest, PartialOverlapGoesThroughATemporary) {
  for (const bool forward : {false, true}) {
    const Tensor memory = tensor({1.0, 2, 3, 4, 5});
    const Tensor low = slice(memory, 0, 4);
    const Tensor high = slice(memory, 1, 4);
    add_out(forward ? high : low, forward ? low : high, 10);
    EXPECT_EQ(values(memory), forward ? (Values{1, 11, 12, 13, 14}) : (Values{12, 13, 14, 15, 5}));
  }
  {
    const Tensor memory = tensor({1.0, 2, 3, 4, 5});
    slice(memory, 1, 4).add_(slice(memory, 0, 4));
    EXPECT_EQ(values(memory), (Values{1, 3, 5, 7, 9}));
  }
  {  // transposed: each element is read where another is written
    const Tensor m = tensor({1.0, 2, 3, 4}).view({2, 2});
    add_out(m, m.t(), m);
    EXPECT_EQ(values(m), (Values{2, 5, 5, 8}));
    neg_out(m, m.t());
    EXPECT_EQ(values(m), (Values{-2, -5, -5, -8}));
  }
  {
    const Tensor memory = tensor({1.0, 2, 3, 4, 5});
    cumsum_out(slice(memory, 1, 4), slice(memory, 0, 4), 0);
    EXPECT_EQ(values(memory), (Values{1, 1, 3, 6, 10}));
  }
  {
    const Tensor memory = tensor({1.0, 2, 3, 4, 5});
    cat_out(slice(memory, 1, 4), {slice(memory, 0, 2), slice(memory, 3, 2)});
    EXPECT_EQ(values(memory), (Values{1, 1, 2, 4, 5}));
  }
  {  // the same memory with another broadcast
    const Tensor memory = tensor({1.0, 2, 3, 4});
    add_out(memory, memory, slice(memory, 0, 1));
    EXPECT_EQ(values(memory), (Values{2, 3, 4, 5}));
  }
}

TEST(OutTest, CopiesBetweenOverlappingParts) {
  for (const int64_t n : {8, 70000}) {
    for (const int64_t shift : {1, 3}) {
      std::vector<double> numbers(static_cast<size_t>(n));
      for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<double>(i);
      for (const bool up : {false, true}) {
        const Tensor memory = tensor(numbers, kFloat64);
        const Tensor low = slice(memory, 0, n - shift);
        const Tensor high = slice(memory, shift, n - shift);
        (up ? high : low).copy_(up ? low : high);
        std::vector<double> expected = numbers;
        for (int64_t i = 0; i < n - shift; ++i) {
          expected[static_cast<size_t>(up ? i + shift : i)] =
              numbers[static_cast<size_t>(up ? i : i + shift)];
        }
        ASSERT_EQ(values(memory), expected) << n << " by " << shift << (up ? " up" : " down");
      }
    }
  }
  const Tensor m = tensor({1.0, 2, 3, 4}).view({2, 2});
  m.copy_(m.t());
  EXPECT_EQ(values(m), (Values{1, 3, 2, 4}));
  m.copy_(m);
  EXPECT_EQ(values(m), (Values{1, 3, 2, 4}));
}

TEST(OutTest, StridedOutsAreWrittenInPlace) {
  const Tensor memory = tensor({0.0, 0, 0, 0, 0, 0});
  const Tensor even = Tensor::adopt(new_view(memory.impl(), {3}, {2}, 0));
  const Tensor x = tensor({1.0, 2, 3});
  add_out(even, x, x);
  EXPECT_EQ(values(memory), (Values{2, 0, 4, 0, 6, 0}));
  sum_out(even, tensor({1.0, 2, 3, 4, 5, 6}).view({3, 2}), IntList(1));
  EXPECT_EQ(values(memory), (Values{3, 0, 7, 0, 11, 0}));
  mm_out(even.view({3, 1}), x.view({3, 1}), tensor({2.0}).view({1, 1}));
  EXPECT_EQ(values(memory), (Values{2, 0, 4, 0, 6, 0}));
  EXPECT_EQ(memory.version(), 3u);
}

TEST(OutTest, InferenceTensorsAreWritableInInferenceModeOnly) {
  Tensor made;
  {
    const InferenceMode inference;
    made = tensor({1.0, 2});
    made.add_(1);
  }
  EXPECT_EQ(values(made), (Values{2, 3}));
  const Tensor x = tensor({1.0, 2});
  expect_error(ErrorCode::kValue, {"[add]", "inference mode"}, [&] { made.add_(1); });
  expect_error(ErrorCode::kValue, {"[mul]", "inference mode"}, [&] { mul_out(made, x, x); });
  expect_error(ErrorCode::kValue, {"[copy_]", "inference mode"}, [&] { made.copy_(x); });
  EXPECT_EQ(values(made), (Values{2, 3}));
}

TEST(OutTest, UndefinedTensorsAreNamed) {
  const Tensor x = tensor({1.0, 2});
  const Tensor none;
  expect_error(ErrorCode::kValue, {"[add] argument 'self'", "undefined"}, [&] { add(none, x); });
  expect_error(ErrorCode::kValue, {"[add] argument 'other'"}, [&] { add(x, none); });
  expect_error(ErrorCode::kValue, {"[add] argument 'out'"}, [&] { add_out(none, x, x); });
  expect_error(ErrorCode::kValue, {"[sum] argument 'self'"}, [&] { sum(none); });
  const Tensor m = x.view({1, 2});
  expect_error(ErrorCode::kValue, {"[mm] argument 'out'"}, [&] { mm_out(none, m, m.t()); });
  expect_error(ErrorCode::kValue, {"undefined"}, [&] { cat({x, none}); });
  expect_error(ErrorCode::kValue, {"undefined"}, [&] { copy_(x, none); });
}

TEST(OutTest, WritesSeveralOutputs) {
  const Tensor x = tensor({3.0, 1, 2});
  const Tensor sorted = tensor({0.0, 0, 0});
  const Tensor order = tensor(std::vector<int64_t>{0, 0, 0});
  sort_out(sorted, order, x);
  EXPECT_EQ(values(sorted), (Values{1, 2, 3}));
  EXPECT_EQ(values(order), (Values{1, 2, 0}));
  const Tensor wrong = tensor({7.0, 7, 7});
  expect_error(ErrorCode::kType, {"[sort]", "int64"}, [&] {
    sort_out(sorted, tensor({0, 0, 0}, kInt32).to(kBool), x);
  });
  expect_error(ErrorCode::kShape, {"[sort]"},
               [&] { sort_out(wrong, tensor(std::vector<int64_t>{0}), x); });
  EXPECT_EQ(values(wrong), (Values{7, 7, 7}));
  // Outputs in the same memory would overwrite each other.
  const Tensor memory = tensor(std::vector<int64_t>{0, 0, 0, 0});
  expect_error(ErrorCode::kValue, {"overlap"}, [&] {
    sort_out(slice(memory, 0, 3), slice(memory, 1, 3), tensor(std::vector<int64_t>{3, 1, 2}));
  });
}

TEST(OutTest, GradientsAreNotLostSilently) {
  const Tensor x = tensor({1.0, 2}).requires_grad_();
  const Tensor out = tensor({0.0, 0});
  expect_error(ErrorCode::kValue, {"[add]", "not differentiable", "NoGradGuard"},
               [&] { add_out(out, x, x); });
  const NoGradGuard no_grad;
  add_out(out, x, x);
  EXPECT_EQ(values(out), (Values{2, 4}));
}

// Outputs of a pointwise operator with several results may be its inputs, in any order, or views of
// them.
TEST(OutTest, SeveralResultsReplaceTheirInputs) {
  const NoGradGuard no_grad;
  for (const int64_t n : {5, 70, 5000}) {
    for (const bool strided : {false, true}) {
      for (const Kernels kernels : {Kernels::kAll, Kernels::kPrimitives}) {
        const RestrictKernels restrict(kernels);
        const auto make = [&](double first) {
          const Tensor memory = arange(2 * n, kFloat32).mul(1e-3).add(first);
          return strided ? memory.slice(0, 0, 2 * n, 2) : memory.slice(0, 0, n).clone();
        };
        const Tensor p = make(1), g = make(2), b = make(3);
        const auto [stepped, buffer] = sgd_step(p, g, b, 0.5, 0.25);
        const Tensor p1 = make(1), b1 = make(3);
        sgd_step_out(p1, b1, p1, g, b1, 0.5, 0.25);
        EXPECT_EQ(values(p1), values(stepped)) << n;
        EXPECT_EQ(values(b1), values(buffer)) << n;
        EXPECT_EQ(p1.version(), p.version() + 1);
        const Tensor p2 = make(1), b2 = make(3);
        sgd_step_out(b2, p2, p2, g, b2, 0.5, 0.25);  // each result replaces the other's input
        EXPECT_EQ(values(b2), values(stepped)) << n;
        EXPECT_EQ(values(p2), values(buffer)) << n;
        // Shifted by one element: no element may be written before it is read.
        const Tensor memory = arange(n + 1, kFloat32).mul(1e-3).add(1);
        const auto [wanted, unused] = sgd_step(slice(memory, 0, n), g, b, 0.5, 0.25);
        sgd_step_out(slice(memory, 1, n), b.clone(), slice(memory, 0, n), g, b, 0.5, 0.25);
        EXPECT_EQ(values(slice(memory, 1, n)), values(wanted)) << n;
      }
    }
  }
}

TEST(OutTest, SeveralResultsMustNotOverlap) {
  const NoGradGuard no_grad;
  const Tensor x = tensor({1.0, 2, 3}), y = tensor({4.0, 5, 6});
  expect_error(ErrorCode::kValue, {"[sgd_step] two of the outputs overlap"},
               [&] { sgd_step_out(x, x, x, y, y, 0.5, 0.25); });
  expect_error(ErrorCode::kShape, {"[sgd_step]", "out has shape (2,)"}, [&] {
    sgd_step_out(tensor({0.0, 0}), y, x, y, y, 0.5, 0.25);
  });
  expect_error(ErrorCode::kValue, {"[sgd_step]", "new_momentum_buffer"},
               [&] { sgd_step_out(x, Tensor(), x, y, y, 0.5, 0.25); });
  EXPECT_EQ(values(x), (Values{1, 2, 3}));
}

}  // namespace
}  // namespace mytorch
