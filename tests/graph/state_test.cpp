// State of the user and of the library that a compiled function reads, or changes, besides its
// arguments.
#include <atomic>
#include <cmath>
#include <functional>
#include <memory>
#include <optional>
#include <thread>
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

// ---- optimizers ----

double trained(const std::function<void(nn::optim::SGD&, int)>& before,
               const std::function<void(nn::optim::SGD&, int)>& inside, bool compiled,
               bool breaks = false) {
  const Tensor w = leaf({8});
  nn::optim::SGD optimizer({w}, {.lr = 0.5});
  int calls = 0;
  const auto step = [&](const Tensor& x) {
    optimizer.zero_grad();
    (w * x).sum().backward();
    inside(optimizer, calls++);
    optimizer.step();
    return x * 1;
  };
  auto recorded = compile(step, {.allow_breaks = breaks});
  for (int i = 0; i < 6; ++i) {
    before(optimizer, i);
    compiled ? recorded(plain({1})) : step(plain({1}));
  }
  return w.item<double>();
}

void nothing(nn::optim::SGD& /*optimizer*/, int /*call*/) {}

TEST(CompiledState, RatesSetInsideAreRefused) {
  const auto inside = [](nn::optim::SGD& optimizer, int call) {
    optimizer.set_lr(0, 1.0 / (call + 1));
  };
  EXPECT_ERROR(trained(nothing, inside, true), "set_lr() changes a learning rate");
  EXPECT_DOUBLE_EQ(trained(nothing, inside, true, true), trained(nothing, inside, false));
  const auto schedule = [](nn::optim::SGD& optimizer, int /*call*/) {
    nn::optim::StepLR(optimizer, 1, 0.5).step();
  };
  EXPECT_ERROR(trained(nothing, schedule, true), "call it outside");
}

TEST(CompiledState, RatesWrittenThroughOptionsAreFollowed) {
  const auto options = [](nn::optim::SGD& optimizer, int call) {
    if (call > 2) optimizer.options().lr = 1.0 / (call + 1);
  };
  EXPECT_DOUBLE_EQ(trained(options, nothing, true), trained(options, nothing, false));
  const auto groups = [](nn::optim::SGD& optimizer, int call) {
    if (call > 2) optimizer.param_groups()[0].options().set_lr(1.0 / (call + 1));
  };
  EXPECT_DOUBLE_EQ(trained(groups, nothing, true), trained(groups, nothing, false));
  // By a reference that is older than the recording.
  for (const bool decay : {false, true}) {
    const auto train = [&](bool compiled) {
      nn::optim::SGD::Args* args = nullptr;
      const auto reference = [&](nn::optim::SGD& optimizer, int call) {
        if (args == nullptr) args = &optimizer.options();
        if (call > 2) (decay ? args->weight_decay : args->lr) = 1.0 / (call + 1);
      };
      return trained(reference, nothing, compiled);
    };
    EXPECT_DOUBLE_EQ(train(true), train(false)) << decay;
  }
}

// Options count by their values, however they are reached.
TEST(CompiledState, OptionsAreComparedByValue) {
  const Tensor w = leaf({1});
  nn::optim::SGD optimizer({w}, {.lr = 0.5, .momentum = 0.9});
  auto step = compile([&](const Tensor& x) {
    optimizer.zero_grad();
    (w * x).sum().backward();
    optimizer.step();
    return x * 1;
  });
  const auto run = [&](int64_t recorded, int line) {
    for (int i = 0; i < 2; ++i) step(plain({1}));
    EXPECT_EQ(step.stats().recorded, recorded) << line << ": " << step.stats().reason;
  };
  nn::optim::SGD::Args& args = optimizer.options();
  run(1, __LINE__);
  EXPECT_EQ(optimizer.param_groups()[0].options().get_lr(), 0.5);
  optimizer.set_momentum(0, 0.9);
  optimizer.set_option(0, "weight_decay", 0);
  optimizer.param_groups()[0].options().set_lr(0.25);
  const nn::optim::SGD other({leaf({2})}, 0.1);
  run(1, __LINE__);
  args.nesterov = true;
  run(2, __LINE__);
  optimizer.set_momentum(0, 0.5);
  run(3, __LINE__);
  optimizer.set_momentum(0, 0.9);  // the recordings of before hold again
  run(3, __LINE__);
  args.nesterov = false;
  run(3, __LINE__);
}

