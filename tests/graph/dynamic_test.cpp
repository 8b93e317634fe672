// Compiled functions with dimensions that may have any size.
#include <cmath>
#include <random>
#include <set>

#include "graph/fusion/fused_op.h"
#include "graph/symbols/number_form.h"
#include "graph/symbols/polynomial.h"
#include "mytorch/compile.h"
#include "mytorch/generator.h"
#include "mytorch/grad_mode.h"
#include "mytorch/mytorch.h"
#include "mytorch/mytorch_c.h"
#include "mytorch/nn/functional.h"
#include "tests/core/same_bits.h"
#include "tests/nn/data/temp_directory.h"

namespace mytorch {
namespace {

namespace F = nn::functional;
using testing::TempDirectory;

const CompileOptions kBatch = {.mode = CompileMode::kExact, .dynamic_dims = {{0, 0}}};
const CompileOptions kBatches = {.mode = CompileMode::kExact, .dynamic_dims = {{0, 0}, {1, 0}}};

// ---- functions of sizes ----

TEST(Polynomial, FitsWhatItIsMadeOf) {
  const std::vector<graph::SymbolValues> sizes = {{4, 7}, {6, 5}, {9, 16}};
  const auto expect = [&](const char* text, const auto& of) {
    std::vector<int64_t> values;
    for (const auto& each : sizes) values.push_back(of(each[0], each[1]));
    const auto found = graph::fit(sizes, values);
    ASSERT_FALSE(found.empty()) << text;
    EXPECT_EQ(found[0].text({"n", "t"}), text);
    EXPECT_EQ(found[0].at(std::vector<int64_t>{11, 13}), of(11, 13)) << text;
  };
  expect("8", [](int64_t, int64_t) { return 8; });
  expect("n", [](int64_t n, int64_t) { return n; });
  expect("t*3", [](int64_t, int64_t t) { return 3 * t; });
  expect("n*2 - 1", [](int64_t n, int64_t) { return 2 * n - 1; });
  expect("n*t*t*12", [](int64_t n, int64_t t) { return 12 * n * t * t; });
  expect("n*t - n", [](int64_t n, int64_t t) { return n * (t - 1); });
  expect("n*5 + t*2", [](int64_t n, int64_t t) { return 5 * n + 2 * t; });
  EXPECT_TRUE(graph::fit(sizes, {1, 3, 2}).empty());
}

TEST(Polynomial, AQuotientIsNothingAtOtherSizes) {
  const auto found = graph::fit({{4}, {8}, {12}}, {2, 4, 6});
  ASSERT_FALSE(found.empty());
  EXPECT_EQ(found[0].text({"n"}), "n over 2");
  EXPECT_EQ(found[0].at(std::vector<int64_t>{6}), 3);
  EXPECT_FALSE(found[0].at(std::vector<int64_t>{7}).has_value());
  EXPECT_FALSE(found[0].at(std::vector<int64_t>{INT64_MAX}).has_value());
}

TEST(NumberForm, FitsMeansByHand) {
  const std::vector<graph::SymbolValues> sizes = {{3}, {7}, {49}};
  const auto expect = [&](const char* text, const auto& of) {
    std::vector<double> values;
    for (const auto& each : sizes) values.push_back(of(static_cast<double>(each[0])));
    const auto found = graph::fit_numbers(sizes, values);
    ASSERT_FALSE(found.empty()) << text;
    EXPECT_EQ(found[0].text({"n"}), text);
    EXPECT_EQ(found[0].at(std::vector<int64_t>{1001}), of(1001.)) << text;
  };
  expect("1./(n)", [](double n) { return 1 / n; });
  expect("1./(n - 1)", [](double n) { return 1 / (n - 1); });
  expect("1./sqrt(n)", [](double n) { return 1 / std::sqrt(n); });
  expect("float32 1./(n)",
         [](double n) { return static_cast<double>(1.0f / static_cast<float>(n)); });
  expect("1.*(n)", [](double n) { return n; });
  EXPECT_TRUE(graph::fit_numbers(sizes, {1, 2.5, 7}).empty());
}

// ---- compiled functions ----

TEST(DynamicDims, ThreeRecordingsGiveAllSizesBetween) {
  nn::Sequential net(nn::Linear(5, 7), nn::ReLU(), nn::Linear(7, 3));
  const NoGradGuard no_grad;
  int ran = 0;
  auto compiled = compile(
      [&](const Tensor& x) {
        ++ran;
        return softmax(net(x), -1).sum(0) / static_cast<double>(x.size(0));
      },
      kBatch);
  for (const int64_t n : {2, 40, 17}) compiled(randn({n, 5}));
  EXPECT_EQ(ran, 3);
  for (int64_t n = 2; n <= 40; ++n) {
    const Tensor x = randn({n, 5});
    const Tensor expected = softmax(net(x), -1).sum(0) / static_cast<double>(n);
    for (int i = 0; i < 3; ++i) expect_same(compiled(x), expected);
  }
  EXPECT_EQ(ran, 3);
  EXPECT_EQ(compiled.stats().recorded, 3);
  EXPECT_GE(compiled.stats().instantiated, 36);
  EXPECT_EQ(compiled.stats().dynamic_reason, "");
  EXPECT_NE(compiled.text().find("graph(%0: float32[n = 2, 5])"), std::string::npos)
      << compiled.text();
  EXPECT_NE(compiled.text().find("float32[n, 7]"), std::string::npos) << compiled.text();
}

TEST(DynamicDims, SizesZeroAndOneAndThoseOutsideAreRecorded) {
  auto compiled = compile([](const Tensor& x) { return (x * 2).sum(0); }, kBatch);
  for (const int64_t n : {3, 9, 5}) compiled(randn({n, 4}));
  for (const int64_t n : {0, 1, 10}) {
    const Tensor x = randn({n, 4});
    expect_same(compiled(x), (x * 2).sum(0));
  }
  EXPECT_EQ(compiled.stats().recorded, 6);
  expect_same(compiled(full({7, 4}, 1.f)), full({4}, 14.f));
  EXPECT_EQ(compiled.stats().recorded, 6);
  EXPECT_EQ(compiled.stats().instantiated, 1);
}

TEST(DynamicDims, AnySizeHoldsBeyondTheRecordings) {
  auto compiled = compile([](const Tensor& x) { return x.view({-1}) + 1; },
                          {.dynamic_dims = {{.argument = 0, .dim = 0, .any_size = true}}});
  for (const int64_t n : {3, 9, 5}) compiled(randn({n, 4}));
  for (const int64_t n : {2, 1000}) {
    const Tensor x = randn({n, 4});
    expect_same(compiled(x), x.view({-1}) + 1);
  }
  EXPECT_EQ(compiled.stats().recorded, 3);
}

TEST(DynamicDims, ABranchOnTheSizeIsNotUnified) {
  const auto f = [](const Tensor& x) { return x.size(0) > 16 ? exp(x) : x * 2; };
  auto compiled = compile(f, kBatch);
  for (int round = 0; round < 2; ++round) {
    for (const int64_t n : {4, 12, 8, 20, 40, 30, 16, 17, 14, 18, 6, 35}) {
      const Tensor x = randn({n, 3});
      expect_same(compiled(x), f(x));
    }
  }
  EXPECT_GT(compiled.stats().instantiated, 0);
}

TEST(DynamicDims, ANumberThatIsNoFunctionOfTheSizeIsNotUnified) {
  const auto f = [](const Tensor& x) { return x * std::sin(static_cast<double>(x.size(0))); };
  auto compiled = compile(f, kBatch);
  for (const int64_t n : {4, 12, 8, 9, 10, 5}) {
    const Tensor x = randn({n, 3});
    expect_same(compiled(x), f(x));
  }
  EXPECT_EQ(compiled.stats().recorded, 6);
  EXPECT_NE(compiled.stats().dynamic_reason.find("mul"), std::string::npos)
      << compiled.stats().dynamic_reason;
}

TEST(DynamicDims, TrainingStepsWithASmallerLastBatch) {
  const auto train = [](const CompileOptions* options) {
    manual_seed(3);
    nn::Sequential net(nn::Linear(6, 16), nn::Dropout(0.3), nn::GELU(), nn::Linear(16, 4));
    nn::optim::AdamW optimizer(net.parameters(), {.lr = 1e-2});
    const auto step = [&](const Tensor& x, const Tensor& y) {
      optimizer.zero_grad();
      const Tensor loss = F::cross_entropy(net(x), y);
      loss.backward();
      optimizer.step();
      return loss.detach();
    };
    auto compiled = compile(step, options != nullptr ? *options : CompileOptions());
    std::vector<Tensor> losses;
    for (const int64_t n : {32, 32, 32, 8, 20, 20, 11, 11, 11, 25, 32, 13}) {
      const Tensor x = randn({n, 6}), y = randint(0, 4, {n});
      losses.push_back(options != nullptr ? compiled(x, y) : step(x, y));
    }
    if (options != nullptr) {
      // The first call of an optimizer makes its state, and is a recording of its own.
      EXPECT_LE(compiled.stats().recorded, 5) << compiled.stats().dynamic_reason;
      EXPECT_GE(compiled.stats().instantiated, 2) << compiled.stats().dynamic_reason;
    }
    for (const Tensor& p : net.parameters()) losses.push_back(p.detach().clone());
    return losses;
  };
  const std::vector<Tensor> eager = train(nullptr), compiled = train(&kBatches);
  ASSERT_EQ(eager.size(), compiled.size());
  for (size_t i = 0; i < eager.size(); ++i) expect_same(compiled[i], eager[i]);
}

TEST(DynamicDims, BackwardOutsideOfTheFunction) {
  nn::Sequential net(nn::Linear(6, 16), nn::Tanh(), nn::Linear(16, 4));
  auto compiled = compile([&](const Tensor& x) { return net(x); }, kBatch);
  for (const int64_t n : {4, 30, 12, 7, 7, 7, 19, 19}) {
    const Tensor x = randn({n, 6}), y = randint(0, 4, {n});
    net.zero_grad();
    F::cross_entropy(net(x), y).backward();
    std::vector<Tensor> expected;
    for (const Tensor& p : net.parameters()) expected.push_back(p.grad().clone());
    net.zero_grad();
    F::cross_entropy(compiled(x), y).backward();
    for (size_t i = 0; i < expected.size(); ++i) {
      expect_same(net.parameters()[i].grad(), expected[i]);
    }
  }
  EXPECT_EQ(compiled.stats().recorded, 3) << compiled.stats().dynamic_reason;
  EXPECT_EQ(compiled.stats().instantiated, 2);
}

// Causal attention by hand, with a mask of arange() and shifted targets.
struct Attention {
  nn::Linear qkv{8, 24}, out{8, 8};

