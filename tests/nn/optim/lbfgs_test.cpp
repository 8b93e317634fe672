// L-BFGS, compared with PyTorch.
#include "mytorch/nn/optim/lbfgs.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "mytorch/autograd.h"
#include "tests/nn/data/expect_error.h"
#include "tests/nn/values.h"

namespace mytorch::nn::optim {
namespace {

using mytorch::testing::expect_error;
using mytorch::testing::expect_values;
using mytorch::testing::filled;
using mytorch::testing::values;

Tensor start() { return filled({3}, {-1.2, 1.0, 0.5}, kFloat64).requires_grad_(); }

// Rosenbrock's function, with its gradient.
Tensor evaluate(const Tensor& p) {
  p.set_grad({});
  const Tensor head = p.narrow(0, 0, 2), tail = p.narrow(0, 1, 2);
  const Tensor loss = (1 - head).pow(2).sum() + ((tail - head.pow(2)).pow(2) * 100).sum();
  loss.backward();
  return loss;
}

struct Expected {
  int calls;
  double loss;
  std::vector<double> p;
};

// Expects steps of 4 iterations to have PyTorch's results.
void expect_follows(LBFGSArgs options, const std::vector<Expected>& steps) {
  const Tensor p = start();
  options.max_iter = 4;
  LBFGS lbfgs({p}, options);
  for (const Expected& expected : steps) {
    int calls = 0;
    const Tensor loss = lbfgs.step([&] {
      ++calls;
      return evaluate(p);
    });
    EXPECT_EQ(calls, expected.calls);
    EXPECT_NEAR(loss.item<double>(), expected.loss, 1e-9);
    expect_values(p, expected.p, 1e-9);
  }
}

TEST(LBFGS, FollowsPyTorchWithTheStrongWolfeSearch) {
  expect_follows(
      {.line_search_fn = "strong_wolfe"},
      {{5, 49.2, {-0.8896615426878411, 0.777316363916651, 0.6265038892153578}},
       {5, 3.69017358526632, {-0.8795249171857138, 0.7778886682217726, 0.6091060861320334}},
       {5, 3.585413811388564, {-0.7858977650509962, 0.5989381514783043, 0.3474519070604525}},
       {5, 3.3979523265808296, {-0.5475262648379273, 0.30883181040265795, 0.07104774078573906}}});
}

TEST(LBFGS, FollowsPyTorchWithoutASearch) {
  expect_follows(
      {.lr = 0.01},
      {{4, 49.2, {-1.1887004252943167, 0.9932609332682895, 0.5069628865993496}},
       {4, 45.41131139251403, {-1.1807074415444454, 0.9890531291196264, 0.5152297058979897}},
       {4, 42.59604178841314, {-1.1732334440079422, 0.9858377702314324, 0.5255046470225587}}});
}

TEST(LBFGS, FollowsPyTorchWithAShortHistory) {
  expect_follows(
      {.lr = 0.5, .history_size = 2, .line_search_fn = "strong_wolfe"},
      {{5, 49.2, {-0.907861833427231, 0.8188050816112566, 0.6559195404507794}},
       {5, 3.696782540403685, {-0.893425299432307, 0.8086161151514549, 0.6575890236409172}},
       {6, 3.633908993802382, {-0.8713469665453226, 0.7766222911738798, 0.6154992697555068}},
       {5, 3.5973019906037953, {-0.720964036421963, 0.5438468058059959, 0.27522347125273694}}});
}

TEST(LBFGS, FindsTheMinimum) {
  const Tensor p = start();
  LBFGS lbfgs({p}, LBFGSOptions(1).max_iter(100).line_search_fn("strong_wolfe"));
  lbfgs.step([&] { return evaluate(p); });
  expect_values(p, {1, 1, 1}, 1e-5);
}

TEST(LBFGS, ResumesFromItsState) {
  const Tensor a = start(), b = start();
  const LBFGSArgs options = {.max_iter = 3, .line_search_fn = "strong_wolfe"};
  LBFGS first({a}, options), second({b}, options);
  first.step([&] { return evaluate(a); });
  b.detach().copy_(a.detach());
  second.load_state_dict(first.state_dict());
  for (int i = 0; i < 2; ++i) {
    first.step([&] { return evaluate(a); });
    second.step([&] { return evaluate(b); });
  }
  EXPECT_EQ(values(b), values(a));
  TensorMap state = first.state_dict();
  state["lbfgs.direction"] = filled({2}, {1, 2}, kFloat64);
  expect_error(ErrorCode::kShape, {"lbfgs.direction", "(2,)"},
               [&] { second.load_state_dict(state); });
}

TEST(LBFGS, RefusesWhatItCannotDo) {
  const Tensor p = start();
  evaluate(p);
  LBFGS lbfgs({p});
  expect_error(ErrorCode::kUnsupported, {"[LBFGS]", "closure"}, [&] { lbfgs.step(); });
  expect_error(ErrorCode::kValue, {"line_search_fn", "armijo", "strong_wolfe"},
               [&] { LBFGS({p}, {.line_search_fn = "armijo"}); });
  expect_error(ErrorCode::kValue, {"history_size"}, [&] { LBFGS({p}, {.history_size = 0}); });
  expect_error(ErrorCode::kUnsupported, {"2 groups"}, [&] {
    LBFGS(std::vector<OptimizerParamGroup>{std::vector<Tensor>{p}, std::vector<Tensor>{start()}});
  });
}

}  // namespace
}  // namespace mytorch::nn::optim