TEST(CompiledState, DestroyedOptimizersAreNoticed) {
  const Tensor w = leaf({1});
  auto optimizer = std::make_unique<nn::optim::SGD>(std::vector<Tensor>{w}, 0.5);
  auto step = compile([&](const Tensor& x) {
    w.set_grad({});
    (w * x).sum().backward();
    if (optimizer != nullptr) optimizer->step();
    return x * 1;
  });
  for (int i = 0; i < 3; ++i) step(plain({1}));
  optimizer.reset();
  const Values last = values(w);
  for (int i = 0; i < 3; ++i) step(plain({1}));
  EXPECT_EQ(values(w), last);
}

// ---- modules ----

TEST(CompiledState, ChangedModulesAreNoticed) {
  nn::Sequential net{nn::Lambda([](const Tensor& x) { return x * 2; })};
  auto f = compile([&](const Tensor& x) { return net(x); });
  const auto run = [&] {
    const double first = values(f(plain({1})))[0];
    for (int i = 0; i < 2; ++i) EXPECT_EQ(values(f(plain({1})))[0], first);
    return first;
  };
  EXPECT_EQ(run(), 2);
  net.push_back(nn::Lambda([](const Tensor& x) { return x + 5; }));
  EXPECT_EQ(run(), 7);
  net = nn::Sequential{nn::Lambda([](const Tensor& x) { return x * 10; })};
  EXPECT_EQ(run(), 10);
  nn::HookHandle hook =
      net.register_forward_hook([](nn::Module&, const Tensor&, const Tensor& y) { return y + 1; });
  EXPECT_EQ(run(), 11);
  hook.remove();
  EXPECT_EQ(run(), 10);
}

TEST(CompiledState, AssignedSubmodulesAreNoticed) {
  struct Net : nn::Module {
    nn::Dropout drop{0.0};
    nn::ModuleList layers;
    nn::ModuleDict heads;
    Net() {
      register_module("drop", drop);
      register_module("layers", layers);
      register_module("heads", heads);
    }
    Tensor forward(const Tensor& x) override {
      Tensor y = drop(x);
      for (nn::Module& layer : layers) y = layer(y);
      for (auto [name, head] : heads) y = head(y);
      return y;
    }
  };
  Net net;
  auto f = compile([&](const Tensor& x) { return net(x); });
  const auto run = [&] {
    const double first = values(f(plain({1})))[0];
    for (int i = 0; i < 2; ++i) EXPECT_EQ(values(f(plain({1})))[0], first);
    return first;
  };
  EXPECT_EQ(run(), 1);
  net.drop = nn::Dropout(1.0);
  EXPECT_EQ(run(), 0);
  net.drop = nn::Dropout(0.0);
  net.layers.push_back(nn::Lambda([](const Tensor& x) { return x * 3; }));
  EXPECT_EQ(run(), 3);
  net.heads.insert("one", nn::Lambda([](const Tensor& x) { return x - 1; }));
  EXPECT_EQ(run(), 2);
}

struct ScaleImpl : nn::Module {
  double by;
  explicit ScaleImpl(double factor) : by(factor) {}
  Tensor forward(const Tensor& x) override { return x * by; }
};
MYTORCH_MODULE(Scale);

TEST(CompiledState, HoldersOfOtherModulesAreNoticed) {
  Scale scale(2);
  const Scale first = scale;
  std::shared_ptr<ScaleImpl> pointer = std::make_shared<ScaleImpl>(10);
  auto f = compile([&](const Tensor& x) { return scale(x); });
  auto g = compile([&](const Tensor& x) { return (*pointer)(x); });
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(values(f(plain({1}))), Values{2});
    EXPECT_EQ(values(g(plain({1}))), Values{10});
  }
  scale = Scale(3);
  pointer = std::make_shared<ScaleImpl>(20);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(values(f(plain({1}))), Values{3});
    EXPECT_EQ(values(g(plain({1}))), Values{20});
  }
}