  Tensor operator()(const Tensor& x) {
    const int64_t b = x.size(0), t = x.size(1);
    const auto heads = [&](const Tensor& y) { return y.view({b, t, 2, 4}).transpose(1, 2); };
    const std::vector<Tensor> parts = split(qkv(x), 8, -1);
    const Tensor at = arange(t);
    const Tensor mask = at.unsqueeze(0) > at.unsqueeze(1);
    Tensor scores = matmul(heads(parts[0]), heads(parts[1]).transpose(-2, -1)) * 0.5;
    scores = softmax(scores.masked_fill(mask, -INFINITY), -1);
    const Tensor mixed = matmul(scores, heads(parts[2])).transpose(1, 2).reshape({b, t, 8});
    return out(mixed).slice(1, 0, t - 1).reshape({b * (t - 1), 8});
  }
};

TEST(DynamicDims, BackwardOutsideOfTheFunctionKeepsTheMode) {
  // Sums of products, which other modes may round once.
  const auto f = [](const Tensor& x) { return ((x * 1.37 + 0.11) * x * x + x * 0.3) * x; };
  auto compiled = compile(f, kBatch);
  const auto grad_of = [](auto& function, const Tensor& x) {
    Tensor leaf = x.clone().requires_grad_();
    function(leaf).backward(x + 1);
    return leaf.grad();
  };
  for (const int64_t size : {4, 9, 16, 11, 12, 11, 12, 11, 12}) {
    const Tensor x = randn({size, 700});
    expect_same(grad_of(compiled, x), grad_of(f, x));
  }
  EXPECT_EQ(compiled.stats().instantiated, 2);
}

TEST(DynamicDims, BatchAndLength) {
  Attention attention;
  std::vector<Tensor> parameters = attention.qkv.parameters();
  for (const Tensor& p : attention.out.parameters()) parameters.push_back(p);
  const auto f = [&](const Tensor& x) {
    const Tensor loss = attention(x).square().mean();
    loss.backward();
    return loss.detach();
  };
  auto compiled = compile(
      [&](const Tensor& x) {
        for (const Tensor& p : parameters) p.set_grad({});
        return f(x);
      },
      {.mode = CompileMode::kExact, .dynamic_dims = {{0, 0, "batch"}, {0, 1, "length"}}});
  const std::vector<std::vector<int64_t>> sizes = {{2, 3},  {9, 20}, {5, 7}, {3, 12}, {4, 4},
                                                   {8, 19}, {6, 6},  {7, 3}, {2, 20}, {9, 5}};
  for (const auto& size : sizes) {
    const Tensor x = randn({size[0], size[1], 8});
    for (const Tensor& p : parameters) p.set_grad({});
    const Tensor expected = f(x);
    std::vector<Tensor> grads;
    for (const Tensor& p : parameters) grads.push_back(p.grad());
    for (int i = 0; i < 2; ++i) {
      expect_same(compiled(x), expected);
      for (size_t k = 0; k < grads.size(); ++k) expect_same(parameters[k].grad(), grads[k]);
    }
  }
  EXPECT_LE(compiled.stats().recorded, 5) << compiled.stats().dynamic_reason;
  EXPECT_NE(compiled.text().find("float32[batch = 2, length = 3, 8]"), std::string::npos);
}

TEST(DynamicDims, Convolutions) {
  nn::Sequential net(nn::Conv2d(3, 4, 3), nn::ReLU(), nn::MaxPool2d(2), nn::Conv2d(4, 2, 3));
  const NoGradGuard no_grad;
  auto compiled = compile(
      [&](const Tensor& x) {
        return net(x).mean({2, 3});
      },
      {.mode = CompileMode::kExact, .dynamic_dims = {{0, 0}, {0, 3}}});
  const std::vector<std::vector<int64_t>> sizes = {{2, 12}, {7, 30}, {3, 20}, {4, 16}, {5, 28},
                                                   {6, 24}, {3, 15}, {7, 14}, {4, 22}};
  for (const auto& size : sizes) {
    const Tensor x = randn({size[0], 3, 10, size[1]});
    for (int i = 0; i < 2; ++i) expect_same(compiled(x), net(x).mean({2, 3}));
  }
  EXPECT_GE(compiled.stats().instantiated, 2) << compiled.stats().dynamic_reason;
}

TEST(DynamicDims, AThousandSizesHoldBoundedMemory) {
  // Each size gives other numbers to the fused calls.
  const auto f = [](const Tensor& x) {
    return ((x * 2 + x.size(0)) / (2 + x.size(0))).cumsum(0).sum(1);
  };
  auto compiled = compile(f, {.cache_size = 4, .dynamic_dims = {{0, 0}}});
  for (const int64_t n : {2, 1100, 500}) compiled(randn({n, 3}));
  int64_t recorded = compiled.stats().recorded, planned = 0;
  const size_t before = graph::FusedOp::count();
  size_t operators = 0;
  for (int64_t n = 3; n < 1003; ++n) {
    const Tensor x = ones({n, 3});
    EXPECT_NEAR(compiled(x)[n - 1].item<float>(), 3 * n, 1e-4 * n);
    planned = std::max(planned, compiled.stats().planned_bytes);
    operators = std::max(operators, graph::FusedOp::count());
  }
  EXPECT_EQ(compiled.stats().recorded, recorded);
  EXPECT_GE(compiled.stats().instantiated, 999);
  EXPECT_LE(planned, 1 << 20);
  EXPECT_LE(operators, before + graph::FusedOp::kKept + 8);
}

TEST(DynamicDims, SizesThatTellFunctionsApartAreRecorded) {
  const auto f = [](const Tensor& x) { return x.sum(0) * arange(x.size(1)); };
  auto compiled = compile(f, {.mode = CompileMode::kExact, .dynamic_dims = {{0, 0}, {0, 1}}});
  const auto expect = [&](int64_t n, int64_t t, int64_t recorded) {
    const Tensor x = randn({n, t});
    expect_same(compiled(x), f(x));
    EXPECT_EQ(compiled.stats().recorded, recorded) << n << " " << t;
  };
  // The length may be t or 2n.
  expect(4, 8, 1);
  expect(8, 16, 2);
  expect(6, 12, 3);
  expect(5, 10, 3);
  expect(6, 15, 4);
  expect(7, 9, 4);
}

TEST(DynamicDims, BatchesOfADataSetMayLieAnywhere) {
  const Tensor data = randn({100, 16});
  const auto f = [](const Tensor& x) { return x.t().matmul(x) + x.select(0, 1); };
  auto compiled = compile(f, kBatch);
  int64_t at = 0;
  for (const int64_t n : {3, 20, 7, 9, 11, 9, 12}) {
    const Tensor x = data.slice(0, at, at + n);
    at += n;
    expect_same(compiled(x), f(x));
  }
  EXPECT_EQ(compiled.stats().recorded, 3) << compiled.stats().dynamic_reason;
}

TEST(DynamicDims, WrongOptionsAreErrors) {
  const auto fails = [](std::vector<DynamicDim> dims) {
    try {
      auto compiled =
          compile([](const Tensor& x) { return x + 1; }, {.dynamic_dims = std::move(dims)});
      compiled(ones({3, 3}));
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kValue) << error.what();
      return true;
    }
    return false;
  };
  EXPECT_TRUE(fails({{1, 0}}));
  EXPECT_TRUE(fails({{0, 2}}));
  EXPECT_TRUE(fails({{0, 0, "in"}}));
  EXPECT_TRUE(fails({{0, 0, "a b"}}));
  EXPECT_FALSE(fails({{0, -1, "width"}}));
}

TEST(DynamicDims, CheckComparesEachSizeWithTheFunction) {
  setenv("MYTORCH_COMPILE", "check", 1);
  // Not a function of the size, but equal at all recorded ones.
  auto compiled = compile([](const Tensor& x) { return x.size(0) % 2 == 0 ? x + 1 : x + 2; },
                          {.dynamic_dims = {{0, 0}}});
  unsetenv("MYTORCH_COMPILE");
  for (const int64_t n : {4, 12, 8, 6, 6}) {
    expect_same(compiled(ones({n, 2})), full({n, 2}, 2.f));
  }
  EXPECT_EQ(compiled.stats().instantiated, 1);
  try {
    compiled(ones({7, 2}));
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("result 0"), std::string::npos) << error.what();
  }
}

