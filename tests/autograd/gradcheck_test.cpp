// gradcheck, which must find wrong gradients, and anomaly mode.
#include "mytorch/autograd/gradcheck.h"

#include <cmath>

#include "mytorch/autograd.h"
#include "mytorch/autograd/function.h"
#include "mytorch/ops/add.h"
#include "mytorch/ops/clone.h"
#include "mytorch/ops/div.h"
#include "mytorch/ops/exp.h"
#include "mytorch/ops/mul.h"
#include "mytorch/ops/select.h"
#include "mytorch/ops/sin.h"
#include "mytorch/ops/sum.h"
#include "mytorch/ops/transpose.h"
#include "mytorch/ops/zeros.h"
#include "tests/autograd/util.h"

namespace mytorch {
namespace {

using autograd::gradcheck;
using autograd::gradgradcheck;
using Tensors = std::vector<Tensor>;

TEST(Gradcheck, RightGradientsPass) {
  const auto f = [](const Tensors& in) {
    return Tensors{mul(sin(in[0]), in[1]), exp(mul(in[0], in[0]))};
  };
  const Tensors inputs = {leaf({0.1, 0.7, -1}), leaf({2, 3, -4})};
  EXPECT_EQ(gradcheck(f, inputs).message, "");
  EXPECT_EQ(gradgradcheck(f, inputs).message, "");
  EXPECT_FALSE(inputs[0].grad().defined());
}

TEST(Gradcheck, BroadcastAndStridedInputs) {
  const Tensor m = mytorch::transpose(counting({3, 2}), 0, 1).detach().requires_grad_();
  const auto f = [](const Tensors& in) { return Tensors{mul(mul(in[0], in[0]), in[1])}; };
  EXPECT_EQ(gradcheck(f, {m, leaf({1, 2, 3})}).message, "");
}

TEST(Gradcheck, OnlySomeInputsAndEmptyOnes) {
  const auto f = [](const Tensors& in) { return Tensors{mul(in[0], in[1])}; };
  EXPECT_EQ(gradcheck(f, {leaf({1, 2}), plain({3, 4})}).message, "");
  const Tensor empty = zeros({0}, kFloat64).requires_grad_();
  EXPECT_EQ(gradcheck(f, {empty, zeros({0}, kFloat64)}).message, "");
}

TEST(Gradcheck, AnOutputHasOneSizeWhetherOrNotItIsRecorded) {
  const auto f = [](const Tensors& in) {
    return Tensors{grad_enabled() ? mul(in[0], 2.0) : mytorch::sum(in[0])};
  };
  try {
    gradcheck(f, {leaf({1, 2})});
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kShape);
  }
}

template <int kElement>
struct Wrong : autograd::Function<Wrong<kElement>> {
  static Tensor forward(autograd::FunctionContext* ctx, const Tensor& x) {
    ctx->save_for_backward({x});
    return mul(x, x);
  }
  static Tensors backward(autograd::FunctionContext* ctx, const Tensors& grads) {
    const Tensor g = mytorch::clone(mul(mul(grads[0], ctx->saved_tensors()[0]), 2.0));
    NoGradGuard no_grad;
    mul_(select(g, 0, kElement), 1.01);
    return {g};
  }
};

TEST(Gradcheck, WrongGradientIsReportedWithItsElement) {
  const auto f = [](const Tensors& in) { return Tensors{add(in[0], Wrong<1>::apply(in[1]))}; };
  const auto result = gradcheck(f, {leaf({1, 2, 3}), leaf({4, 5, 6})});
  EXPECT_FALSE(result);
  EXPECT_NE(result.message.find("input 1, element (1,)"), std::string::npos) << result.message;
}

struct Forgotten : autograd::Function<Forgotten> {
  static Tensor forward(autograd::FunctionContext*, const Tensor& x, const Tensor& y) {
    return mul(x, y);
  }
  static Tensors backward(autograd::FunctionContext*, const Tensors&) {
    return {Tensor(), Tensor()};
  }
};

TEST(Gradcheck, MissingGradientIsFound) {
  const auto f = [](const Tensors& in) { return Tensors{Forgotten::apply(in[0], in[1])}; };
  EXPECT_FALSE(gradcheck(f, {leaf({1, 2}), leaf({3, 4})}));
}

// Correct for first derivatives, wrong for second derivatives.
struct WrongSecond : autograd::Function<WrongSecond> {
  static Tensor forward(autograd::FunctionContext* ctx, const Tensor& x) {
    ctx->save_for_backward({x});
    return mul(x, x);
  }
  static Tensors backward(autograd::FunctionContext* ctx, const Tensors& grads) {
    return {mul(mul(grads[0], ctx->saved_tensors()[0].detach()), 2.0)};
  }
};

TEST(Gradcheck, WrongSecondOrderIsFound) {
  const auto f = [](const Tensors& in) { return Tensors{WrongSecond::apply(in[0])}; };
  EXPECT_TRUE(gradcheck(f, {leaf({1, 2})}));
  const auto result = gradgradcheck(f, {leaf({1, 2})});
  EXPECT_FALSE(result);
  EXPECT_NE(result.message.find("[gradgradcheck]"), std::string::npos);
}

struct Flaky : autograd::Function<Flaky> {
  static inline double next = 0;
  static Tensor forward(autograd::FunctionContext*, const Tensor& x) { return mul(x, 1.0); }
  static Tensors backward(autograd::FunctionContext*, const Tensors& grads) {
    next += 1e-9;
    return {add(grads[0], next)};
  }
};

TEST(Gradcheck, NondeterministicBackwardIsFound) {
  const auto f = [](const Tensors& in) { return Tensors{Flaky::apply(in[0])}; };
  const auto result = gradcheck(f, {leaf({1})});
  EXPECT_NE(result.message.find("not deterministic"), std::string::npos);
  EXPECT_TRUE(gradcheck(f, {leaf({1})}, {.nondet_tol = 1e-6}));
}

TEST(Gradcheck, NanIsADisagreement) {
  const auto f = [](const Tensors& in) { return Tensors{mytorch::div(in[0], in[0])}; };
  EXPECT_FALSE(gradcheck(f, {leaf({0})}));
}

TEST(Gradcheck, InputsThatCannotBeChecked) {
  const auto f = [](const Tensors& in) { return in; };
  EXPECT_ERROR(gradcheck(f, {plain({1})}), "no input requires grad");
  EXPECT_ERROR(gradcheck(f, {tensor({1}, kFloat32).requires_grad_()}), "float64");
}

TEST(Anomaly, NamesTheNodeAndTheStack) {
  const Tensor x = leaf({0, 1});
  autograd::AnomalyMode anomaly;
  const Tensor y = mytorch::div(mul(x, 0.0), mul(x, 3.0));
  EXPECT_ERROR(sum(y).backward({}, true), "[DivBackward]");
  EXPECT_ERROR(sum(y).backward({}, true), "NaN");
  EXPECT_ERROR(sum(y).backward({}, true), "div was recorded, by:\n    ");
}

TEST(Anomaly, NodesOfGradientsNameTheirForward) {
  const Tensor x = leaf({0});
  autograd::AnomalyMode anomaly;
  const Tensor y = mytorch::div(mul(x, x), add(x, 1.0));
  const Tensor g = autograd::grad({y}, {x}, {}, {.create_graph = true})[0];
  const Tensor nan = mytorch::div(g, g);
  const Tensor h = autograd::grad({mul(x, 2.0)}, {x}, {}, {.create_graph = true})[0];
  EXPECT_ERROR(nan.backward(), "NaN");
}

TEST(Anomaly, TellsTheScopeAndTheOperandsByName) {
  const Tensor w = leaf({0, 1});
  autograd::set_name(w, "weight");
  autograd::AnomalyMode anomaly;
  std::string message;
  {
    const autograd::NameScope net("net");
    Tensor hidden;
    {
      const autograd::NameScope layer("layer1");
      EXPECT_EQ(autograd::NameScope::path(), "net.layer1");
      hidden = mul(w, 0.0);
      autograd::set_name(hidden, "hidden");
    }
    const Tensor y = mytorch::div(hidden, mul(w, 3.0));
    message = error_of([&] { sum(y).backward(); });
  }
  EXPECT_EQ(autograd::NameScope::path(), "");
  for (const char* part : {"[DivBackward] the gradient of input 1, float64 (2,), contains NaN",
                           "div was recorded in net, by:",
                           "div was computed from, the latest first:\n    mul: float64 (2,) in "
                           "net\n    'hidden', mul: "
                           "float64 (2,) in net.layer1\n    'weight', a leaf: float64 (2,)"}) {
    EXPECT_NE(message.find(part), std::string::npos) << message;
  }
  EXPECT_EQ(message.find("0x"), std::string::npos) << message;
}

TEST(Names, BelongToAValue) {
  const Tensor x = leaf({1});
  EXPECT_EQ(autograd::name(x), "");
  autograd::set_name(x, "x");
  const Tensor y = mul(x, 2.0);
  autograd::set_name(y, "y");
  EXPECT_EQ(autograd::name(x), "x");
  EXPECT_EQ(autograd::name(y), "y");
  add_(y, 1.0);
  EXPECT_EQ(autograd::name(y), "");
  autograd::set_name(x, "");
  EXPECT_EQ(autograd::name(x), "");
  EXPECT_ERROR(autograd::set_name(plain({1}), "z"), "'z' does not require grad");
}

TEST(Anomaly, ChecksNothingWhenOff) {
  const Tensor x = leaf({0});
  const Tensor y = mytorch::div(mul(x, 0.0), x);
  { autograd::AnomalyMode anomaly; }
  y.backward();
  EXPECT_TRUE(std::isnan(values(x.grad())[0]));
}

}  // namespace
}  // namespace mytorch
