#include "mytorch/autograd/checkpoint.h"

#include <cmath>
#include <optional>

#include "mytorch/autograd.h"
#include "mytorch/autograd/gradcheck.h"
#include "mytorch/ops/add.h"
#include "mytorch/ops/exp.h"
#include "mytorch/ops/mul.h"
#include "mytorch/ops/ones.h"
#include "mytorch/ops/outer.h"
#include "mytorch/ops/rand.h"
#include "mytorch/ops/sum.h"
#include "tests/autograd/util.h"

namespace mytorch {
namespace {

using autograd::checkpoint;
using autograd::SavedTensorHooks;
using Tensors = std::vector<Tensor>;

TEST(Checkpoint, SameGradientsComputedAgain) {
  const Tensor x = leaf({1, 2});
  const Tensor w = leaf({3, 4});  // used by the function but not an input
  int calls = 0;
  const auto f = [&](const Tensors& in) {
    ++calls;
    return Tensors{mul(exp(mul(in[0], 0.5)), mul(w, in[0]))};
  };
  sum(f({x})[0]).backward();
  const Values gx = values(x.grad());
  const Values gw = values(w.grad());
  x.set_grad({});
  w.set_grad({});
  calls = 0;
  const Tensor y = checkpoint(f, {x})[0];
  EXPECT_EQ(calls, 1);
  sum(y).backward();
  EXPECT_EQ(calls, 2);
  EXPECT_EQ(values(x.grad()), gx);
  EXPECT_EQ(values(w.grad()), gw);
}

TEST(Checkpoint, KeepsNoIntermediateValues) {
  const Tensor x = leaf({1, 2});
  Storage* storage = nullptr;
  const Tensor y = checkpoint(
      [&](const Tensors& in) {
        const Tensor h = mul(in[0], 2.0);
        if (storage == nullptr) {
          storage = h.impl()->storage;
          detail::retain(storage);
        }
        return Tensors{mul(h, h)};
      },
      {x})[0];
  EXPECT_EQ(storage->refs.load(), 1u);
  sum(y).backward();
  EXPECT_EQ(values(x.grad()), (Values{8, 16}));
  if (detail::release_last(storage)) storage->destroy(storage);
}

TEST(Checkpoint, GradRetainAndCreateGraph) {
  const auto f = [](const Tensors& in) {
    return checkpoint([](const Tensors& x) { return Tensors{mul(exp(x[0]), mul(x[0], x[1]))}; },
                      in);
  };
  const Tensors inputs = {leaf({0.5, 1}), leaf({2, -1})};
  EXPECT_EQ(autograd::gradcheck(f, inputs).message, "");
  EXPECT_EQ(autograd::gradgradcheck(f, inputs).message, "");
  const Tensor y = sum(f(inputs)[0]);
  y.backward({}, true);
  y.backward();
  const Values twice = values(inputs[0].grad());
  inputs[0].set_grad({});
  sum(f(inputs)[0]).backward();
  EXPECT_EQ(twice[0], 2 * values(inputs[0].grad())[0]);
}

TEST(Checkpoint, SameRandomNumbers) {
  manual_seed(7);
  const Tensor x = ones({5}, kFloat64).requires_grad_();
  Tensor first;
  const Tensor y = checkpoint(
      [&](const Tensors& in) {
        const Tensor noise = rand({5}, kFloat64);
        if (!first.defined()) first = noise;
        return Tensors{mul(mul(in[0], noise), in[0])};
      },
      {x})[0];
  const uint64_t call = default_generator().call();
  rand({3});
  const uint64_t later = default_generator().call();
  EXPECT_NE(call, later);
  sum(y).backward();
  EXPECT_EQ(values(x.grad()), values(mul(first, 2.0)));
  EXPECT_EQ(default_generator().call(), later);
}

// pytorch/pytorch#14253: the recomputation draws the numbers of the forward, also if another
// generator is the default where backward is called.
TEST(Checkpoint, SameRandomNumbersUnderAnotherDefaultGenerator) {
  manual_seed(7);
  for (const bool guarded_forward : {true, false}) {
    const Tensor x = ones({5}, kFloat64).requires_grad_();
    const Generator own(11);
    Tensor first, second;
    const auto run = [&] {
      return checkpoint(
          [&](const Tensors& in) {
            const Tensor noise = rand({5}, kFloat64);
            (first.defined() ? second : first) = noise;
            return Tensors{mul(mul(in[0], noise), in[0])};
          },
          {x})[0];
    };
    const auto guarded = [&](bool guard, const auto& function) {
      std::optional<GeneratorGuard> scope;
      if (guard) scope.emplace(own);
      return function();
    };
    const Tensor y = guarded(guarded_forward, run);
    guarded(guarded_forward, [] { return rand({3}); });
    const uint64_t call = default_generator().call(), own_call = own.call();
    guarded(!guarded_forward, [&] {
      const uint64_t before = default_generator().call();
      sum(y).backward();
      EXPECT_EQ(default_generator().shares_state(own), !guarded_forward);
      EXPECT_EQ(default_generator().call(), before);
      return 0;
    });
    EXPECT_EQ(values(second), values(first));
    EXPECT_EQ(values(x.grad()), values(mul(first, 2.0)));
    EXPECT_EQ(default_generator().call(), call);
    EXPECT_EQ(own.call(), own_call);
  }
}

TEST(Checkpoint, CheckpointsNest) {
  int inner_calls = 0;
  const auto inner = [&](const Tensors& in) {
    ++inner_calls;
    return Tensors{exp(mul(in[0], in[0]))};
  };
  const auto outer = [&](const Tensors& in) {
    return Tensors{mul(checkpoint(inner, {mul(in[0], 0.5)})[0], in[0])};
  };
  const Tensor x = leaf({0.5});
  sum(checkpoint(outer, {x})[0]).backward();
  EXPECT_GE(inner_calls, 2);
  const Tensor z = leaf({0.5});
  sum(outer({z})[0]).backward();
  EXPECT_EQ(values(x.grad()), values(z.grad()));
}

TEST(Checkpoint, NondeterministicFunctionIsAnError) {
  const Tensor x = leaf({1, 2});
  int calls = 0;
  const Tensor y = checkpoint(
      [&](const Tensors& in) {
        Tensor h = exp(in[0]);
        if (++calls == 2) h = exp(h);
        return Tensors{h};
      },
      {x})[0];
  EXPECT_ERROR(sum(y).backward(), "[checkpoint]");
}

TEST(Checkpoint, InputModifiedBeforeBackwardIsAnError) {
  const Tensor x = leaf({1, 2});
  const Tensor h = mul(x, 1.0);
  const Tensor y = checkpoint([](const Tensors& in) { return Tensors{exp(in[0])}; }, {h})[0];
  add_(h, 1.0);
  EXPECT_ERROR(sum(y).backward(), "[checkpoint]");
}

TEST(Checkpoint, WithoutGradientsCallsTheFunction) {
  NoGradGuard no_grad;
  const Tensor x = plain({1});
  EXPECT_EQ(values(checkpoint([](const Tensors& in) { return Tensors{mul(in[0], 2.0)}; }, {x})[0]),
            (Values{2}));
}

TEST(SavedTensorHooks, PackAndUnpack) {
  const Tensor x = leaf({2, 3});
  int packs = 0;
  int unpacks = 0;
  Tensor y;
  {
    SavedTensorHooks hooks(
        [&](const Tensor& t) -> SavedTensorHooks::Packed {
          ++packs;
          EXPECT_FALSE(grad_enabled());
          return std::make_shared<Values>(values(t));
        },
        [&](const SavedTensorHooks::Packed& packed) {
          ++unpacks;
          return tensor(*static_cast<Values*>(packed.get()), kFloat64);
        });
    y = mul(exp(x), x);
  }
  EXPECT_EQ(packs, 3);
  const Tensor g = autograd::grad({sum(y)}, {x}, {}, {.create_graph = true})[0];
  EXPECT_EQ(unpacks, 3);
  EXPECT_NEAR(values(g)[0], std::exp(2) * 3, 1e-12);
  // The unpacked tensor keeps its place in the graph.
  EXPECT_NEAR(values(autograd::grad({sum(g)}, {x})[0])[0], std::exp(2) * 4, 1e-12);
}

}  // namespace
}  // namespace mytorch
