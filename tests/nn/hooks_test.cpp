// Hooks, lazy modules, containers of parameters, and the paths in errors.
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "mytorch/nn/activation.h"
#include "mytorch/nn/container.h"
#include "mytorch/nn/conv.h"
#include "mytorch/nn/functional.h"
#include "mytorch/nn/linear.h"
#include "mytorch/nn/normalization.h"
#include "mytorch/nn/optim/sgd.h"
#include "mytorch/nn/padding.h"
#include "mytorch/ops/ones.h"
#include "mytorch/ops/randn.h"
#include "mytorch/ops/sum.h"
#include "mytorch/ops/zeros.h"
#include "tests/nn/data/expect_error.h"
#include "tests/nn/values.h"

namespace mytorch::nn {
namespace {

namespace F = functional;
using mytorch::testing::expect_error;
using mytorch::testing::expect_values;
using mytorch::testing::filled;
using mytorch::testing::values;

// ---- hooks ----

TEST(Hooks, SeeAndReplaceInputAndOutput) {
  Sequential net{Identity(), Identity()};
  std::vector<std::string> calls;
  net[0].register_forward_pre_hook([&](Module& module, const Tensor& x) {
    calls.push_back("pre " + module.describe());
    return x + 1;
  });
  const HookHandle last =
      net[0].register_forward_hook([&](Module&, const Tensor& x, const Tensor& y) {
        calls.push_back("post");
        EXPECT_TRUE(x.is_same(y));
      });
  HookHandle twice =
      net[1].register_forward_hook([](Module&, const Tensor&, const Tensor& y) { return y * 2; });
  expect_values(net(filled({1}, {3})), {8});
  EXPECT_EQ(calls, (std::vector<std::string>{"pre Identity()", "post"}));
  twice.remove();
  twice.remove();
  expect_values(net(filled({1}, {3})), {4});
  Sequential copy = net;  // shares the modules and their hooks
  expect_values(copy(filled({1}, {3})), {4});
  HookHandle dangling;
  {
    Identity gone;
    dangling = gone.register_forward_hook([](Module&, const Tensor&, const Tensor&) {});
  }
  dangling.remove();
}

TEST(Hooks, BackwardHooksSeeTheGradientsOfOneCall) {
  Linear linear(2, 1, false);
  std::vector<std::vector<double>> seen;
  HookHandle hook =
      linear.register_full_backward_hook([&](const Tensor& grad_input, const Tensor& grad_output) {
        seen.push_back(grad_input.defined() ? values(grad_input) : std::vector<double>());
        seen.push_back(values(grad_output));
        return grad_input.defined() ? grad_input * 10 : grad_input;
      });
  const std::vector<double> w = values(linear.weight);
  const Tensor x = filled({1, 2}, {1, 2}).requires_grad_();
  ((linear(x) * 3).sum() + x.sum()).backward();
  ASSERT_EQ(seen.size(), 2u);
  EXPECT_EQ(seen[1], (std::vector<double>{3}));
  EXPECT_NEAR(seen[0][0], 3 * w[0], 1e-6);
  expect_values(x.grad(), {30 * w[0] + 1, 30 * w[1] + 1}, 1e-5);
  expect_values(linear.weight.grad(), {3, 6});
  linear(ones({1, 2})).sum().backward();  // the input requires no gradient
  ASSERT_EQ(seen.size(), 4u);
  EXPECT_TRUE(seen[2].empty());
  hook.remove();
  linear(x).sum().backward();
  EXPECT_EQ(seen.size(), 4u);
}

struct Pair : Callable<Pair> {
  std::tuple<Tensor, int> forward(const Tensor& a, const Tensor& b) { return {a + b, 1}; }
};

TEST(Hooks, OfCallablesTakeTheFirstTensors) {
  Pair pair;
  pair.register_forward_pre_hook([](Module&, const Tensor& a) { return a * 2; });
  pair.register_forward_hook([](Module&, const Tensor&, const Tensor& sum) { return sum + 100; });
  expect_values(std::get<0>(pair(filled({1}, {1}), filled({1}, {5}))), {107});
}

// ---- lazy modules ----

TEST(Lazy, ModulesTakeTheirSizesFromTheFirstInput) {
  Sequential net(LazyConv2d(4, 3, {.padding = "same", .groups = 2}), LazyBatchNorm2d(), ReLU(),
                 Flatten(), LazyLinear(2));
  expect_error(ErrorCode::kValue, {"[LazyConv2d]", "'0'"}, [&] { net.parameters(); });
  EXPECT_EQ(net(ones({2, 6, 4, 5})).sizes().vec(), (std::vector<int64_t>{2, 2}));
  EXPECT_EQ(net.at<LazyConv2d>(0).weight.sizes().vec(), (std::vector<int64_t>{4, 3, 3, 3}));
  EXPECT_EQ(net.at<BatchNorm>(1).running_mean.numel(), 4);
  EXPECT_EQ(net.at<Linear>(4).weight.size(1), 80);
  EXPECT_EQ(net.parameters().size(), 6u);
  optim::SGD sgd(net.parameters(), {.lr = 0.1});
  Sequential odd(LazyConv1d(4, 3, {.groups = 2}));
  expect_error(ErrorCode::kValue, {"groups", "5 input channels"}, [&] { odd(ones({2, 5, 4})); });
}

TEST(Lazy, ParametersThrowUntilThen) {
  struct Net : Module {
    LazyLinear head{2};
    Net() { register_module("head", head); }
    Tensor forward(const Tensor& x) override { return head(x); }
  } net;
  for (const std::function<void()>& use : std::vector<std::function<void()>>{
           [&] { net.parameters(); }, [&] { net.state_dict(); }, [&] { net.to(kFloat64); },
           [&] { net.num_parameters(); }}) {
    expect_error(ErrorCode::kValue, {"[LazyLinear]", "'head'", "first input", "example input"},
                 use);
  }
  EXPECT_EQ(net.head.str(), "LazyLinear(out_features=2, bias=true)");
  Net early = net;
  expect_error(ErrorCode::kShape, {"[LazyLinear]", "()"}, [&] { net(tensor({1.0})[0]); });
  net(ones({3, 5}, kFloat64));
  EXPECT_EQ(net.head.weight.sizes().vec(), (std::vector<int64_t>{2, 5}));
  EXPECT_EQ(net.head.weight.dtype(), kFloat64);
  EXPECT_TRUE(net.head.bias.requires_grad());
  EXPECT_EQ(net.head.str(), "Linear(in_features=5, out_features=2, bias=true)");
  EXPECT_EQ(net.parameters().size(), 2u);
  early(ones({3, 4}));  // copies take their own sizes
  EXPECT_EQ(early.head.weight.sizes().vec(), (std::vector<int64_t>{2, 4}));
  expect_error(ErrorCode::kShape, {"head"}, [&] { net(ones({3, 4}, kFloat64)); });
}

TEST(Lazy, TransposedConvolutionsTakeTheirChannelsFromTheFirstInput) {
  LazyConvTranspose2d lazy(4, 3, {.stride = 2, .groups = 2});
  EXPECT_EQ(lazy.str(), "LazyConvTranspose2d(4, kernel_size=3, stride=2, groups=2)");
  expect_error(ErrorCode::kValue, {"[LazyConvTranspose2d]"}, [&] { lazy.parameters(); });
  expect_error(ErrorCode::kShape, {"LazyConvTranspose2d"}, [&] { lazy(ones({5})); });
  LazyConvTranspose2d sized = lazy, unbatched = lazy;
  const Tensor x = randn({2, 6, 4, 5}, kFloat64);
  lazy(x);
  EXPECT_EQ(lazy.str(), "ConvTranspose2d(6, 4, kernel_size=3, stride=2, groups=2)");
  ConvTranspose2d same(6, 4, 3, {.stride = 2, .groups = 2});
  same.to(kFloat64);
  same.load_state_dict(lazy.state_dict());
  EXPECT_EQ(values(same(x)), values(lazy(x)));
  EXPECT_EQ(sized(x, {10, 12}).sizes().vec(), (std::vector<int64_t>{2, 4, 10, 12}));
  EXPECT_EQ(unbatched(x[0]).sizes().vec(), (std::vector<int64_t>{4, 9, 11}));
  EXPECT_EQ(LazyConvTranspose1d(3, 2)(ones({2, 4, 5})).sizes().vec(),
            (std::vector<int64_t>{2, 3, 6}));
  EXPECT_EQ(LazyConvTranspose3d(3, 2)(ones({2, 4, 1, 1, 1})).sizes().vec(),
            (std::vector<int64_t>{2, 3, 2, 2, 2}));
  expect_error(ErrorCode::kValue, {"groups", "5 input channels"}, [] {
    LazyConvTranspose1d(4, 2, {.groups = 2})(ones({2, 5, 4}));
  });
}

TEST(Lazy, InstanceNormsTakeTheirChannelsFromTheFirstInput) {
  LazyInstanceNorm2d lazy({.affine = true, .track_running_stats = true});
  expect_error(ErrorCode::kValue, {"[LazyInstanceNorm2d]"}, [&] { lazy.parameters(); });
  expect_error(ErrorCode::kShape, {"[LazyInstanceNorm2d]", "4 dimensions, or 3"}, [&] {
    lazy(ones({3, 4}));
  });
  LazyInstanceNorm2d unbatched = lazy;
  const Tensor x = randn({2, 6, 4, 5});
  InstanceNorm2d same(6, {.affine = true, .track_running_stats = true});
  EXPECT_EQ(values(lazy(x)), values(same(x)));
  EXPECT_EQ(lazy.str(), same.str());
  EXPECT_EQ(values(lazy.running_var), values(same.running_var));
  EXPECT_EQ(values(unbatched(x[1])), values(same(x)[1]));
  EXPECT_EQ(unbatched.weight.numel(), 6);
  const Tensor series = x[0].flatten(1);
  EXPECT_EQ(values(LazyInstanceNorm1d()(series)), values(InstanceNorm1d(6)(series)));
  LazyInstanceNorm3d none;
  EXPECT_EQ(none(x.unsqueeze(2)).sizes().vec(), (std::vector<int64_t>{2, 6, 1, 4, 5}));
  EXPECT_TRUE(none.parameters().empty());
}

// ---- containers ----

TEST(Containers, AreRangesOfTheirElements) {
  ModuleList layers(Linear(2, 2), ReLU());
  std::vector<std::string> seen;
  for (Module& layer : layers) seen.push_back(layer.describe());
  EXPECT_EQ(seen[1], "ReLU()");
  ModuleDict heads;
  heads.insert("a", Linear(2, 1));
  heads.insert("b", [](const Tensor& x) { return x * 2; });
  seen.clear();
  for (auto [name, head] : heads) {
    seen.push_back(name);
    head(ones({1, 2}));
  }
  EXPECT_EQ(seen, heads.keys());
  for (auto& [name, head] : heads) head.zero_grad();
  for (auto& item : heads) EXPECT_EQ(&item.second, &heads[item.first]);
  EXPECT_TRUE(heads.contains("a") && !heads.contains("c"));
  expect_values(heads["b"](ones({1})), {2});
  EXPECT_EQ(heads.at<Linear>("a").weight.size(0), 1);
  EXPECT_EQ(heads.named_parameters()[0].first, "a.weight");
  expect_error(ErrorCode::kValue, {"[ModuleDict]", "'c'", "a, b"}, [&] { heads["c"]; });
  expect_error(ErrorCode::kType, {"[ModuleDict]", "'a'", "Linear"}, [&] { heads.at<ReLU>("a"); });
  expect_error(ErrorCode::kValue, {"[ModuleDict]", "'a'"}, [&] { heads.insert("a", ReLU()); });
}

TEST(Containers, OfParametersHoldThem) {
  struct Net : Module {
    ParameterList list{std::vector<Tensor>{ones({2}), zeros({3})}};
    ParameterDict dict;
    Net() {
      dict.insert("scale", ones({1}));
      register_module("list", list);
      register_module("dict", dict);
    }
  } net;
  EXPECT_EQ(net.num_parameters(), 6);
  EXPECT_EQ(net.named_parameters()[2].first, "dict.scale");
  EXPECT_TRUE(net.list[1].requires_grad());
  for (Tensor& parameter : net.list) EXPECT_TRUE(parameter.is_leaf());
  for (auto [name, parameter] : net.dict) EXPECT_EQ(name, "scale");
  Net copy = clone(net);
  copy.list[0] = filled({2}, {5, 5});  // of the copy alone
  expect_values(net.list[0], {1, 1});
  copy.load_state_dict(
      {{"list.0", filled({2}, {7, 8})}, {"list.1", zeros({3})}, {"dict.scale", filled({1}, {9})}});
  expect_values(copy.dict["scale"], {9});
  expect_values(net.dict["scale"], {1});
  expect_error(ErrorCode::kValue, {"[ParameterList]", "2"}, [&] { net.list[2]; });
  expect_error(ErrorCode::kValue, {"[ParameterDict]", "'x'", "scale"}, [&] { net.dict["x"]; });
}

// ---- paths ----

struct Block : Module {
  Conv2d conv1{3, 4, 3};
  Block() { register_module("conv1", conv1); }
  Tensor forward(const Tensor& x) override { return conv1(x); }
};

struct PathNet : Module {
  Sequential layer2{Block()};
  PathNet() { register_module("layer2", layer2); }
  Tensor forward(const Tensor& x) override { return layer2(x); }
};

TEST(Errors, NameThePathOfTheModule) {
  PathNet net;
  expect_error(ErrorCode::kShape, {"[conv2d]", "(in PathNet.layer2.0.conv1: Conv2d(3, 4"}, [&] {
    net(ones({1, 2, 8, 8}));
  });
  PathNet moved = net;  // whose parts have other addresses
  expect_error(ErrorCode::kShape, {"PathNet.layer2.0.conv1"}, [&] { moved(ones({1, 2, 8, 8})); });
  expect_error(ErrorCode::kShape, {"(in Linear(in_features=2"}, [] { Linear(2, 2)(ones({3})); });
  struct Free : Module {  // calls a module that is not one of its parts
    Linear* other = nullptr;
    Tensor forward(const Tensor& x) override { return (*other)(x); }
  } free;
  Linear other(2, 2);
  free.other = &other;
  expect_error(ErrorCode::kShape, {"[linear]", "(in Linear("}, [&] { free(ones({3})); });
  expect_error(ErrorCode::kShape, {"[cross_entropy]"}, [] {
    F::cross_entropy(ones({2, 3}), tensor(std::vector<int64_t>{1}));
  });
  expect_error(ErrorCode::kShape, {"(in Pair"}, [] { Pair()(ones({2}), ones({3})); });
}

// ---- options by name ----

TEST(Functional, TakesOptionsByName) {
  const Tensor x = filled({2, 3}, {1, 2, 3, 6, 5, 4});
  const Tensor y = tensor(std::vector<int64_t>{0, 2});
  EXPECT_EQ(values(F::cross_entropy(x, y, {.label_smoothing = 0.1})),
            values(F::cross_entropy(x, y, {}, "mean", -100, 0.1)));
  EXPECT_EQ(values(F::cross_entropy(x, y, {.reduction = "sum"})),
            values(F::cross_entropy(x, y, {}, "sum")));
  const std::string sum = "sum";
  EXPECT_EQ(values(F::mse_loss(x, x * 2, {.reduction = sum})),
            values(F::mse_loss(x, x * 2, "sum")));
  const Tensor image = x.view({1, 1, 2, 3}), kernel = ones({1, 1, 2, 2});
  EXPECT_EQ(values(F::conv2d(image, kernel, {.stride = {1, 2}, .padding = 1})),
            values(F::conv2d(image, kernel, {}, {1, 2}, 1)));
  EXPECT_EQ(values(F::conv2d(image, kernel, {.padding = "same"})),
            values(F::conv2d(image, kernel, {}, 1, "same")));
  EXPECT_EQ(values(F::max_pool2d(image, 2, {.stride = 1})),
            values(F::max_pool2d(image, {2, 2}, {1, 1})));
  EXPECT_EQ(values(F::max_pool2d(image, {1, 2})), (std::vector<double>{2, 6}));
  EXPECT_EQ(values(F::pad(x, {1, 0}, {.mode = "reflect"})), values(F::pad(x, {1, 0}, "reflect")));
  EXPECT_EQ(values(F::softmax(x, {.dim = 0})), values(F::softmax(x, 0)));
  EXPECT_EQ(values(F::gelu(x, {.approximate = "tanh"})), values(F::gelu(x, "tanh")));
  EXPECT_EQ(values(F::layer_norm(x, 3, {.eps = 1})), values(F::layer_norm(x, 3, {}, {}, 1)));
  EXPECT_EQ(values(F::dropout(x, {.p = 0.5, .training = false})), values(x));
  expect_error(ErrorCode::kValue, {"[reduction]", "'avg'", "'mean'"},
               [&] { F::mse_loss(x, x, {.reduction = "avg"}); });
  expect_error(ErrorCode::kShape, {"[max_pool3d]"}, [&] { F::max_pool3d(x, 2); });
}

TEST(Functional, RefusesSizesWithoutMeaning) {
  const Tensor x = ones({1, 4, 4, 4});
  const int64_t huge = INT64_MAX;
  int number = 0;
  for (const std::function<void()>& call : std::vector<std::function<void()>>{
           [&] { F::interpolate(x, {.size = huge}); },
           [&] { F::interpolate(x, {.scale_factor = 1e300}); },
           [&] { F::interpolate(x, {.scale_factor = -1}); },
           [&] {
             F::interpolate(x, {.size = {2, 2, 2}});
           },
           [&] { F::interpolate(x, {.size = 2, .mode = "linear"}); },
           [&] { F::pixel_shuffle(x, huge); },
           [&] { F::pixel_shuffle(x, 0); },
           [&] { F::pixel_unshuffle(x, 3); },
           [&] { F::channel_shuffle(x, -1); },
           [&] {
             F::unfold(x, {huge, 1});
           },
           [&] { F::unfold(x, 2, {.dilation = INT32_MAX}); },
           [&] { F::unfold(x, 2, {.stride = 0}); },
           [&] { F::fold(x, 4, 2); },
           [&] {
             F::fold(ones({1, 4, 9}), INT32_MAX, 2);
           },
           [&] {
             F::adaptive_max_pool2d(x, {huge, 1});
           },
           [&] {
             F::adaptive_max_pool2d(x, {-1, 1});
           },
           [&] { F::avg_pool3d(x, 0); },
           [&] { F::max_pool3d(x, 2, {.stride = 0}); },
           [&] {
             F::lp_pool2d(x, 2, {1, 9});
           },
           [&] { F::glu(x, 7); },
           [&] {
             F::glu(ones({1, 3}));
           },
           [&] { F::local_response_norm(x, 0); },
           [&] { Conv2d(1, 1, 1, {.padding = "same", .dilation = huge}); },
           [&] { Conv2d(1, 1, 1, {.stride = 2, .padding = "same"}); },
           [&] { Conv2d(1, 1, 1, {.padding = "some"}); },
           [&] {
             F::embedding_bag(tensor(std::vector<int64_t>{0}), ones({2, 2}), {});
           },
           [&] {
             ConvTranspose2d(4, 1, 3, {.stride = 2})(x, {huge, 9});
           },
           [&] { ReflectionPad2d(4)(x); },
           [&] { GroupNorm(3, 4); }}) {
    EXPECT_THROW(call(), Error) << "call " << number;
    ++number;
  }
  EXPECT_EQ(F::pixel_shuffle(ones({0, 4, 2, 2}), 2).sizes().vec(),
            (std::vector<int64_t>{0, 1, 4, 4}));
  EXPECT_EQ(F::adaptive_max_pool2d(ones({0, 2, 3, 3}), 2).sizes().vec(),
            (std::vector<int64_t>{0, 2, 2, 2}));
  EXPECT_EQ(F::max_pool3d(ones({2, 0, 2, 2, 2}), 2).sizes().vec(),
            (std::vector<int64_t>{2, 0, 1, 1, 1}));
}

}  // namespace
}  // namespace mytorch::nn
