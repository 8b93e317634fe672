// Optimizers, compared with PyTorch's over 20 steps; Lion, with its published formula.
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "mytorch/mytorch.h"
#include "tests/nn/data/expect_error.h"
#include "tests/nn/values.h"

namespace mytorch::nn::optim {
namespace {

#include "tests/nn/optim/pytorch_trajectories.inc"

using mytorch::testing::expect_error;
using mytorch::testing::values;

constexpr int kTrajectorySteps = 20;

Tensor start(std::vector<int64_t> shape, ScalarType dtype = kFloat64) {
  int64_t n = 1;
  for (int64_t size : shape) n *= size;
  const Tensor flat = empty({n}, kFloat64);
  for (int64_t i = 0; i < n; ++i) flat.data_ptr<double>()[i] = std::cos(static_cast<double>(i));
  return flat.reshape(shape).to(dtype).requires_grad_();
}

void give_gradients(const std::vector<Tensor>& parameters, int t) {
  for (const Tensor& p : parameters) {
    const Tensor wave = empty({p.numel()}, kFloat64);
    for (int64_t i = 0; i < p.numel(); ++i) {
      wave.data_ptr<double>()[i] = std::sin(1.7 * t + static_cast<double>(i));
    }
    Tensor(p).set_grad((wave.reshape(p.sizes()) + 0.5 * p.detach()).to(p.dtype()));
  }
}

void expect_near(const std::vector<Tensor>& parameters, const std::vector<double>& expected,
                 double tolerance) {
  size_t at = 0;
  for (const Tensor& p : parameters) {
    for (const double value : values(p)) {
      ASSERT_LT(at, expected.size());
      EXPECT_NEAR(value, expected[at], tolerance) << "element " << at;
      ++at;
    }
  }
  EXPECT_EQ(at, expected.size());
}

// Also saves and loads the optimizer halfway.
template <class O, class Args>
void expect_trajectory(const Args& args, const std::vector<double>& expected,
                       double tolerance = 1e-12) {
  std::vector<Tensor> parameters = {start({3, 4})};
  if (expected.size() > 12) parameters.push_back(start({5}));
  auto optimizer = std::make_unique<O>(parameters, args);
  for (int t = 1; t <= kTrajectorySteps; ++t) {
    give_gradients(parameters, t);
    optimizer->step();
    if (t == kTrajectorySteps / 2) {
      const TensorMap state = optimizer->state_dict();
      optimizer = std::make_unique<O>(parameters, args);
      optimizer->load_state_dict(state);
    }
  }
  expect_near(parameters, expected, tolerance);
}

TEST(PyTorch, NAdamTakesTheSameSteps) {
  expect_trajectory<NAdam>(NAdamArgs{}, kNAdam0);
  expect_trajectory<NAdam>(
      NAdamArgs{
          .lr = 0.05, .betas = {0.8, 0.7}, .eps = 0.1, .weight_decay = 0.3, .momentum_decay = 0.01},
      kNAdam1);
  expect_trajectory<NAdam>(
      NAdamArgs{.lr = 0.05, .weight_decay = 0.3, .decoupled_weight_decay = true, .maximize = true},
      kNAdam2);
}

TEST(PyTorch, RAdamTakesTheSameSteps) {
  expect_trajectory<RAdam>(RAdamArgs{}, kRAdam0);
  expect_trajectory<RAdam>(
      RAdamArgs{.lr = 0.05, .betas = {0.8, 0.9}, .eps = 0.1, .weight_decay = 0.3}, kRAdam1);
  expect_trajectory<RAdam>(
      RAdamArgs{.lr = 0.05, .weight_decay = 0.3, .decoupled_weight_decay = true, .maximize = true},
      kRAdam2);
}

TEST(PyTorch, AdamaxTakesTheSameSteps) {
  expect_trajectory<Adamax>(AdamaxArgs{}, kAdamax0);
  expect_trajectory<Adamax>(
      AdamaxArgs{
          .lr = 0.05, .betas = {0.8, 0.7}, .eps = 0.1, .weight_decay = 0.3, .maximize = true},
      kAdamax1);
}

TEST(PyTorch, AdadeltaTakesTheSameSteps) {
  expect_trajectory<Adadelta>(AdadeltaArgs{}, kAdadelta0);
  expect_trajectory<Adadelta>(
      AdadeltaArgs{.lr = 0.5, .rho = 0.7, .eps = 0.01, .weight_decay = 0.3, .maximize = true},
      kAdadelta1);
}

TEST(PyTorch, ASGDTakesTheSameSteps) {
  expect_trajectory<ASGD>(ASGDArgs{}, kASGD0);
  expect_trajectory<ASGD>(
      ASGDArgs{.lr = 0.05, .lambd = 0.1, .alpha = 0.5, .t0 = 5, .weight_decay = 0.3}, kASGD1);
  expect_trajectory<ASGD>(ASGDArgs{.lr = 0.05, .maximize = true}, kASGD2);
}

TEST(PyTorch, AdafactorTakesTheSameSteps) {
  expect_trajectory<Adafactor>(AdafactorArgs{}, kAdafactor0);
  expect_trajectory<Adafactor>(AdafactorArgs{.lr = 0.5,
                                             .beta2_decay = -0.5,
                                             .eps = {1e-3, 0.1},
                                             .d = 2,
                                             .weight_decay = 0.3,
                                             .maximize = true},
                               kAdafactor1);
}

TEST(PyTorch, MuonTakesTheSameStepsWithinBfloat16) {
  // Parameters move by about 0.02, and by 0.4.
  expect_trajectory<Muon>(MuonArgs{}, kMuon0, 1e-3);
  expect_trajectory<Muon>(
      MuonArgs{.lr = 0.05, .nesterov = false, .ns_steps = 3, .adjust_lr_fn = "match_rms_adamw"},
      kMuon1, 4e-3);
}

// ---- complex parameters ----

template <class O, class Args>
void expect_complex_trajectory(const Args& args, const std::vector<double>& expected) {
  const Tensor p = view_as_complex(start({3, 2, 2}).detach()).clone().requires_grad_();
  auto optimizer = std::make_unique<O>(std::vector<Tensor>{p}, args);
  for (int t = 1; t <= kTrajectorySteps; ++t) {
    const Tensor parts = view_as_real(p.detach()).clone();
    give_gradients({parts}, t);
    Tensor(p).set_grad(view_as_complex(parts.grad()));
    optimizer->step();
    if (t == kTrajectorySteps / 2) {
      const TensorMap state = optimizer->state_dict();
      optimizer = std::make_unique<O>(std::vector<Tensor>{p}, args);
      optimizer->load_state_dict(state);
    }
  }
  expect_near({view_as_real(p.detach())}, expected, 1e-12);
}

TEST(ComplexParameters, TakePyTorchsSteps) {
  expect_complex_trajectory<SGD>(SGDArgs{.lr = 0.05, .momentum = 0.9, .weight_decay = 0.3},
                                 kComplexSGD0);
  expect_complex_trajectory<Adam>(AdamArgs{.lr = 0.05, .betas = {0.8, 0.7}, .weight_decay = 0.3},
                                  kComplexAdam0);
  expect_complex_trajectory<Adam>(AdamArgs{.lr = 0.05, .amsgrad = true}, kComplexAdam1);
  expect_complex_trajectory<RMSprop>(
      RMSpropArgs{.lr = 0.05, .alpha = 0.8, .momentum = 0.5, .centered = true}, kComplexRMSprop0);
  expect_complex_trajectory<Adagrad>(AdagradArgs{.lr = 0.05, .weight_decay = 0.3},
                                     kComplexAdagrad0);
  expect_complex_trajectory<NAdam>(NAdamArgs{.lr = 0.05}, kComplexNAdam0);
  expect_complex_trajectory<RAdam>(RAdamArgs{.lr = 0.05, .betas = {0.8, 0.9}}, kComplexRAdam0);
  expect_complex_trajectory<Adamax>(AdamaxArgs{.lr = 0.05}, kComplexAdamax0);
  expect_complex_trajectory<Adadelta>(AdadeltaArgs{.lr = 0.5}, kComplexAdadelta0);
  expect_complex_trajectory<ASGD>(ASGDArgs{.lr = 0.05}, kComplexASGD0);
}

TEST(ComplexParameters, AreOptimizedByLBFGS) {
  const Tensor target = view_as_complex(start({3, 2, 2}).detach());
  const Tensor p = zeros({3, 2}, kComplex128).requires_grad_();
  LBFGS lbfgs({p}, {.lr = 1, .max_iter = 30});
  lbfgs.step([&] {
    Tensor(p).set_grad({});
    const Tensor loss = (p * Scalar::complex(2, 1) - target).abs().square().sum();
    loss.backward();
    return loss;
  });
  const Tensor rest = p.detach() * Scalar::complex(2, 1) - target;
  EXPECT_LT(rest.abs().max().item<double>(), 1e-6);
}

TEST(ComplexParameters, AreRefusedWhereNoStepIsDefined) {
  const Tensor p = zeros({3, 2}, kComplex64).requires_grad_();
  expect_error(ErrorCode::kValue, {"[Muon]", "is complex", "AdamW"}, [&] { Muon({p}); });
  expect_error(ErrorCode::kValue, {"[Adafactor]", "is complex", "AdamW"}, [&] { Adafactor({p}); });
}

TEST(LionTest, MatchesItsFormula) {
  const LionArgs o{.lr = 0.05, .betas = {0.8, 0.6}, .weight_decay = 0.3};
  const auto [beta1, beta2] = o.betas;
  const Tensor p = start({5});
  std::vector<double> x = values(p), m(5, 0.0);
  Lion lion({p}, o);
  for (int t = 1; t <= kTrajectorySteps; ++t) {
    give_gradients({p}, t);
    const std::vector<double> g = values(p.grad());
    lion.step();
    for (size_t i = 0; i < 5; ++i) {
      const double along = beta1 * m[i] + (1 - beta1) * g[i];
      x[i] -= o.lr * ((along > 0) - (along < 0) + o.weight_decay * x[i]);
      m[i] = beta2 * m[i] + (1 - beta2) * g[i];
    }
  }
  expect_near({p}, x, 1e-12);
}

TEST(OptimizerState, HasPyTorchsNames) {
  const auto names = [](auto make) {
    std::vector<Tensor> parameters = {start({3, 4})};
    auto optimizer = make(parameters);
    give_gradients(parameters, 1);
    optimizer->step();
    std::string text;
    for (const auto& [name, tensor] : optimizer->state_dict()) {
      if (name.starts_with("parameter0.")) text += name.substr(11) + " ";
    }
    return text;
  };
  using List = const std::vector<Tensor>&;
  EXPECT_EQ(names([](List p) { return std::make_unique<NAdam>(p); }),
            "exp_avg exp_avg_sq mu_product step ");
  EXPECT_EQ(names([](List p) { return std::make_unique<RAdam>(p); }), "exp_avg exp_avg_sq step ");
  EXPECT_EQ(names([](List p) { return std::make_unique<Adamax>(p); }), "exp_avg exp_inf step ");
  EXPECT_EQ(names([](List p) { return std::make_unique<Adadelta>(p); }),
            "acc_delta square_avg step ");
  EXPECT_EQ(names([](List p) { return std::make_unique<ASGD>(p); }), "ax eta mu step ");
  EXPECT_EQ(names([](List p) { return std::make_unique<Adafactor>(p); }), "col_var row_var step ");
  EXPECT_EQ(names([](List p) { return std::make_unique<Lion>(p); }), "exp_avg step ");
  EXPECT_EQ(names([](List p) { return std::make_unique<Muon>(p); }), "momentum_buffer step ");
}

TEST(Muon, TakesMatricesOnly) {
  expect_error(ErrorCode::kValue, {"[Muon]", "two dimensions", "AdamW"},
               [] { Muon({start({5})}); });
  expect_error(ErrorCode::kValue, {"adjust_lr_fn", "match_rms_adamw"}, [] {
    Muon({start({3, 4})}, {.adjust_lr_fn = "adam"});
  });
}

// ---- 16-bit parameters ----

// Returns the distance of a parameter from the same training in float32.
template <class O, class Args>
double distance(const Args& args, int steps, ScalarType dtype = kBFloat16) {
  const Tensor low = start({5}, dtype), high = low.detach().to(kFloat32).requires_grad_();
  Args plain = args;
  plain.state_dtype = {};
  O of_low({low}, args), of_high({high}, plain);
  for (int t = 1; t <= steps; ++t) {
    give_gradients({high}, t);
    Tensor(low).set_grad(high.grad().to(dtype));
    high.grad().copy_(low.grad());
    of_low.step();
    of_high.step();
  }
  return (low.detach().to(kFloat32) - high.detach()).abs().max().item<double>();
}

TEST(MasterWeights, FollowTheTrajectoryOfFloat32) {
  for (const ScalarType dtype : {kBFloat16, kFloat16}) {
    // half of the distance between neighbours at 1
    const double ulp = dtype == kBFloat16 ? 1.0 / 256 : 1.0 / 2048;
    EXPECT_LE(distance<SGD>(SGDArgs{.lr = 1e-4, .momentum = 0.9}, 200, dtype), ulp);
    EXPECT_LE(distance<Adam>(AdamArgs{.lr = 1e-4}, 200, dtype), ulp);
    EXPECT_LE(distance<AdamW>(AdamWArgs{.lr = 1e-4, .amsgrad = true}, 200, dtype), ulp);
    EXPECT_LE(distance<NAdam>(NAdamArgs{.lr = 1e-4}, 200, dtype), ulp);
    EXPECT_LE(distance<Adafactor>(AdafactorArgs{.lr = 1e-4}, 200, dtype), ulp);
  }
}

// One step in the same direction, many times: bfloat16 rounds each of them away.
double moved(bool master_weights) {
  const Tensor p = ones({4}, kBFloat16).requires_grad_();
  SGD sgd({p}, {.lr = 1e-3, .master_weights = master_weights});
  for (int t = 0; t < 100; ++t) {
    Tensor(p).set_grad(ones({4}, kBFloat16));
    sgd.step();
  }
  return 1 - p.detach()[0].item<double>();
}

TEST(MasterWeights, AccumulateStepsThatBfloat16Loses) {
  EXPECT_NEAR(moved(true), 0.1, 1.0 / 256);
  EXPECT_EQ(moved(false), 0);
}

TEST(MasterWeights, AreSavedAndLoaded) {
  const auto train = [](const Tensor& p, Adam& adam, int from, int to) {
    for (int t = from; t <= to; ++t) {
      give_gradients({p}, t);
      adam.step();
    }
  };
  const Tensor a = start({5}, kBFloat16);
  Adam first({a}, {.lr = 1e-3});
  train(a, first, 1, 10);
  const TensorMap state = first.state_dict();
  ASSERT_TRUE(state.count("parameter0.master_weight"));
  EXPECT_EQ(state.at("parameter0.master_weight").dtype(), kFloat32);
  EXPECT_EQ(state.at("parameter0.exp_avg").dtype(), kFloat32);
  const Tensor b = a.detach().clone().requires_grad_();
  Adam second({b}, {.lr = 1e-3});
  TensorMap copy;
  for (const auto& [name, tensor] : state) copy[name] = tensor.clone();
  second.load_state_dict(copy);
  train(a, first, 11, 40);
  train(b, second, 11, 40);
  EXPECT_EQ(values(second.state_dict().at("parameter0.master_weight")),
            values(first.state_dict().at("parameter0.master_weight")));
}

// Parameters of several types in one group, and the same steps in float32.
TEST(MasterWeights, AreRoundedToTheParameters) {
  const std::vector<ScalarType> types = {kBFloat16, kFloat32, kFloat16, kBFloat16};
  const auto steps = [&](const AdamWArgs& options) {
    std::vector<Tensor> mixed, wide;
    for (size_t i = 0; i < types.size(); ++i) {
      mixed.push_back(start({static_cast<int64_t>(3 + i)}, types[i]));
      wide.push_back(mixed[i].detach().to(kFloat32).requires_grad_());
    }
    AdamW of_mixed(mixed, options), of_wide(wide, options);
    for (int t = 1; t <= 5; ++t) {
      give_gradients(wide, t);
      for (size_t i = 0; i < types.size(); ++i) {
        Tensor(mixed[i]).set_grad(wide[i].grad().to(types[i]));
        wide[i].grad().copy_(mixed[i].grad());
      }
      of_mixed.step();
      of_wide.step();
    }
    const TensorMap state = of_mixed.state_dict();
    for (size_t i = 0; i < types.size(); ++i) {
      EXPECT_EQ(values(mixed[i]), values(wide[i].detach().to(types[i]))) << i;
      if (types[i] == kFloat32) continue;
      EXPECT_EQ(values(state.at("parameter" + std::to_string(i) + ".master_weight")),
                values(wide[i]));
    }
  };
  steps({.lr = 1e-2, .weight_decay = 0.1});
  steps({.lr = 1e-2, .amsgrad = true});
}

TEST(MasterWeights, FollowChangesOfTheParameter) {
  const Tensor p = ones({2}, kBFloat16).requires_grad_();
  SGD sgd({p}, {.lr = 1e-3});
  const auto step = [&] {
    Tensor(p).set_grad(ones({2}, kBFloat16));
    sgd.step();
  };
  step();
  p.detach()[0].fill_(5);
  step();
  const std::vector<double> master = values(sgd.state_dict().at("parameter0.master_weight"));
  EXPECT_NEAR(master[0], 5 - 1e-3, 1e-6);
  EXPECT_NEAR(master[1], 1 - 2e-3, 1e-6);  // not rounded by the first step
}

TEST(StateDtype, StoresStateInBfloat16) {
  EXPECT_LE(
      distance<AdamW>(AdamWArgs{.lr = 1e-3, .betas = {0.9, 0.95}, .state_dtype = kBFloat16}, 100),
      1.0 / 128);
  const Tensor p = start({3, 4}, kFloat32);
  Adam adam({p}, {.state_dtype = kBFloat16});
  give_gradients({p}, 1);
  adam.step();
  const TensorMap state = adam.state_dict();
  EXPECT_EQ(state.at("parameter0.exp_avg").dtype(), kBFloat16);
  EXPECT_FALSE(state.count("parameter0.master_weight"));
  Adam second({p}, {.state_dtype = kBFloat16});
  second.load_state_dict(state);
  EXPECT_EQ(second.state_dict().at("parameter0.exp_avg_sq").dtype(), kBFloat16);
}

TEST(StateDtype, ManyParametersAreUpdatedInParts) {
  std::vector<Tensor> some, all;
  for (int i = 0; i < 3; ++i) {
    some.push_back(ones({1 << 21}).requires_grad_());
    all.push_back(ones({1 << 21}).requires_grad_());
  }
  Adam a(some, {.lr = 0.1, .state_dtype = kBFloat16}), b(all, {.lr = 0.1});
  for (std::vector<Tensor>* list : {&some, &all}) {
    for (Tensor& p : *list) p.set_grad(ones({1 << 21}));
  }
  a.step();
  b.step();
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_NEAR(some[i].detach()[7].item<double>(), all[i].detach()[7].item<double>(), 1e-3);
    EXPECT_NEAR(some[i].detach()[7].item<double>(), 0.9, 1e-3);
  }
}

}  // namespace
}  // namespace mytorch::nn::optim
