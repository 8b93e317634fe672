#include "mytorch/nn/module.h"

#include <gtest/gtest.h>

#include <limits>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "mytorch/grad_mode.h"
#include "mytorch/nn/container.h"
#include "mytorch/nn/dropout.h"
#include "mytorch/nn/linear.h"
#include "mytorch/nn/normalization.h"
#include "mytorch/ops/relu.h"
#include "mytorch/ops/sum.h"
#include "tests/nn/data/expect_error.h"
#include "tests/nn/data/temp_directory.h"
#include "tests/nn/values.h"

namespace mytorch::nn {
namespace {

using mytorch::testing::expect_error;
using mytorch::testing::expect_values;
using mytorch::testing::filled;
using mytorch::testing::TempDirectory;
using mytorch::testing::values;

struct HiddenNet : Module {
  Linear hidden{3, 4};
  BatchNorm1d norm{4};
  Linear output{4, 2, false};
  Tensor scratch = tensor({7.0});
  HiddenNet() {
    register_module("hidden", hidden);
    register_module("norm", norm);
    register_module("output", output);
    register_buffer("scratch", scratch, /*persistent=*/false);
  }
  Tensor forward(const Tensor& x) override { return output(norm(relu(hidden(x)))); }
};

std::vector<std::string> names(const NamedList<Tensor>& list) {
  std::vector<std::string> names;
  for (const NamedTensor& named : list) names.push_back(named.first);
  return names;
}

std::vector<std::string> names(const TensorMap& map) {
  std::vector<std::string> names;
  for (const auto& entry : map) names.push_back(entry.first);
  return names;
}

TEST(ModuleTest, ListsPartsInOrderOfRegistration) {
  HiddenNet net;
  EXPECT_EQ(names(net.named_parameters()),
            (std::vector<std::string>{"hidden.weight", "hidden.bias", "norm.weight", "norm.bias",
                                      "output.weight"}));
  EXPECT_EQ(names(net.named_buffers()),
            (std::vector<std::string>{"scratch", "norm.running_mean", "norm.running_var",
                                      "norm.num_batches_tracked"}));
  EXPECT_EQ(net.num_parameters(), 12 + 4 + 4 + 4 + 8);
  net.output.weight.requires_grad_(false);
  EXPECT_EQ(net.num_parameters(/*trainable_only=*/true), 24);
  const auto children = net.named_children();
  ASSERT_EQ(children.size(), 3u);
  EXPECT_EQ(children[2].second, &net.output);
  const auto modules = net.named_modules();
  ASSERT_EQ(modules.size(), 4u);
  EXPECT_EQ(modules[0].second, &net);
  EXPECT_EQ(modules[1].first, "hidden");
}

TEST(ModuleTest, CopiesAndMovesKeepTheirOwnMembersRegistered) {
  HiddenNet net;
  HiddenNet copy = net;
  EXPECT_TRUE(copy.hidden.weight.is_same(net.hidden.weight));  // like a copied Tensor
  copy.hidden.weight = filled({1}, {5});
  EXPECT_TRUE(copy.named_parameters()[0].second.is_same(copy.hidden.weight));
  EXPECT_FALSE(net.named_parameters()[0].second.is_same(copy.hidden.weight));
  auto heap = std::make_unique<HiddenNet>(std::move(copy));
  EXPECT_TRUE(heap->parameters()[0].is_same(heap->hidden.weight));
  heap->eval();
  EXPECT_FALSE(heap->norm.training());
  EXPECT_TRUE(net.norm.training());
}

TEST(ModuleTest, CloneCopiesParametersAndKeepsTies) {
  HiddenNet net;
  net.output.bias = filled({2}, {1, 2});
  net.hidden.bias.requires_grad_(false);
  HiddenNet other = clone(net);
  EXPECT_EQ(values(other.hidden.weight), values(net.hidden.weight));
  EXPECT_TRUE(other.hidden.weight.requires_grad());
  EXPECT_FALSE(other.hidden.bias.requires_grad());
  {
    NoGradGuard no_grad;
    other.hidden.weight.fill_(3);
    other.norm.running_mean.fill_(3);
  }
  EXPECT_NE(values(net.hidden.weight)[0], 3);
  EXPECT_EQ(values(net.norm.running_mean)[0], 0);

  Sequential tied(Linear(2, 2), Linear(2, 2));
  tied.at<Linear>(1).weight = tied.at<Linear>(0).weight;
  Sequential apart = clone(tied);
  EXPECT_TRUE(apart.at<Linear>(1).weight.is_same(apart.at<Linear>(0).weight));
  EXPECT_FALSE(apart.at<Linear>(0).weight.is_same(tied.at<Linear>(0).weight));
  EXPECT_NE(&apart[0], &tied[0]);
}

TEST(ModuleTest, TiedTensorsAreListedOnceAndSavedUnderEachName) {
  Sequential tied(Linear(2, 2), Linear(2, 2));
  tied.at<Linear>(1).weight = tied.at<Linear>(0).weight;
  EXPECT_EQ(names(tied.named_parameters()),
            (std::vector<std::string>{"0.weight", "0.bias", "1.bias"}));
  EXPECT_EQ(tied.num_parameters(), 8);
  EXPECT_EQ(names(tied.state_dict()),
            (std::vector<std::string>{"0.bias", "0.weight", "1.bias", "1.weight"}));
}

TEST(ModuleTest, RejectsBadNames) {
  struct Bad : Module {
    Linear part{1, 1};
    explicit Bad(const std::string& name, bool twice = false) {
      register_module(name, part);
      if (twice) register_module(name, part);
    }
  };
  expect_error(ErrorCode::kValue, {"[Bad]", "''"}, [] { Bad(""); });
  expect_error(ErrorCode::kValue, {"[Bad]", "'a.b'", "'.'"}, [] { Bad("a.b"); });
  expect_error(ErrorCode::kValue, {"[Bad]", "already", "'a'"}, [] { Bad("a", true); });
  Sequential list;
  expect_error(ErrorCode::kValue, {"null"}, [&] { list.push_back(std::shared_ptr<Linear>()); });
}

TEST(ModuleTest, MissingForwardIsAnError) {
  struct Empty : Module {};
  expect_error(ErrorCode::kUnsupported, {"[Empty]", "forward"}, [] { Empty()(tensor({1.0})); });
}

TEST(ModuleTest, TrainAndEvalReachAllParts) {
  Sequential net(Sequential(Dropout(1.0)), Linear(2, 2));
  const Tensor x = filled({1, 2}, {1, 1});
  net.eval();
  EXPECT_FALSE(net[0].named_children()[0].second->training());
  EXPECT_EQ(values(net[0](x)), (std::vector<double>{1, 1}));
  net.train();
  EXPECT_EQ(values(net[0](x)), (std::vector<double>{0, 0}));
}

TEST(ModuleTest, ZeroGradForgetsGradients) {
  Linear linear(2, 1);
  sum(linear(filled({1, 2}, {2, 3}))).backward();
  expect_values(linear.weight.grad(), {2, 3});
  linear.zero_grad();
  EXPECT_FALSE(linear.weight.grad().defined());
}

TEST(ModuleTest, ToConvertsFloatingTensorsOnly) {
  HiddenNet net;
  sum(net(filled({2, 3}, {1, 2, 3, 4, 5, 7}))).backward();
  const Tensor before = net.hidden.weight;
  net.to(kFloat32);
  EXPECT_TRUE(net.hidden.weight.is_same(before));  // an optimizer may hold it
  net.to(kFloat64);
  EXPECT_EQ(net.hidden.weight.dtype(), kFloat64);
  EXPECT_TRUE(net.hidden.weight.requires_grad());
  EXPECT_TRUE(net.hidden.weight.is_leaf());
  EXPECT_EQ(net.hidden.weight.grad().dtype(), kFloat64);
  EXPECT_EQ(net.norm.running_var.dtype(), kFloat64);
  EXPECT_EQ(net.norm.num_batches_tracked.dtype(), kInt64);
  expect_error(ErrorCode::kType, {"int32"}, [&] { net.to(kInt32); });
}

TEST(StateDictTest, RoundTripsThroughMemoryAndFiles) {
  HiddenNet net, other;
  net(filled({2, 3}, {1, 2, 3, 4, 5, 7}));  // updates the running statistics
  EXPECT_EQ(names(net.state_dict()),
            (std::vector<std::string>{"hidden.bias", "hidden.weight", "norm.bias",
                                      "norm.num_batches_tracked", "norm.running_mean",
                                      "norm.running_var", "norm.weight", "output.weight"}));
  ASSERT_NE(values(net.hidden.weight), values(other.hidden.weight));
  const Tensor place = other.hidden.weight;
  const LoadReport report = other.load_state_dict(net.state_dict());
  EXPECT_TRUE(report.missing.empty() && report.unexpected.empty());
  EXPECT_TRUE(other.hidden.weight.is_same(place));  // copied into, not replaced
  EXPECT_TRUE(other.hidden.weight.requires_grad());
  for (const auto& [name, tensor] : net.state_dict()) {
    EXPECT_EQ(values(tensor), values(other.state_dict().at(name))) << name;
  }

  TempDirectory directory;
  HiddenNet third;
  net.save(directory.file("net.safetensors"));
  third.load(directory.file("net.safetensors"));
  EXPECT_EQ(values(third.norm.running_var), values(net.norm.running_var));
  expect_error(ErrorCode::kValue, {"net.safetensors", "unexpected"},
               [&] { Linear(3, 4).load(directory.file("net.safetensors")); });
  expect_error(ErrorCode::kIo, {"absent"}, [&] { third.load(directory.file("absent")); });
}

TEST(StateDictTest, StrictLoadNamesTheDifferencesAndChangesNothing) {
  Linear linear(2, 1);
  const std::vector<double> before = values(linear.weight);
  const TensorMap state{{"weight", filled({1, 2}, {8, 9})}, {"extra", filled({1}, {0})}};
  expect_error(ErrorCode::kValue, {"missing 'bias'", "unexpected 'extra'"},
               [&] { linear.load_state_dict(state); });
  EXPECT_EQ(values(linear.weight), before);
  const LoadReport report = linear.load_state_dict(state, /*strict=*/false);
  EXPECT_EQ(report.missing, (std::vector<std::string>{"bias"}));
  EXPECT_EQ(report.unexpected, (std::vector<std::string>{"extra"}));
  EXPECT_EQ(values(linear.weight), (std::vector<double>{8, 9}));
}

TEST(StateDictTest, ShapesMustAgreeEvenWhenNotStrict) {
  Linear linear(2, 1);
  const std::vector<double> before = values(linear.bias);
  const TensorMap state{{"bias", filled({1}, {5})}, {"weight", filled({2, 1}, {8, 9})}};
  expect_error(ErrorCode::kShape, {"'weight'", "(2, 1)", "(1, 2)"},
               [&] { linear.load_state_dict(state, /*strict=*/false); });
  EXPECT_EQ(values(linear.bias), before);
}

TEST(StateDictTest, PreservesSpecialValues) {
  const double inf = std::numeric_limits<double>::infinity();
  Linear linear(3, 1, false);
  linear.load_state_dict({{"weight", filled({1, 3}, {NAN, inf, -0.0})}});
  expect_values(linear.weight, {NAN, inf, 0});
  EXPECT_TRUE(std::signbit(values(linear.weight)[2]));
}

TEST(ContainerTest, SequentialTakesModulesPointersAndFunctions) {
  auto shared = std::make_shared<Linear>(2, 2);
  Sequential net(
      shared, [](const Tensor& x) { return x * 0; }, Sequential());
  net.push_back("last", Linear(2, 1));
  EXPECT_EQ(net.size(), 4u);
  EXPECT_EQ(&net[0], shared.get());
  expect_values(net(filled({1, 2}, {1, 1})), values(net.at<Linear>(3).bias));
  EXPECT_EQ(net.named_parameters().back().first, "last.bias");
  expect_error(ErrorCode::kValue, {"4"}, [&] { net[4]; });
  expect_error(ErrorCode::kType, {"Linear"}, [&] { net.at<Dropout>(0); });
  const Tensor x = tensor({1.0});
  EXPECT_TRUE(Sequential()(x).is_same(x));
}

TEST(ContainerTest, CopiesOfAListShareItsModules) {
  ModuleList list(Linear(1, 1), Linear(1, 1));
  ModuleList copy = list;
  EXPECT_EQ(&copy[1], &list[1]);
  EXPECT_EQ(copy.size(), 2u);
  expect_error(ErrorCode::kUnsupported, {"ModuleList"}, [&] { list(tensor({1.0})); });
}

TEST(PrintTest, ShowsTheTree) {
  Sequential net(Linear(3, 4), Sequential(Dropout(0.25)));
  std::ostringstream out;
  out << net;
  EXPECT_EQ(out.str(),
            "Sequential(\n"
            "  (0): Linear(in_features=3, out_features=4, bias=true)\n"
            "  (1): Sequential(\n"
            "    (0): Dropout(p=0.25)\n"
            "  )\n"
            ")");
  EXPECT_EQ(Identity().str(), "Identity()");
}

}  // namespace
}  // namespace mytorch::nn