TEST(CompiledState, ParametrizedModulesAreNoticed) {
  nn::Linear layer(1, 1, {.bias = false});
  layer->weight.detach().fill_(2);
  auto f = compile([&](const Tensor& x) { return layer(x); });
  const Tensor x = ones({1, 1});
  for (int i = 0; i < 3; ++i) EXPECT_EQ(f(x).item<float>(), 2);
  struct Double : nn::Module {
    Tensor forward(const Tensor& w) override { return w * 2; }
  };
  nn::utils::parametrize::register_parametrization(layer, "weight", Double());
  for (int i = 0; i < 3; ++i) EXPECT_EQ(f(x).item<float>(), 4);
  nn::utils::parametrize::remove_parametrizations(layer, "weight", false);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(f(x).item<float>(), 2);
}

// Modules that no compiled function uses change nothing.
TEST(CompiledState, OtherModulesRecordNothingAgain) {
  nn::Sequential net{nn::Linear(2, 2)};
  auto f = compile([&](const Tensor& x) { return net(x); });
  for (int i = 0; i < 5; ++i) {
    f(ones({1, 2}));
    nn::Sequential other{nn::Linear(2, 2), nn::ReLU()};
    other.push_back(nn::Linear(2, 1));
    nn::Sequential copy = net;
    copy = other;
    other(ones({1, 2}));
    const nn::Sequential cloned = nn::clone(net);
  }
  EXPECT_EQ(f.stats().recorded, 1);
}

// A recording holds as long as the modules that it asked have the mode that they had.
TEST(CompiledState, EachModeHasItsRecording) {
  nn::Sequential net{nn::Linear(3, 2), nn::BatchNorm1d(2)}, other{nn::Dropout(0.5)};
  auto f = compile([&](const Tensor& x) { return net(x) * 2; });
  const Tensor x = randn({4, 3});
  const NoGradGuard no_grad;
  for (int i = 0; i < 6; ++i) {
    net.train(i % 2 == 0);
    nn::Sequential copy = nn::clone(net);
    EXPECT_TRUE(allclose(f(x), copy(x) * 2)) << i;
    other.train(i % 3 == 0);
    nn::Dropout().eval();
  }
  EXPECT_EQ(f.stats().recorded, 2);
  EXPECT_EQ(f.stats().replayed, 4);
}

TEST(CompiledState, ModesThatTheFunctionSetsAreItsOwn) {
  nn::Dropout drop(0.5);
  auto f = compile([&](const Tensor& x) {
    drop.eval();
    const Tensor y = drop(x) * 3;
    drop.train();
    return y;
  });
  for (int i = 0; i < 4; ++i) EXPECT_EQ(values(f(plain({1, 2}))), (Values{3, 6}));
  EXPECT_EQ(f.stats().recorded, 1);
  drop.eval();  // each call sets the mode
  EXPECT_EQ(values(f(plain({1, 2}))), (Values{3, 6}));
  EXPECT_TRUE(drop.training());
  EXPECT_EQ(f.stats().recorded, 1);
  // The mode that it asks for before it sets one is a condition.
  nn::Dropout last(1.0);
  auto g = compile([&](const Tensor& x) {
    const Tensor y = last(x) + 1;
    last.eval();
    return y;
  });
  EXPECT_EQ(values(g(plain({1, 2}))), (Values{1, 1}));
  for (int i = 0; i < 3; ++i) EXPECT_EQ(values(g(plain({1, 2}))), (Values{2, 3}));
  for (int i = 0; i < 3; ++i) {
    last.train();
    EXPECT_EQ(values(g(plain({1, 2}))), (Values{1, 1}));
    EXPECT_FALSE(last.training());
  }
  EXPECT_EQ(g.stats().recorded, 2);
  nn::Dropout turns(1.0);
  auto h = compile([&](const Tensor& x) {
    turns.train(!turns.training());
    return turns(x) + 1;
  });
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(values(h(plain({1}))), (Values{2})) << i;
    EXPECT_EQ(values(h(plain({1}))), (Values{1})) << i;
  }
  EXPECT_EQ(h.stats().recorded, 2);
}

