// In-place operations and views.
#include <cmath>

#include "mytorch/autograd.h"
#include "mytorch/autograd/record.h"
#include "mytorch/ops/abs.h"
#include "mytorch/ops/add.h"
#include "mytorch/ops/as_strided.h"
#include "mytorch/ops/copy_.h"
#include "mytorch/ops/digamma.h"
#include "mytorch/ops/exp.h"
#include "mytorch/ops/full.h"
#include "mytorch/ops/igamma.h"
#include "mytorch/ops/index_reduce.h"
#include "mytorch/ops/ldexp.h"
#include "mytorch/ops/lerp.h"
#include "mytorch/ops/logit.h"
#include "mytorch/ops/mul.h"
#include "mytorch/ops/mvlgamma.h"
#include "mytorch/ops/narrow.h"
#include "mytorch/ops/real.h"
#include "mytorch/ops/relu.h"
#include "mytorch/ops/select.h"
#include "mytorch/ops/sin.h"
#include "mytorch/ops/sum.h"
#include "mytorch/ops/transpose.h"
#include "mytorch/ops/unbind.h"
#include "mytorch/ops/unfold_backward.h"
#include "mytorch/ops/view.h"
#include "mytorch/ops/zero_.h"
#include "mytorch/ops/zeros.h"
#include "tests/autograd/util.h"

