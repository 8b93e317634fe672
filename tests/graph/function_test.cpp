// Compiled functions that call operations of the user (autograd::Function), and hooks of tensors
// that they compute.
#include "mytorch/autograd/function.h"

#include <vector>

#include "mytorch/compile.h"
#include "mytorch/mytorch.h"
#include "tests/autograd/util.h"
#include "tests/core/same_bits.h"
#include "tests/graph/device.h"

namespace mytorch {
namespace {

using autograd::FunctionContext;
using Tensors = std::vector<Tensor>;

// Saves an argument, a result, and a number. Its gradient is not the derivative, so that only this
// backward can have computed it.
struct Gated : autograd::Function<Gated> {
  static constexpr const char* kName = "Gated";
  static inline int forwards = 0, backwards = 0;
  static Tensor forward(FunctionContext* ctx, const Tensor& x, const Tensor& gate, double scale) {
    ++forwards;
    const Tensor y = x * sigmoid(gate) * scale;
    ctx->save_for_backward({gate, y});
    ctx->saved_data["scale"] = scale;
    return y;
  }
  static Tensors backward(FunctionContext* ctx, const Tensors& grads) {
    ++backwards;
    const Tensors saved = ctx->saved_tensors();
    const double scale = ctx->saved_data["scale"].toDouble();
    return {grads[0] * sigmoid(saved[0]) * (100 * scale), grads[0] * saved[1], Tensor()};
  }
};

Tensor gated(const Tensor& x, const Tensor& gate) {
  return tanh(Gated::apply(x * 2, gate, 0.5)) + x;
}

class CompiledFunctions : public ::testing::TestWithParam<CompileMode> {
 protected:
  CompiledFunctions() { Gated::forwards = Gated::backwards = 0; }

  void expect_equal(const Tensor& found, const Tensor& expected) const {
    ASSERT_EQ(found.defined(), expected.defined());
    if (GetParam() == CompileMode::kExact) return expect_same(found, expected);
    EXPECT_TRUE(allclose(found, expected, 1e-5, 1e-6)) << found << " and " << expected;
  }
  CompileOptions options() const { return {.mode = GetParam()}; }
};

INSTANTIATE_TEST_SUITE_P(Modes, CompiledFunctions,
                         ::testing::Values(CompileMode::kDefault, CompileMode::kExact));

TEST_P(CompiledFunctions, ForwardAlone) {
  auto compiled = compile(gated, options());
  for (uint64_t i = 0; i < 4; ++i) {
    const Tensor x = drawn({3, 5}, i), gate = drawn({3, 5}, 100 + i);
    expect_equal(compiled(x, gate), gated(x, gate));
  }
  EXPECT_EQ(compiled.stats().recorded, 1);
  EXPECT_EQ(Gated::forwards, 4 + 1);  // plain calls, and the recording
}

TEST_P(CompiledFunctions, BackwardInside) {
  const Tensor w = drawn({3, 5}, 7).requires_grad_();
  const auto f = [&](const Tensor& x) {
    w.set_grad({});
    gated(x, w).sum().backward();
    return w.grad() * 1;
  };
  auto compiled = compile(f, options());
  for (uint64_t i = 0; i < 4; ++i) {
    const Tensor x = drawn({3, 5}, i);
    const Tensor expected = f(x);
    expect_equal(compiled(x), expected);
    expect_equal(w.grad(), expected);
  }
  EXPECT_EQ(compiled.stats().recorded, 1);
  EXPECT_EQ(Gated::backwards, 4 + 1);
}

TEST_P(CompiledFunctions, BackwardOutside) {
  auto compiled = compile(gated, options());
  for (uint64_t i = 0; i < 5; ++i) {
    const Tensor x = drawn({3, 5}, i).requires_grad_(), gate = drawn({3, 5}, 9).requires_grad_();
    const Tensor own_x = x.detach().clone().requires_grad_(),
                 own_gate = gate.detach().clone().requires_grad_();
    const Tensor weights = drawn({3, 5}, 50 + i);
    const Tensor expected = gated(x, gate), found = compiled(own_x, own_gate);
    expect_equal(found.detach(), expected.detach());
    expected.backward(weights);
    found.backward(weights);
    expect_equal(own_x.grad(), x.grad());
    expect_equal(own_gate.grad(), gate.grad());
  }
  EXPECT_EQ(compiled.stats().recorded, 1);
  EXPECT_EQ(Gated::backwards, 5 + 2);  // and its recording, and that of the recorded call
}

// With breaks the function itself runs, and its operators wait: backward, too, reads saved tensors
// that are filled later.
TEST_P(CompiledFunctions, AroundABreak) {
  const auto f = [](const Tensor& x, const Tensor& gate) {
    const Tensor leaf = x.detach().requires_grad_();
    const Tensor y = Gated::apply(leaf, gate, 0.5);
    const double seen = y.detach().sum().item<double>();
    (Gated::apply(y, gate, seen > 0 ? 1 : 2) * y).sum().backward();
    return leaf.grad() * 1;
  };
  CompileOptions breaking = options();
  breaking.allow_breaks = true;
  auto compiled = compile(f, breaking);
  for (uint64_t i = 0; i < 8; ++i) {
    const Tensor x = drawn({3, 5}, i % 4), gate = drawn({3, 5}, 100 + i % 4);
    expect_equal(compiled(x, gate), f(x, gate));
  }
  EXPECT_GT(compiled.stats().replayed_segments, 0);
}

// ---- hooks of tensors that the function computes ----

TEST_P(CompiledFunctions, HooksInside) {
  int calls = 0;
  const auto f = [&](const Tensor& x) {
    const Tensor leaf = x.detach().requires_grad_();
    const Tensor y = leaf * leaf;
    y.register_hook([&](const Tensor& gradient) {
      ++calls;
      return gradient * 3 + gradient.sum();
    });
    leaf.register_hook([](const Tensor& gradient) { return tanh(gradient); });
    exp(y * 0.1).sum().backward();
    return leaf.grad() * 1;
  };
  auto compiled = compile(f, options());
  for (uint64_t i = 0; i < 4; ++i) {
    const Tensor x = drawn({3, 5}, i);
    expect_equal(compiled(x), f(x));
  }
  EXPECT_EQ(compiled.stats().recorded, 1);
  EXPECT_EQ(calls, 4 + 1);
}

TEST_P(CompiledFunctions, HooksOfTensorsWhoseBackwardIsOutside) {
  const auto f = [](const Tensor& x) {
    const Tensor y = x * x;
    y.register_hook([](const Tensor& gradient) { return gradient * 3 + gradient.sum(); });
    y.retain_grad();
    return exp(y * 0.1);
  };
  auto compiled = compile(f, options());
  for (uint64_t i = 0; i < 4; ++i) {
    const Tensor x = drawn({3, 5}, i).requires_grad_(), own = x.detach().clone().requires_grad_();
    f(x).sum().backward();
    compiled(own).sum().backward();
    expect_equal(own.grad(), x.grad());
  }
  EXPECT_EQ(compiled.stats().recorded, 1);
}

}  // namespace
}  // namespace mytorch