// Copies have the modes of what they were copied from.
TEST(CompiledState, ModulesThatTheFunctionMakesAreItsOwn) {
  nn::Dropout drop(1.0), local(0.0);
  const auto by_value = [](nn::Dropout copy, const Tensor& x) { return copy(x) + 1; };
  const std::vector<std::pair<const char*, std::function<Tensor(const Tensor&)>>> functions = {
      {"by value", [&](const Tensor& x) { return by_value(drop, x); }},
      {"clone", [&](const Tensor& x) { return nn::clone(drop)(x) + 1; }},
      {"assigned",
       [&](const Tensor& x) {
         local = drop;
         return local(x) + 1;
       }},
      {"made",
       [&](const Tensor& x) {
         nn::Dropout made(1.0);
         if (!drop.training()) made.eval();
         return made(x) + 1;
       }},
  };
  for (const auto& [name, function] : functions) {
    auto f = compile(function);
    for (int i = 0; i < 6; ++i) {
      drop.train(i % 2 == 0);
      EXPECT_EQ(values(f(plain({1}))), (Values{i % 2 == 0 ? 1.0 : 2.0})) << name;
    }
    EXPECT_EQ(f.stats().recorded, 2) << name << ": " << f.stats().reason;
  }
  std::shared_ptr<nn::Dropout> kept;
  auto f = compile([&](const Tensor& x) {
    if (kept == nullptr) kept = std::make_shared<nn::Dropout>(1.0);
    return (*kept)(x) + 1;
  });
  for (int i = 0; i < 2; ++i) EXPECT_EQ(values(f(plain({1}))), (Values{1}));
  kept->eval();
  for (int i = 0; i < 2; ++i) EXPECT_EQ(values(f(plain({1}))), (Values{2}));
}

TEST(CompiledState, ThreadsRecordFunctionsOfOneModule) {
  for (int round = 0; round < 50; ++round) {
    nn::Dropout drop(1.0);
    std::vector<std::function<Tensor(const Tensor&)>> functions;
    for (int t = 0; t < 2; ++t) {
      functions.emplace_back(compile([&](const Tensor& x) { return drop(x) + 1; }));
    }
    std::vector<std::thread> threads;
    for (auto& f : functions) threads.emplace_back([&] { f(plain({1})); });
    for (std::thread& thread : threads) thread.join();
    drop.eval();
    for (auto& f : functions) EXPECT_EQ(values(f(plain({1}))), (Values{2}));
  }
}

// Options that the function itself reads are constants, the learning rate too.
TEST(CompiledState, OptionsThatTheFunctionReadsAreCompared) {
  nn::optim::SGD optimizer({leaf({1})}, {.lr = 0.5, .momentum = 0.9});
  auto rate = compile([&](const Tensor& x) { return x * optimizer.lr(0); });
  auto momentum = compile([&](const Tensor& x) { return x * optimizer.momentum(0); });
  auto decay = compile([&](const Tensor& x) { return x * optimizer.options().weight_decay; });
  auto group = compile([&](const Tensor& x) {
    return x * std::as_const(optimizer).param_groups()[0].options().get_lr();
  });
  for (int i = 1; i < 4; ++i) {
    for (int k = 0; k < 2; ++k) {
      EXPECT_EQ(values(rate(plain({1}))), (Values{0.5 * i}));
      EXPECT_EQ(values(momentum(plain({1}))), (Values{0.9 * i}));
      EXPECT_EQ(values(decay(plain({1}))), (Values{2.0 * (i - 1)}));
      EXPECT_EQ(values(group(plain({1}))), (Values{0.5 * i}));
    }
    optimizer.set_lr(0, 0.5 * (i + 1));
    optimizer.set_momentum(0, 0.9 * (i + 1));
    optimizer.options().weight_decay = 2.0 * i;
  }
  EXPECT_EQ(rate.stats().recorded, 3);
}

