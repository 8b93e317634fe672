#include "mytorch/compile.h"

#include <cmath>

#include "mytorch/autocast.h"
#include "mytorch/autograd.h"
#include "mytorch/autograd/vmap.h"
#include "mytorch/generator.h"
#include "mytorch/grad_mode.h"
#include "mytorch/mytorch.h"
#include "mytorch/tensor_impl.h"
#include "tests/autograd/util.h"
#include "tests/core/same_bits.h"
#include "tests/graph/device.h"

namespace mytorch {
namespace {

namespace F = nn::functional;

TEST(Compile, ReplaysGiveTheResultsOfTheFunction) {
  const auto f = [](const Tensor& x, const Tensor& y) {
    return softmax(matmul(x, y.t()) * 2 + 1, -1).transpose(0, 1);
  };
  auto compiled = compile(f);
  for (uint64_t seed = 1; seed < 6; ++seed) {
    const Tensor x = drawn_on_cpu({5, 7}, seed), y = drawn_on_cpu({3, 7}, seed + 10);
    expect_same(compiled(x, y), f(x, y));
  }
  EXPECT_EQ(compiled.stats().recorded, 1);
  EXPECT_EQ(compiled.stats().replayed, 4);
}

// An index that is out of range is found by a kernel, in replays too.
TEST(Compile, AnErrorInTheMiddleSaysWhatHasBeenWritten) {
  const Tensor counts = zeros({4}), table = drawn_on_cpu({5, 3}, 1);
  const auto f = [&](const Tensor& x, const Tensor& index) {
    counts.add_(1);
    x.mul_(2);
    return embedding(table, index);
  };
  const auto pure = [&](const Tensor& index) { return embedding(table, index) + 1; };
  auto compiled = compile(f);
  auto changes_nothing = compile(pure);
  const Tensor x = ones({6}), good = tensor({0, 4}), bad = tensor({0, 5});
  for (int i = 0; i < 3; ++i) {
    compiled(x, good);
    changes_nothing(good);
  }
  ASSERT_EQ(compiled.stats().replayed, 2);
  const auto message_of = [](const auto& call) -> std::string {
    try {
      call();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kValue);
      return error.what();
    }
    return "";
  };
  const std::string partial = message_of([&] { compiled(x, bad); });
  EXPECT_NE(partial.find("out of range"), std::string::npos) << partial;
  EXPECT_NE(partial.find("after it had written argument 0, 1 tensor from outside"),
            std::string::npos)
      << partial;
  EXPECT_EQ(counts[0].item<float>(), 4);
  EXPECT_EQ(x[0].item<float>(), 16);
  const std::string clean = message_of([&] { changes_nothing(bad); });
  EXPECT_NE(clean.find("out of range"), std::string::npos) << clean;
  EXPECT_EQ(clean.find("partial"), std::string::npos) << clean;
  expect_same(compiled(x, good), table.index({good}));
}

TEST(Compile, ResultsAreFreshMemory) {
  auto compiled = compile([](const Tensor& x) { return x + 1; });
  std::vector<Tensor> results;
  for (int i = 0; i < 4; ++i) results.push_back(compiled(full({3}, i, kFloat32)));
  for (int i = 0; i < 4; ++i) EXPECT_EQ(results[i][0].item<float>(), i + 1);
}

TEST(Compile, APlanKeepsNeitherArgumentsNorResults) {
  auto compiled = compile([](const Tensor& x) { return x + 1; });
  for (int i = 0; i < 4; ++i) {
    const Tensor x = drawn_on_cpu({3}, 1);
    const Tensor y = compiled(x);
    EXPECT_EQ(x.impl()->storage->refs.load(), 1u) << i;
    EXPECT_EQ(y.impl()->storage->refs.load(), 1u) << i;
  }
}

TEST(Compile, InPlaceWritesReachArgumentsAndTensorsFromOutside) {
  const Tensor total = zeros({3});
  auto compiled = compile([&](const Tensor& x) {
    total.add_(x);
    x.select(0, 1).mul_(2);
    return total.sum();
  });
  for (int i = 1; i <= 4; ++i) {
    const Tensor x = ones({3});
    EXPECT_EQ(compiled(x).item<float>(), 3.0f * i);
    EXPECT_EQ(x[1].item<float>(), 2);
  }
  EXPECT_EQ(total[0].item<float>(), 4);
  // Writes count, for the checks of autograd and for copies that kernels keep.
  const uint64_t version = total.version();
  compiled(ones({3}));
  EXPECT_GT(total.version(), version);
}

TEST(Compile, TakesNumbersListsAndGivesTuples) {
  auto compiled = compile([](const std::vector<Tensor>& list, double scale, bool negate) {
    const Tensor sum = (list[0] + list[1]) * scale;
    return std::tuple(negate ? -sum : sum, list[0].clone());
  });
  const std::vector<Tensor> list = {drawn_on_cpu({4}, 1), drawn_on_cpu({4}, 2)};
  for (const double scale : {2.0, 2.0, 3.0, 3.0}) {
    const auto [a, b] = compiled(list, scale, true);
    expect_same(a, -((list[0] + list[1]) * scale));
    expect_same(b, list[0]);
  }
  EXPECT_EQ(compiled.stats().recorded, 2);
  EXPECT_EQ(compiled.stats().replayed, 2);
}

TEST(Compile, RecordsAgainForOtherShapesTypesAndAliases) {
  auto compiled = compile([](const Tensor& x, const Tensor& y) {
    x.add_(1);
    return x + y;
  });
  const Tensor a = drawn_on_cpu({4}, 1), b = drawn_on_cpu({4}, 2);
  compiled(a.clone(), b);
  compiled(a.clone(), b);
  EXPECT_EQ(compiled.stats().recorded, 1);
  // One tensor for both: the sum sees the write.
  for (int i = 0; i < 3; ++i) {
    const Tensor x = a.clone();
    expect_same(compiled(x, x), (a + 1) + (a + 1));
  }
  EXPECT_EQ(compiled.stats().recorded, 2);
  compiled(drawn_on_cpu({5}, 1), drawn_on_cpu({5}, 2));
  compiled(a.to(kFloat64), b);
  EXPECT_EQ(compiled.stats().recorded, 4);
  compiled(a.clone(), b);
  EXPECT_EQ(compiled.stats().recorded, 4);
}

TEST(Compile, RandomNumbersContinue) {
  const auto f = [](const Tensor& x) { return dropout(x, 0.5, true); };
  const Tensor x = ones({100});
  manual_seed(7);
  std::vector<Tensor> eager;
  for (int i = 0; i < 5; ++i) eager.push_back(f(x));
  manual_seed(7);
  auto compiled = compile(f);
  for (int i = 0; i < 5; ++i) expect_same(compiled(x), eager[i]);
}

// ---- training ----

struct Net : nn::Module {
  nn::Linear first{register_module("first", nn::Linear(6, 8))};
  nn::Linear second{register_module("second", nn::Linear(8, 3))};
  Tensor forward(const Tensor& x) { return second(tanh(first(x))); }
};

template <class Optimizer, class Options>
void train(const Options& options, bool outside_backward = false) {
  const auto run = [&](bool compiled) {
    manual_seed(3);
    Net net;
    Optimizer optimizer(net.parameters(), options);
    const auto step = [&](const Tensor& x, const Tensor& y) {
      optimizer.zero_grad();
      Tensor loss = F::cross_entropy(net.forward(x), y);
      loss.backward();
      optimizer.step();
      return loss.detach();
    };
    auto fast = compile(step);
    std::vector<Tensor> found;
    for (uint64_t i = 0; i < 6; ++i) {
      const Tensor x = drawn_on_cpu({4, 6}, i), y = arange(4).remainder(3);
      found.push_back(compiled ? fast(x, y) : step(x, y));
    }
    if (compiled) {
      EXPECT_EQ(fast.stats().recorded, 1) << fast.stats().reason;
      EXPECT_LE(fast.stats().interpreted, 1) << fast.text();
    }
    for (const Tensor& p : net.parameters()) {
      found.push_back(p.detach().clone());
      found.push_back(p.grad().clone());
    }
    return found;
  };
  const std::vector<Tensor> eager = run(false), fast = run(true);
  for (size_t i = 0; i < eager.size(); ++i) expect_same(fast[i], eager[i]);
}

TEST(Compile, TrainsWithSgd) { train<nn::optim::SGD>(nn::optim::SGDOptions(0.1)); }
TEST(Compile, TrainsWithMomentum) {
  train<nn::optim::SGD>(nn::optim::SGDOptions(0.1).momentum(0.9));
}
TEST(Compile, TrainsWithAdam) { train<nn::optim::Adam>(nn::optim::AdamOptions(0.01)); }

TEST(Compile, GradsAccumulateAcrossCalls) {
  const Tensor w = ones({3}).requires_grad_();
  auto compiled = compile([&](const Tensor& x) { (w * x).sum().backward(); });
  for (int i = 1; i <= 5; ++i) {
    compiled(full({3}, 2.0, kFloat32));
    EXPECT_EQ(w.grad()[0].item<float>(), 2.0f * i);
  }
}

TEST(Compile, ALearningRateIsReadByEachCall) {
  const Tensor w = ones({1}).requires_grad_();
  nn::optim::SGD sgd({w}, nn::optim::SGDOptions(1.0));
  auto compiled = compile([&](const Tensor& x) {
    sgd.zero_grad();
    (w * x).sum().backward();
    sgd.step();
  });
  const Tensor x = ones({1});
  compiled(x);
  compiled(x);
  sgd.set_lr(0, 0.5);
  compiled(x);
  EXPECT_EQ(w.item<float>(), 1 - 1 - 1 - 0.5f);
  EXPECT_EQ(compiled.stats().recorded, 1);
}

TEST(Compile, GradsOfArgumentsAreSet) {
  auto compiled = compile([](const Tensor& x) { (x * x).sum().backward(); });
  for (uint64_t seed = 1; seed < 5; ++seed) {
    const Tensor x = drawn_on_cpu({4}, seed).requires_grad_();
    compiled(x);
    expect_same(x.grad(), x.detach() * 2);
  }
  EXPECT_EQ(compiled.stats().recorded, 1);
}

TEST(Compile, OptionsOfModulesAndOptimizersRecordAgain) {
  nn::Dropout dropout(0.5);
  auto compiled = compile([&](const Tensor& x) { return dropout(x); });
  const Tensor x = ones({64});
  for (int i = 0; i < 3; ++i) EXPECT_GT(compiled(x).eq(0).sum().item<int64_t>(), 0);
  EXPECT_EQ(compiled.stats().recorded, 1);
  dropout.eval();
  for (int i = 0; i < 3; ++i) expect_same(compiled(x), x);
  EXPECT_EQ(compiled.stats().recorded, 2);

  const Tensor w = ones({1}).requires_grad_();
  nn::optim::SGD sgd({w}, nn::optim::SGDOptions(1.0));
  auto step = compile([&](const Tensor& gradient) {
    w.set_grad(gradient.clone());
    sgd.step();
  });
  for (int i = 0; i < 3; ++i) step(zeros({1}));
  EXPECT_EQ(step.stats().recorded, 1);
  sgd.options().weight_decay = 0.5;
  step(zeros({1}));
  step(zeros({1}));
  EXPECT_EQ(step.stats().recorded, 2);
  EXPECT_EQ(w.item<float>(), 0.25f);
}

TEST(Compile, LoadedOptionsOfOptimizersAreTaken) {
  const auto optimizer = [](const Tensor& w, double decay) {
    return nn::optim::SGD({w}, {.lr = 0.5, .weight_decay = decay});
  };
  const Tensor given = ones({1}).requires_grad_(), w = ones({1}).requires_grad_(),
               expected = ones({1}).requires_grad_();
  auto source = optimizer(given, 0.25), sgd = optimizer(w, 0), eager = optimizer(expected, 0.25);
  auto step = compile([&](const Tensor& gradient) {
    w.set_grad(gradient.clone());
    sgd.step();
  });
  for (int i = 0; i < 3; ++i) step(zeros({1}));
  given.set_grad(ones({1}));
  source.step();
  const auto state = source.state_dict();
  sgd.load_state_dict(state);
  eager.load_state_dict(state);
  for (int i = 0; i < 3; ++i) {
    step(ones({1}));
    expected.set_grad(ones({1}));
    eager.step();
    expect_same(w.detach(), expected.detach());
  }
}

TEST(Compile, GradModeAndAutocastRecordAgain) {
  auto compiled = compile([](const Tensor& x) { return matmul(x, x); });
  const Tensor x = drawn_on_cpu({4, 4}, 1);
  for (int i = 0; i < 3; ++i) expect_same(compiled(x), matmul(x, x));
  {
    const AutocastGuard autocast(kCPU, kBFloat16);
    for (int i = 0; i < 3; ++i) EXPECT_EQ(compiled(x).dtype(), kBFloat16);
  }
  for (int i = 0; i < 2; ++i) EXPECT_EQ(compiled(x).dtype(), kFloat32);
  EXPECT_EQ(compiled.stats().recorded, 2);
}

TEST(Compile, ArgumentsMayBeSlicesOfOneTensor) {
  auto compiled = compile([](const Tensor& x) { return x.t() + 1; });
  const Tensor all = drawn_on_cpu({5, 4, 16}, 1);
  for (int64_t i = 0; i < 5; ++i) expect_same(compiled(all[i]), all[i].t() + 1);
  EXPECT_EQ(compiled.stats().recorded, 1);
  // An argument that shares memory with a tensor from outside is another case.
  const Tensor total = zeros({4, 16});
  auto adds = compile([&](const Tensor& x) {
    total.add_(1);
    return x + 0;
  });
  for (int i = 0; i < 3; ++i) expect_same(adds(all[0]), all[0]);
  for (int i = 4; i < 7; ++i) expect_same(adds(total), full({4, 16}, i, kFloat32));
  EXPECT_EQ(adds.stats().recorded, 2);
}

struct Scaled : nn::Module {
  Tensor scale = full({1}, 2.0);
  Tensor shift;
  Scaled() {
    register_buffer("scale", scale);
    shift = register_parameter("shift", zeros({1}));
  }
  Tensor forward(const Tensor& x) override {
    Tensor factor = scale;  // variables of the function are its own
    factor = factor + 0;
    return x * factor + shift;
  }
};

TEST(Compile, ATensorAssignedToAMemberIsSeen) {
  Scaled model;
  const NoGradGuard no_grad;
  auto compiled = compile([&](const Tensor& x) { return model.forward(x); });
  auto other = compile([&](const Tensor& x) { return model.forward(x) + 1; });
  const Tensor x = ones({1});
  const std::vector<Tensor> held = model.buffers();
  for (int i = 0; i < 3; ++i) EXPECT_EQ(compiled(x).item<float>(), 2) << i;
  for (int i = 0; i < 3; ++i) EXPECT_EQ(other(x).item<float>(), 3) << i;
  EXPECT_EQ(compiled(x).item<float>(), 2);
  EXPECT_EQ(compiled.stats().recorded, 1);
  model.scale = full({1}, 5.0);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(compiled(x).item<float>(), 5) << i;
  EXPECT_EQ(other(x).item<float>(), 6);
  EXPECT_EQ(compiled.stats().recorded, 2);
  model.shift = ones({1});
  for (int i = 0; i < 3; ++i) EXPECT_EQ(compiled(x).item<float>(), 6) << i;
  EXPECT_EQ(compiled.stats().recorded, 3);
}

TEST(Compile, ATensorAssignedToAVariableIsSeenAtAnySize) {
  Tensor weight = full({1}, 2.0);
  auto compiled = compile([&](const Tensor& x) { return x * weight; }, {.dynamic_dims = {{0, 0}}});
  const auto value = [&](int64_t n) { return compiled(ones({n}))[0].item<float>(); };
  for (const int64_t n : {4, 8, 6, 5}) EXPECT_EQ(value(n), 2);
  weight = full({1}, 3.0);
  for (const int64_t n : {5, 4, 8, 6, 7}) EXPECT_EQ(value(n), 3);
}

TEST(Compile, DataOfParametersMayBeReplaced) {
  const Tensor w = ones({3}).requires_grad_();
  auto compiled = compile([&](const Tensor& x) { return (w * x).detach(); });
  const Tensor x = drawn_on_cpu({3}, 1);
  for (int i = 0; i < 3; ++i) expect_same(compiled(x), x);
  w.set_data(full({3}, 2.0, kFloat32));
  expect_same(compiled(x), x * 2);
  EXPECT_EQ(compiled.stats().recorded, 1);
  w.set_data(full({3}, 2.0, kFloat64));
  EXPECT_EQ(compiled(x).dtype(), kFloat64);
  EXPECT_EQ(compiled.stats().recorded, 2);
}

TEST(Compile, DataOfParametersMayLieElsewhereInTheirMemory) {
  const Tensor all = arange(8).to(kFloat32);
  const Tensor w = all.narrow(0, 0, 4).clone();
  auto compiled = compile([&](const Tensor& x) { return x * w; });
  for (const int64_t begin : {0, 4, 2, 0, 4}) {
    w.set_data(all.narrow(0, begin, 4));
    for (int i = 0; i < 3; ++i) expect_same(compiled(ones({4})), all.narrow(0, begin, 4));
  }
}

TEST(Compile, VmapAndCustomFunctionsTakePart) {
  auto compiled = compile([](const Tensor& xs, const Tensor& w) {
    return autograd::vmap([&](const Tensor& x) { return tanh(matmul(w, x)).sum(); })(xs);
  });
  for (uint64_t seed = 1; seed < 4; ++seed) {
    const Tensor xs = drawn_on_cpu({5, 3}, seed), w = drawn_on_cpu({4, 3}, seed + 10);
    expect_same(compiled(xs, w),
                autograd::vmap([&](const Tensor& x) { return tanh(matmul(w, x)).sum(); })(xs));
  }
  EXPECT_EQ(compiled.stats().recorded, 1);
}

TEST(Compile, ACompiledFunctionInsideAnotherIsAPartOfIt) {
  auto inner = compile([](const Tensor& x) { return x * 2; });
  auto outer = compile([&](const Tensor& x) { return inner(x) + 1; });
  const Tensor x = drawn_on_cpu({3}, 1);
  for (int i = 0; i < 3; ++i) expect_same(outer(x), x * 2 + 1);
  EXPECT_EQ(inner.stats().recorded, 0);
}

TEST(Compile, TheOldestRecordingIsDropped) {
  auto compiled = compile([](const Tensor& x) { return x + 1; }, {.cache_size = 2});
  for (const int64_t size : {1, 2, 3, 1}) compiled(ones({size}));
  EXPECT_EQ(compiled.stats().recorded, 4);
  compiled(ones({3}));
  EXPECT_EQ(compiled.stats().recorded, 4);
}

TEST(Compile, AnErrorInTheFunctionLeavesTheThreadAsItWas) {
  bool fails = true;
  auto compiled = compile([&](const Tensor& x) {
    if (fails) throw std::runtime_error("mine");
    return x + 1;
  });
  EXPECT_THROW(compiled(ones({2})), std::runtime_error);
  fails = false;
  for (int i = 0; i < 3; ++i) expect_same(compiled(ones({2})), full({2}, 2.0, kFloat32));
}

// ---- what a graph cannot hold ----

TEST(Compile, RefusesHostReads) {
  auto reads = compile([](const Tensor& x) { return x * x.sum().item<float>(); });
  EXPECT_NE(error_of([&] { reads(ones({2})); }).find("item() accesses the memory of a computed"),
            std::string::npos);
  auto data = compile([](const Tensor& x) { return x * x.const_data<float>()[0]; });
  EXPECT_NE(error_of([&] { data(ones({2})); }).find("data() accesses the memory of an argument"),
            std::string::npos);
  auto shape = compile([](const Tensor& x) { return nonzero(x); });
  EXPECT_NE(error_of([&] { shape(ones({2})); }).find("nonzero"), std::string::npos);
  // The thread is not left recording.
  EXPECT_EQ(ones({2}).sum().item<float>(), 2);
}

TEST(Compile, RefusesWritesToTensorsMadeFromValuesOfTheHost) {
  auto compiled = compile([](const Tensor& x) { return tensor({1.0f, 2.0f}).add_(x); });
  EXPECT_NE(error_of([&] { compiled(ones({2})); }).find("write a clone() of it"),
            std::string::npos);
  auto clones = compile([](const Tensor& x) { return tensor({1.0f, 2.0f}).clone().add_(x); });
  for (int i = 0; i < 3; ++i) expect_same(clones(ones({2})), tensor({2.0f, 3.0f}));
}

TEST(Compile, MemoryOfIntermediatesIsShared) {
  auto compiled = compile([](Tensor x) {
    for (int i = 0; i < 20; ++i) x = cumsum(x, 0);  // is not fused
    return x;
  });
  const Tensor x = drawn_on_cpu({1000}, 1);
  for (int i = 0; i < 3; ++i) compiled(x);
  EXPECT_EQ(compiled.stats().intermediate_bytes, 19 * 4000);
  EXPECT_LE(compiled.stats().planned_bytes, 2 * 4032);
  EXPECT_EQ(compiled.stats().recorded_peak_bytes, 2 * 4000);
}

// A pointwise kernel may write its operand. An operand that is read later, or in another order by
// the same call, keeps its memory.
TEST(Compile, ResultsTakeTheMemoryOfOperands) {
  const Tensor x = drawn_on_cpu({30, 30}, 1);
  const auto planned = [&](const auto& function) {
    const Tensor expected = function(x);
    std::vector<int64_t> bytes;
    for (const char* without : {"fusion,in-place", "fusion"}) {
      setenv("MYTORCH_COMPILE_WITHOUT", without, 1);
      auto compiled = compile(function, {.mode = CompileMode::kExact});
      for (int i = 0; i < 3; ++i) expect_same(compiled(x), expected);
      bytes.push_back(compiled.stats().planned_bytes);
    }
    unsetenv("MYTORCH_COMPILE_WITHOUT");
    return bytes;
  };
  constexpr int64_t kOne = 3648;  // 900 floats, in lines of 64 bytes
  using Bytes = std::vector<int64_t>;
  EXPECT_EQ(planned([](const Tensor& a) { return a.sin().cos().sin().cos().sin(); }),
            (Bytes{2 * kOne, kOne}));
  EXPECT_EQ(planned([](const Tensor& a) {
              const Tensor once = a.sin();
              return once.cos().sin() + once;  // cos() must not write `once`
            }),
            (Bytes{3 * kOne, 2 * kOne}));
  EXPECT_EQ(planned([](const Tensor& a) {
              const Tensor once = a.sin();
              return (once + once.t()).cos();
            }),
            (Bytes{2 * kOne, 2 * kOne}));
  EXPECT_EQ(planned([](const Tensor& a) {
              const Tensor once = a.sin();
              return (once * once).cos();  // two operands that are one
            }),
            (Bytes{2 * kOne, kOne}));
  // A product may take one operand and not another.
  EXPECT_EQ(planned([](const Tensor& a) { return addmm(a, a.sin(), a).cos(); }),
            (Bytes{2 * kOne, 2 * kOne}));
  EXPECT_EQ(planned([](const Tensor& a) { return addmm(a.sin(), a, a, 2).cos(); }),
            (Bytes{2 * kOne, 2 * kOne}));
}

TEST(Compile, TextShowsOperators) {
  auto compiled = compile([](const Tensor& x) { return (x.t() + 1).relu_(); });
  compiled(ones({2, 3}));
  EXPECT_EQ(compiled.text(),
            "graph(%0: float32[2, 3]) {\n"
            "  %1: float32[3, 2; 1, 3] in %0 = transpose.int(%0, 0, 1)\n"
            "  %2: float32[3, 2; 1, 3] = add.Tensor(%1, 1, 1)\n"
            "  relu_(%2)\n"
            "  return %2\n"
            "}\n");
}

// Weights that are laid out channels-last, of which autocast makes copies: their gradients are laid
// out like them, without a copy, so that one kernel steps all.
TEST(Compile, StepsOfChannelsLastWeightsUnderAutocastAreKernels) {
  const auto channels_last = [](const Tensor& x) {
    return permute(permute(x, {0, 2, 3, 1}).contiguous(), {0, 3, 1, 2});
  };
  nn::Conv2d first(3, 8, 3), second(8, 16, 1);
  std::vector<Tensor> parameters = first.parameters();
  for (const Tensor& each : second.parameters()) parameters.push_back(each);
  for (Tensor& each : parameters) {
    each.set_data(each.detach().to(test_device()));
    if (each.dim() == 4) each.set_data(channels_last(each.detach()));
  }
  nn::optim::SGD sgd(parameters, {.lr = 1e-3, .momentum = 0.9, .weight_decay = 1e-4});
  const Tensor x = channels_last(randn({4, 3, 8, 8}).to(test_device()));
  const auto step = [&] {
    sgd.zero_grad();
    Tensor loss;
    {
      const AutocastGuard autocast(test_device(), kBFloat16);
      loss = relu(second.forward(relu(first.forward(x)))).to(kFloat32).square().mean();
    }
    loss.backward();
    sgd.step();
    return loss.detach();
  };
  step();
  for (const Tensor& each : parameters) EXPECT_EQ(each.grad().strides(), each.strides());
  auto compiled = compile(step);
  for (int i = 0; i < 4; ++i) compiled();
  for (const Tensor& each : parameters) EXPECT_EQ(each.grad().strides(), each.strides());
  EXPECT_EQ(compiled.stats().interpreted, 0);
}

// Gradients that are laid out unlike their parameters.
TEST(Compile, StepsOfTensorsInOtherLayoutsDoNotReadTheRate) {
  Tensor weight = randn({4, 6}).to(test_device()).t().contiguous().t().requires_grad_(true);
  Tensor other = weight.detach().clone().requires_grad_(true);
  nn::optim::SGD sgd({weight}, {.lr = 0.125, .momentum = 0.5}),
      eager({other}, {.lr = 0.125, .momentum = 0.5});
  const Tensor x = randn({4, 6}).to(test_device());
  const auto take = [&](nn::optim::SGD& optimizer, Tensor& leaf) {
    leaf.set_grad(x * 2);
    optimizer.step();
  };
  auto compiled = compile([&] {
    take(sgd, weight);
    return weight.detach() + 0;
  });
  for (int i = 0; i < 4; ++i) {
    take(eager, other);
    EXPECT_TRUE(equal(compiled(), other.detach())) << i;
  }
  EXPECT_EQ(compiled.stats().interpreted, 0);
}

}  // namespace
}  // namespace mytorch
