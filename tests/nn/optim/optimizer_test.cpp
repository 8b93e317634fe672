// Optimizers, compared with the published formulas in double precision.
#include "mytorch/nn/optim/optimizer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <string>
#include <tuple>
#include <type_traits>
#include <vector>

#include "mytorch/nn/optim/adagrad.h"
#include "mytorch/nn/optim/adam.h"
#include "mytorch/nn/optim/by_name.h"
#include "mytorch/nn/optim/rmsprop.h"
#include "mytorch/nn/optim/sgd.h"
#include "mytorch/ops/add.h"
#include "mytorch/ops/clone.h"
#include "mytorch/ops/equal.h"
#include "mytorch/ops/mul.h"
#include "mytorch/ops/randn.h"
#include "mytorch/ops/sgd_step.h"
#include "mytorch/ops/sgd_steps_.h"
#include "mytorch/ops/to.h"
#include "mytorch/ops/zeros.h"
#include "tests/nn/data/expect_error.h"
#include "tests/nn/values.h"

namespace mytorch::nn::optim {
namespace {

using mytorch::testing::expect_error;
using mytorch::testing::expect_values;
using mytorch::testing::filled;
using mytorch::testing::values;

constexpr int kSteps = 6;
constexpr double kStart[3] = {1.5, -0.75, 0.0};

// Returns the gradient of element `i` in step `t` = 1, 2, ...
double gradient(int t, int i) { return std::sin(1.7 * t + i) * (i + 1) + 0.25; }

Tensor parameter() {
  return filled({3}, {kStart[0], kStart[1], kStart[2]}, kFloat64).requires_grad_();
}

void give_gradient(const Tensor& parameter, int t) {
  parameter.set_grad(filled({3}, {gradient(t, 0), gradient(t, 1), gradient(t, 2)}, kFloat64));
}

// The formula for one element: takes p, g and t, keeps its own state, and returns the new p.
using Rule = std::function<double(double p, double g, int t)>;

// Expects the optimizer to follow the formula, with separate state for each element.
void expect_follows(Optimizer& optimizer, const std::function<Rule()>& make_rule) {
  const Tensor p = optimizer.parameters(0)[0];
  std::vector<Rule> rules = {make_rule(), make_rule(), make_rule()};
  std::vector<double> expected(kStart, kStart + 3);
  for (int t = 1; t <= kSteps; ++t) {
    give_gradient(p, t);
    optimizer.step();
    for (int i = 0; i < 3; ++i) {
      auto at = static_cast<size_t>(i);
      expected[at] = rules[at](expected[at], gradient(t, i), t);
    }
    SCOPED_TRACE("step " + std::to_string(t));
    expect_values(p, expected, 1e-12);
  }
}

Rule sgd_rule(SGDArgs o) {
  return [o, b = 0.0](double p, double g, int t) mutable {
    if (o.maximize) g = -g;
    g += o.weight_decay * p;
    b = t == 1 ? g : o.momentum * b + (1 - o.dampening) * g;
    if (o.momentum == 0) return p - o.lr * g;
    return p - o.lr * (o.nesterov ? g + o.momentum * b : b);
  };
}

// The kernel of all tensors gives the bits of the steps of one.
TEST(SGDTest, StepsOfListsGiveTheBitsOfStepsOfOne) {
  constexpr double kRate = 0.1;
  for (const ScalarType dtype : {kFloat32, kFloat64, kBFloat16, kFloat16}) {
    for (int which = 0; which < 16; ++which) {
      const double momentum = (which & 1) != 0 ? 0.9 : 0, decay = (which & 2) != 0 ? 0.01 : 0;
      const bool nesterov = (which & 4) != 0, maximize = (which & 8) != 0;
      const Tensor p = randn({9001}).to(dtype), g = randn({9001}).to(dtype);
      const Tensor b = randn({9001}).to(dtype), q = p.clone(), c = b.clone();
      const std::vector<Tensor> buffers =
          momentum != 0 ? std::vector<Tensor>{b} : std::vector<Tensor>();
      sgd_steps_({p}, {g}, buffers, kRate, momentum, 0, decay, nesterov, maximize);
      if (momentum != 0) {
        sgd_step_out(q, c, q, g, c, kRate, momentum, 1, decay, maximize ? -1 : 1, nesterov);
      } else {
        if (decay != 0) q.mul_(1 - kRate * decay);
        q.add_(g, maximize ? kRate : -kRate);
      }
      EXPECT_TRUE(equal(p, q)) << dtype << " " << which;
      EXPECT_TRUE(equal(b, c)) << dtype << " " << which;
    }
  }
}

TEST(SGDTest, MatchesItsFormula) {
  for (const SGDArgs& options : {
           SGDArgs{.lr = 0.1},
           SGDArgs{.lr = 0.1, .weight_decay = 0.3},
           SGDArgs{.lr = 0.1, .momentum = 0.9},
           SGDArgs{.lr = 0.1, .momentum = 0.9, .weight_decay = 0.3},
           SGDArgs{.lr = 0.1, .momentum = 0.9, .dampening = 0.4, .weight_decay = 0.3},
           SGDArgs{.lr = 0.1, .momentum = 0.9, .weight_decay = 0.3, .nesterov = true},
           SGDArgs{.lr = 0.1, .momentum = 0.5, .weight_decay = 0.2, .maximize = true},
       }) {
    SGD sgd({parameter()}, options);
    expect_follows(sgd, [&] { return sgd_rule(options); });
  }
}

template <class Options>
Rule adam_rule(Options o, bool decoupled) {
  const auto [beta1, beta2] = o.betas;
  return [=, beta1 = beta1, beta2 = beta2, m = 0.0, v = 0.0, largest = 0.0](double p, double g,
                                                                            int t) mutable {
    if (o.maximize) g = -g;
    if (decoupled) {
      p -= o.lr * o.weight_decay * p;
    } else {
      g += o.weight_decay * p;
    }
    m = beta1 * m + (1 - beta1) * g;
    v = beta2 * v + (1 - beta2) * g * g;
    largest = std::max(largest, v);
    const double m_hat = m / (1 - std::pow(beta1, t));
    const double v_hat = (o.amsgrad ? largest : v) / (1 - std::pow(beta2, t));
    return p - o.lr * m_hat / (std::sqrt(v_hat) + o.eps);
  };
}

TEST(AdamTest, MatchesItsFormula) {
  for (const AdamArgs& options : {
           AdamArgs{},
           AdamArgs{.lr = 0.1, .betas = {0.8, 0.7}, .eps = 0.1, .weight_decay = 0.3},
           AdamArgs{.lr = 0.1, .betas = {0.9, 0.5}, .amsgrad = true},
           AdamArgs{.lr = 0.1, .betas = {0, 0}, .eps = 0.5, .maximize = true},
       }) {
    Adam adam({parameter()}, options);
    expect_follows(adam, [&] { return adam_rule(options, false); });
  }
}

TEST(AdamWTest, MatchesItsFormula) {
  EXPECT_EQ(AdamW({parameter()}).options().weight_decay, 0.01);
  for (const AdamWArgs& options : {AdamWArgs{}, AdamWArgs{.lr = 0.1, .weight_decay = 0.3},
                                   AdamWArgs{.lr = 0.1, .amsgrad = true}}) {
    AdamW adamw({parameter()}, options);
    expect_follows(adamw, [&] { return adam_rule(options, true); });
  }
}

Rule rmsprop_rule(RMSpropArgs o) {
  return [o, v = 0.0, a = 0.0, b = 0.0](double p, double g, int) mutable {
    g += o.weight_decay * p;
    v = o.alpha * v + (1 - o.alpha) * g * g;
    if (o.centered) a = o.alpha * a + (1 - o.alpha) * g;
    b = o.momentum * b + g / (std::sqrt(v - a * a) + o.eps);
    return p - o.lr * b;
  };
}

TEST(RMSpropTest, MatchesItsFormula) {
  for (const RMSpropArgs& options : {
           RMSpropArgs{},
           RMSpropArgs{.lr = 0.05, .alpha = 0.7, .eps = 0.01, .weight_decay = 0.2},
           RMSpropArgs{.lr = 0.05, .alpha = 0.7, .momentum = 0.6},
           RMSpropArgs{.lr = 0.05, .alpha = 0.7, .momentum = 0.6, .centered = true},
       }) {
    RMSprop rmsprop({parameter()}, options);
    expect_follows(rmsprop, [&] { return rmsprop_rule(options); });
  }
}

TEST(AdagradTest, MatchesItsFormula) {
  for (const AdagradArgs& options :
       {AdagradArgs{},
        AdagradArgs{
            .lr = 0.2, .lr_decay = 0.5, .weight_decay = 0.1, .initial_accumulator_value = 2}}) {
    Adagrad adagrad({parameter()}, options);
    expect_follows(adagrad, [&]() -> Rule {
      return
          [o = options, s = options.initial_accumulator_value](double p, double g, int t) mutable {
            g += o.weight_decay * p;
            s += g * g;
            return p - o.lr / (1 + (t - 1) * o.lr_decay) * g / (std::sqrt(s) + o.eps);
          };
    });
  }
}

TEST(OptimizerTest, GroupsHaveTheirOwnOptions) {
  const Tensor a = parameter(), b = parameter();
  SGD sgd({a}, {.lr = 1});
  sgd.add_group({b}, {.lr = 0.5});
  a.set_grad(filled({3}, {1, 1, 1}, kFloat64));
  b.set_grad(filled({3}, {1, 1, 1}, kFloat64));
  sgd.step();
  expect_values(a, {0.5, -1.75, -1});
  expect_values(b, {1, -1.25, -0.5});
  sgd.set_lr(1, 4);
  EXPECT_EQ(sgd.lr(0), 1);
  EXPECT_EQ(sgd.lr(1), 4);
  expect_error(ErrorCode::kValue, {"group 2"}, [&] { sgd.set_lr(2, 1); });
  expect_error(ErrorCode::kValue, {"lr", "-1"}, [&] { sgd.set_lr(0, -1); });
  sgd.zero_grad();
  EXPECT_FALSE(a.grad().defined() || b.grad().defined());
}

TEST(OptimizerTest, TakesLibtorchsSpellings) {
  const Tensor a = parameter(), b = parameter();
  EXPECT_EQ(SGD({a}, 0.25).lr(), 0.25);
  EXPECT_EQ(SGD({a}, SGDOptions(0.5).momentum(0.9).nesterov(true)).momentum(), 0.9);
  const Adam adam(std::vector<Tensor>{a}, AdamOptions().betas(std::make_tuple(0.5, 0.75)));
  EXPECT_EQ(adam.option(0, "beta1"), 0.5);
  EXPECT_EQ(adam.option(0, "beta2"), 0.75);
  EXPECT_EQ(adam.lr(), 1e-3);

  std::vector<OptimizerParamGroup> groups;
  groups.emplace_back(std::vector<Tensor>{a}, std::make_unique<SGDOptions>(0.5));
  groups.emplace_back(std::vector<Tensor>{b});
  SGD sgd(groups, SGDOptions(0.125).momentum(0.5));
  EXPECT_EQ(sgd.lr(0), 0.5);
  EXPECT_EQ(sgd.momentum(0), 0);
  EXPECT_EQ(sgd.lr(1), 0.125);
  EXPECT_EQ(sgd.momentum(1), 0.5);
  EXPECT_EQ(sgd.defaults().get_lr(), 0.125);
  EXPECT_EQ(sgd.parameters().size(), 2u);
  EXPECT_FALSE(groups[1].has_options());
  expect_error(ErrorCode::kValue, {"no options"}, [&] { groups[1].options(); });

  for (OptimizerParamGroup& group : sgd.param_groups()) {
    group.options().set_lr(group.options().get_lr() * 2);
    static_cast<SGDOptions&>(group.options()).dampening(0.25);
  }
  EXPECT_EQ(sgd.lr(0), 1);
  EXPECT_EQ(sgd.options(1).lr, 0.25);
  EXPECT_EQ(sgd.options(1).dampening, 0.25);
}

TEST(OptimizerTest, RefusesOptionsOfAnotherOptimizer) {
  const Tensor a = parameter(), b = parameter();
  SGD sgd({a});
  expect_error(ErrorCode::kValue, {"[SGD]", "another optimizer", "SGDOptions"}, [&] {
    sgd.add_param_group({std::vector<Tensor>{b}, std::make_unique<AdamOptions>(0.5)});
  });
  expect_error(ErrorCode::kValue, {"[SGD]", "lr"}, [&] { sgd.add_group({b}, {.lr = -1}); });
  EXPECT_EQ(sgd.num_groups(), 1u);
}

TEST(OptimizerTest, GroupsWithoutOptionsUseTheDefaults) {
  const Tensor a = parameter(), b = parameter();
  SGD sgd({a}, {.lr = 0.5});
  sgd.set_lr(0, 0.25);
  sgd.add_param_group({b});
  EXPECT_EQ(sgd.lr(1), 0.5);
}

TEST(OptimizerTest, ClassesHaveNames) {
  const Tensor p = parameter();
  const auto options = default_options("AdamW");
  std::string names;
  for_each_option(*options, [&](const char* name, auto& value) {
    names += std::string(name) + " ";
    if constexpr (std::is_same_v<decltype(value), Betas&>) value = {0.5, 0.75};
  });
  EXPECT_EQ(names, "amsgrad betas eps lr master_weights maximize state_dtype weight_decay ");
  const auto optimizer = make_optimizer("AdamW", {p}, *options);
  EXPECT_EQ(dynamic_cast<AdamW&>(*optimizer).options().betas, Betas(0.5, 0.75));
  expect_error(ErrorCode::kValue, {"'adam'", "Adam, AdamW"}, [] { default_options("adam"); });
  expect_error(ErrorCode::kValue, {"of another class"},
               [&] { make_optimizer("Adam", {p}, *options); });

  AdamWArgs args = {.lr = 0.5, .amsgrad = true};
  optimizer->set_options(0, AdamWOptions(args));
  EXPECT_EQ(optimizer->lr(), 0.5);
  EXPECT_TRUE(dynamic_cast<AdamW&>(*optimizer).options().amsgrad);
  expect_error(ErrorCode::kValue, {"state_dtype", "int64"},
               [&] { optimizer->set_options(0, AdamWOptions(args).state_dtype(kInt64)); });
  args.eps = -1;
  args.lr = 0.25;
  expect_error(ErrorCode::kValue, {"eps"}, [&] { optimizer->set_options(0, AdamWOptions(args)); });
  expect_error(ErrorCode::kValue, {"another optimizer"},
               [&] { optimizer->set_options(0, SGDOptions()); });
  expect_error(ErrorCode::kValue, {"no group 1"}, [&] { optimizer->set_options(1, *options); });
  EXPECT_EQ(optimizer->lr(), 0.5);
}

TEST(OptimizerTest, SkipsParametersWithoutGradient) {
  const Tensor a = parameter(), b = parameter();
  SGD sgd({a, b}, {.lr = 1, .weight_decay = 0.5});
  give_gradient(b, 1);
  sgd.step();
  expect_values(a, {kStart[0], kStart[1], kStart[2]});
  EXPECT_NE(values(b)[0], kStart[0]);
  EXPECT_TRUE(a.requires_grad() && a.is_leaf());
}

TEST(OptimizerTest, AcceptsNaNAndEmptyParameters) {
  const Tensor p = parameter(), none = zeros({0}).requires_grad_();
  Adam adam({p, none});
  p.set_grad(filled({3}, {NAN, 1, 1}, kFloat64));
  none.set_grad(zeros({0}));
  adam.step();
  EXPECT_TRUE(std::isnan(values(p)[0]));
  EXPECT_NEAR(values(p)[1], kStart[1] - 1e-3, 1e-9);
}

TEST(OptimizerTest, RejectsTensorsThatAreNotParameters) {
  const Tensor p = parameter();
  expect_error(ErrorCode::kValue, {"[SGD]", "no parameters"}, [] { SGD(std::vector<Tensor>{}); });
  expect_error(ErrorCode::kValue, {"undefined"}, [] { SGD({Tensor()}); });
  expect_error(ErrorCode::kValue, {"leaves"}, [&] { SGD({p * 2}); });
  expect_error(ErrorCode::kValue, {"twice"}, [&] { SGD({p, p}); });
  expect_error(ErrorCode::kValue, {"floating"}, [] { SGD({zeros({1}, kInt64)}); });
  expect_error(ErrorCode::kValue, {"[SGD]", "lr", "nan"}, [&] { SGD({p}, {.lr = NAN}); });
  expect_error(ErrorCode::kValue, {"nesterov"}, [&] { SGD({p}, {.nesterov = true}); });
  expect_error(ErrorCode::kValue, {"[Adam]", "beta2"}, [&] { Adam({p}, {.betas = {0.9, 1}}); });
  SGD sgd({p});
  expect_error(ErrorCode::kValue, {"another group"}, [&] { sgd.add_group({p}, {}); });
  EXPECT_EQ(sgd.num_groups(), 1u);
  Adagrad adagrad({p});
  EXPECT_EQ(adagrad.momentum(), 0);
  expect_error(ErrorCode::kUnsupported, {"momentum"}, [&] { adagrad.set_momentum(0, 0.5); });
}

// Trains for some steps, saves, and continues with the same gradients in a second optimizer.
template <class Optimizer, class Options>
void expect_resumes(Options options) {
  const Tensor a = parameter(), b = parameter();
  Optimizer first({a}, options);
  for (int t = 1; t <= 3; ++t) {
    give_gradient(a, t);
    first.step();
  }
  Options other;
  other.lr = 99;
  Optimizer second({b}, other);
  second.load_state_dict(first.state_dict());
  EXPECT_EQ(second.lr(), options.lr);
  b.detach().copy_(a.detach());
  for (int t = 4; t <= 6; ++t) {
    give_gradient(a, t);
    give_gradient(b, t);
    first.step();
    second.step();
  }
  EXPECT_EQ(values(b), values(a));
}

TEST(OptimizerStateTest, TrainingResumesExactly) {
  expect_resumes<SGD>(SGDArgs{.lr = 0.1, .momentum = 0.9, .weight_decay = 0.1});
  expect_resumes<Adam>(AdamArgs{.lr = 0.1, .weight_decay = 0.1});
  expect_resumes<AdamW>(AdamWArgs{.lr = 0.1});
  expect_resumes<RMSprop>(RMSpropArgs{.lr = 0.1, .momentum = 0.5});
  expect_resumes<Adagrad>(AdagradArgs{.lr = 0.1, .lr_decay = 0.5});
}

TEST(OptimizerStateTest, RejectsOtherStatesAndChangesNothing) {
  const Tensor p = parameter();
  SGD sgd({p}, {.lr = 0.1, .momentum = 0.9});
  give_gradient(p, 1);
  sgd.step();
  const TensorMap good = sgd.state_dict();
  ASSERT_EQ(good.count("parameter0.momentum"), 1u);

  TensorMap state = good;
  state["group0.lr"] = scalar_tensor(5.0);
  state.erase("group0.momentum");
  expect_error(ErrorCode::kValue, {"[SGD]", "group0.momentum"},
               [&] { sgd.load_state_dict(state); });
  state = good;
  state["group0.lr"] = scalar_tensor(5.0);
  state["parameter1.momentum"] = zeros({3});
  expect_error(ErrorCode::kValue, {"parameter1.momentum"}, [&] { sgd.load_state_dict(state); });
  state = good;
  state["group0.lr"] = scalar_tensor(5.0);
  state["parameter0.momentum"] = zeros({4});
  expect_error(ErrorCode::kShape, {"(4,)", "(3,)"}, [&] { sgd.load_state_dict(state); });
  EXPECT_EQ(sgd.lr(), 0.1);
}

}  // namespace
}  // namespace mytorch::nn::optim
