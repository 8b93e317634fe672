// State of the user that a compiled function reads, or changes, besides its arguments.
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "mytorch/autocast.h"
#include "mytorch/autograd/checkpoint.h"
#include "mytorch/compile.h"
#include "mytorch/generator.h"
#include "mytorch/mytorch.h"
#include "tests/autograd/util.h"

namespace mytorch {
namespace {

// ---- variables ----

TEST(CompiledState, VariablesThatTheFunctionAssignsAreFollowed) {
  Tensor h = plain({0, 0});
  auto step = compile([&](const Tensor& x) {
    h = h + x;
    return h * 2;
  });
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(values(step(plain({1, 2}))), (Values{2.0 * (i + 1), 4.0 * (i + 1)})) << i;
    EXPECT_EQ(values(h), (Values{i + 1.0, 2.0 * (i + 1)})) << i;
  }
  h = plain({10, 10});
  EXPECT_EQ(values(step(plain({1, 2}))), (Values{22, 24}));
}

// What is only kept, and a tensor that was not defined before.
TEST(CompiledState, VariablesThatKeepAResultAreFollowed) {
  Tensor last, input;
  auto f = compile([&](const Tensor& x) {
    last = (x * 2).detach();
    input = x;
    return last.sum();
  });
  for (int i = 0; i < 5; ++i) {
    const Tensor x = full({2}, i, kFloat64);
    f(x);
    EXPECT_EQ(values(last), (Values{2.0 * i, 2.0 * i})) << i;
    EXPECT_TRUE(input.is_same(x)) << i;
  }
}

enum class Phase { kWarmUp, kRun };

TEST(CompiledState, GuardedValuesAreCompared) {
  double scale = 2;
  bool shifted = false;
  Phase phase = Phase::kWarmUp;
  std::string name = "relu";
  int calls = 0;
  const auto f = [&](const Tensor& x) {
    ++calls;
    Tensor y = x * guard(scale, "scale");
    for (int i = 0; i < 3; ++i) y = guard(shifted) ? y + 1 : y;
    if (guard(phase, "phase") == Phase::kRun) y = y * y;
    return guard(name) == "relu" ? relu(y) : y;
  };
  auto compiled = compile(f);
  const Tensor x = plain({-1, 3});
  const auto check = [&](int recorded, const std::string& reason) {
    for (int i = 0; i < 3; ++i) {
      EXPECT_EQ(values(compiled(x)), values(f(x))) << reason;
    }
    EXPECT_EQ(compiled.stats().recorded, recorded) << reason;
    EXPECT_EQ(calls, recorded + 3) << reason;  // f itself was called three times
    calls -= 3;
    if (!reason.empty()) {
      EXPECT_EQ(compiled.stats().reason, reason);
    }
  };
  check(1, "this is the first call");
  scale = 3;
  check(2, "the guarded value `scale` changed");
  shifted = true;
  check(3, "a guarded value changed");
  phase = Phase::kRun;
  check(4, "the guarded value `phase` changed");
  name = "none";
  check(5, "a guarded value changed");
  scale = -0.0;
  check(6, "the guarded value `scale` changed");
  scale = 0.0;
  check(7, "the guarded value `scale` changed");
  // Earlier recordings hold again.
  scale = 3;
  check(7, "");
  name = "relu";
  check(7, "");
}

TEST(CompiledState, GuardedValuesHoldForBackwardOutsideAndOtherSizes) {
  int power = 2;
  const auto f = [&](const Tensor& x) { return x.pow(guard(power, "power")).sum(); };
  auto compiled = compile(f, {.dynamic_dims = {{0, 0}}});
  const auto gradient = [&](int64_t n) {
    const Tensor x = full({n}, 3.0, kFloat64).requires_grad_();
    compiled(x).backward();
    return values(x.grad())[0];
  };
  for (const int64_t n : {2, 4, 8}) EXPECT_EQ(gradient(n), 6) << n;
  EXPECT_EQ(gradient(5), 6);
  EXPECT_EQ(compiled.stats().instantiated, 1) << compiled.stats().dynamic_reason;
  power = 3;
  EXPECT_EQ(gradient(5), 27);
  EXPECT_EQ(gradient(6), 27);
  EXPECT_EQ(compiled.stats().instantiated, 1);
  power = 2;
  EXPECT_EQ(gradient(6), 6);
}

// Functions with breaks run in each call, so there is nothing to compare; outside of all, a guard
// gives the variable.
TEST(CompiledState, GuardsAreNothingElsewhere) {
  int factor = 2;
  EXPECT_EQ(&guard(factor), &factor);
  auto compiled =
      compile([&](const Tensor& x) { return x * (x.sum().item<double>() > 0 ? guard(factor) : 1); },
              {.allow_breaks = true});
  for (int i = 0; i < 4; ++i) {
    factor = i;
    EXPECT_EQ(values(compiled(plain({1, 2}))), (Values{1.0 * i, 2.0 * i}));
  }
}

// In the heap, where a variable may also be an element of a vector of the function's own.
TEST(CompiledState, MembersThatTheFunctionAssignsAreFollowed) {
  struct Cell : nn::Module {
    Tensor state = zeros({2}, kFloat64);
    Tensor forward(const Tensor& x) override {
      state = state * 0.5 + x;
      return state + 1;
    }
  };
  const auto cell = std::make_shared<Cell>();
  auto step = compile([&](const Tensor& x) { return (*cell)(x); });
  double state = 0;
  for (int i = 0; i < 5; ++i) {
    state = state * 0.5 + i;
    EXPECT_EQ(values(step(full({2}, i, kFloat64))), (Values{state + 1, state + 1})) << i;
    EXPECT_EQ(values(cell->state), (Values{state, state})) << i;
  }
}

TEST(CompiledState, VariablesOfTheFunctionItselfAreNone) {
  const Tensor start = plain({1, 1});
  auto f = compile([&](const Tensor& x) {
    Tensor h = start;
    for (int i = 0; i < 3; ++i) h = h + x;
    std::vector<Tensor> all(3);
    for (Tensor& each : all) each = h * 2;
    std::vector<Tensor> states(2, start);
    states[0] = states[1] + x;
    all[1] = states[0];
    return all;
  });
  for (int i = 0; i < 4; ++i) {
    const Tensor x = full({2}, i, kFloat64);
    const std::vector<Tensor> found = f(x);
    EXPECT_EQ(values(found[0]), (Values{6.0 * i + 2, 6.0 * i + 2}));
    EXPECT_EQ(values(found[1]), (Values{i + 1.0, i + 1.0}));
  }
  EXPECT_EQ(f.stats().recorded, 1);
  EXPECT_EQ(f.stats().replayed, 3);
}

// With history, which may hold what the function's own vectors held, one more call says which.
TEST(CompiledState, VectorsOfFunctionsWithHistoryAreTheirOwn) {
  const Tensor w = leaf({2, 3});
  auto f = compile([&](const Tensor& x) {
    std::vector<Tensor> all(2);
    all[0] = x * w;
    all[1] = all[0] * all[0] * w;
    return all[1].sum();
  });
  for (int i = 0; i < 5; ++i) {
    w.set_grad({});
    f(plain({1, 1})).backward();
    EXPECT_EQ(values(w.grad()), (Values{12, 27})) << i;
  }
  EXPECT_LE(f.stats().recorded, 2);
}

TEST(CompiledState, VariablesAreFollowedWithBreaks) {
  Tensor h = plain({0});
  auto step = compile(
      [&](const Tensor& x) {
        h = h + x;
        return h * 2;
      },
      {.allow_breaks = true});
  for (int i = 0; i < 5; ++i) EXPECT_EQ(values(step(plain({1}))), Values{2.0 * (i + 1)}) << i;
}

TEST(CompiledState, ContainersThatKeepResultsAreFollowed) {
  std::optional<Tensor> last;
  std::vector<Tensor> all;
  auto f = compile([&](const Tensor& x) {
    last = x * 2;
    all.push_back(x * 3);
    return x + 1;
  });
  auto g = compile([&](const Tensor& x) {
    const Tensor y = x * 3;
    all.push_back(y);
    return y;
  });
  for (int i = 0; i < 5; ++i) {
    f(full({1}, i, kFloat64));
    EXPECT_EQ(values(*last), Values{2.0 * i}) << i;
    EXPECT_EQ(values(all.back()), Values{3.0 * i}) << i;
    g(full({1}, i + 10, kFloat64));
    EXPECT_EQ(values(all.back()), Values{3.0 * i + 30}) << i;
  }
  EXPECT_EQ(all.size(), 10U);
}

// What the first call alone keeps is a tensor from outside for the next.
TEST(CompiledState, TensorsThatTheFirstCallMakesStay) {
  Tensor table;
  auto f = compile([&](const Tensor& x) {
    if (!table.defined()) table = arange(2).to(kFloat64) * 10;
    return x + table;
  });
  for (int i = 0; i < 5; ++i) EXPECT_EQ(values(f(plain({1, 1}))), (Values{1, 11})) << i;
  EXPECT_EQ(f.stats().recorded, 2);
  EXPECT_EQ(f.stats().replayed, 3);
}

// ---- constants ----

// Memory that the function fills is new in each call, also if a history refers to it.
TEST(CompiledState, SavedCopiesAreThoseOfTheirCall) {
  const Tensor w = leaf({2});
  auto f = compile([&](const Tensor& x) {
    const Tensor k = empty({1}, kFloat64);
    k.copy_(x);
    return (w * k * x.clone()).clone();
  });
  for (int i = 1; i < 5; ++i) {
    w.set_grad({});
    const Tensor first = f(full({1}, i, kFloat64)), second = f(full({1}, 10 * i, kFloat64));
    first.backward();
    EXPECT_EQ(values(w.grad()), Values{1.0 * i * i}) << i;
    second.backward();
    EXPECT_EQ(values(w.grad()), Values{101.0 * i * i}) << i;
  }
}

TEST(CompiledState, WrittenConstantsThatAHistoryKeepsAreRefused) {
  const Tensor w = leaf({2});
  auto f = compile([&](const Tensor& x) {
    const Tensor k = tensor({3.0}, kFloat64);
    k.add_(x);
    return (w * k).clone();
  });
  EXPECT_ERROR(f(plain({1})), "makes from values of the host");
  auto constant =
      compile([&](const Tensor& x) { return (w * tensor({3.0}, kFloat64) * x).clone(); });
  for (int i = 0; i < 4; ++i) EXPECT_EQ(values(constant(plain({1}))), Values{6});
}

// A cast that autocast keeps from before does not follow the weight.
TEST(CompiledState, CastsFromBeforeAreNotRecorded) {
  const AutocastGuard autocast(kCPU);
  nn::Linear layer(1, 1, {.bias = false});
  for (const bool trained : {true, false}) {
    layer->weight.requires_grad_(trained);
    layer->weight.detach().fill_(0);
    layer(ones({1, 1}));
    auto f = compile([&](const Tensor& x) { return layer(x).detach().to(kFloat32); });
    for (int i = 0; i < 4; ++i) {
      EXPECT_EQ(f(ones({1, 1})).item<float>(), i);
      layer->weight.detach().fill_(i + 1);
    }
  }
}

// ---- generators ----

TEST(CompiledState, SeedingInsideIsRefused) {
  const auto f = [](const Tensor& x) {
    manual_seed(7);
    return x + rand({2}, kFloat64);
  };
  EXPECT_ERROR(compile(f)(plain({1, 1})), "manual_seed() seeds a generator");
  EXPECT_ERROR(compile(f)(plain({1, 1})), "call it outside");
  Generator own(3);
  EXPECT_ERROR(compile([&](const Tensor& x) {
                 own.set_call(0);
                 return x + rand({2}, kFloat64, {}, own);
               })(plain({1, 1})),
               "set_call()");
  // With breaks, the function itself runs.
  auto parts = compile(f, {.allow_breaks = true});
  const Values expected = values(f(plain({1, 1})));
  for (int i = 0; i < 4; ++i) {
    rand({3});
    EXPECT_EQ(values(parts(plain({1, 1}))), expected) << i;
  }
}

TEST(CompiledState, GeneratorsThatTheFunctionMakesAreRefused) {
  const auto f = [](const Tensor& x) { return x + rand({2}, kFloat64, {}, Generator(5)); };
  EXPECT_ERROR(compile(f)(plain({1, 1})), "Generator() makes a generator");
  auto parts = compile(f, {.allow_breaks = true});
  const Values expected = values(f(plain({1, 1})));
  for (int i = 0; i < 4; ++i) EXPECT_EQ(values(parts(plain({1, 1}))), expected) << i;
}

// A history that no backward runs through is no state of the function.
TEST(CompiledState, UnusedHistoriesOfConversionsAreNotKept) {
  const Tensor w = leaf({3});
  auto f = compile([&](const Tensor& x) {
    const Tensor loss = (x * w * w).to(kFloat32);
    return x * 2;
  });
  for (int i = 0; i < 4; ++i) EXPECT_EQ(values(f(plain({1.0 * i}))), Values{2.0 * i});
  EXPECT_EQ(f.stats().recorded, 1) << f.stats().reason;
}

// The function keeps a conversion in the heap, without its history.
TEST(CompiledState, DetachedConversionsInTheHeapAreFollowed) {
  const Tensor w = leaf({3});
  const auto kept = std::make_shared<Tensor>();
  auto f = compile([&](const Tensor& x) {
    *kept = (x * w).to(kFloat32).detach();
    return x * 2;
  });
  for (int i = 0; i < 5; ++i) {
    f(plain({1.0 * i}));
    EXPECT_EQ(values(kept->to(kFloat64)), Values{3.0 * i}) << i;
  }
}

// A captured variable that the function resets is state, too.
TEST(CompiledState, ResetVariablesAreFollowed) {
  Tensor mask;
  auto f = compile([&](const Tensor& x) {
    const Tensor r = x * mask;
    mask = Tensor();
    return r;
  });
  for (int i = 0; i < 5; ++i) {
    mask = plain({2.0 + i});
    EXPECT_EQ(values(f(plain({8}))), Values{8 * (2.0 + i)}) << i;
    EXPECT_FALSE(mask.defined()) << i;
  }
}

// ---- hooks of tensors ----

TEST(CompiledState, HooksOfParametersAreNoticed) {
  const Tensor w = leaf({2});
  auto f = compile([&](const Tensor& x) {
    w.set_grad({});
    (w * x).sum().backward();
    return w.grad() * 1;
  });
  for (int i = 0; i < 3; ++i) EXPECT_EQ(values(f(plain({1}))), Values{1});
  const int64_t hook = w.register_hook([](const Tensor& gradient) { return gradient * 10; });
  for (int i = 0; i < 3; ++i) EXPECT_EQ(values(f(plain({1}))), Values{10});
  w.remove_hook(hook);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(values(f(plain({1}))), Values{1});
}

// ---- checkpoints ----

TEST(CompiledState, ValuesBehindCheckpointsThatDrawAreChecked) {
  const auto f = [](const Tensor& x) {
    const Tensor a = x * 1;
    const Tensor y = autograd::checkpoint(
        [](const std::vector<Tensor>& in) {
          return std::vector<Tensor>{dropout(in[0] * in[0], 0.5, true)};
        },
        {a})[0];
    {
      const NoGradGuard no_grad;
      a.detach().fill_(100);
    }
    y.sum().backward();
    return x.grad() * 1;
  };
  EXPECT_THROW(f(leaf({1, 2, 3})), Error);
  auto compiled = compile(f);
  EXPECT_ERROR(compiled(leaf({1, 2, 3})), "overwritten");
}

}  // namespace
}  // namespace mytorch