// ---- programs ----

TEST(DynamicDims, SavedProgramsTakeAnySize) {
  const TempDirectory directory;
  const std::string path = directory.path() + "/model.mtg";
  Attention attention;
  const NoGradGuard no_grad;
  const auto f = [&](const Tensor& x) {
    return attention(x).sum(0) * (1.0 / static_cast<double>(x.size(0) * (x.size(1) - 1)));
  };
  {
    auto compiled = compile(f, {.dynamic_dims = {{0, 0, "batch"}, {0, 1, "length"}}});
    compiled(randn({2, 3, 8}));
    EXPECT_THROW(compiled.save(path), Error);
    compiled(randn({9, 20, 8}));
    compiled(randn({5, 7, 8}));
    compiled.save(path, {.inputs = {"x"}});
  }
  Program program = load(path, CompileMode::kExact);
  const std::vector<std::vector<int64_t>> sizes = {{2, 3}, {4, 9}, {1, 5}, {30, 2}, {2, 40}};
  for (const auto& size : sizes) {
    const Tensor x = randn({size[0], size[1], 8});
    for (int i = 0; i < 3; ++i) expect_same(program(x), f(x));
  }
  // What is written again is the same, and runs at the sizes.
  program.save(path);
  Program again = load(path, CompileMode::kExact);
  EXPECT_EQ(again.text(), program.text());
  const Tensor x = randn({3, 6, 8});
  expect_same(again(x), f(x));
  EXPECT_THROW(again(randn({3, 6, 9})), Error);
}