TEST(CompiledState, DestroyedModulesAreNoticed) {
  auto drop = std::make_unique<nn::Dropout>(0.5);
  drop->eval();
  auto f = compile([&](const Tensor& x) { return drop == nullptr ? x * 1 : (*drop)(x)*2; });
  for (int i = 0; i < 2; ++i) EXPECT_EQ(values(f(plain({1, 2}))), (Values{2, 4}));
  drop.reset();
  for (int i = 0; i < 2; ++i) EXPECT_EQ(values(f(plain({1, 2}))), (Values{1, 2}));
}

TEST(CompiledState, LazyModulesMakeTheirParametersOnce) {
  nn::LazyLinear layer(2);
  auto f = compile([&](const Tensor& x) { return layer(x); });
  const Tensor x = ones({1, 3});
  const Values first = values(f(x));
  for (int i = 0; i < 3; ++i) EXPECT_EQ(values(f(x)), first);
  EXPECT_EQ(values(layer(x)), first);
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

// ---- reads of the host inside of operators ----

TEST(CompiledState, RefusedReadsNameTheWayOut) {
  const Tensor p = full({3}, 0.5, kFloat64);
  const auto refused = [](const auto& f, const Tensor& x) {
    const std::string message = error_of([&] {
      auto compiled = compile(f);
      for (int i = 0; i < 2; ++i) compiled(x);
    });
    EXPECT_TRUE(message.empty() || message.find("allow_breaks") != std::string::npos) << message;
    auto parts = compile(f, {.allow_breaks = true});
    for (int i = 0; i < 3; ++i) EXPECT_EQ(values(parts(x)), values(f(x)));
  };
  refused([&](const Tensor& x) { return repeat_interleave((x * 4).to(kInt64)); }, p);
  refused([&](const Tensor& x) { return x * x.sum().item<double>(); }, p);
  refused([&](const Tensor& x) { return x.index({x > 0}); }, p);
}

TEST(CompiledState, ArgumentsMayBeAbsent) {
  const auto f = [](const Tensor& x, const Tensor& y, const std::vector<Tensor>& rest) {
    Tensor sum = zeros({2}, kFloat64);
    if (x.defined()) sum = sum + x;
    if (y.defined()) sum = sum - y * 10;
    for (size_t i = 0; i < rest.size(); ++i) {
      if (rest[i].defined()) sum = sum * rest[i] + static_cast<double>(i);
    }
    return std::vector<Tensor>{sum, y.defined() ? y * 2 : Tensor()};
  };
  auto compiled = compile(f, {.cache_size = 12});
  const Tensor a = tensor({1.0, 2}, kFloat64), b = tensor({3.0, 4}, kFloat64);
  const Tensor none;
  for (int i = 0; i < 3; ++i) {
    for (const auto& [x, y] : {std::pair(a, none), {none, a}, {none, none}, {a, b}}) {
      for (const auto& rest : {std::vector{none, b}, {b, none}, {b}}) {
        const std::vector<Tensor> expected = f(x, y, rest), seen = compiled(x, y, rest);
        EXPECT_EQ(values(seen[0]), values(expected[0]));
        EXPECT_EQ(seen[1].defined(), expected[1].defined());
        if (seen[1].defined()) {
          EXPECT_EQ(values(seen[1]), values(expected[1]));
        }
      }
    }
  }
  EXPECT_EQ(compiled.stats().recorded, 12);
}

TEST(CompiledState, NumbersAreComparedByTypeAndBits) {
  auto quotient = compile([](const Tensor& x, double k) { return x / k; });
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(values(quotient(plain({1}), 0.0))[0], HUGE_VAL);
    EXPECT_EQ(values(quotient(plain({1}), -0.0))[0], -HUGE_VAL);
    EXPECT_TRUE(std::isnan(values(quotient(plain({1}), NAN))[0]));
  }
  EXPECT_EQ(quotient.stats().recorded, 3);
  auto sum = compile([](const Tensor& x, auto k) { return x + k; });
  const Tensor zero = zeros({1}, kInt64);
  constexpr int64_t kLarge = (int64_t{1} << 53) + 1;
  for (int i = 0; i < 2; ++i) {
    for (const int64_t k : {kLarge, kLarge - 1}) {
      EXPECT_EQ(sum(zero, k).item<int64_t>(), k);
    }
    EXPECT_EQ(sum(zero, 1).dtype(), kInt64);
    EXPECT_EQ(sum(zero, 1.0).dtype(), kFloat32);
    EXPECT_EQ(sum(zero, true).dtype(), kInt64);
  }
}