namespace mytorch {
namespace {

using autograd::grad;

TEST(InPlace, OnANonLeaf) {
  const Tensor x = leaf({2, 3});
  const Tensor y = mul(x, 2.0);
  mul_(y, 5.0);
  EXPECT_EQ(y.grad_fn(), "MulBackward");
  sum(y).backward();
  EXPECT_EQ(values(x.grad()), (Values{10, 10}));
}

TEST(InPlace, TheGradientOfUnfoldingToNoDimensionsHasItsOwnMemory) {
  const Tensor grad = full({1}, 3.0);
  const Tensor result = unfold_backward(grad, {}, 0, 1, 1);
  mul_(result, 5.0);
  EXPECT_EQ(result.item<float>(), 15);
  EXPECT_EQ(grad.item<float>(), 3);
}

TEST(InPlace, AnAbsentArgumentIsRefused) {
  const Tensor x = leaf({2, 3});
  const Tensor y = mul(x, 2.0);
  EXPECT_THROW(mul_(Tensor(), x), Error);
  EXPECT_THROW(lerp_(y, Tensor(), x), Error);
  EXPECT_THROW(lerp_(y, x, Operand()), Error);
}

TEST(InPlace, AddsAPlainTensorToTheGraph) {
  const Tensor w = leaf({2, 3});
  const Tensor b = plain({5, 7});
  EXPECT_FALSE(b.requires_grad());
  mul_(b, w);
  EXPECT_TRUE(b.requires_grad());
  EXPECT_FALSE(b.is_leaf());
  sum(b).backward();
  EXPECT_EQ(values(w.grad()), (Values{5, 7}));
}

TEST(InPlace, RejectsLeaves) {
  const Tensor x = leaf({1, 2});
  EXPECT_ERROR(mul_(x, 2.0), "[mul_]");
  EXPECT_ERROR(mul_(x, 2.0), "leaf");
  EXPECT_ERROR(mul_(view(x, {2}), 2.0), "view of a leaf");
  EXPECT_ERROR(zero_(select(x, 0, 1)), "view of a leaf");
  EXPECT_EQ(values(x), (Values{1, 2}));
  NoGradGuard no_grad;
  mul_(x, 2.0);
  mul_(view(x, {2}), 2.0);
  EXPECT_EQ(values(x), (Values{4, 8}));
  EXPECT_TRUE(x.is_leaf());
  EXPECT_TRUE(x.requires_grad());
}

TEST(InPlace, AnOutputSavedByTheWriterIsCurrent) {
  const Tensor x = leaf({-1, 2});
  const Tensor y = mul(x, 3.0);
  relu_(y);
  sum(y).backward();
  EXPECT_EQ(values(x.grad()), (Values{0, 3}));
}

TEST(InPlace, SavedInputIsTheValueBefore) {
  const Tensor x = leaf({0.5});
  const Tensor y = mul(x, 1.0);
  sin_(y);
  sum(y).backward();
  EXPECT_NEAR(values(x.grad())[0], std::cos(0.5), 1e-12);
}

TEST(InPlace, MultipliesATensorWithItself) {
  const Tensor x = leaf({3});
  const Tensor y = mul(x, 2.0);
  mul_(y, y);
  EXPECT_EQ(values(y), (Values{36}));
  y.backward();
  EXPECT_EQ(values(x.grad()), (Values{24}));
}

TEST(InPlace, HigherOrderThroughSavedCopy) {
  const Tensor x = leaf({3});
  const Tensor y = mul(x, 1.0);
  mul_(y, y);
  const Tensor g = grad({y}, {x}, {}, {.create_graph = true})[0];
  EXPECT_EQ(values(g), (Values{6}));
  EXPECT_EQ(values(grad({g}, {x})[0]), (Values{2}));
}

TEST(InPlace, HigherOrderThroughSavedOutput) {
  const Tensor x = leaf({0.5});
  const Tensor y = mul(x, 1.0);
  exp_(y);
  const Tensor g = grad({y}, {x}, {}, {.create_graph = true})[0];
  EXPECT_NEAR(values(grad({g}, {x})[0])[0], std::exp(0.5), 1e-12);
}

TEST(InPlace, CompositesMayOverwriteWhatTheirOperatorsSave) {
  const auto slope = [](const auto& write, const Values& at) {
    const Tensor x = leaf(at);
    const Tensor y = mul(x, 1.0);
    write(y);
    sum(y).backward();
    return values(x.grad())[0];
  };
  EXPECT_NEAR(slope([](const Tensor& y) { logit_(y, 0.01); }, {0.25}), 1 / (0.25 * 0.75), 1e-12);
  const auto digammas = [](const Tensor& y) { mvlgamma_(y, 1); };
  EXPECT_NEAR(slope(digammas, {3}), values(digamma(plain({3})))[0], 1e-12);
  const auto product = [](const Tensor& y) {
    y.index_reduce_(0, zeros({1}, kInt64), plain({5}), "prod");
  };
  EXPECT_NEAR(slope(product, {2}), 5, 1e-12);
  // So may those of which another argument has a gradient, or is the tensor itself.
  const Tensor source = leaf({5}), y = plain({2});
  y.index_reduce_(0, zeros({1}, kInt64), source, "prod");
  sum(y).backward();
  EXPECT_NEAR(values(source.grad())[0], 2, 1e-12);
  const Tensor factor = leaf({5}), pair = plain({2, 3}).to(kComplex128);
  pair.select(0, 0).index_reduce_(0, zeros({}, kInt64), factor.select(0, 0).to(kComplex128),
                                  "prod");
  sum(real(pair)).backward();
  EXPECT_NEAR(values(factor.grad())[0], 2, 1e-12);
  const auto itself = [](const Tensor& z) { z.ldexp_(z); };
  EXPECT_NEAR(slope(itself, {2}), 4 + 2 * 4 * std::log(2.0), 1e-12);
}

TEST(InPlace, OfAnArgumentWithoutAGradient) {
  const Tensor x = leaf({0.5}), first = plain({1.5});
  igamma(first, x).backward();
  const double expected = values(x.grad())[0];
  EXPECT_NE(expected, 0);
  for (const bool part : {false, true}) {
    const Tensor base = plain({1.5, 2}), y = part ? narrow(base, 0, 0, 1) : plain({1.5});
    const Tensor other = leaf({0.5});
    y.igamma_(other);
    sum(part ? base : y).backward();
    EXPECT_NEAR(values(other.grad())[0], expected, 1e-12) << part;
  }
  // A gradient that nobody knows is not left out in silence.
  EXPECT_ERROR(igamma(x, plain({0.5})), "self");
  EXPECT_ERROR(mul(x, 2.0).igamma_(plain({0.5})), "self");
  const Tensor part = [&] {
    const NoGradGuard no_grad;
    return narrow(x, 0, 0, 1);
  }();
  EXPECT_ERROR(part.igamma_(plain({0.5})), "leaf");
  NoGradGuard no_grad;
  EXPECT_NO_THROW(igamma(x, plain({0.5})));
}

TEST(InPlace, RefusesRealResultsOfComplexNumbers) {
  const Tensor z = plain({3, 4}).to(kComplex128);
  EXPECT_ERROR(abs_(z), "not in-place");
  EXPECT_EQ(values(abs(z)), (Values{3, 4}));
}

TEST(Versions, OverwrittenInputIsAnErrorThatNamesBothOperations) {
  const Tensor x = leaf({1, 2});
  const Tensor h = mul(x, 2.0);
  const Tensor y = mul(h, h);
  add_(h, 1.0);
  EXPECT_ERROR(sum(y).backward({}, true), "[MulBackward]");
  EXPECT_ERROR(sum(y).backward({}, true), "add_");
  EXPECT_ERROR(sum(y).backward({}, true), "(2,)");
}

TEST(Versions, BackwardRefusesAnOverwrittenOutput) {
  const Tensor x = leaf({1});
  const Tensor y = exp(x);
  mul_(y, 2.0);
  EXPECT_ERROR(y.backward(), "[ExpBackward]");
  EXPECT_ERROR(y.backward(), "mul_");
}

TEST(Versions, UnrecordedWritesCount) {
  const Tensor x = leaf({1});
  const Tensor w = plain({2});
  const Tensor y = mul(x, w);
  {
    NoGradGuard no_grad;
    mul_(w, 2.0);
  }
  EXPECT_ERROR(y.backward(), "not recorded");
  const Tensor z = exp(x);
  mul_(z.detach(), 2.0);
  EXPECT_ERROR(z.backward(), "[ExpBackward]");
}

TEST(Versions, WritesThroughViewsCount) {
  const Tensor x = leaf({1, 2});
  const Tensor w = plain({2, 3});
  const Tensor first = select(w, 0, 0);
  const Tensor y = mul(x, w);
  mul_(first, 2.0);
  EXPECT_ERROR(sum(y).backward(), "overwritten");
}

TEST(Versions, TheErrorNamesBothOperations) {
  const Tensor x = leaf({1, 2});
  const Tensor h = mul(x, 2.0);
  const Tensor y = mul(h, h);
  mytorch::exp_(h);
  EXPECT_ERROR(sum(y).backward(),
               "mul saved an operand, a float64 tensor of shape (2,), for its gradient, and the "
               "tensor was overwritten by exp_");
  EXPECT_ERROR(sum(y).backward(), "write before mul runs");
}

TEST(Versions, WritesToUnsavedTensorsAreAllowed) {
  const Tensor x = leaf({1, 2});
  const Tensor y = mul(x, 2.0);
  const Tensor z = add(y, 1.0);
  mul_(y, 3.0);
  sum(z).backward();
  EXPECT_EQ(values(x.grad()), (Values{2, 2}));
}

// ---- views ----

TEST(View, GradientsOfViewsReachTheBase) {
  const Tensor x = counting({2, 3}).requires_grad_();
  const Tensor row = select(transpose(x, 0, 1), 0, 2);
  EXPECT_TRUE(row.is_view());
  sum(mul(row, row)).backward();
  EXPECT_EQ(values(x.grad()), (Values{0, 0, 4, 0, 0, 10}));
}

TEST(View, WriteReachesTheBase) {
  const Tensor x = leaf({1, 2, 3});
  const Tensor y = mul(x, 1.0);
  mul_(select(y, 0, 1), 10.0);
  EXPECT_EQ(values(y), (Values{1, 20, 3}));
  sum(y).backward();
  EXPECT_EQ(values(x.grad()), (Values{1, 10, 1}));
}

TEST(View, WriteToTheBaseReachesViews) {
  const Tensor x = leaf({1, 2, 3});
  const Tensor y = mul(x, 1.0);
  const Tensor v = select(y, 0, 1);
  EXPECT_EQ(v.grad_fn(), "SelectBackward");
  mul_(y, 10.0);
  EXPECT_EQ(v.grad_fn(), "AsStridedBackward");
  v.backward();
  EXPECT_EQ(values(x.grad()), (Values{0, 10, 0}));
}

TEST(View, WriteReachesSiblings) {
  const Tensor x = counting({2, 2}).requires_grad_();
  const Tensor y = mul(x, 1.0);
  const Tensor row = select(y, 0, 1);
  const Tensor column = select(y, 1, 1);
  mul_(row, 10.0);
  sum(mul(column, plain({1, 2}))).backward();
  EXPECT_EQ(values(x.grad()), (Values{0, 1, 0, 20}));
}

TEST(View, ChainsOfViewsFollowTheBase) {
  const Tensor x = counting({2, 3}).requires_grad_();
  const Tensor y = mul(x, 1.0);
  const Tensor v = select(transpose(y, 0, 1), 0, 1);  // column 1
  mul_(v, v);
  sum(y).backward();
  EXPECT_EQ(values(x.grad()), (Values{1, 2, 1, 1, 8, 1}));
}

TEST(View, CreatedBeforeTheBaseHadAHistory) {
  const Tensor w = leaf({2, 3});
  const Tensor base = plain({5, 7});
  const Tensor v = select(base, 0, 1);
  EXPECT_FALSE(v.requires_grad());
  mul_(base, w);
  EXPECT_TRUE(v.requires_grad());
  EXPECT_FALSE(v.is_leaf());
  const Tensor y = mul(v, 10.0);
  EXPECT_TRUE(y.requires_grad());
  y.backward();
  EXPECT_EQ(values(w.grad()), (Values{0, 70}));
}

TEST(View, WriteToAViewGivesItsBaseAHistory) {
  const Tensor w = leaf({3});
  const Tensor base = plain({5, 7});
  const Tensor other = view(base, {2, 1});  // created before the write
  mul_(select(base, 0, 1), select(w, 0, 0));
  EXPECT_TRUE(base.requires_grad());
  EXPECT_EQ(base.grad_fn(), "CopySlices");
  EXPECT_EQ(values(base), (Values{5, 21}));
  sum(mul(base, base)).backward({}, true);
  EXPECT_EQ(values(w.grad()), (Values{2 * 21 * 7}));
  w.set_grad({});
  sum(other).backward();
  EXPECT_EQ(values(w.grad()), (Values{7}));
}

TEST(View, CopyIntoSlices) {
  const Tensor a = leaf({1, 2});
  const Tensor b = leaf({3, 4});
  const Tensor all = zeros({2, 2}, kFloat64);
  copy_(select(all, 0, 0), a);
  copy_(select(all, 0, 1), b);
  copy_(select(all, 0, 0), mul(b, 10.0));  // a is overwritten
  sum(mul(all, all)).backward();
  EXPECT_EQ(values(b.grad()), (Values{6 + 2 * 30 * 10, 8 + 2 * 40 * 10}));
  EXPECT_EQ(values(a.grad()), (Values{0, 0}));
}

TEST(View, ZeroThroughAView) {
  const Tensor x = leaf({1, 2, 3});
  const Tensor y = mul(x, 2.0);
  zero_(select(y, 0, 0));
  sum(y).backward();
  EXPECT_EQ(values(x.grad()), (Values{0, 2, 2}));
}

TEST(View, SavedOutputOfAWriteToAView) {
  const Tensor x = leaf({0.5, 1});
  const Tensor y = mul(x, 1.0);
  const Tensor v = select(y, 0, 0);
  exp_(v);
  const Tensor g = grad({v}, {x}, {}, {.create_graph = true})[0];
  EXPECT_NEAR(values(g)[0], std::exp(0.5), 1e-12);
  EXPECT_EQ(values(g)[1], 0);
  const Tensor gg = grad({sum(g)}, {x})[0];
  EXPECT_NEAR(values(gg)[0], std::exp(0.5), 1e-12);
  EXPECT_EQ(values(gg)[1], 0);
}

TEST(View, HigherOrderThroughWrites) {
  const Tensor x = leaf({2, 3});
  const Tensor y = mul(x, x);
  mul_(select(y, 0, 0), select(x, 0, 1));  // y0 = x0^2 x1
  const Tensor g = grad({sum(y)}, {x}, {}, {.create_graph = true})[0];
  EXPECT_EQ(values(g), (Values{12, 4 + 6}));
  const Tensor gg = grad({select(g, 0, 0)}, {x})[0];  // of 2 x0 x1
  EXPECT_EQ(values(gg), (Values{6, 4}));
}

TEST(View, WritesToViewAndBaseAlternate) {
  const Tensor x = leaf({1, 1, 1});
  const Tensor y = mul(x, 1.0);
  const Tensor v = select(y, 0, 2);
  for (int i = 0; i < 3; ++i) mul_(v, 2.0);
  for (int i = 0; i < 2; ++i) mul_(y, 3.0);
  mul_(v, 2.0);
  sum(y).backward();
  EXPECT_EQ(values(x.grad()), (Values{9, 9, 9 * 16}));
}

TEST(View, OutputsOfUnbind) {
  const Tensor x = counting({2, 2}).requires_grad_();
  const Tensor y = mul(x, 1.0);
  const std::vector<Tensor> rows = unbind(y);
  sum(mul(rows[0], rows[1])).backward({}, true);
  EXPECT_EQ(values(x.grad()), (Values{2, 3, 0, 1}));
  x.set_grad({});
  mul_(rows[0], 10.0);
  sum(add(y, rows[1])).backward();
  EXPECT_EQ(values(x.grad()), (Values{10, 10, 3, 3}));
}

TEST(View, RequiresGradOnAView) {
  const Tensor base = plain({1, 2});
  const Tensor v = select(base, 0, 1);
  v.requires_grad_();
  EXPECT_TRUE(v.is_leaf());
  EXPECT_FALSE(base.requires_grad());
  mul(v, 3.0).backward();
  EXPECT_EQ(values(v.grad()), (Values{3}));
  EXPECT_ERROR(mul_(v, 2.0), "leaf");
}

// A view created before a leaf requires grad is a constant; writes in no-grad mode do not change
// that.
TEST(View, CreatedBeforeTheLeafRequiredGrad) {
  const Tensor base = plain({1, 2});
  const Tensor v = select(base, 0, 1);
  base.requires_grad_();
  EXPECT_EQ(v.grad_fn(), "");
  EXPECT_FALSE(mul(v, 2.0).requires_grad());
  EXPECT_ERROR(mul_(v, 2.0), "leaf");
  {
    NoGradGuard no_grad;
    mul_(base, 3.0);
  }
  EXPECT_FALSE(mul(v, 2.0).requires_grad());
}

TEST(View, UnrecordedWriteKeepsTheHistory) {
  const Tensor x = leaf({1, 2});
  const Tensor y = mul(x, 2.0);
  const Tensor v = select(y, 0, 1);
  {
    NoGradGuard no_grad;
    add_(y, 100.0);
  }
  EXPECT_EQ(v.grad_fn(), "SelectBackward");
  v.backward();
  EXPECT_EQ(values(x.grad()), (Values{0, 2}));
}

TEST(NoGradView, IsAConstantAndCannotBeWrittenAmbiguously) {
  const Tensor x = leaf({1, 2});
  const Tensor y = mul(x, 1.0);
  Tensor v;
  {
    NoGradGuard no_grad;
    v = select(y, 0, 1);
  }
  EXPECT_EQ(v.grad_fn(), "");
  EXPECT_FALSE(mul(v, 2.0).requires_grad());
  EXPECT_ERROR(mul_(v, 2.0), "no-grad mode");
  EXPECT_ERROR(mul_(view(v, {1}), x), "no-grad mode");
  {
    NoGradGuard no_grad;
    mul_(v, 2.0);
  }
  EXPECT_FALSE(mul(v, 2.0).requires_grad());
  mul_(y, 2.0);
  EXPECT_ERROR(mul(v, 2.0), "no-grad mode");
  // The same for a base without history, once a write is recorded.
  const Tensor base = plain({1, 2});
  {
    NoGradGuard no_grad;
    v = select(base, 0, 1);
  }
  mul_(v, 2.0);
  EXPECT_ERROR(mul_(v, select(x, 0, 0)), "no-grad mode");
}

TEST(Detached, WritesAreCountedButNotRecorded) {
  const Tensor x = leaf({1, 2});
  const Tensor y = mul(x, 2.0);
  const Tensor d = y.detach();
  mul_(d, 3.0);
  EXPECT_EQ(values(y), (Values{6, 12}));
  EXPECT_EQ(y.grad_fn(), "MulBackward");
  sum(y).backward();
  EXPECT_EQ(values(x.grad()), (Values{2, 2}));
}

// ---- as_strided ----

TEST(AsStrided, AnOverlappingViewAddsGradients) {
  const Tensor x = leaf({1, 2, 3, 4});
  const Tensor windows = as_strided(x, {3, 2}, {1, 1}, 0);
  sum(mul(windows, tensor({1, 10}, kFloat64))).backward();
  EXPECT_EQ(values(x.grad()), (Values{1, 11, 11, 10}));
}

TEST(AsStrided, RepeatedElementsAddGradients) {
  const Tensor g =
      autograd::as_strided_backward(counting({2, 3}), IntList(2), IntList(1), 0, {2, 3}, {1, 0}, 0);
  EXPECT_EQ(values(g), (Values{0 + 1 + 2, 3 + 4 + 5}));
}

TEST(AsStrided, AnOverlappingInputSharesItsGradient) {
  // The input has one element twice; each occurrence gets half of the gradient.
  const Tensor g = autograd::as_strided_backward(plain({6}), IntList(2), IntList(int64_t{0}), 0,
                                                 IntList(1), IntList(1), 0);
  EXPECT_EQ(values(g), (Values{3, 3}));
}

TEST(AsStrided, InputWithGapsAndOffset) {
  const Tensor g = autograd::as_strided_backward(plain({1, 2}), IntList(3), IntList(2), 4,
                                                 IntList(2), IntList(4), 4);
  EXPECT_EQ(values(g), (Values{1, 0, 2}));
  // Gradients of elements outside the input are discarded.
  const Tensor h = autograd::as_strided_backward(plain({1, 2}), IntList(2), IntList(2), 0,
                                                 IntList(2), IntList(1), 0);
  EXPECT_EQ(values(h), (Values{1, 0}));
}

TEST(AsStrided, AnEmptyViewHasZeroGradient) {
  const Tensor g = autograd::as_strided_backward(zeros({0, 2}, kFloat64), IntList(3), IntList(1), 0,
                                                 {0, 2}, {2, 1}, 0);
  EXPECT_EQ(values(g), (Values{0, 0, 0}));
}

}  // namespace
}  // namespace mytorch
