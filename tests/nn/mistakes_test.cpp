// Mistakes that would spoil the result in silence, and the messages for everyday ones.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "mytorch/autograd.h"
#include "mytorch/nn/activation.h"
#include "mytorch/nn/container.h"
#include "mytorch/nn/conv.h"
#include "mytorch/nn/data.h"
#include "mytorch/nn/dropout.h"
#include "mytorch/nn/functional.h"
#include "mytorch/nn/linear.h"
#include "mytorch/nn/loss.h"
#include "mytorch/nn/normalization.h"
#include "mytorch/nn/optim/sgd.h"
#include "mytorch/ops/ones.h"
#include "mytorch/ops/randn.h"
#include "mytorch/ops/zeros.h"
#include "tests/nn/data/expect_error.h"
#include "tests/nn/values.h"

namespace mytorch::nn {
namespace {

namespace F = functional;
using mytorch::testing::expect_error;
using mytorch::testing::expect_values;

TEST(BatchNorm, OfOneValuePerChannelIsRefusedInTraining) {
  BatchNorm1d norm(4);
  expect_error(ErrorCode::kValue, {"[BatchNorm1d]", "(1, 4)", "eval()"}, [&] {
    norm(randn({1, 4}));
  });
  expect_error(ErrorCode::kValue, {"[BatchNorm2d]", "(1, 4, 1, 1)"}, [] {
    BatchNorm2d(4)(randn({1, 4, 1, 1}));
  });
  expect_values(norm.running_var, {1, 1, 1, 1});
  expect_values(norm.num_batches_tracked, {0});
  norm(randn({1, 4, 2}));
  norm.eval();
  norm(randn({1, 4}));
}

TEST(BinaryCrossEntropy, RefusesWhatIsNoProbability) {
  const Tensor target = tensor({0.0, 1});
  for (const Tensor& input : {tensor({0.5, 1.5}), tensor({-0.5, 0.5}), tensor({NAN, 0.5})}) {
    expect_error(ErrorCode::kValue, {"[binary_cross_entropy]", "[0, 1]", "with_logits"},
                 [&] { BCELoss()(input, target); });
  }
  expect_values(BCELoss()(tensor({0.0, 1}), target), {0});
  F::binary_cross_entropy(zeros({0}), zeros({0}), {}, "sum");
}

TEST(Losses, WarnOnceIfTheTargetIsBroadcast) {
  const auto warnings = [](auto loss, const Tensor& input, const Tensor& target) {
    ::testing::internal::CaptureStderr();
    loss(input, target);
    return ::testing::internal::GetCapturedStderr();
  };
  const auto mse = [](const Tensor& x, const Tensor& y) { return F::mse_loss(x, y); };
  const auto huber = [](const Tensor& x, const Tensor& y) { return HuberLoss()(x, y); };
  EXPECT_EQ(warnings(mse, ones({4, 1}), ones({4, 1})), "");
  const std::string text = warnings(mse, ones({4, 1}), ones({4}));
  for (const char* part : {"[mse_loss]", "(4, 1)", "(4,)", "(4, 4)"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << " in " << text;
  }
  EXPECT_EQ(warnings(mse, ones({4, 1}), ones({4})), "");
  EXPECT_NE(warnings(huber, ones({4, 1}), ones({4})), "");
}

struct WithoutForward : Module {
  Linear fc{3, 4};
  WithoutForward() { register_module("fc", fc); }
};
struct Unregistered : Module {
  Linear fc{3, 4};
  Tensor forward(const Tensor& x) override { return fc(x); }
};
struct InAVector : Module {
  std::vector<Linear> layers = std::vector<Linear>(1, Linear(2, 2));
  InAVector() { register_module("first", layers[0]); }
};
struct Twice : Module {
  Linear a{1, 1}, b{1, 1};
  Twice() {
    register_module("fc", a);
    register_module("fc", b);
  }
};

Tensor leaf() { return randn({2, 2}).requires_grad_(); }

// The first line of the message says what to write instead.
TEST(Messages, TellTheRemedyInTheFirstLine) {
  struct Mistake {
    const char* remedy;
    std::function<void()> make;
  };
  const Mistake mistakes[] = {
      // of modules
      {"declare `Tensor forward(const Tensor& x)`",
       [] {
         WithoutForward()(ones({1, 3}));
       }},
      {"declare `Tensor forward(const Tensor& x)`",
       [] {
         Sequential(Linear(3, 3), WithoutForward())(ones({1, 3}));
       }},
      {"hold modules in a ModuleList", [] { Sequential{InAVector()}; }},
      {"give each member a name of its own", [] { Twice(); }},
      {"assign a layer before its use",
       [] {
         Linear{nullptr}(ones({1, 3}));
       }},
      {"call the model with an example input first", [] { LazyLinear(3).parameters(); }},
      {"has another type: Linear(", [] { Sequential(Linear(3, 3)).at<ReLU>(0); }},
      {"strict = false",
       [] { Linear(3, 2).load_state_dict(Sequential(Linear(3, 2)).state_dict()); }},
      {"give a probability, from 0 to 1", [] { Dropout(2.0); }},
      // of shapes and types
      {"flatten or reshape the input",
       [] {
         Linear(784, 10)(ones({2, 28, 28}));
       }},
      {"movedim(-1, 1)",
       [] {
         Conv2d(3, 4, 3)(ones({2, 8, 8, 3}));
       }},
      {"convert one of them",
       [] {
         Linear(3, 2)(ones({1, 3}, kInt64));
       }},
      {"convert one of them",
       [] {
         Conv2d(3, 2, 3)(ones({1, 3, 8, 8}, kUInt8));
       }},
      {"they must be int64", [] { Embedding(3, 2)(ones({2})); }},
      {"use reshape",
       [] {
         randn({2, 3}).t().view({6});
       }},
      {"convert it with to(float64)", [] { ones({2}).data_ptr<double>(); }},
      // of losses
      {"probabilities have the shape of the input, (2, 3)",
       [] {
         F::cross_entropy(randn({2, 3}), tensor({0.0, 1.0}));
       }},
      {"expects target (2,), not (2, 1)",
       [] {
         F::cross_entropy(randn({2, 3}), zeros({2, 1}, kInt64));
       }},
      {"class indices are int64",
       [] {
         F::nll_loss(randn({2, 3}), tensor({0.0, 1.0}));
       }},
      {"'none', 'mean', 'sum'", [] { F::mse_loss(ones({2}), ones({2}), {.reduction = "avg"}); }},
      // of training
      {"register_module(\"fc\", fc)", [] { optim::SGD(Unregistered().parameters()); }},
      {"pass the leaves", [] { optim::SGD({leaf() * 2}); }},
      {"give a rate that is not negative", [] { optim::SGD({leaf()}, {.lr = -1}); }},
      {"pass retain_graph = true",
       [] {
         const Tensor loss = leaf().square().sum();
         loss.backward();
         loss.backward();
       }},
      {"Call requires_grad_()", [] { ones({}).backward(); }},
      {"or a NoGradGuard", [] { leaf().add_(1); }},
      {"Write to a clone()",
       [] {
         const Tensor y = leaf().exp();
         y.add_(1);
         y.sum().backward();
       }},
      {"set allow_unused = true", [] { autograd::grad({leaf().sum()}, {leaf()}); }},
      {"clone() it first",
       [] {
         ones({3}).expand({2, 3}).add_(1);
       }},
      // of data and files
      {"give 1 to", [] { data::DataLoader(data::TensorDataset(ones({2})), {.batch_size = 0}); }},
      {"each must be the number of examples", [] { data::TensorDataset(ones({2}), ones({3})); }},
      {"a folder of images for each class", [] { data::ImageFolder("nothing"); }},
      {"Is its backend in MYTORCH_BACKEND_PATH?", [] { Linear(3, 2).to(Device("gpu")); }},
  };
  for (const Mistake& mistake : mistakes) {
    try {
      mistake.make();
      ADD_FAILURE() << "nothing was thrown for the remedy: " << mistake.remedy;
    } catch (const Error& error) {
      const std::string text = error.what();
      EXPECT_NE(text.substr(0, text.find('\n')).find(mistake.remedy), std::string::npos)
          << "no '" << mistake.remedy << "' in: " << text;
    }
  }
}

}  // namespace
}  // namespace mytorch::nn