// A function whose recordings are not used again is not slowed down by making them.
TEST(CompiledState, FunctionsWithoutReplaysRunAsTheyAre) {
  auto f = compile([](const Tensor& x, int64_t k) { return x + k; });
  for (int64_t k = 0; k < 200; ++k) EXPECT_EQ(values(f(plain({1}), k))[0], 1.0 + k);
  const CompileStats stats = f.stats();
  EXPECT_LT(stats.recorded, 25);
  EXPECT_EQ(stats.recorded + stats.unrecorded, 200);
  EXPECT_NE(stats.reason.find("not used again"), std::string::npos) << stats.reason;
  // It is tried again, and one that is used ends that.
  for (int i = 0; i < 200; ++i) EXPECT_EQ(values(f(plain({1}), -1))[0], 0);
  EXPECT_GT(f.stats().replayed, 0);
  for (int64_t k = 300; k < 304; ++k) EXPECT_EQ(values(f(plain({1}), k))[0], 1.0 + k);
  EXPECT_EQ(f.stats().recorded, stats.recorded + 5);
}

TEST(CompiledState, ChecksOfValuesAreLeftOut) {
  const Tensor y = tensor({1.0, 0, 0}, kFloat64);
  const auto f = [&](const Tensor& x) {
    return nn::functional::binary_cross_entropy(x * 1, y, {.reduction = "none"});
  };
  auto compiled = compile(f);
  const Tensor p = tensor({0.25, 0.5, 0.75}, kFloat64);
  for (int i = 0; i < 2; ++i) EXPECT_EQ(values(compiled(p)), values(f(p)));
  const Tensor wrong = tensor({2.0, 0.5, -1}, kFloat64);
  EXPECT_THROW(f(wrong), Error);
  const std::vector<double> terms = values(compiled(wrong));
  EXPECT_TRUE(std::isnan(terms[0]) && std::isnan(terms[2]));
  EXPECT_EQ(terms[1], std::log(2.0));

  auto middle = compile([](const Tensor& x, const Tensor& q) { return quantile(x * 1, q * 1, 0); });
  for (int i = 0; i < 2; ++i) {
    const Values found =
        values(middle(tensor({1.0, 2, 3}, kFloat64), tensor({0.5, 2.0, 0.0}, kFloat64)));
    EXPECT_TRUE(found[0] == 2 && std::isnan(found[1]) && found[2] == 1);
  }
  auto draw = compile([](const Tensor& w) { return multinomial(w * 1, 2, true); });
  for (int i = 0; i < 2; ++i) {
    const Values drawn = values(draw(tensor({{0.0, 3, 0}, {-1.0, 1, 1}, {0.0, 0, 0}}, kFloat64)));
    EXPECT_EQ(drawn, (Values{1, 1, -1, -1, -1, -1}));
  }
}

TEST(CompiledState, ThreadsCallOneFunction) {
  auto f = compile([](const Tensor& x) { return (x * 2 + 1).square().sum(IntList{1}); });
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 50; ++i) {
        if (values(f(full({3, 5}, t, kFloat64)))[2] != 5.0 * (2 * t + 1) * (2 * t + 1)) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong.load(), 0);
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

}  // namespace
}  // namespace mytorch
