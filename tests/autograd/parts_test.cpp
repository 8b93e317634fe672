// Gradients of tensors of which parts are used: views add theirs to what the whole has so far. On
// MYTORCH_TEST_DEVICE, or the CPU.
#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>
#include <vector>

#include "mytorch/autograd.h"
#include "mytorch/autograd/gradcheck.h"
#include "mytorch/autograd/vmap.h"
#include "mytorch/ops.h"
#include "mytorch/profiler.h"
#include "tests/autograd/util.h"
#include "tests/graph/device.h"

namespace mytorch {
namespace {

using Use = std::function<Tensor(const Tensor&)>;

Tensor numbers(IntList sizes) { return counting(sizes).to(test_device()); }
Tensor listed(const std::vector<double>& list) { return plain(list).to(test_device()); }

// Functions that are linear in x (6, 7): of parts, of overlapping parts, and of the whole.
std::vector<Use> uses() {
  const auto weighted = [](const Tensor& part, double scale) {
    return sum(part * (numbers(part.sizes()) + 1.0) * scale);
  };
  return {
      [=](const Tensor& x) { return weighted(x.select(0, 1), 1); },
      [=](const Tensor& x) { return weighted(x.slice(1, 1, 6, 2), 2); },
      [=](const Tensor& x) { return weighted(x.diagonal(1), 3); },
      [=](const Tensor& x) { return weighted(x.unfold(1, 3, 1), 4); },
      [=](const Tensor& x) { return weighted(x.unfold(1, 2, 3), 5); },
      [=](const Tensor& x) { return weighted(x, 6); },
      [=](const Tensor& x) { return weighted(x.t().select(0, 2), 7); },
      [=](const Tensor& x) { return weighted(x.slice(0, 2, 2), 8); },
      [=](const Tensor& x) { return weighted(x.split(4, 1)[1].select(1, 0), 9); },
      [=](const Tensor& x) {
        return weighted(x.expand({2, 6, 7}).select(0, 1), 10);
      },
  };
}

Tensor total(const std::vector<Use>& uses, const Tensor& x) {
  Tensor all = zeros({}, x.dtype(), x.device());
  for (const Use& use : uses) all = all + use(x);
  return all;
}

// A linear function of one-hot tensors is its gradient.
Values slopes(const std::vector<Use>& uses) {
  const NoGradGuard no_grad;
  Values all;
  for (int64_t i = 0; i < 42; ++i) {
    Tensor one_hot = zeros({42}, kFloat64, test_device());
    one_hot.select(0, i).fill_(1.0);
    all.push_back(total(uses, one_hot.view({6, 7})).item<double>());
  }
  return all;
}

TEST(Parts, AddUpInAnyOrder) {
  std::vector<Use> all = uses();
  const Values expected = slopes(all);
  for (size_t i = 0; i < all.size(); ++i) {
    std::rotate(all.begin(), all.begin() + 1, all.end());
    const Tensor x = numbers({6, 7}).requires_grad_();
    total(all, x).backward();
    EXPECT_EQ(values(x.grad()), expected) << i;
    const Tensor inner = x * 1.0;
    EXPECT_EQ(values(autograd::grad({total(all, inner)}, {inner})[0]), expected) << i;
    EXPECT_EQ(values(autograd::grad({total(all, inner)}, {x})[0]), expected) << i;
    const std::vector<Tensor> recorded =
        autograd::grad({total(all, inner)}, {inner}, {}, {.create_graph = true});
    EXPECT_EQ(values(recorded[0]), expected) << i;
  }
}

// Leaves memory that is not zero to whom allocates as much next.
void spoil_memory(IntList sizes) { (void)full(sizes, std::nan(""), kFloat64, test_device()); }

// Every other, overlapping, neighboring and missing slices, with and without their dimension.
TEST(Parts, WhatNoneCoversIsZero) {
  const std::vector<std::vector<std::pair<int64_t, int64_t>>> cases = {
      {{2, 3}},         {{0, 1}, {4, 5}}, {{4, 5}, {3, 4}, {2, 3}}, {{1, 3}, {2, 5}},
      {{0, 5}, {1, 2}}, {{3, 5}, {0, 2}}, {{0, 2}, {2, 4}, {4, 5}}, {{1, 2}, {3, 4}, {2, 3}},
      {{2, 2}}};
  for (const auto& slices : cases) {
    for (const int64_t dim : {0, 1, 2}) {
      const Tensor x = numbers({5, 5, 5}).requires_grad_();
      const Tensor inner = x * 1.0;
      Tensor sums = zeros({}, kFloat64, test_device());
      Values expected(125, 0);
      for (size_t i = 0; i < slices.size(); ++i) {
        const auto [begin, end] = slices[i];
        const double weight = static_cast<double>(i + 1);
        const bool one = end == begin + 1 && i % 2 == 0;
        const Tensor part = one ? inner.select(dim, begin) : inner.slice(dim, begin, end);
        sums = sums + sum(part * weight);
        const int64_t stride = dim == 0 ? 25 : dim == 1 ? 5 : 1;
        for (int64_t at = 0; at < 125; ++at) {
          const int64_t place = at / stride % 5;
          if (place >= begin && place < end) expected[static_cast<size_t>(at)] += weight;
        }
      }
      spoil_memory({5, 5, 5});
      sums.backward();
      EXPECT_EQ(values(x.grad()), expected) << "dim " << dim << ", first " << slices[0].first;
    }
  }
}

// The gradients of pieces of a tensor are joined by one copy of each.
TEST(Parts, OfAChunkAreCopied) {
  const Tensor x = numbers({4, 6}).requires_grad_();
  const Tensor inner = x * 1.0;
  Tensor sums = zeros({}, kFloat64, test_device());
  for (const Tensor& piece : inner.chunk(3, 1)) sums = sums + sum(piece * piece);
  profiler::Profile profile;
  sums.backward();
  profile.stop();
  uint64_t copies = 0;
  for (const auto& time : profile.times()) {
    EXPECT_TRUE(time.op != "add_.Tensor" && time.op != "fill_.Scalar" && time.op != "zero_")
        << time.op;
    if (time.op == "copy_") copies += time.calls;
  }
  EXPECT_EQ(copies, 3);
  EXPECT_EQ(values(x.grad()), values(x * 2.0));
}

// The backward of a view of all elements gives a view, whose memory becomes that of the leaf's
// grad.
TEST(Parts, ThatAreAllElementsAreNotCopied) {
  const Tensor x = numbers({4, 6}).requires_grad_();
  const Tensor loss = sum(x.view({24}) * 2.0);
  profiler::Profile profile;
  loss.backward();
  profile.stop();
  for (const auto& time : profile.times()) EXPECT_NE(time.op, "copy_");
  EXPECT_EQ(values(x.grad()), Values(24, 2));
  EXPECT_FALSE(x.grad().is_view());
  // Not so where somebody else has the memory.
  const Tensor y = numbers({4, 6}).requires_grad_(), seed = numbers({24});
  y.view({24}).backward(seed);
  y.grad().fill_(7.0);
  EXPECT_EQ(values(seed), values(numbers({24})));
  // Nor where the memory holds more: it would be kept.
  const Tensor u = numbers({2}).requires_grad_();
  sum(cat(std::vector<Tensor>{u.view({2}), numbers({600})}) * 3.0).backward();
  EXPECT_EQ(values(u.grad()), (Values{3, 3}));
  EXPECT_LE(u.grad().impl()->storage->bytes, 512);
  const Tensor z = numbers({2, 3}).requires_grad_();
  sum(cat(std::vector<Tensor>{z.view({6}), z.view({6})}) * numbers({12})).backward();
  EXPECT_EQ(values(z.grad()), (Values{6, 8, 10, 12, 14, 16}));
}

TEST(Parts, OfPartsAndOfOtherTypes) {
  for (const ScalarType type : {kFloat16, kBFloat16, kFloat32}) {
    const Tensor x = numbers({4, 6}).to(type).requires_grad_();
    const Tensor rows = x.slice(0, 1);
    const Tensor wide = rows.select(1, 2).to(kFloat64) * 2.0;
    (sum(wide) + sum(rows.select(0, 1).to(kFloat64)) + sum(rows.to(kFloat64))).backward();
    EXPECT_EQ(x.grad().dtype(), type);
    EXPECT_EQ(values(x.grad()), (Values{0, 0, 0, 0, 0, 0, 1, 1, 3, 1, 1, 1,  //
                                        2, 2, 4, 2, 2, 2, 1, 1, 3, 1, 1, 1}))
        << dtype_name(type);
  }
}

// x + 1 gives the caller's gradient to x: the first that arrives, or the last.
TEST(Parts, DoNotWriteGradientsOfOthers) {
  for (const bool whole_first : {false, true}) {
    const Tensor x = numbers({2, 2}).requires_grad_();
    const Tensor inner = x * 1.0;
    Tensor part = whole_first ? inner.select(0, 0) * 2.0 : Tensor();
    const Tensor whole = inner + 1.0;
    if (!whole_first) part = inner.select(0, 0) * 2.0;
    const Tensor given = listed({5, 6, 7, 8}).view({2, 2});
    std::vector<double> seen;
    inner.register_hook([&](const Tensor& gradient) { seen = values(gradient); });
    autograd::backward({whole, part}, {given, listed({1, 1})});
    EXPECT_EQ(values(given), (Values{5, 6, 7, 8}));
    EXPECT_EQ(values(x.grad()), (Values{7, 8, 7, 8}));
    EXPECT_EQ(seen, (Values{7, 8, 7, 8}));
  }
}

// What the hook of a view keeps is the gradient of the view, and stays as it was.
TEST(Parts, HooksSeeAndReplaceTheGradientOfThePart) {
  const Tensor x = numbers({3}).requires_grad_();
  const Tensor first = x.slice(0, 0, 2), second = x.slice(0, 1, 3);
  Tensor kept;
  second.register_hook([&](const Tensor& gradient) { kept = gradient; });
  first.register_hook([&](const Tensor& gradient) { return gradient * 10.0; });
  first.retain_grad();
  (sum(first * listed({1, 2})) + sum(second * listed({3, 4}))).backward();
  EXPECT_EQ(values(kept), (Values{3, 4}));
  EXPECT_EQ(values(first.grad()), (Values{10, 20}));
  EXPECT_EQ(values(x.grad()), (Values{10, 23, 4}));
}

// The gradient that a hook keeps is what the parts would be added to.
TEST(Parts, DoNotWriteWhatAHookKeeps) {
  const Tensor x = numbers({2, 2}).requires_grad_();
  const Tensor inner = x * 1.0;
  const Tensor part = inner.select(0, 0) * 2.0, whole = inner.exp() * 1.0;
  const Tensor sum_of_both = inner + 1.0;
  Tensor kept;
  sum_of_both.register_hook([&](const Tensor& gradient) { kept = gradient; });
  (sum(part) + sum(sum_of_both * 3.0) + sum(whole * 0.0)).backward();
  EXPECT_EQ(values(kept), (Values{3, 3, 3, 3}));
  EXPECT_EQ(values(x.grad()), (Values{5, 5, 3, 3}));
}

TEST(Parts, OfComplexNumbers) {
  const Tensor x = complex(numbers({3}), numbers({3}) + 1.0).requires_grad_();
  const Tensor inner = x * 1.0;
  const Tensor twice = inner.slice(0, 0, 2), last = inner.slice(0, 1);
  (sum(real(twice)) * 2.0 + sum(imag(last)) * 5.0).backward();
  EXPECT_EQ(values(real(x.grad())), (Values{2, 2, 0}));
  EXPECT_EQ(values(imag(x.grad())), (Values{0, 5, 5}));
}

TEST(Parts, OfExamplesOfABatch) {
  const auto f = [](const Tensor& x) {
    const Tensor inner = x.detach().requires_grad_();
    return autograd::grad({sum(inner.select(0, 0) * inner.select(0, 1)) + sum(inner)}, {inner})[0];
  };
  EXPECT_EQ(values(autograd::vmap(f)(numbers({2, 3}))), (Values{2, 1, 1, 5, 4, 1}));
}

// Steps are written into one tensor, and read from it.
TEST(Parts, WrittenInPlace) {
  for (const bool given : {false, true}) {
    const Tensor x = numbers({4, 3}).requires_grad_(), start = listed({1, 2, 3}).requires_grad_();
    const Tensor steps = zeros({5, 3}, kFloat64, test_device());
    steps.select(0, 0).copy_(start);
    for (int64_t t = 0; t < 4; ++t) {
      steps.select(0, t + 1).copy_(steps.select(0, t) * 2.0 + x.select(0, t));
    }
    const Tensor gradient = ones({5, 3}, kFloat64, test_device());
    if (given) {
      autograd::backward({steps}, {gradient});
    } else {
      sum(steps * 1.0).backward();
    }
    EXPECT_EQ(values(start.grad()), (Values{31, 31, 31}));
    EXPECT_EQ(values(x.grad()), (Values{15, 15, 15, 7, 7, 7, 3, 3, 3, 1, 1, 1}));
    EXPECT_EQ(values(gradient), Values(15, 1));
  }
}

TEST(Parts, HaveSecondDerivatives) {
  const auto f = [](const std::vector<Tensor>& x) {
    const Tensor square = x[0] * x[0];
    return std::vector<Tensor>{square.select(0, 0) * square.select(1, 1).slice(0, 0, 3) *
                               square.diagonal().exp()};
  };
  EXPECT_TRUE(autograd::gradgradcheck(f, {(numbers({3, 3}) * 0.1).requires_grad_()}));
}

TEST(Parts, ChecksForNanSeeThem) {
  const autograd::AnomalyMode anomaly;
  const Tensor x = listed({0, 1, 4}).requires_grad_();
  const Tensor part = x.select(0, 0), whole = x * 1.0;
  EXPECT_ERROR(
      autograd::backward({whole, part},
                         {listed({1, 2, 3}), tensor(std::nan(""), kFloat64).to(test_device())}),
      "[SelectBackward]");
}

}  // namespace
}  // namespace mytorch
