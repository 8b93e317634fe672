// Optimizers and modules that a compiled function reads or changes.
#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "mytorch/compile.h"
#include "mytorch/mytorch.h"
#include "tests/autograd/util.h"

namespace mytorch {
namespace {

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

}  // namespace
}  // namespace mytorch
