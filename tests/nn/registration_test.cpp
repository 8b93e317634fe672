// Members that are assigned what register_module, register_parameter and register_buffer return.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "mytorch/grad_mode.h"
#include "mytorch/nn.h"
#include "mytorch/ops/equal.h"
#include "mytorch/ops/ones.h"
#include "mytorch/ops/zeros.h"
#include "tests/nn/data/expect_error.h"
#include "tests/nn/values.h"

namespace mytorch::nn {
namespace {

using mytorch::testing::expect_error;
using mytorch::testing::expect_values;

struct RegisteredNet : Module {
  RegisteredNet() : first(register_module("first", Linear(4, 3))) {
    last = register_module("last", Linear(LinearOptions(3, 2).bias(false)));
    drop = register_module("drop", Dropout(0.5));
    scale = register_parameter("scale", ones({2}));
    steps = register_buffer("steps", zeros({1}));
  }
  Tensor forward(const Tensor& x) override {
    steps.add_(1);
    return drop->forward(last(first(x))) * scale;
  }
  Linear first;
  Linear last{nullptr};
  Dropout drop = nullptr;
  Tensor scale, steps;
};

const std::vector<std::string> kNames = {"scale", "first.weight", "first.bias", "last.weight"};

void expect_whole(RegisteredNet& net) {
  EXPECT_EQ(net.named_parameters().keys(), kNames);
  EXPECT_TRUE(net.named_parameters()["first.weight"].is_same(net.first.weight));
  EXPECT_TRUE(net.named_parameters()["last.weight"].is_same(net.last.weight));
  EXPECT_TRUE(net.named_parameters()["scale"].is_same(net.scale));
  EXPECT_TRUE(net.named_buffers()["steps"].is_same(net.steps));
  EXPECT_EQ(net.children(), (std::vector<Module*>{&net.first, &net.last, &net.drop}));
  net.train();
  EXPECT_TRUE(net.drop.training());
  net.eval();
  EXPECT_FALSE(net.drop.training());
  EXPECT_FALSE(net.first->is_training());
}

TEST(RegisteredValues, AreTheMembersThatAreAssigned) {
  RegisteredNet net;
  expect_whole(net);
  EXPECT_TRUE(net.scale.requires_grad());
  EXPECT_FALSE(net.steps.requires_grad());
  EXPECT_FALSE(net.last->is_empty());
  net(ones({1, 4})).sum().backward();
  EXPECT_TRUE(net.parameters()[3].grad().defined());
  expect_values(net.steps, {1});
  net.last = Linear(3, 5);  // stays the registered member
  EXPECT_EQ(net.named_parameters()["last.weight"].size(0), 5);
  EXPECT_EQ(net.named_parameters().size(), 5u);
}

TEST(RegisteredValues, StayMembersOfCopies) {
  RegisteredNet net;
  Linear neighbor = net.last;  // a copy that is no member
  RegisteredNet copy = net;
  expect_whole(copy);
  expect_whole(net);
  EXPECT_TRUE(copy.first.weight.is_same(net.first.weight));
  copy.train();
  EXPECT_FALSE(net.drop.training());
  EXPECT_TRUE(copy.drop.training());
  const auto heap = std::make_shared<RegisteredNet>(net);
  expect_whole(*heap);
  RegisteredNet assigned;
  assigned = net;
  expect_whole(assigned);
  EXPECT_TRUE(assigned.last.weight.is_same(net.last.weight));
  EXPECT_TRUE(neighbor.weight.is_same(net.last.weight));
}

TEST(RegisteredValues, StayMembersOfMovedObjects) {
  std::vector<RegisteredNet> nets(1);
  nets.emplace_back();
  nets.emplace_back();  // moves the others
  for (RegisteredNet& net : nets) expect_whole(net);
  const auto make = [] {
    RegisteredNet net;
    return std::make_pair(1, std::move(net));
  };
  auto [number, net] = make();
  expect_whole(net);
}

TEST(RegisteredValues, AreClonedWithTheObject) {
  RegisteredNet net;
  RegisteredNet copy = clone(net);
  expect_whole(copy);
  expect_whole(net);
  for (const std::string& name : kNames) {
    EXPECT_FALSE(copy.named_parameters()[name].is_same(net.named_parameters()[name])) << name;
    EXPECT_TRUE(equal(copy.named_parameters()[name], net.named_parameters()[name])) << name;
  }
  copy(ones({1, 4}));
  expect_values(copy.steps, {1});
  expect_values(net.steps, {0});
  const RegisteredNet second = clone(copy);
  EXPECT_FALSE(second.last.weight.is_same(copy.last.weight));
}

TEST(RegisteredValues, AreSavedLoadedAndConverted) {
  RegisteredNet net, other;
  other.load_state_dict(net.state_dict());
  EXPECT_TRUE(equal(other.last.weight, net.last.weight));
  EXPECT_EQ(net.state_dict().count("steps"), 1u);
  net.to(kFloat64);
  expect_whole(net);
  EXPECT_EQ(net.last.weight.dtype(), kFloat64);
  EXPECT_EQ(net.scale.dtype(), kFloat64);
  EXPECT_EQ(net.steps.dtype(), kFloat64);
}

// libtorch's register_parameter and register_buffer return the tensor for any argument: a local of
// the constructor, a constant, or the member itself.
struct FromVariables : Module {
  explicit FromVariables(Tensor given = zeros({3})) {
    const NoGradGuard no_grad;
    Tensor local = ones({2});
    const Tensor fixed = ones({1});
    scale = register_parameter("scale", local);
    pe = register_buffer("pe", given);
    limit = register_buffer("limit", fixed, false);
    frozen = register_parameter("frozen", ones({2}), false);
    own = register_buffer("own", own);
    local.fill_(3);
    given.fill_(4);
  }
  Tensor forward(const Tensor& x) override { return x * scale; }
  Tensor scale, pe, limit, frozen, own = zeros({1});
};

TEST(RegisteredValues, MayBeVariables) {
  const auto expect_members = [](FromVariables& net) {
    EXPECT_TRUE(net.named_parameters()["scale"].is_same(net.scale));
    EXPECT_TRUE(net.named_parameters()["frozen"].is_same(net.frozen));
    EXPECT_TRUE(net.named_buffers()["pe"].is_same(net.pe));
    EXPECT_TRUE(net.named_buffers()["limit"].is_same(net.limit));
    EXPECT_TRUE(net.named_buffers()["own"].is_same(net.own));
    EXPECT_TRUE(net.scale.requires_grad());
    EXPECT_FALSE(net.frozen.requires_grad());
    expect_values(net.scale, {3, 3});
    expect_values(net.pe, {4, 4, 4});
    EXPECT_EQ(net.state_dict().count("limit"), 0u);
  };
  FromVariables net;
  const auto heap = std::make_shared<FromVariables>();
  FromVariables copy = clone(net);
  expect_members(net);
  expect_members(*heap);
  expect_members(copy);
  EXPECT_FALSE(copy.scale.is_same(net.scale));
  net.to(kFloat64);
  EXPECT_EQ(net.scale.dtype(), kFloat64);
  EXPECT_EQ(net.pe.dtype(), kFloat64);
}

struct Outer : Module {
  RegisteredNet net = register_module("net", RegisteredNet());
  std::shared_ptr<Linear> head = register_module("head", std::make_shared<Linear>(2, 2));
};

TEST(RegisteredValues, MayContainRegisteredValues) {
  Outer outer;
  EXPECT_EQ(outer.named_parameters().size(), 6u);
  expect_whole(outer.net);
  Outer copy = clone(outer);
  expect_whole(copy.net);
  EXPECT_TRUE(copy.named_parameters()["net.last.weight"].is_same(copy.net.last.weight));
  EXPECT_FALSE(copy.net.last.weight.is_same(outer.net.last.weight));
  EXPECT_TRUE(outer.named_parameters()["head.weight"].is_same(outer.head->weight));
}

struct WithVector : Module {
  std::vector<Linear> layers;
  WithVector() {
    for (int i = 0; i < 3; ++i) {
      layers.push_back(register_module("l" + std::to_string(i), Linear(2, 2)));
    }
    register_module("unnamed", Linear(2, 2));
  }
  Tensor forward(const Tensor& x) override { return layers[2](layers[1](layers[0](x))); }
};

TEST(RegisteredValues, InAVectorAreCloned) {
  WithVector net;
  net.eval();
  for (const Linear& layer : net.layers) EXPECT_FALSE(layer.training());
  EXPECT_EQ(net.parameters().size(), 8u);
  WithVector copy = clone(net);
  for (size_t i = 0; i < 3; ++i) {
    const std::string name = "l" + std::to_string(i) + ".weight";
    EXPECT_TRUE(equal(copy.layers[i].weight, net.layers[i].weight));
    EXPECT_FALSE(copy.layers[i].weight.is_same(net.layers[i].weight));
    EXPECT_TRUE(copy.named_parameters()[name].is_same(copy.layers[i].weight));
    EXPECT_TRUE(net.named_parameters()[name].is_same(net.layers[i].weight));
  }
  EXPECT_FALSE(
      copy.named_parameters()["unnamed.weight"].is_same(net.named_parameters()["unnamed.weight"]));
  copy.train();
  EXPECT_TRUE(copy.layers[1].training());
  EXPECT_FALSE(net.layers[1].training());
  copy(ones({1, 2})).sum().backward();
  EXPECT_TRUE(copy.parameters()[4].grad().defined());
  EXPECT_FALSE(net.parameters()[4].grad().defined());
  const WithVector second = clone(copy);
  EXPECT_FALSE(second.layers[0].weight.is_same(copy.layers[0].weight));
}

TEST(RegisteredValues, InAVectorStayReachableIfTheObjectIsAssigned) {
  WithVector net, other;
  net = WithVector();
  other = net;
  net.eval();
  for (const Linear& layer : net.layers) EXPECT_FALSE(layer.training());
  for (const Linear& layer : other.layers) EXPECT_TRUE(layer.training());
  EXPECT_TRUE(net.named_parameters()["l0.weight"].is_same(net.layers[0].weight));
}

struct ManyVectors : Module {
  std::vector<WithVector> nets;
  WithVector first, same;
  ManyVectors() {
    for (int i = 0; i < 2; ++i) {
      nets.push_back(register_module("n" + std::to_string(i), WithVector()));
    }
    first = register_module("first", WithVector());
    same = first;
  }
};

TEST(RegisteredValues, InVectorsOfVectorsAreCloned) {
  ManyVectors net;
  ManyVectors copy = clone(net);
  const auto expect_apart = [](const char* what, WithVector& a, WithVector& b) {
    SCOPED_TRACE(what);
    for (size_t i = 0; i < 3; ++i) {
      EXPECT_FALSE(a.layers[i].weight.is_same(b.layers[i].weight)) << i;
      EXPECT_TRUE(equal(a.layers[i].weight, b.layers[i].weight)) << i;
    }
  };
  for (size_t i = 0; i < 2; ++i) expect_apart("nets", copy.nets[i], net.nets[i]);
  expect_apart("first", copy.first, net.first);
  expect_apart("same", copy.same, net.same);
  EXPECT_TRUE(copy.same.layers[1].weight.is_same(copy.first.layers[1].weight));
  EXPECT_EQ(copy.parameters().size(), net.parameters().size());
  for (const auto& [name, parameter] : copy.named_parameters()) {
    EXPECT_FALSE(parameter.is_same(net.named_parameters()[name])) << name;
  }
  EXPECT_TRUE(copy.named_parameters()["n1.l2.bias"].is_same(copy.nets[1].layers[2].bias));
}

// The copies of the object use the same module, which clone cannot replace.
struct WithPointer : Module {
  std::shared_ptr<Linear> layer = std::make_shared<Linear>(register_module("layer", Linear(2, 2)));
};

TEST(RegisteredValues, BehindAPointerAreNotCloned) {
  WithPointer net;
  expect_error(ErrorCode::kUnsupported, {"'layer'", "registered shared_ptr"}, [&] { clone(net); });
}

TEST(EmptyModules, AreRefusedUntilTheyAreAssigned) {
  Linear fc{nullptr};
  EXPECT_TRUE(fc.is_empty());
  EXPECT_EQ(fc.str(), "Linear(nullptr)");
  expect_error(ErrorCode::kValue, {"[Linear]", "nullptr", "assign a layer"}, [&] {
    fc(ones({1, 4}));
  });
  LSTM lstm{nullptr};
  expect_error(ErrorCode::kValue, {"[LSTM]", "assign a layer"}, [&] { lstm(ones({1, 1, 4})); });
  fc = Linear(4, 2);
  EXPECT_FALSE(fc.is_empty());
  EXPECT_EQ(fc(ones({1, 4})).size(1), 2);
  TransformerEncoderLayer layer{nullptr};
  layer = TransformerEncoderLayer(4, 2);
  EXPECT_EQ(layer.named_parameters().size(), 12u);
}

struct BlockImpl : Module {
  explicit BlockImpl(int64_t width) : fc(width, width) { register_module("fc", fc); }
  Tensor forward(const Tensor& x) override { return fc(x); }
  Linear fc;
};
MYTORCH_MODULE(Block);

struct Holding : Module {
  Holding() { block = register_module("block", Block(4)); }
  Tensor forward(const Tensor& x) override { return block(x) + block->forward(x); }
  Block block{nullptr};
};

TEST(ModuleHolder, IsASharedPointerThatCalls) {
  Holding net;
  EXPECT_EQ(net.named_parameters().keys(),
            (std::vector<std::string>{"block.fc.weight", "block.fc.bias"}));
  Block same = net.block;
  EXPECT_EQ(same.ptr(), net.block.ptr());
  EXPECT_TRUE(equal(net(ones({1, 4})), same(ones({1, 4})) * 2));
  Sequential list(Block(4), ReLU(), same);
  EXPECT_EQ(list.named_parameters().size(), 4u);
  EXPECT_TRUE(list.named_parameters()["2.fc.bias"].is_same(same->fc.bias));
  Block empty = nullptr;
  EXPECT_FALSE(empty);
  expect_error(ErrorCode::kValue, {"[BlockImpl]", "nullptr"}, [&] {
    empty->forward(ones({1, 4}));
  });
}

}  // namespace
}  // namespace mytorch::nn
