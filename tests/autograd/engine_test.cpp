// backward() and grad() on graphs of various shapes.
#include <cmath>
#include <limits>
#include <stdexcept>

#include "mytorch/autograd.h"
#include "mytorch/autograd/record.h"
#include "mytorch/ops/add.h"
#include "mytorch/ops/clone.h"
#include "mytorch/ops/exp.h"
#include "mytorch/ops/mul.h"
#include "mytorch/ops/ones.h"
#include "mytorch/ops/sum.h"
#include "mytorch/ops/zeros.h"
#include "tests/autograd/util.h"

namespace mytorch {
namespace {

using autograd::backward;
using autograd::grad;

TEST(Backward, LeafAndChain) {
  const Tensor x = leaf({1, 2, 3});
  const Tensor y = mul(mul(x, 2.0), x);
  EXPECT_FALSE(y.is_leaf());
  EXPECT_TRUE(y.requires_grad());
  EXPECT_EQ(y.grad_fn(), "MulBackward");
  EXPECT_EQ(x.grad_fn(), "");
  sum(y).backward();
  EXPECT_EQ(values(x.grad()), (Values{4, 8, 12}));
}

TEST(Backward, AccumulatesOverCalls) {
  const Tensor x = leaf({1, 2});
  sum(mul(x, 3.0)).backward();
  sum(mul(x, 4.0)).backward();
  EXPECT_EQ(values(x.grad()), (Values{7, 7}));
  x.set_grad({});
  EXPECT_FALSE(x.grad().defined());
  sum(mul(x, 5.0)).backward();
  EXPECT_EQ(values(x.grad()), (Values{5, 5}));
}

// The second sum must not be accumulated into a buffer that another tensor uses.
TEST(Backward, DiamondAndRepeatedInput) {
  const Tensor x = leaf({2});
  const Tensor a = mul(x, x);
  const Tensor b = add(a, a);
  const Tensor c = add(b, mul(a, b));
  c.retain_grad();
  b.retain_grad();
  sum(c).backward();
  // c = 2x^2 + 2x^4
  EXPECT_EQ(values(x.grad()), (Values{4 * 2 + 8 * 8}));
  EXPECT_EQ(values(b.grad()), (Values{1 + 4}));
  EXPECT_EQ(values(c.grad()), (Values{1}));
}

TEST(Backward, GivenGradientIsNotModified) {
  const Tensor x = leaf({1, 1});
  const Tensor seed = plain({2, 3});
  add(x, x).backward(seed);
  x.backward(seed);
  EXPECT_EQ(values(seed), (Values{2, 3}));
  EXPECT_EQ(values(x.grad()), (Values{6, 9}));
}

TEST(Backward, OfLeafItself) {
  const Tensor x = leaf({3});
  x.backward();
  EXPECT_EQ(values(x.grad()), (Values{1}));
}

TEST(Backward, OutputThatDependsOnAnother) {
  const Tensor x = leaf({2});
  const Tensor y = mul(x, x);
  const Tensor z = mul(y, 3.0);
  backward({z, y}, {plain({1}), plain({10})});
  EXPECT_EQ(values(x.grad()), (Values{4 * 13}));
}

TEST(Backward, RefusesOutputsAndGradientsThatDoNotFit) {
  const Tensor x = leaf({1, 2});
  const Tensor y = mul(x, x);
  EXPECT_ERROR(y.backward(), "single element only");
  EXPECT_ERROR(y.backward(plain({1})), "shape (1,)");
  EXPECT_ERROR(y.backward(tensor({1, 1}, kFloat32)), "float32");
  EXPECT_ERROR(plain({1}).backward(), "does not require grad");
  EXPECT_ERROR(backward({Tensor()}), "undefined");
  EXPECT_ERROR(backward({}), "no outputs");
  EXPECT_ERROR(backward({y, y}, {plain({1, 1})}), "1 gradients for 2");
  EXPECT_FALSE(x.grad().defined());
}

TEST(Backward, SecondTimeNeedsRetainGraph) {
  const Tensor x = leaf({2});
  const Tensor y = sum(mul(x, x));
  y.backward({}, /*retain_graph=*/true);
  y.backward();
  EXPECT_EQ(values(x.grad()), (Values{8}));
  EXPECT_ERROR(y.backward(), "second time");
  EXPECT_ERROR(y.backward(), "MulBackward");
  // A graph without saved tensors can run repeatedly.
  const Tensor z = add(x, 1.0);
  z.backward();
  z.backward();
}

TEST(Backward, SecondTimeThroughSharedPart) {
  const Tensor x = leaf({2});
  const Tensor shared = exp(x);
  sum(shared).backward();
  EXPECT_ERROR(sum(shared).backward(), "second time");
}

TEST(Backward, CreateGraphGivesHigherOrders) {
  const Tensor x = leaf({2});
  const Tensor y = mul(mul(x, x), x);
  const Tensor g1 = grad({y}, {x}, {}, {.create_graph = true})[0];
  EXPECT_TRUE(g1.requires_grad());
  const Tensor g2 = grad({g1}, {x}, {}, {.create_graph = true})[0];
  const Tensor g3 = grad({g2}, {x})[0];
  EXPECT_EQ(values(g1), (Values{12}));
  EXPECT_EQ(values(g2), (Values{12}));
  EXPECT_EQ(values(g3), (Values{6}));
  EXPECT_FALSE(g3.requires_grad());
  EXPECT_FALSE(x.grad().defined());
}

TEST(Backward, CreateGraphThroughSavedOutput) {
  const Tensor x = leaf({0.5});
  const Tensor g1 = grad({exp(x)}, {x}, {}, {.create_graph = true})[0];
  const Tensor g2 = grad({g1}, {x})[0];
  EXPECT_NEAR(values(g2)[0], std::exp(0.5), 1e-12);
}

TEST(Backward, CreateGraphAccumulatesRecorded) {
  const Tensor x = leaf({3});
  mul(x, x).backward({}, true, /*create_graph=*/true);
  const Tensor g = x.grad();
  EXPECT_TRUE(g.requires_grad());
  x.set_grad({});
  g.backward();
  EXPECT_EQ(values(x.grad()), (Values{2}));
  x.set_grad({});
}

TEST(Backward, GradModeIsRestored) {
  const Tensor x = leaf({3});
  const Tensor y = mul(x, x);
  bool inside = true;
  y.register_hook([&](const Tensor&) {
    inside = grad_enabled();
    return Tensor();
  });
  {
    NoGradGuard no_grad;
    y.backward({}, true);
    EXPECT_FALSE(grad_enabled());
    y.backward({}, true, true);
    EXPECT_TRUE(inside);
    EXPECT_FALSE(grad_enabled());
  }
  x.set_grad({});
  y.backward();
  EXPECT_FALSE(inside);
  EXPECT_TRUE(grad_enabled());
}

TEST(Backward, AccumulatesInTheGivenInputsAlone) {
  const Tensor x = leaf({2});
  const Tensor w = leaf({3});
  const Tensor y = mul(x, w);
  backward({mul(y, y)}, {}, false, false, {w});
  EXPECT_FALSE(x.grad().defined());
  EXPECT_EQ(values(w.grad()), (Values{2 * 6 * 2}));
  // For an input that is not a leaf.
  const Tensor h = mul(x, 2.0);
  backward({mul(h, h)}, {}, false, false, {h});
  EXPECT_EQ(values(h.grad()), (Values{8}));
  EXPECT_FALSE(x.grad().defined());
}

TEST(Grad, ComputesOnlyRequestedGradients) {
  const Tensor x = leaf({2});
  const Tensor w = leaf({3});
  const Tensor h = mul(x, w);
  int calls = 0;
  x.register_hook([&](const Tensor&) {
    ++calls;
    return Tensor();
  });
  const auto g = grad({mul(h, h)}, {w, h}, {}, {.retain_graph = true});
  EXPECT_EQ(values(g[0]), (Values{24}));
  EXPECT_EQ(values(g[1]), (Values{12}));
  EXPECT_EQ(calls, 0);
  EXPECT_FALSE(w.grad().defined());
}

TEST(Grad, OutputAsInputAndTwice) {
  const Tensor x = leaf({2});
  const Tensor y = mul(x, x);
  const auto g = grad({y}, {y, x, x}, {plain({5})});
  EXPECT_EQ(values(g[0]), (Values{5}));
  EXPECT_EQ(values(g[1]), (Values{20}));
  EXPECT_EQ(values(g[2]), (Values{20}));
}

TEST(Grad, RefusesUnusedInputsUnlessAllowed) {
  const Tensor x = leaf({2});
  const Tensor unused = leaf({2});
  const Tensor y = mul(x, x);
  EXPECT_ERROR(grad({y}, {x, unused}, {}, {.retain_graph = true}), "input 1");
  const auto g = grad({y}, {x, unused}, {}, {.allow_unused = true});
  EXPECT_TRUE(g[0].defined());
  EXPECT_FALSE(g[1].defined());
  EXPECT_ERROR(grad({y}, {plain({1})}), "input 0 does not require grad");
}

TEST(Grad, NamesTheUnusedInput) {
  const Tensor x = leaf({2});
  const Tensor unused = leaf({1, 2, 3});
  EXPECT_ERROR(grad({mul(x, x)}, {x, unused}),
               "no output depends on input 1, a float64 tensor of shape (3,)");
}

TEST(Grad, MaterializesZerosForUnusedInputs) {
  const Tensor x = leaf({2});
  const Tensor unused = ones({2, 3}, kFloat32).requires_grad_();
  const auto g = grad({mul(x, x)}, {x, unused}, {}, {.materialize_grads = true});
  EXPECT_EQ(values(g[0]), (Values{4}));
  EXPECT_EQ(g[1].sizes(), (IntList{2, 3}));
  EXPECT_EQ(g[1].dtype(), kFloat32);
  EXPECT_EQ(values(g[1]), Values(6, 0.0));
}

TEST(Grad, TakesLibtorchsPositionalArguments) {
  const Tensor x = leaf({2});
  const Tensor y = mul(mul(x, x), x);
  const Tensor first = grad({y}, {x}, {}, std::nullopt, /*create_graph=*/true)[0];
  EXPECT_EQ(values(grad({first}, {x}, {}, /*retain_graph=*/true)[0]), (Values{12}));
  EXPECT_FALSE(grad({y}, {x}, {}, std::nullopt)[0].requires_grad());
  EXPECT_ERROR(grad({y}, {x}), "second time");
  EXPECT_FALSE(grad({y}, {leaf({1})}, {}, false, false, /*allow_unused=*/true)[0].defined());
}

TEST(Grad, TellsWhyAnOutputHasNoGradient) {
  const Tensor x = leaf({2});
  EXPECT_ERROR(grad({mul(x, x).detach()}, {x}), "Call requires_grad_() on the inputs");
  EXPECT_ERROR(grad({tensor({1}, kInt64)}, {x}), "output 0 is int64");
}

// Backward, destruction and pruning must not recurse over the graph.
TEST(Graph, MillionNodesDeep) {
  const Tensor x = leaf({1});
  {
    Tensor y = x;
    for (int i = 0; i < 1000000; ++i) y = add(y, 1.0);
    EXPECT_EQ(values(grad({y}, {x}, {}, {.retain_graph = true})[0]), (Values{1}));
    y.backward();
  }
  EXPECT_EQ(values(x.grad()), (Values{1}));
}

TEST(Graph, DeepThroughSavedTensorsIsDestroyed) {
  const Tensor x = leaf({1});
  Tensor y = x;
  for (int i = 0; i < 200000; ++i) y = mul(y, x);
  y = Tensor();
  EXPECT_EQ(x.impl()->refs.load(), 1u);
}

TEST(Graph, WideFanOut) {
  const Tensor x = leaf({1});
  const Tensor h = mul(x, 2.0);
  Tensor y = plain({0});
  for (int i = 0; i < 1000; ++i) y = add(y, mul(h, static_cast<double>(i)));
  y.backward();
  EXPECT_EQ(values(x.grad()), (Values{2 * 999 * 500}));
}

TEST(Graph, NodesDieWithTheirTensors) {
  const Tensor x = leaf({1, 2});
  {
    const Tensor y = exp(mul(x, x));
    EXPECT_GT(x.impl()->refs.load(), 1u);
  }
  EXPECT_EQ(x.impl()->refs.load(), 1u);
  // A node that saves its own result forms no cycle: the result's storage is released.
  Tensor y = exp(x);
  const Tensor alias = y.detach();
  EXPECT_GT(alias.impl()->storage->refs.load(), 1u);
  y = Tensor();
  EXPECT_EQ(alias.impl()->storage->refs.load(), 1u);
}

TEST(Leaf, RequiresGradOnlyIfRequested) {
  const Tensor x = plain({1});
  EXPECT_TRUE(x.is_leaf());
  EXPECT_FALSE(x.requires_grad());
  x.requires_grad_();
  EXPECT_TRUE(x.requires_grad());
  const Tensor y = mul(x, 2.0);
  x.requires_grad_(false);
  EXPECT_FALSE(x.requires_grad());
  EXPECT_FALSE(mul(x, 2.0).requires_grad());
  x.requires_grad_();
  y.backward();
  EXPECT_EQ(values(x.grad()), (Values{2}));
  EXPECT_ERROR(y.requires_grad_(false), "only a leaf");
  EXPECT_ERROR(tensor(std::vector<int64_t>{1}).requires_grad_(), "int64");
}

TEST(Leaf, SetGradIsChecked) {
  const Tensor x = leaf({1, 2});
  EXPECT_ERROR(x.set_grad(plain({1})), "shape (1,)");
  EXPECT_ERROR(x.set_grad(tensor({1, 2}, kFloat32)), "float32");
  EXPECT_ERROR(x.set_grad(x), "own grad");
  x.set_grad(plain({10, 20}));
  sum(x).backward();
  EXPECT_EQ(values(x.grad()), (Values{11, 21}));
}

TEST(Leaf, TakesOverTheGradientBuffer) {
  const Tensor x = leaf({1, 2});
  const void* buffer = nullptr;
  const Tensor y = mul(x, 2.0);
  x.register_hook([&](const Tensor& g) {
    buffer = g.raw_data();
    return Tensor();
  });
  sum(y).backward();
  EXPECT_EQ(x.grad().raw_data(), buffer);
  // An expanded gradient does not own memory that could be taken over.
  const Tensor z = leaf({1, 2});
  sum(z).backward();
  EXPECT_TRUE(z.grad().is_contiguous());
  EXPECT_FALSE(z.grad().is_view());
}

TEST(Leaf, TwoLeavesDoNotShareAGradient) {
  const Tensor x = leaf({1, 2});
  const Tensor z = leaf({1, 2});
  add(x, z).backward(plain({1, 1}));
  NoGradGuard no_grad;
  mul_(x.grad(), 5.0);
  EXPECT_EQ(values(z.grad()), (Values{1, 1}));
}

TEST(Detach, CutsAndSharesMemory) {
  const Tensor x = leaf({2});
  const Tensor d = mul(x, x).detach();
  EXPECT_FALSE(d.requires_grad());
  EXPECT_TRUE(d.is_leaf());
  mul(d, x).backward();
  EXPECT_EQ(values(x.grad()), (Values{4}));
}

TEST(Detach, InPlaceForgetsTheHistory) {
  const Tensor x = leaf({2});
  const Tensor y = mul(x, x), z = mul(y, x);
  y.retain_grad();
  z.backward({}, true);
  EXPECT_EQ(values(y.grad()), (Values{2}));
  EXPECT_TRUE(y.detach_().is_same(y));
  EXPECT_FALSE(y.requires_grad());
  EXPECT_TRUE(y.is_leaf());
  EXPECT_EQ(y.grad_fn(), "");
  x.set_grad({});
  z.backward();  // through the former history
  EXPECT_EQ(values(x.grad()), (Values{12}));
  EXPECT_EQ(values(y.grad()), (Values{2}));
  x.set_grad({});
  mul(y, x).backward();
  EXPECT_EQ(values(x.grad()), (Values{4}));

  const Tensor again = leaf({3});
  again.detach_().requires_grad_();
  mul(again, 2.0).backward();
  EXPECT_EQ(values(again.grad()), (Values{2}));
  EXPECT_ERROR(x.view({1, 1}).detach_(), "write x = x.detach()");
}

TEST(NoGrad, NothingIsRecorded) {
  const Tensor x = leaf({2});
  NoGradGuard no_grad;
  const Tensor y = mul(x, x);
  EXPECT_FALSE(y.requires_grad());
  EXPECT_TRUE(y.is_leaf());
  EnableGradGuard enable;
  EXPECT_TRUE(mul(x, x).requires_grad());
}

TEST(Inference, TensorsCannotBeSavedOrWritten) {
  Tensor t;
  {
    InferenceMode inference;
    t = plain({2});
    mul_(t, 3.0);
  }
  const Tensor x = leaf({5});
  EXPECT_ERROR(mul(x, t), "inference tensor cannot be saved");
  add(x, t).backward();
  EXPECT_EQ(values(x.grad()), (Values{1}));
  EXPECT_ERROR(mul_(t, x), "inference");
  EXPECT_ERROR(mul_(t, 2.0), "inference");
  EXPECT_ERROR(t.requires_grad_(), "inference");
  EXPECT_EQ(values(mul(x, clone(t))), (Values{30}));
}

// ---- invalid gradients and exceptions ----

struct BadNode final : autograd::Node {
  std::function<void(Tensor* grads, Tensor* out)> body;
  const char* name() const override { return "BadBackward"; }
  void apply(Tensor* grads, Tensor* out) override { body(grads, out); }
};

Tensor through_bad_node(const Tensor& x, std::function<void(Tensor*, Tensor*)> body) {
  const Tensor y = clone(x.detach());
  auto node = autograd::make_node<BadNode>(1, 1);
  node->body = std::move(body);
  node->edge(0, x);
  autograd::set_history(y, node);
  return y;
}

TEST(Node, WrongGradientsAreErrorsThatNameTheNode) {
  const Tensor x = leaf({1, 2});
  const Tensor h = mul(x, 2.0);
  const auto run = [&](std::function<void(Tensor*, Tensor*)> body) {
    sum(through_bad_node(h, std::move(body))).backward({}, true);
  };
  EXPECT_ERROR(run([](Tensor*, Tensor* out) { out[0] = plain({1, 2, 3}); }), "[BadBackward]");
  EXPECT_ERROR(run([](Tensor*, Tensor* out) { out[0] = plain({1, 2, 3}); }), "(3,)");
  EXPECT_ERROR(run([](Tensor*, Tensor* out) {
                 out[0] = tensor(std::vector<int64_t>{1, 2});
               }),
               "int64");
  EXPECT_FALSE(x.grad().defined());
  // Another floating type is converted, as promotion did in the forward.
  run([](Tensor*, Tensor* out) { out[0] = tensor({1, 2}, kFloat32); });
  EXPECT_EQ(x.grad().dtype(), kFloat64);
  EXPECT_EQ(values(x.grad()), (Values{2, 4}));
}

TEST(Node, ExceptionsCarryTheNameOfTheNode) {
  const Tensor x = leaf({1});
  const Tensor y = through_bad_node(
      x, [](Tensor*, Tensor*) { throw Error(ErrorCode::kOutOfMemory, "[inner] no room"); });
  EXPECT_ERROR(y.backward({}, true), "[inner] no room");
  EXPECT_ERROR(y.backward({}, true), "backward of BadBackward");
  try {
    y.backward({}, true);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kOutOfMemory);
  }
  const Tensor z =
      through_bad_node(x, [](Tensor*, Tensor*) { throw std::runtime_error("of another kind"); });
  bool nested = false;
  try {
    z.backward();
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("[BadBackward] of another kind"), std::string::npos);
    try {
      std::rethrow_if_nested(error);
    } catch (const std::runtime_error&) {
      nested = true;
    }
  }
  EXPECT_TRUE(nested);
  // The state of the thread and the graph are unchanged.
  EXPECT_TRUE(grad_enabled());
  mul(x, 2.0).backward();
  EXPECT_EQ(values(x.grad()), (Values{2}));
}

