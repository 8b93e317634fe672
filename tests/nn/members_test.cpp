// What may be registered in a module, and what becomes of it in copies and conversions.
#include <gtest/gtest.h>

#include <memory>
#include <tuple>
#include <utility>
#include <vector>

#include "mytorch/nn/container.h"
#include "mytorch/nn/linear.h"
#include "mytorch/nn/module.h"
#include "mytorch/nn/optim/adam.h"
#include "mytorch/nn/optim/sgd.h"
#include "mytorch/ops/allclose.h"
#include "mytorch/ops/ones.h"
#include "mytorch/ops/real.h"
#include "mytorch/ops/sum.h"
#include "tests/nn/data/expect_error.h"
#include "tests/nn/values.h"

namespace mytorch::nn {
namespace {

using mytorch::testing::expect_error;
using mytorch::testing::expect_values;
using mytorch::testing::filled;
using mytorch::testing::values;

// Registers the elements of a vector, which lie outside of the object.
struct Vector : Module {
  std::vector<Linear> layers;
  Vector() {
    layers.reserve(2);
    for (int i = 0; i < 2; ++i) layers.emplace_back(1, 1);
    for (Linear& layer : layers) register_module(std::to_string(&layer - &layers[0]), layer);
  }
};

struct Local : Module {
  Local() {
    Linear local(1, 1);
    register_module("local", local);
  }
};

struct MemberPair : Module {
  Linear a{1, 1};
  Linear b{1, 1};
  MemberPair() {
    register_module("a", a);
    register_module("b", b);
  }
};

// Calls `use` and expects it, or the construction of the module, to be refused.
template <class M, class F>
void expect_refused(F use) {
  expect_error(ErrorCode::kValue, {"ModuleList"}, [&] {
    M module;
    use(module);
  });
}

TEST(Members, ElementsOfAVectorAreRefused) {
  expect_refused<Vector>([](Vector& m) { Vector(m).parameters(); });
  expect_refused<Vector>([](Vector& m) { clone(m); });
  expect_refused<Vector>([](Vector& m) { Sequential{m}; });
  expect_refused<Vector>([](Vector& m) { Vector(std::move(m)).train(); });
  expect_error(ErrorCode::kValue, {"[Vector]", "'0'", "ModuleList"}, [] {
    auto heap = std::make_unique<Vector>();
    auto copy = std::make_unique<Vector>(*heap);
    Sequential{std::make_shared<Vector>(*copy)};
  });
}

TEST(Members, LocalsOfTheConstructorAreRefused) {
  expect_refused<Local>([](Local& m) { m.parameters(); });
  expect_refused<Local>([](Local& m) { m.eval(); });
  expect_error(ErrorCode::kValue, {"[Local]", "'local'", "ModuleList"},
               [] { std::make_unique<Local>()->parameters(); });
}

TEST(Members, MembersStayMembersOfCopies) {
  std::vector<MemberPair> pairs(3);
  pairs.resize(20);  // moves
  MemberPair copy = pairs[0], other;
  other = copy;
  for (MemberPair* pair : {&copy, &other, &pairs[1]}) {
    EXPECT_EQ(pair->named_children()[1].second, &pair->b);
    EXPECT_EQ(pair->parameters().size(), 4u);
  }
  EXPECT_TRUE(other.a.weight.is_same(pairs[0].a.weight));
  other = std::move(copy);
  EXPECT_EQ(other.named_children()[0].second, &other.a);
  std::swap(other, pairs[2]);
  EXPECT_EQ(other.parameters().size(), 4u);
  EXPECT_EQ(Sequential(other, MemberPair()).parameters().size(), 8u);
}

TEST(Members, ASlicedModuleIsRefused) {
  struct Wide : MemberPair {
    Linear c{1, 1};
    Wide() { register_module("c", c); }
  };
  const Wide wide;
  expect_error(ErrorCode::kValue, {"'c'"}, [&] { MemberPair(wide).parameters(); });
}

TEST(Members, AModuleListHoldsAnyNumber) {
  struct Net : Module {
    ModuleList layers;
    Net() {
      for (int i = 0; i < 3; ++i) layers.push_back(Linear(1, 1));
      register_module("layers", layers);
    }
  };
  const Net net;
  EXPECT_EQ(Net(net).parameters().size(), 6u);
  EXPECT_EQ(clone(net).named_parameters()[2].first, "layers.1.weight");
}

// ---- forward ----

struct ByValue : Module {
  Tensor forward(Tensor x) override { return x + 1; }
};
struct ByValueWithoutOverride : Module {
  Tensor forward(Tensor x) { return x + 1; }
};
struct ConstByValue : Module {
  Tensor forward(Tensor x) const { return x + 1; }
};
struct ConstByReference : Module {
  Tensor forward(const Tensor& x) const { return x + 1; }
};
struct Several : Callable<Several> {
  std::pair<Tensor, int> forward(const Tensor& x, Tensor y, int n = 3) { return {x + y, n}; }
};

TEST(Forward, TakesATensorByValueOrReference) {
  const Tensor x = tensor({1.0});
  const auto check = [&](auto module) {
    Module& base = module;
    expect_values(module(x), {2});
    expect_values(module.forward(x), {2});
    expect_values(base(x), {2});
    expect_values(base.forward(x), {2});
    expect_values(Sequential(module, module)(x), {3});
  };
  check(ByValue());
  check(ByValueWithoutOverride());
  check(ConstByValue());
  check(ConstByReference());
}

TEST(Forward, OfOtherArgumentsIsCalledByOperator) {
  Several module;
  const auto [sum, n] = module(tensor({1.0}), tensor({2.0}));
  expect_values(sum, {3});
  EXPECT_EQ(n, 3);
  EXPECT_EQ(module(tensor({1.0}), tensor({2.0}), 5).second, 5);
  expect_error(ErrorCode::kUnsupported, {"[Several]", "forward"},
               [&] { Sequential{module}(tensor({1.0})); });
}

// ---- conversions ----

TEST(To, KeepsParametersTheSameTensors) {
  Sequential net(Linear(2, 2), Linear(2, 1));
  net.at<Linear>(1).bias.set_grad(ones({1}));
  const std::vector<Tensor> before = net.parameters();
  const std::vector<double> weights = values(before[0]);
  net.to(kFloat64);
  const std::vector<Tensor> after = net.parameters();
  for (size_t i = 0; i < before.size(); ++i) {
    EXPECT_TRUE(after[i].is_same(before[i]));
    EXPECT_EQ(before[i].dtype(), kFloat64);
    EXPECT_TRUE(before[i].requires_grad() && before[i].is_leaf());
  }
  EXPECT_EQ(values(before[0]), weights);
  EXPECT_EQ(before[3].grad().dtype(), kFloat64);
}

TEST(To, ComplexTypesConvertRealParameters) {
  Linear net(2, 1);
  const Tensor x = ones({3, 2}, kComplex128);
  const Tensor expected = net(ones({3, 2}));
  net.to(kComplex128);
  EXPECT_EQ(net.weight.dtype(), kComplex128);
  EXPECT_TRUE(allclose(real(net(x)), expected.to(kFloat64), 1e-6, 1e-6));
  real(net(x)).sum().backward();
  EXPECT_EQ(net.weight.grad().dtype(), kComplex128);
  net.to(kFloat32);  // which has no imaginary parts
  EXPECT_EQ(net.weight.dtype(), kComplex128);
  net.to(kComplex64);
  EXPECT_EQ(net.weight.dtype(), kComplex64);
  EXPECT_EQ(net.weight.grad().dtype(), kComplex64);
  BatchNorm1d norm(2);
  norm.to(kComplex64);
  EXPECT_EQ(norm.num_batches_tracked.dtype(), kInt64);
}

TEST(To, KeepsTies) {
  Sequential net(Linear(2, 2), Linear(2, 2));
  net.at<Linear>(1).weight = net.at<Linear>(0).weight;
  net.to(kFloat16);
  EXPECT_TRUE(net.at<Linear>(1).weight.is_same(net.at<Linear>(0).weight));
  EXPECT_EQ(net.at<Linear>(1).weight.dtype(), kFloat16);
}

TEST(To, AnOptimizerGoesOnTraining) {
  Linear net(1, 1, false);
  net.load_state_dict({{"weight", filled({1, 1}, {1})}});
  optim::SGD sgd(net.parameters(), {.lr = 0.5, .momentum = 0.5});
  const auto step = [&] {
    sgd.zero_grad();
    sum(net(ones({1, 1}, net.weight.dtype()))).backward();
    sgd.step();
  };
  step();  // 1 - 0.5
  expect_values(net.weight, {0.5});
  net.to(kFloat64);
  step();  // the momentum is 1 + 0.5
  expect_values(net.weight, {-0.25});
  EXPECT_EQ(sgd.state_dict().at("parameter0.momentum").dtype(), kFloat64);

  optim::Adam adam(net.parameters(), {.lr = 0.1});
  for (const ScalarType dtype : {kFloat32, kFloat64, kFloat32}) {
    net.to(dtype);
    const double before = net.weight.item<double>();
    adam.zero_grad();
    sum(net(ones({1, 1}, dtype))).backward();
    adam.step();
    EXPECT_NEAR(net.weight.item<double>(), before - 0.1, 1e-5);
  }
}

}  // namespace
}  // namespace mytorch::nn