TEST(DynamicDims, ProgramsRunFromCAtAnySize) {
  const TempDirectory directory;
  const std::string path = directory.path() + "/model.mtg";
  const NoGradGuard no_grad;
  auto compiled =
      compile([](const Tensor& x) { return x * 2 + 1; }, CompileOptions{.dynamic_dims = {{0, 0}}});
  for (const int64_t n : {2, 9, 5}) compiled(randn({n, 3}));
  compiled.save(path);
  mytorch_program* program = mytorch_load(path.c_str());
  ASSERT_NE(program, nullptr) << mytorch_last_error();
  for (const int64_t n : {1, 4, 30}) {
    std::vector<float> in(static_cast<size_t>(n) * 3, 2.f), out(in.size());
    int64_t shape[] = {n, 3};
    mytorch_tensor x = {in.data(), {1, 0}, 2, {2, 32, 1}, shape, nullptr, 0};
    mytorch_tensor y = {out.data(), {1, 0}, 2, {2, 32, 1}, shape, nullptr, 0};
    ASSERT_EQ(mytorch_run(program, &x, &y), 0) << mytorch_last_error();
    EXPECT_EQ(out, std::vector<float>(in.size(), 5.f));
  }
  mytorch_free(program);
}

}  // namespace
}  // namespace mytorch
