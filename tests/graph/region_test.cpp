// Regions: parts of compiled functions that a backend runs as a whole.
#include <cstdlib>
#include <map>
#include <random>

#include "gtest/gtest.h"
#include "mytorch/compile.h"
#include "mytorch/error.h"
#include "mytorch/mytorch.h"
#include "mytorch/profiler.h"
#include "tests/core/random_seed.h"
#include "tests/graph/random_function.h"
#include "tests/graph/region_backend.h"
#include "tests/nn/data/temp_directory.h"

namespace mytorch {
namespace {

namespace F = nn::functional;

// Claims the nodes of some operators.
std::function<void(const sdk::Region&, std::span<int32_t>)> claim_named(
    std::vector<std::string> names) {
  return [names](const sdk::Region& region, std::span<int32_t> wanted) {
    for (const sdk::RegionNode node : region.nodes()) {
      for (const std::string& name : names) {
        if (node.op() == name) wanted[node.index()] = 1;
      }
    }
  };
}

class Regions : public ::testing::Test {
 protected:
  Regions() { reset_test_regions(); }
  ~Regions() override { reset_test_regions(); }
  RegionBehavior& a = region_behavior(0);
  RegionBehavior& b = region_behavior(1);
};

// Compiles f, compares a few calls with it, and returns what the plan looks like.
template <class Fn>
CompileStats plan_of(Fn f, const Tensor& x, CompileMode mode = CompileMode::kExact) {
  auto compiled = compile(f, {.mode = mode});
  for (int i = 0; i < 4; ++i) {
    const Tensor own = x.clone(), eager = x.clone();
    const Tensor found = compiled(own), expected = f(eager);
    EXPECT_TRUE(same_bits(found, expected)) << i;
    EXPECT_TRUE(same_bits(own, eager)) << i;
  }
  return compiled.stats();
}

TEST_F(Regions, AWholeFunctionIsOneCall) {
  a.claim = claim_all;
  const Tensor w = drawn({7, 7}, 1);
  const auto f = [&](const Tensor& x) { return tanh(matmul(relu(x), w) + 1).t() * 2; };
  const CompileStats stats = plan_of(f, drawn({5, 7}, 2));
  EXPECT_EQ(stats.regions, 1);
  EXPECT_EQ(stats.kernel_calls, 1);
  EXPECT_EQ(stats.region_report.size(), 1u);
  EXPECT_EQ(stats.region_report[0].find("regions-a runs relu, mm, add.Tensor, tanh"), 0u)
      << stats.region_report[0];
}

TEST_F(Regions, AreDestroyedWithTheirPlan) {
  a.claim = claim_all;
  plan_of([](const Tensor& x) { return x + 1; }, drawn({3}, 1));
  EXPECT_EQ(a.compiled, 1);
  EXPECT_EQ(a.destroyed, 1);
}

TEST_F(Regions, ADiamondWhoseMiddleIsNotClaimedIsSplit) {
  a.claim = claim_named({"exp", "tanh", "add.Tensor"});
  const auto f = [](const Tensor& x) {
    const Tensor y = exp(x);
    return tanh(y) + matmul(y, y);  // the product is not claimed
  };
  const CompileStats stats = plan_of(f, drawn({4, 4}, 3));
  EXPECT_EQ(stats.regions, 2);
  EXPECT_EQ(stats.kernel_calls, 3);
}

TEST_F(Regions, NumbersKeepNodesApart) {
  a.claim = [](const sdk::Region& region, std::span<int32_t> wanted) {
    for (int32_t i = 0; i < region.abi().num_nodes; ++i) wanted[i] = 1 + i;
  };
  const auto f = [](const Tensor& x) { return tanh(exp(x)); };
  EXPECT_EQ(plan_of(f, drawn({4, 4}, 3)).regions, 2);
}

TEST_F(Regions, AWriteBetweenKeepsItsPlace) {
  a.claim = claim_named({"exp", "add.Tensor"});
  const auto f = [](Tensor x) {
    const Tensor y = exp(x);
    x.mul_(2);  // between two nodes of the backend, and not claimed
    return y + x;
  };
  EXPECT_EQ(plan_of(f, drawn({4, 4}, 4)).regions, 2);
  a.claim = claim_all;
  EXPECT_EQ(plan_of(f, drawn({4, 4}, 4)).regions, 1);
}

TEST_F(Regions, DecliningLeavesTheNodesToKernels) {
  a.claim = claim_all;
  a.compile = [](const sdk::Region&) { throw sdk::Declined{}; };
  const auto f = [](const Tensor& x) { return matmul(exp(x), x); };
  CompileStats stats = plan_of(f, drawn({4, 4}, 5));
  EXPECT_EQ(stats.regions, 0);
  EXPECT_EQ(stats.kernel_calls, 2);
  EXPECT_EQ(stats.region_report, std::vector<std::string>{"regions-a declined exp, mm"});
  a.compile = [](const sdk::Region& region) {
    throw sdk::Error(MT_ERROR_UNSUPPORTED, region.node(1).text() + " is too small");
  };
  stats = plan_of(f, drawn({4, 4}, 5));
  EXPECT_EQ(stats.regions, 0);
  EXPECT_EQ(stats.region_report,
            std::vector<std::string>{"regions-a declined exp, mm: [mm] is too small"});
}

TEST_F(Regions, OfTwoBackendsTheOneWithPriorityIsAskedFirst) {
  a.claim = claim_all;
  b.claim = claim_named({"mm"});
  const auto f = [](const Tensor& x) { return tanh(matmul(exp(x), x)); };
  CompileStats stats = plan_of(f, drawn({4, 4}, 6));
  EXPECT_EQ(
      stats.region_report,
      (std::vector<std::string>{"regions-b runs mm", "regions-a runs exp", "regions-a runs tanh"}));
  {
    const Prefer prefer(test_device_type(), "regions-a");
    stats = plan_of(f, drawn({4, 4}, 6));
    EXPECT_EQ(stats.region_report, std::vector<std::string>{"regions-a runs exp, mm, tanh"});
  }
  // What the first one declines, the second one is offered.
  b.compile = [](const sdk::Region&) { throw sdk::Declined{}; };
  stats = plan_of(f, drawn({4, 4}, 6));
  EXPECT_EQ(stats.region_report,
            (std::vector<std::string>{"regions-b declined mm", "regions-a runs exp, mm, tanh"}));
}

TEST_F(Regions, AnOperatorThatIsPinnedToAnotherBackendIsNotOffered) {
  a.claim = claim_all;
  const Prefer prefer(test_device_type(), "regions-b", "mm");
  const auto f = [](const Tensor& x) { return tanh(matmul(exp(x), x)); };
  const CompileStats stats = plan_of(f, drawn({4, 4}, 6));
  EXPECT_EQ(stats.region_report,
            (std::vector<std::string>{"regions-a runs exp", "regions-a runs tanh"}));
}

TEST_F(Regions, ExactFunctionsAskOnlyBackendsThatKeepTheBits) {
  a.claim = claim_all;
  test_region_ops<0>().flags = 0;
  const auto f = [](const Tensor& x) { return tanh(exp(x)); };
  EXPECT_EQ(plan_of(f, drawn({4}, 7), CompileMode::kExact).regions, 0);
  EXPECT_EQ(a.claims, 0);
  EXPECT_EQ(plan_of(f, drawn({4}, 7), CompileMode::kDefault).regions, 1);
  bool exact = true;
  a.compile = [&](const sdk::Region& region) { exact = region.is_exact(); };
  plan_of(f, drawn({4}, 7), CompileMode::kDefault);
  EXPECT_FALSE(exact);
  test_region_ops<0>().flags = MT_REGIONS_EXACT;
  plan_of(f, drawn({4}, 7), CompileMode::kExact);
  EXPECT_TRUE(exact);
}

TEST_F(Regions, TheCheckOfCompiledFunctionsComparesThem) {
  a.claim = claim_all;
  const auto run = a.run;
  for (const CompileMode mode : {CompileMode::kExact, CompileMode::kDefault}) {
    setenv("MYTORCH_COMPILE", "check", 1);
    bool exact = false;
    a.compile = [&](const sdk::Region& region) { exact = region.is_exact(); };
    a.run = run;
    auto compiled = compile([](const Tensor& x) { return tanh(exp(x)); }, {.mode = mode});
    unsetenv("MYTORCH_COMPILE");
    for (int i = 0; i < 4; ++i) compiled(drawn({4}, 8));
    EXPECT_EQ(compiled.stats().regions, 1);
    EXPECT_EQ(exact, mode == CompileMode::kExact);
    a.run = [](const mt_region_args& args) {  // what the operators compute is then wrong
      const_cast<mt_tensor*>(args.inputs[0])->dl.data = args.scratch;
    };
    if (test_device().is_cpu()) {
      EXPECT_THROW(compiled(drawn({4}, 8)), Error);
    }
  }
}

TEST_F(Regions, ErrorsNameTheOperators) {
  a.claim = claim_all;
  auto compiled = compile([](const Tensor& x) { return tanh(exp(x)); });
  const Tensor x = drawn({4}, 9);
  compiled(x);
  compiled(x);
  const auto message = [&] {
    try {
      compiled(x);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  a.run = [](const mt_region_args&) { throw sdk::Error(MT_ERROR_VALUE, "the chip is hot"); };
  EXPECT_EQ(message(), "[region_exp_tanh] the chip is hot");
  a.run = [](const mt_region_args&) { throw sdk::Error(MT_ERROR_VALUE, "[exp] is hot"); };
  EXPECT_EQ(message(), "[exp] is hot");
  a.run = [](const mt_region_args&) { throw sdk::Declined{}; };
  EXPECT_NE(message().find("[region_exp_tanh]"), std::string::npos);
  a.run = nullptr;
  EXPECT_TRUE(same_bits(compiled(x), tanh(exp(x))));
}

TEST_F(Regions, ValuesInsideNeedNoMemoryOfThePlan) {
  const auto f = [](const Tensor& x) { return matmul(matmul(matmul(x, x), x), x); };
  const Tensor x = drawn({16, 16}, 10);
  const CompileStats kernels = plan_of(f, x);
  EXPECT_EQ(kernels.intermediate_bytes, 2 * 16 * 16 * 4);
  a.claim = claim_all;
  bool has_scratch = false;
  a.run = [&](const mt_region_args& args) {
    has_scratch = args.scratch != nullptr && reinterpret_cast<uintptr_t>(args.scratch) % 64 == 0;
  };
  CompileStats stats = plan_of(f, x);
  const int64_t scratch = stats.intermediate_bytes;  // the scratch memory of the test's backend
  EXPECT_TRUE(has_scratch);
  a.scratch_bytes = 4096;
  stats = plan_of(f, x);
  EXPECT_EQ(stats.intermediate_bytes, scratch + 4096);
}

TEST_F(Regions, ScratchMemoryIsSharedByRegions) {
  a.claim = [](const sdk::Region& region, std::span<int32_t> wanted) {
    for (int32_t i = 0; i < region.abi().num_nodes; ++i) wanted[i] = 1 + i;
  };
  a.scratch_bytes = 1 << 20;
  const auto f = [](const Tensor& x) { return matmul(matmul(matmul(x, x), x), x); };
  const CompileStats stats = plan_of(f, drawn({16, 16}, 10));
  EXPECT_EQ(stats.regions, 3);
  EXPECT_GT(stats.intermediate_bytes, 3 << 20);
  EXPECT_LT(stats.planned_bytes, 2 << 20);
}

TEST_F(Regions, ResultsMayShareMemory) {
  a.claim = claim_all;
  const auto f = [](const Tensor& x) {
    const Tensor y = exp(x), z = y.t();
    return std::tuple(y, z, z.narrow(0, 1, 2), x.t(), tanh(z));
  };
  auto compiled = compile(f, {.mode = CompileMode::kExact});
  const Tensor x = drawn({5, 4}, 11);
  for (int i = 0; i < 4; ++i) {
    const auto [y, yt, part, xt, t] = compiled(x);
    const auto [y1, yt1, part1, xt1, t1] = f(x);
    EXPECT_TRUE(same_bits(y, y1) && same_bits(yt, yt1) && same_bits(part, part1));
    EXPECT_TRUE(same_bits(xt, xt1) && same_bits(t, t1));
    EXPECT_EQ(y.impl()->storage, yt.impl()->storage);
    EXPECT_EQ(y.impl()->storage, part.impl()->storage);
    EXPECT_EQ(x.impl()->storage, xt.impl()->storage);
  }
}

TEST_F(Regions, ResultsAreFreshMemory) {
  a.claim = claim_all;
  auto compiled = compile([](const Tensor& x) { return x + 1; });
  std::vector<Tensor> results;
  for (int i = 0; i < 4; ++i) results.push_back(compiled(full({3}, i, kFloat32).to(test_device())));
  for (int i = 0; i < 4; ++i) EXPECT_EQ(results[i][0].item<float>(), i + 1);
}

TEST_F(Regions, WritesReachArgumentsAndCountAsWrites) {
  a.claim = claim_all;
  auto compiled = compile([](Tensor x, const Tensor& y) {
    x.narrow(0, 0, 2).add_(y);
    x.mul_(2);
  });
  Tensor x = zeros({3}).to(test_device());
  const Tensor y = full({2}, 1, kFloat32).to(test_device());
  for (int i = 0; i < 4; ++i) compiled(x, y);
  const uint64_t version = x.impl()->storage->abi.version;
  compiled(x, y);
  EXPECT_GT(x.impl()->storage->abi.version, version);
  EXPECT_EQ(x.cpu().to_vector<float>(), (std::vector<float>{62, 62, 0}));
  EXPECT_EQ(compiled.stats().regions, 1);
}

TEST_F(Regions, RandomNumbersContinueTheGenerator) {
  for (const bool all : {true, false}) {
    a.claim = all ? claim_all : claim_named({"mul.Tensor", "dropout", "native_dropout"});
    const auto f = [](const Tensor& x) {
      return F::dropout(x * 2, 0.5, true) + rand_like(x) * F::dropout(x, 0.25, true);
    };
    auto compiled = compile(f, {.mode = CompileMode::kExact});
    const Tensor x = drawn({64}, 12);
    std::vector<Tensor> found, expected;
    manual_seed(5);
    for (int i = 0; i < 4; ++i) found.push_back(compiled(x));
    manual_seed(5);
    for (int i = 0; i < 4; ++i) expected.push_back(f(x));
    for (int i = 0; i < 4; ++i) EXPECT_TRUE(same_bits(found[i], expected[i])) << i;
    EXPECT_GT(compiled.stats().regions, 0);
  }
}

// Forward, backward and optimizer in one graph.
TEST_F(Regions, TrainingStepsAreTheSame) {
  const auto train = [](bool compiles) {
    manual_seed(3);
    nn::Sequential model(nn::Linear(6, 8), nn::ReLU(), nn::Linear(8, 3));
    model.to(test_device());
    nn::optim::AdamW optimizer(model.parameters(), nn::optim::AdamWOptions(0.01));
    const auto step = [&](const Tensor& x, const Tensor& y) {
      optimizer.zero_grad();
      Tensor loss = F::cross_entropy(model(x), y);
      loss.backward();
      optimizer.step();
      return loss.detach();
    };
    auto compiled = compile(step, {.mode = CompileMode::kExact});
    std::vector<Tensor> losses;
    for (uint64_t i = 0; i < 6; ++i) {
      const Tensor x = drawn({5, 6}, i), y = randint(0, 3, {5}).to(test_device());
      losses.push_back(compiles ? compiled(x, y) : step(x, y));
    }
    for (const Tensor& each : model.parameters()) losses.push_back(each.detach());
    EXPECT_EQ(compiled.stats().regions > 0, compiles);
    return losses;
  };
  a.claim = claim_all;
  const std::vector<Tensor> found = train(true), expected = train(false);
  for (size_t i = 0; i < found.size(); ++i) EXPECT_TRUE(same_bits(found[i], expected[i])) << i;
}

TEST_F(Regions, ABackwardOutsideOfTheFunctionIsTheSame) {
  a.claim = claim_all;
  manual_seed(3);
  nn::Linear model(6, 4);
  model.to(test_device());
  auto forward =
      compile([&](const Tensor& x) { return tanh(model(x)); }, {.mode = CompileMode::kExact});
  const auto grads_of = [&](auto&& f, const Tensor& x) {
    for (Tensor& each : model.parameters()) each.set_grad({});
    f(x).sum().backward();
    std::vector<Tensor> found;
    for (const Tensor& each : model.parameters()) found.push_back(each.grad().clone());
    return found;
  };
  const int before = a.compiled;
  for (uint64_t i = 0; i < 5; ++i) {
    const Tensor x = drawn({3, 6}, i);
    const std::vector<Tensor> found = grads_of(forward, x);
    const std::vector<Tensor> expected =
        grads_of([&](const Tensor& in) { return tanh(model(in)); }, x);
    for (size_t k = 0; k < found.size(); ++k) EXPECT_TRUE(same_bits(found[k], expected[k])) << i;
  }
  EXPECT_GE(a.compiled - before, 2);  // of the function, and of its backward
}

TEST_F(Regions, LoadedProgramsHaveRegionsAndConstants) {
  const Tensor w = drawn({4, 4}, 13);
  const testing::TempDirectory directory;
  const std::string path = directory.file("regions.mtg");
  {
    auto compiled = compile([&](const Tensor& x) { return tanh(matmul(x, w)); });
    compiled(drawn({3, 4}, 14));
    compiled.save(path);
  }
  a.claim = claim_all;
  int constants = 0;
  a.compile = [&](const sdk::Region& region) {
    constants = 0;
    for (int32_t id = 0; id < region.num_values(); ++id) {
      constants += region.value(id).kind == MT_REGION_CONSTANT ? 1 : 0;
    }
  };
  Program program = load(path, CompileMode::kExact);
  const Tensor x = drawn({3, 4}, 14);
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(same_bits(program.run({x})[0], tanh(matmul(x, w)))) << i;
  EXPECT_EQ(a.compiled, 1);
  EXPECT_EQ(constants, 1);
  // Who has the tensor may write to it: it is no constant any more.
  Tensor kept = program.state().begin()->second;
  kept.mul_(2);
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(same_bits(program.run({x})[0], tanh(matmul(x, kept)))) << i;
  }
  EXPECT_EQ(a.compiled, 2);
  EXPECT_EQ(constants, 0);
  kept.mul_(2);
  EXPECT_TRUE(same_bits(program.run({x})[0], tanh(matmul(x, kept))));
}

TEST_F(Regions, ParametersAreNoConstants) {
  a.claim = claim_all;
  bool constant = false;
  a.compile = [&](const sdk::Region& region) {
    for (int32_t id = 0; id < region.num_values(); ++id) {
      constant = constant || region.value(id).kind == MT_REGION_CONSTANT;
    }
  };
  Tensor w = drawn({4, 4}, 15);
  auto compiled = compile([&](const Tensor& x) { return matmul(x, w); });
  const Tensor x = drawn({2, 4}, 16);
  for (int i = 0; i < 4; ++i) {
    EXPECT_TRUE(same_bits(compiled(x), matmul(x, w)));
    w.mul_(2);
  }
  EXPECT_EQ(compiled.stats().regions, 1);
  EXPECT_FALSE(constant);
}

TEST_F(Regions, AttributesAreReadByName) {
  a.claim = claim_all;
  std::map<std::string, std::string> seen;
  a.compile = [&](const sdk::Region& region) {
    for (const sdk::RegionNode node : region.nodes()) {
      const std::string op(node.op());
      if (op == "softmax.int" || op == "_softmax") seen[op] = std::to_string(node.integer("dim"));
      if (op == "sum.dim_IntList") {
        seen[op] =
            std::to_string(node.integers("dim")[0]) + " " + std::to_string(node.integer("keepdim"));
      }
      if (op == "gelu") seen[op] = std::string(node.string("approximate"));
      if (op == "add.Tensor") {
        seen[op] = std::to_string(node.number("alpha")) + " " +
                   std::to_string(node.is_value("other")) + std::to_string(node.has("alpha"));
        EXPECT_THROW(node.value("alpha"), sdk::Error);
        EXPECT_THROW(node.arg("beta"), sdk::Error);
      }
      if (op == "cat") seen[op] = std::to_string(node.values("tensors").size());
    }
  };
  const auto f = [](const Tensor& x) {
    const Tensor y = add(softmax(x, 1), gelu(x, "tanh"), 0.5);
    return cat({y, y.sum({1}, true)}, 1);
  };
  EXPECT_EQ(plan_of(f, drawn({3, 4}, 17)).regions, 1);
  EXPECT_EQ(seen["add.Tensor"], "0.500000 11");
  EXPECT_EQ(seen["gelu"], "tanh");
  EXPECT_EQ(seen["sum.dim_IntList"], "1 1");
  EXPECT_EQ(seen["cat"], "2");
}

TEST_F(Regions, AViewLiesInTheMemoryOfItsOperand) {
  a.claim = claim_all;
  bool seen = false;
  a.compile = [&](const sdk::Region& region) {
    const sdk::RegionNode view = region.node(0);
    const int32_t of = view.value("self"), id = view.result();
    EXPECT_EQ(region.value(of).kind, MT_REGION_INPUT);
    EXPECT_EQ(region.value(id).kind, MT_REGION_INSIDE);
    EXPECT_EQ(region.value(id).memory, region.value(of).memory);
    EXPECT_EQ(region.value(id).offset, 4);
    EXPECT_EQ(region.host_value(id), std::optional<int32_t>(of));
    EXPECT_EQ(region.inputs().size(), 1u);
    EXPECT_EQ(region.outputs().size(), 1u);
    EXPECT_FALSE(region.host_value(region.node(1).result()).has_value());
    seen = true;
  };
  const auto f = [](const Tensor& x) { return tanh(exp(x.narrow(0, 1, 2))); };
  EXPECT_EQ(plan_of(f, drawn({3, 4}, 20)).regions, 1);
  EXPECT_TRUE(seen);
}

TEST_F(Regions, AProfileOutlivesThem) {
  a.claim = claim_all;
  profiler::Profile profile;
  plan_of([](const Tensor& x) { return tanh(exp(x)); }, drawn({4}, 18));
  EXPECT_NE(profile.table().find("region_exp_tanh"), std::string::npos);
}

// Where a device has graphs.
TEST_F(Regions, OnlyRegionsThatQueueTheirWorkAreInDeviceGraphs) {
  const auto f = [](const Tensor& x) {
    Tensor y = x;
    for (int i = 0; i < 4; ++i) y = exp(matmul(y, x) * 0.01);
    return y;
  };
  const Tensor x = drawn({8, 8}, 19);
  if (!plan_of(f, x).device_graph) GTEST_SKIP() << "the device has no graphs";
  a.claim = claim_named({"mm"});
  CompileStats stats = plan_of(f, x);
  EXPECT_EQ(stats.regions, 4);
  EXPECT_FALSE(stats.device_graph);
  a.flags = MT_REGION_CAPTURABLE;
  stats = plan_of(f, x);
  EXPECT_EQ(stats.regions, 4);
  EXPECT_TRUE(stats.device_graph);
}

// Random functions, of which two backends claim random nodes.
TEST_F(Regions, RandomSubsetsGiveTheBitsOfTheFunction) {
  const char* number = std::getenv("MYTORCH_RANDOM_GRAPHS");
  const auto count = static_cast<uint64_t>(number != nullptr ? std::atoll(number) : 400);
  const uint64_t begin = testing::random_seed();
  std::printf("seeds from %llu\n", static_cast<unsigned long long>(begin));
  int64_t regions = 0;
  for (uint64_t seed = begin; seed < begin + count; ++seed) {
    std::mt19937_64 draw(seed);
    const auto some = [&draw](int of) {
      return [&draw, of](const sdk::Region& region, std::span<int32_t> wanted) {
        for (int32_t i = 0; i < region.abi().num_nodes; ++i) {
          const auto drawn = static_cast<int32_t>(draw() % 8);
          wanted[i] = drawn < of ? 1 + drawn % 2 : 0;
        }
      };
    };
    a.claim = some(1 + static_cast<int>(seed % 8));
    b.claim = some(static_cast<int>(seed / 8 % 4));
    a.compile = b.compile = [&draw](const sdk::Region&) {
      if (draw() % 8 == 0) throw sdk::Declined{};
    };
    const int length = 3 + static_cast<int>(seed % 24);
    auto compiled = compile(
        [&](const std::vector<Tensor>& x) { return RandomFunction(seed, length, Kind::kAny)(x); },
        {.mode = CompileMode::kExact});
    const std::vector<Tensor> given = arguments_of(seed, dtype_of(seed));
    for (int call = 0; call < 4; ++call) {
      const std::vector<Tensor> own = copies(given), eager = copies(given);
      const std::vector<Tensor> expected = RandomFunction(seed, length, Kind::kAny)(eager);
      const std::vector<Tensor> found = compiled(own);
      for (size_t i = 0; i < expected.size(); ++i) {
        ASSERT_TRUE(same_bits(found[i], expected[i]))
            << "seed " << seed << ", result " << i << " of call " << call << "\n"
            << compiled.text();
      }
      for (size_t i = 0; i < own.size(); ++i) {
        ASSERT_TRUE(same_bits(own[i], eager[i]))
            << "seed " << seed << ", argument " << i << " of call " << call << "\n"
            << compiled.text();
      }
    }
    regions += compiled.stats().regions;
  }
  EXPECT_GT(regions, static_cast<int64_t>(count));
  EXPECT_EQ(a.compiled, a.destroyed);
}

}  // namespace
}  // namespace mytorch