TEST(Node, UndefinedGradientsAreSkipped) {
  const Tensor x = leaf({1, 2});
  const Tensor h = mul(x, 2.0);
  int calls = 0;
  h.register_hook([&](const Tensor&) {
    ++calls;
    return Tensor();
  });
  const Tensor y = through_bad_node(h, [](Tensor*, Tensor*) {});
  sum(y).backward({}, true);
  EXPECT_EQ(calls, 0);
  EXPECT_FALSE(x.grad().defined());
  sum(add(y, h)).backward();
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(values(x.grad()), (Values{2, 2}));
}

TEST(Node, GradientsMayHaveManyDimensions) {
  const Tensor x = counting({1, 2, 1, 2, 1, 1, 2}).requires_grad_();
  sum(mul(x, x)).backward();
  EXPECT_EQ(values(x.grad()), (Values{0, 2, 4, 6, 8, 10, 12, 14}));
  const Tensor y = through_bad_node(mul(x, 1.0), [](Tensor*, Tensor* out) {
    out[0] = counting({1, 2, 1, 2, 1, 2, 1});
  });
  EXPECT_ERROR(sum(y).backward(), "(1, 2, 1, 2, 1, 2, 1)");
}

TEST(Empty, TensorsWithoutElements) {
  const Tensor x = zeros({0, 3}, kFloat64).requires_grad_();
  sum(mul(x, x)).backward();
  EXPECT_EQ(x.grad().numel(), 0);
  EXPECT_TRUE(x.grad().sizes() == x.sizes());
}

TEST(NotFinite, GradientsPassThrough) {
  const double inf = std::numeric_limits<double>::infinity();
  const Tensor x = leaf({0, inf, std::nan("")});
  sum(mul(x, x)).backward();
  EXPECT_EQ(values(x.grad())[0], 0);
  EXPECT_EQ(values(x.grad())[1], inf);
  EXPECT_TRUE(std::isnan(values(x.grad())[2]));
}

}  // namespace
}  // namespace mytorch
