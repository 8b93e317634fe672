// Compiled functions that other frameworks were reported to run wrongly, and kin of these.
// Tests name the report, if there is one; the function that is not compiled gives the expected
// values.
#include <tuple>

#include "mytorch/autograd/checkpoint.h"
#include "mytorch/autograd/functional.h"
#include "mytorch/autograd/vmap.h"
#include "mytorch/compile.h"
#include "mytorch/mytorch.h"
#include "tests/autograd/util.h"

namespace mytorch {
namespace {

// pytorch/pytorch#183986: writes to elements of an expanded tensor were made in place, where all
// rows share one memory.
TEST(ReportedCompiled, IndexedWritesToExpandedTensors) {
  const Tensor index = tensor({0, 0, 1}), source = ones({3, 8}, kFloat64);
  const auto check = [&](const auto& f) {
    auto compiled = compile(f);
    for (int i = 0; i < 3; ++i) {
      const Tensor x = full({1, 8}, i, kFloat64);
      EXPECT_EQ(values(compiled(x)), values(f(x)));
    }
  };
  check([&](const Tensor& x) { return index_add(x.expand({4, -1}), 0, index, source); });
  check([&](const Tensor& x) {
    return index_copy(x.expand({4, -1}), 0, tensor({2, 0, 1}), source);
  });
  check([&](const Tensor& x) { return index_fill(x.expand({4, -1}), 0, index, 7); });
  check([&](const Tensor& x) { return index_put(x.expand({4, -1}), {index}, source, true); });
  check([&](const Tensor& x) {
    return index_put(x.expand({4, -1}), {tensor({2, 3, 1})}, source, false);
  });
  check([&](const Tensor& x) {
    return masked_fill(x.expand({4, -1}), tensor({{1}, {0}, {0}, {1}}, kBool), -1);
  });
}

// pytorch/pytorch#152425: writes to a part of an expanded tensor, which change all of it or are
// refused.
TEST(ReportedCompiled, WritesToExpandedTensorsAreAsWithoutCompiling) {
  const auto f = [](const Tensor& x) {
    Tensor a = x.expand({2});
    a.narrow(0, 1, 1).fill_(3);
    return a * 1;
  };
  auto compiled = compile(f);
  for (int i = 0; i < 3; ++i) {
    const Tensor x = full({1}, i, kFloat64), y = full({1}, i, kFloat64);
    Values expected, found;
    const std::string plain_error = error_of([&] { expected = values(f(x)); });
    const std::string compiled_error = error_of([&] { found = values(compiled(y)); });
    EXPECT_EQ(plain_error.empty(), compiled_error.empty()) << plain_error << compiled_error;
    EXPECT_EQ(expected, found);
    EXPECT_EQ(values(x), values(y));
  }
}

// pytorch/pytorch#139789: arguments that share memory after a call with ones that do not.
TEST(ReportedCompiled, ArgumentsThatBeginToShareMemory) {
  const auto f = [](Tensor x, const Tensor& y) {
    x.mul_(2);
    return x + y;
  };
  auto compiled = compile(f);
  for (int i = 0; i < 3; ++i) {
    Tensor x = ones({4}, kFloat64), y = ones({4}, kFloat64);
    EXPECT_EQ(values(compiled(x, y)), Values({3, 3, 3, 3}));
    // x is {2, 2, 2, 2}, and y begins with its last two elements.
    const Tensor base = ones({8}, kFloat64);
    EXPECT_EQ(values(compiled(base.narrow(0, 0, 4), base.narrow(0, 2, 4))), Values({4, 4, 3, 3}));
  }
}

// pytorch/pytorch#198101: a value computed before its operand is written was computed after it.
TEST(ReportedCompiled, ReadsStayBeforeWrites) {
  const auto f = [](Tensor x) {
    Tensor y = x * 2;
    y.sub_(-4);
    x.narrow(1, 2, 3).fill_(2);
    return y;
  };
  auto compiled = compile(f);
  for (int i = 0; i < 3; ++i) {
    const Tensor x = arange(-12, 12, 1, kFloat64).view({4, 6}).clone(), y = x.clone();
    EXPECT_EQ(values(compiled(x)), values(f(y)));
    EXPECT_EQ(values(x), values(y));
  }
}

// pytorch/pytorch#97083: a view that is made before its base is written.
TEST(ReportedCompiled, ViewsSeeLaterWrites) {
  const auto f = [](Tensor a) {
    a = a.narrow(0, 0, 1);
    const Tensor b = a.squeeze();
    a.select(0, 0).fill_(0);
    const Tensor c = b + 1;
    a.select(0, 0).fill_(2);
    return b * 10 + c;
  };
  auto compiled = compile(f);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(values(compiled(ones({2}, kFloat64))), Values({21}));
}

// pytorch/pytorch#153389: operators that write several arguments, given views of one tensor.
TEST(ReportedCompiled, SeveralViewsAreWritten) {
  const auto f = [](Tensor x, Tensor out) {
    Tensor x1 = x.select(0, 0), x2 = x.select(0, 1);
    x1.add_(1);
    x2.add_(2);
    out.copy_(x1 + x2 + 2);
    return out * 1;
  };
  auto compiled = compile(f);
  for (int i = 0; i < 3; ++i) {
    const Tensor x = full({2, 3}, i, kFloat64), out = zeros({3}, kFloat64);
    EXPECT_EQ(values(compiled(x, out)), Values({2.0 * i + 5, 2.0 * i + 5, 2.0 * i + 5}));
    EXPECT_EQ(values(x), Values({i + 1.0, i + 1.0, i + 1.0, i + 2.0, i + 2.0, i + 2.0}));
    EXPECT_EQ(values(out), Values({2.0 * i + 5, 2.0 * i + 5, 2.0 * i + 5}));
  }
}

// pytorch/pytorch#183604, #181146: an argument that is given twice, or beside a view of itself.
TEST(ReportedCompiled, GradientsOfArgumentsThatAreTheSameTensor) {
  auto product = compile([](const Tensor& a, const Tensor& b) { return a * b; });
  for (int i = 0; i < 3; ++i) {
    const Tensor x = leaf({2, 3});
    product(x, x).sum().backward();
    EXPECT_EQ(values(x.grad()), (Values{4, 6})) << i;
    const Tensor y = leaf({2, 3});
    product(y, y.view({2})).sum().backward();
    EXPECT_EQ(values(y.grad()), (Values{4, 6})) << i;
    const Tensor z = leaf({2, 3}), other = z.detach().requires_grad_();
    product(z, other).sum().backward();
    EXPECT_EQ(values(z.grad()), (Values{2, 3})) << i;
    EXPECT_EQ(values(other.grad()), (Values{2, 3})) << i;
  }
}

// The same reports: a parameter that the function uses lies behind its argument, too.
TEST(ReportedCompiled, GradientsOfParametersBehindArguments) {
  nn::Linear layer(2, 2, {.bias = false});
  layer->weight.detach().copy_(tensor({{1.0, 2.0}, {3.0, 4.0}}, kFloat32));
  auto encode = compile([&](const Tensor& x) { return layer(x); });
  auto decode = compile([&](const Tensor& h) { return linear(h, layer->weight.t()); });
  for (int i = 0; i < 3; ++i) {
    layer->zero_grad();
    decode(encode(tensor({{1.0, 1.0}}, kFloat32))).sum().backward();
    EXPECT_EQ(values(layer->weight.grad()), (Values{6, 6, 14, 14})) << i;
    layer->zero_grad();
    decode(layer(ones({1, 2})) * 2).sum().backward();
    EXPECT_EQ(values(layer->weight.grad()), (Values{12, 12, 28, 28})) << i;
  }
}

// pytorch/pytorch#91468, #117265: hooks run once, with gradients that have values.
TEST(ReportedCompiled, HooksOfArgumentsAndParametersRunOnce) {
  nn::Linear layer(1, 1, {.bias = false});
  int calls = 0;
  layer->weight.register_hook([&](const Tensor& g) {
    ++calls;
    EXPECT_EQ(g.item<float>(), 1);
    return g * 10;
  });
  auto run = compile([&](const Tensor& a) { return layer(a); });
  for (int i = 0; i < 3; ++i) {
    layer->zero_grad();
    Tensor h = leaf({1}).to(kFloat32).reshape({1, 1}) * 1;
    h.retain_grad();
    run(h).sum().backward();
    EXPECT_EQ(calls, i + 1);
    EXPECT_EQ(values(layer->weight.grad()), Values{10});
    EXPECT_EQ(values(h.grad()), values(layer->weight));
  }
  const autograd::AnomalyMode anomaly;
  auto square = compile([](const Tensor& a) { return a * a; });
  for (int i = 0; i < 3; ++i) {
    const Tensor x = leaf({3});
    square(x).sum().backward();
    EXPECT_EQ(values(x.grad()), Values{6});
  }
}

// pytorch/pytorch#128035: a write of an argument that gradients pass is refused.
TEST(ReportedCompiled, WritesOfArgumentsWithHistoriesAreRefused) {
  auto scale = compile([](const Tensor& a) {
    Tensor x = a;
    x.mul_(3);
    return x * x;
  });
  const Tensor h = leaf({2, 3}) * 1;
  EXPECT_ERROR(scale(h), "writes argument 0");
  auto part = compile([](const Tensor& a) {
    a.slice(0, 0, 1).mul_(3);
    return a * a;
  });
  EXPECT_ERROR(part(leaf({2, 3}) * 1), "writes argument 0");
  // Without a history, a write is part of the function.
  for (int i = 0; i < 3; ++i) {
    const Tensor x = plain({2, 3});
    EXPECT_EQ(values(scale(x)), (Values{36, 81}));
    EXPECT_EQ(values(x), (Values{6, 9}));
  }
}

// pytorch/pytorch#113793: a tensor that is two results.
TEST(ReportedCompiled, ATensorMayBeTwoResults) {
  auto twice = compile([](const Tensor& x) {
    const Tensor y = x * 2;
    return std::vector<Tensor>{y, y};
  });
  for (int i = 0; i < 3; ++i) {
    const Tensor x = leaf({1, 2});
    const std::vector<Tensor> y = twice(x);
    (y[0] + y[1] * 10).sum().backward();
    EXPECT_EQ(values(x.grad()), (Values{22, 22})) << i;
  }
}

// pytorch/pytorch#194504: what the host reads of tensors from outside may change.
TEST(ReportedCompiled, ReadsOfTensorsFromOutsideAreNoticed) {
  const Tensor w = tensor(2.0, kFloat64);
  auto scaled = compile([&](const Tensor& x) { return x * w.item<double>(); });
  for (int i = 0; i < 4; ++i) {
    w.fill_(i / 2);
    EXPECT_EQ(values(scaled(plain({1, 2}))), (Values{1.0 * (i / 2), 2.0 * (i / 2)})) << i;
  }
  EXPECT_EQ(scaled.stats().recorded, 2);
  auto counted = compile([&](const Tensor& x) {
    w.add_(1);
    return x * w.item<double>();
  });
  EXPECT_ERROR(counted(plain({1})), "a tensor that the function has written");
  auto parts = compile(
      [&](const Tensor& x) {
        w.add_(1);
        return x * w.item<double>();
      },
      {.allow_breaks = true});
  w.fill_(0);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(values(parts(plain({1}))), Values{1.0 * (i + 1)}) << i;
}

// pytorch/pytorch#196897: a captured variable is assigned another view.
TEST(ReportedCompiled, AssignedViewsAreNoticed) {
  const Tensor w = plain({1, 2, 3});
  Tensor v = w[0];
  auto run = compile([&](const Tensor& x) { return x * v; });
  for (int i = 0; i < 3; ++i) {
    v = w[i];
    for (int k = 0; k < 2; ++k) EXPECT_EQ(values(run(plain({1}))), Values{i + 1.0});
  }
  const Tensor x = leaf({1}) * 2;
  auto kept = compile([&](const Tensor& a) { return a * x; });
  EXPECT_ERROR(kept(plain({1})), "give it as an argument");
  EXPECT_EQ(values(compile([&](const Tensor& a) { return a * x.detach(); })(plain({1}))),
            Values{2});
}

// ml-explore/mlx#4234: each call draws from the generator that is the default then.
TEST(ReportedCompiled, DrawsAreFromTheDefaultGenerator) {
  auto draw = compile([](const Tensor& x) { return rand_like(x); });
  const Tensor x = plain({0, 0});
  for (int i = 0; i < 3; ++i) {
    Generator own(42 + i), same(42 + i);
    const Tensor expected = rand({2}, kFloat64, {}, same);
    for (int k = 0; k < 2; ++k) {
      const GeneratorGuard guard(own);
      const Tensor found = draw(x);
      if (k == 0) {
        EXPECT_EQ(values(found), values(expected)) << i;
      }
    }
    EXPECT_EQ(own.call(), 2);
  }
  manual_seed(3);
  const Tensor first = draw(x);
  manual_seed(3);
  EXPECT_EQ(values(draw(x)), values(first));
}

// pytorch/pytorch#117496: numbers of library objects that compiled functions hold.
TEST(ReportedCompiled, ChangedNumbersOfModulesAreNoticed) {
  nn::BatchNorm1d norm(1, {.momentum = 0.5});
  auto run = compile([&](const Tensor& x) { return norm(x); });
  const Tensor x = tensor({{1.0}, {3.0}}, kFloat32);
  for (int i = 0; i < 2; ++i) run(x);
  norm->set_momentum(1.0);
  run(x);
  EXPECT_EQ(norm->running_mean.item<float>(), 2);
  nn::GradScaler scaler({.init_scale = 8});
  auto scaled = compile([&](const Tensor& loss) { return scaler.scale(loss); });
  for (int i = 0; i < 2; ++i) scaled(ones({}));
  scaler.update(16.0);
  EXPECT_EQ(scaled(ones({})).item<float>(), 16);
}

// pytorch/pytorch#190717: a checkpoint draws the same numbers when it computes again.
TEST(ReportedCompiled, CheckpointsDrawOnce) {
  auto drop = compile([](const Tensor& x) {
    return autograd::checkpoint(
        [](const std::vector<Tensor>& in) {
          return std::vector<Tensor>{dropout(in[0], 0.5, true)};
        },
        {x})[0];
  });
  for (int i = 0; i < 4; ++i) {
    const Tensor x = ones({32}, kFloat64).requires_grad_();
    const Tensor y = drop(x);
    y.sum().backward();
    EXPECT_EQ(values(x.grad()), values(y)) << i;
  }
}

// Results that are arguments, or tensors from outside, lost their gradients.
TEST(ReportedCompiled, ArgumentsThatAreReturnedHaveGradients) {
  const Tensor w = full({2}, 3.0).requires_grad_();
  auto same = compile([](const Tensor& x) { return dropout(x, 0.5, false); });
  auto both = compile([](const Tensor& x) { return std::tuple(x, x * 2); });
  auto outside = compile([&](const Tensor& x) { return std::tuple(w, w * x); });
  for (int i = 0; i < 4; ++i) {
    const Tensor x = ones({2}).requires_grad_();
    same(x).sum().backward();
    EXPECT_EQ(values(x.grad()), (std::vector<double>{1, 1})) << i;
    const auto [p, q] = both(x);
    (p + q).sum().backward();
    EXPECT_EQ(values(x.grad()), (std::vector<double>{4, 4})) << i;
    w.set_grad({});
    const auto [a, b] = outside(ones({2}));
    (a + b).sum().backward();
    EXPECT_EQ(values(w.grad()), (std::vector<double>{2, 2})) << i;
  }
}

// Backward of a compiled function read what was written after its forward.
TEST(ReportedCompiled, WritesBetweenForwardAndBackwardAreErrors) {
  const Tensor w = full({1}, 2.0).requires_grad_(), buffer = full({1}, 3.0);
  auto f = compile([&](const Tensor& x) { return (x * w * w * buffer).sum(); });
  for (int i = 0; i < 4; ++i) {
    const Tensor before = f(ones({1}));
    before.backward();
    EXPECT_EQ(w.grad().item<float>(), 12) << i;
    w.set_grad({});
    for (const Tensor& written : {w, buffer}) {
      const Tensor loss = f(ones({1}));
      {
        const NoGradGuard no_grad;
        written.add_(0);
      }
      EXPECT_THROW(loss.backward(), Error) << i;
      w.set_grad({});
    }
  }
}

// The second derivative of a function with one derivative is an error, not
// 0, whatever asks for it.
TEST(ReportedCompiled, SecondDerivativesAreRefused) {
  auto f = compile([](const Tensor& x) { return (x * x).sin().sum(); });
  const Tensor x = ones({2}), leaf = ones({2}).requires_grad_();
  f(leaf);  // the function itself, which has all derivatives
  EXPECT_THROW(autograd::jvp(f, x, ones({2})), Error);
  EXPECT_THROW(autograd::hessian(f, x), Error);
  const Tensor gradient = autograd::grad({f(leaf)}, {leaf}, {}, {.create_graph = true})[0];
  EXPECT_THROW(autograd::grad({(gradient * leaf).sum()}, {leaf}), Error);
}

// Results that are views with gaps.
TEST(ReportedCompiled, ViewsWithGapsHaveGradients) {
  auto f = compile([](const Tensor& x) {
    const Tensor y = x * 2;
    return std::tuple(y.select(1, 0), y.select(0, 1).unsqueeze(0).expand({3, 2}), y.diagonal());
  });
  for (int i = 0; i < 3; ++i) {
    const Tensor x = ones({2, 2}).requires_grad_();
    const auto [column, rows, diagonal] = f(x);
    (column.sum() + rows.sum() + diagonal.sum()).backward();
    EXPECT_EQ(values(x.grad()), (std::vector<double>{4, 0, 8, 8})) << i;
  }
}

// vmap of a compiled function took the graph of one example.
TEST(ReportedCompiled, VmapRunsTheFunctionForEachExample) {
  auto f = compile([](const Tensor& x) { return (x * x).sum(); });
  const Tensor x = arange(6).to(kFloat32).view({2, 3});
  for (int i = 0; i < 3; ++i) {
    f(ones({3}));
    const Tensor found = autograd::vmap([&](const Tensor& row) { return f(row); })(x);
    EXPECT_EQ(values(found), (std::vector<double>{5, 50})) << i;
  }
}

// Memory of arguments was released twice after calls in inference mode.
TEST(ReportedCompiled, InferenceModePlansHoldNoMemoryTwice) {
  const Tensor x = ones({4});
  {
    auto f = compile([](const Tensor& of) { return of * 2; });
    const InferenceMode inference;
    for (int i = 0; i < 3; ++i) f(x);
  }
  const Tensor others[] = {full({4}, 7), full({4}, 8), full({4}, 9)};
  EXPECT_EQ(values(x), (std::vector<double>{1, 1, 1, 1}));
  EXPECT_EQ(others[2][0].item<float>(), 9);
}

// A type of autocast that changes between calls.
TEST(ReportedCompiled, ChangedTypesOfAutocastAreNoticed) {
  auto f = compile([](const Tensor& x) {
    const AutocastGuard autocast(kCPU);
    return x.mm(x);
  });
  const ScalarType before = autocast::get_autocast_dtype(kCPU);
  for (const ScalarType type : {kBFloat16, kFloat16, kBFloat16}) {
    autocast::set_autocast_dtype(kCPU, type);
    for (int i = 0; i < 3; ++i) EXPECT_EQ(f(ones({2, 2})).dtype(), type);
  }
  autocast::set_autocast_dtype(kCPU, before);
}

// The running statistics of a layer that backward computes again are not among what it needs.
TEST(ReportedCompiled, CheckpointedNormsMayRunTwiceBeforeBackward) {
  nn::BatchNorm1d norm(2);
  auto f = compile([&](const Tensor& x) {
    return autograd::checkpoint(
        [&](const std::vector<Tensor>& in) { return std::vector<Tensor>{norm(in[0]).square()}; },
        {x})[0];
  });
  const Tensor x = tensor({{1., 2.}, {3., 5.}, {4., 1.}}).requires_grad_();
  for (int i = 0; i < 3; ++i) {
    const Tensor first = f(x), second = f(x);
    EXPECT_NO_THROW((first + second).sum().backward()) << i;
  }
}

// Weights that the recorded function itself clamps before its step.
TEST(ReportedCompiled, StepsSeeWritesToWeightsOf16Bits) {
  const auto train = [](bool compiled) {
    const Tensor w = full({1}, 1.0, kBFloat16).requires_grad_();
    nn::optim::SGD optimizer({w}, {.lr = 0.5});
    const auto step = [&](const Tensor& x) {
      {
        const NoGradGuard no_grad;
        w.clamp_(0, 1);
      }
      optimizer.zero_grad();
      (w * x).sum().backward();
      optimizer.step();
      return x * 1;
    };
    auto recorded = compile(step);
    step(ones({1}, kBFloat16));
    for (int i = 0; i < 6; ++i) {
      const Tensor x = full({1}, i % 2 == 0 ? 1.0 : -3.0, kBFloat16);
      compiled ? recorded(x) : step(x);
    }
    return w.item<float>();
  };
  EXPECT_EQ(train(true), train(false));
}

// Steps that are recorded follow what happened to the model before, and the
// counts of all parameters go on.
TEST(ReportedCompiled, StepsFollowTheModel) {
  const auto train = [](bool compiled) {
    manual_seed(3);
    nn::Linear layer(2, 1);
    nn::optim::SGD optimizer(layer.parameters(), {.lr = 0.1, .momentum = 0.9});
    const auto step = [&](const Tensor& x) {
      optimizer.zero_grad();
      layer(x).sum().backward();
      optimizer.step();
      return x * 1;
    };
    step(ones({1, 2}));
    layer.to(kFloat64);
    auto recorded = compile(step);
    const Tensor x = ones({1, 2}, kFloat64);
    for (int i = 0; i < 4; ++i) compiled ? recorded(x) : step(x);
    return values(layer.bias());
  };
  EXPECT_EQ(train(true), train(false));

  const auto freeze = [](bool compiled) {
    const Tensor p = ones({1}).requires_grad_(), q = ones({1}).requires_grad_();
    nn::optim::Adam optimizer({p, q}, {.lr = 0.1});
    const auto step = [&](const Tensor& x) {
      optimizer.zero_grad();
      (p * p * x + q * q * x).sum().backward();
      optimizer.step();
      return x * 1;
    };
    auto recorded = compile(step);
    const auto run = [&](int times) {
      for (int i = 0; i < times; ++i) compiled ? recorded(ones({1})) : step(ones({1}));
    };
    run(3);
    p.requires_grad_(false);
    run(1);
    p.requires_grad_(true);
    run(3);
    return std::vector<double>{p.item<double>(), q.item<double>()};
  };
  const std::vector<double> found = freeze(true), expected = freeze(false);
  for (size_t i = 0; i < 2; ++i) EXPECT_NEAR(found[i], expected[i], 1e-6) << i;

  nn::Linear layer(1, 1, {.bias = false});
  layer.to(kBFloat16);
  nn::optim::SGD optimizer(layer.parameters(), {.lr = 0.5});
  auto step = compile([&](const Tensor& x) {
    optimizer.zero_grad();
    layer(x).sum().backward();
    optimizer.step();
    return x * 1;
  });
  const Tensor x = ones({1, 1}, kBFloat16);
  for (int i = 0; i < 3; ++i) step(x);
  layer.load_state_dict({{"weight", full({1, 1}, 5)}});
  for (int i = 0; i < 2; ++i) step(x);
  EXPECT_EQ(layer.weight().item<float>(), 4);
}

// A norm without momentum weights a batch by the number of batches, which a recording cannot read.
TEST(ReportedCompiled, NormsWithoutMomentum) {
  const auto check = [](auto eager, auto compiled, const std::vector<int64_t>& sizes) {
    auto step = compile([&](const Tensor& x) { return compiled(x); });
    for (int i = 0; i < 6; ++i) {
      if (i == 4) {
        eager.reset_running_stats();
        compiled.reset_running_stats();
      }
      const Tensor x = randn(sizes, kFloat32, {}, Generator(static_cast<uint64_t>(i))) + i;
      EXPECT_TRUE(allclose(eager(x), step(x), 1e-5, 1e-5)) << i;
      EXPECT_TRUE(allclose(eager.running_mean, compiled.running_mean, 1e-5, 1e-6)) << i;
      EXPECT_TRUE(allclose(eager.running_var, compiled.running_var, 1e-5, 1e-6)) << i;
      EXPECT_TRUE(equal(eager.num_batches_tracked, compiled.num_batches_tracked)) << i;
    }
    EXPECT_LE(step.stats().recorded, 3);
  };
  const auto flat = [] { return nn::BatchNorm1d(3, {.momentum = std::nullopt}); };
  check(flat(), flat(), {5, 3});
  const auto planes = [] { return nn::BatchNorm2d(3, {.momentum = std::nullopt}); };
  check(planes(), planes(), {2, 3, 4, 4});
  const auto instance = [] {
    return nn::InstanceNorm1d(3, {.momentum = std::nullopt, .track_running_stats = true});
  };
  check(instance(), instance(), {2, 3, 4});
}

}  // namespace
}  // namespace mytorch
