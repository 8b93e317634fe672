#include <cmath>
#include <cstdlib>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "mytorch/autograd/checkpoint.h"
#include "mytorch/autograd/function.h"
#include "mytorch/compile.h"
#include "mytorch/mytorch.h"
#include "mytorch/nn/functional.h"
#include "tests/autograd/util.h"
#include "tests/core/same_bits.h"

namespace mytorch {
namespace {

// Functions that are compiled in the scope of a mode.
class Mode {
 public:
  explicit Mode(const char* word) { setenv("MYTORCH_COMPILE", word, 1); }
  ~Mode() { unsetenv("MYTORCH_COMPILE"); }
};

TEST(CompileMode, OffRunsTheFunction) {
  const Mode mode("off");
  int calls = 0;
  auto f = compile([&](const Tensor& x) {
    ++calls;
    return x + x.sum().item<float>();  // no graph holds this
  });
  for (int i = 0; i < 3; ++i) EXPECT_EQ(f(ones({2}))[0].item<float>(), 3);
  EXPECT_EQ(calls, 3);
  EXPECT_EQ(f.stats().recorded, 0);
}

TEST(CompileMode, UnknownWordsAreErrors) {
  const Mode mode("maybe");
  EXPECT_NE(error_of([] { compile([](const Tensor& x) { return x; }); }).find("'maybe'"),
            std::string::npos);
}

TEST(CompileMode, CheckRunsEachStepOnce) {
  const auto losses = [](const char* word) {
    const Mode mode(word);
    manual_seed(3);
    nn::Sequential net(nn::Linear(6, 8), nn::Dropout(0.5), nn::ReLU(), nn::Linear(8, 4));
    nn::optim::AdamW optimizer(net.parameters(), {.lr = 1e-2});
    const Tensor x = randn({5, 6}), y = tensor({0, 1, 2, 3, 0});
    const Tensor count = zeros({1});
    auto step = compile([&](const Tensor& input) {
      count.add_(1);
      const Tensor loss = nn::functional::cross_entropy(net(input), y);
      loss.backward();
      optimizer.step();
      return loss.detach();
    });
    std::vector<float> found;
    for (int i = 0; i < 6; ++i) found.push_back(step(x).item<float>());
    found.push_back(count.item<float>());
    found.push_back(net.parameters()[0].grad().sum().item<float>());
    return found;
  };
  EXPECT_EQ(losses("check"), losses("off"));
}

// The sum of two NaNs may be either of them.
TEST(CompileMode, AnyTwoNansAreTheSame) {
  const Mode mode("check");
  float sign = 1;
  auto signs = compile(
      [&](const Tensor& x) {
        sign = -sign;
        return copysign(x, sign);
      },
      {.mode = CompileMode::kExact});
  const Tensor nans = full({3}, std::nan(""));
  for (int i = 0; i < 3; ++i) EXPECT_NO_THROW(signs(nans));
  EXPECT_NE(error_of([&] { signs(zeros({3})); }).find("differs in 3 of 3"), std::string::npos);
}

TEST(CompileMode, CheckNamesWhatDiffers) {
  const Mode mode("check");
  int calls = 0;
  auto result = compile([&](const Tensor& x) { return x.clone().fill_(++calls); });
  result(zeros({2}));
  EXPECT_NE(error_of([&] { result(zeros({2})); })
                .find("result 0 of the compiled function of shape (2,) differs in 2 of 2 elements, "
                      "first in element 0: 1, and 2 in the function"),
            std::string::npos);
  auto argument = compile([&](const Tensor& x) { x.add_(++calls); });
  argument(zeros({2}));
  EXPECT_NE(error_of([&] { argument(zeros({2})); }).find("argument 0 of the compiled"),
            std::string::npos);
  const Tensor total = zeros({2}), leaf = ones({2}).requires_grad_();
  auto outside = compile([&] { total.add_(++calls); });
  outside();
  EXPECT_NE(error_of([&] { outside(); }).find("outside(0) of the compiled"), std::string::npos);
  auto grad = compile([&] {
    leaf.set_grad({});
    (leaf * ++calls).sum().backward();
  });
  grad();
  EXPECT_NE(error_of([&] { grad(); }).find("the grad of outside(0) of the compiled"),
            std::string::npos);
  auto draws = compile([&](const Tensor& x) {
    if (++calls % 2 == 0) return x + 0;
    return x + rand({2}) * 0;
  });
  calls = 0;
  draws(zeros({2}));
  EXPECT_NE(error_of([&] { draws(zeros({2})); }).find("at random call"), std::string::npos);
}

// What a compiled function of the default mode computes in another order is no error.
TEST(CompileMode, CheckComparesTheModeThatIsAskedFor) {
  const Mode mode("check");
  for (const CompileMode each : {CompileMode::kDefault, CompileMode::kFast, CompileMode::kExact}) {
    const Tensor w = randn({40, 40}, kFloat32, {}, Generator(1)).requires_grad_();
    nn::optim::AdamW optimizer({w}, {.lr = 0.1});
    auto step = compile(
        [&](const Tensor& x) {
          optimizer.zero_grad();
          const Tensor y = (x.to(kBFloat16) * 1.7 + 0.3) / 3;
          const Tensor scores = softmax(tanh(y.to(kFloat32).matmul(w)) * 5, -1);
          // Zero, but for rounding errors, which Adam turns into whole steps.
          const Tensor loss = (scores.sum(-1) - 1).sum() + (scores * scores).mean();
          loss.backward();
          optimizer.step();
          return std::vector<Tensor>{loss.detach(), scores.detach()};
        },
        {.mode = each});
    for (uint64_t i = 0; i < 5; ++i) {
      EXPECT_NO_THROW(step(randn({30, 40}, kFloat32, {}, Generator(i)))) << static_cast<int>(each);
    }
    EXPECT_EQ(step.stats().replayed, 4) << step.stats().reason;
    EXPECT_TRUE(each == CompileMode::kExact || step.stats().fused > 0);
  }
}

// Beyond what rounding errors of operators explain.
TEST(CompileMode, CheckInTheDefaultModeFindsErrors) {
  const Mode mode("check");
  float more = 0;
  auto f = compile([&](const Tensor& x) { return exp(x * (1 + more)) * 3; });
  const Tensor x = randn({50}, kFloat32, {}, Generator(4));
  for (int i = 0; i < 3; ++i) EXPECT_NO_THROW(f(x));
  more = 1e-3F;
  EXPECT_NE(error_of([&] { f(x); }).find("result 0 of the compiled function"), std::string::npos);
}

TEST(CompileMode, CheckComparesGradientsOfResults) {
  for (const CompileMode each : {CompileMode::kExact, CompileMode::kDefault}) {
    const auto train = [&](const char* word) {
      const Mode mode(word);
      manual_seed(3);
      nn::Sequential net(nn::Linear(6, 8), nn::BatchNorm1d(8), nn::Dropout(0.5), nn::GELU(),
                         nn::Linear(8, 4));
      nn::optim::SGD optimizer(net.parameters(), {.lr = 0.1});
      int runs = 0;
      auto forward = compile(
          [&](const Tensor& x) {
            ++runs;
            return std::tuple(net(x), x.detach() * 2);
          },
          {.mode = each});
      std::vector<Tensor> left;
      for (uint64_t i = 0; i < 5; ++i) {
        optimizer.zero_grad();
        const Tensor x = randn({5, 6}, kFloat32, {}, Generator(i)).requires_grad_();
        // Of two calls before one backward, and of an argument with a history.
        const auto [first, constant] = forward(x);
        const auto [second, other] = forward(x * 2);
        EXPECT_FALSE(constant.requires_grad());
        (first + second * other.sum()).pow(2).sum().backward();
        optimizer.step();
        left.push_back(x.grad());
      }
      EXPECT_EQ(runs, 10);
      for (const Tensor& parameter : net.parameters()) left.push_back(parameter.detach());
      for (const Tensor& buffer : net.buffers()) left.push_back(buffer);
      return left;
    };
    const std::vector<Tensor> expected = train("off"), found = train("check");
    ASSERT_EQ(found.size(), expected.size());
    for (size_t i = 0; i < found.size(); ++i) expect_same(found[i], expected[i]);
  }
}

// A function that the recording does not know: its backward differs, its results do not.
struct Doubled : autograd::Function<Doubled> {
  static inline double scale = 1;
  static Tensor forward(autograd::AutogradContext*, const Tensor& x) { return x * 2; }
  static autograd::tensor_list backward(autograd::AutogradContext*, autograd::tensor_list grads) {
    return {grads[0] * (2 * scale)};
  }
};

TEST(CompileMode, CheckNamesGradientsThatDiffer) {
  const Mode mode("check");
  const Tensor w = ones({3}).requires_grad_();
  auto of_argument = compile([](const Tensor& x) { return Doubled::apply(x * 1); });
  auto of_leaf = compile([&](const Tensor& x) { return Doubled::apply(x * w); });
  const auto backward = [](auto& f, bool leaf) {
    f(leaf ? ones({3}) : ones({3}).requires_grad_()).sum().backward();
  };
  for (int i = 0; i < 3; ++i) {
    backward(of_argument, false);
    backward(of_leaf, true);
  }
  Doubled::scale = 3;
  EXPECT_NE(error_of([&] {
              backward(of_argument, false);
            }).find("the gradient of argument 0 of the compiled function of shape (3,) differs"),
            std::string::npos);
  EXPECT_NE(error_of([&] {
              backward(of_leaf, true);
            }).find("the gradient of a leaf of shape (3,) of the compiled function"),
            std::string::npos);
  Doubled::scale = 1;
  bool detach = false;
  auto history =
      compile([&](const Tensor& x) { return std::tuple(detach ? x.detach() * 2 : x * 2, x * w); });
  for (int i = 0; i < 2; ++i) history(ones({3}).requires_grad_());
  detach = true;
  EXPECT_NE(error_of([&] { history(ones({3}).requires_grad_()); }).find("has a history"),
            std::string::npos);
}

// Generators of one's own go on once a call, and are compared.
TEST(CompileMode, CheckComparesGenerators) {
  const Mode mode("check");
  Generator own(5);
  int draws = 1;
  auto f = compile([&](const Tensor& x) {
    Tensor sum = x;
    for (int i = 0; i < draws; ++i) sum = sum + rand({2}, kFloat32, {}, own) * (i == 0 ? 1 : 0);
    return sum;
  });
  for (int i = 0; i < 4; ++i) EXPECT_NO_THROW(f(zeros({2})));
  EXPECT_EQ(own.call(), 4U);
  draws = 2;
  EXPECT_NE(error_of([&] { f(zeros({2})); }).find("leaves a generator at random call 5 of seed 5"),
            std::string::npos);
}

// What a call has not written is as it was: backward of an earlier call may need it.
TEST(CompileMode, CheckLeavesWhatIsSavedForBackward) {
  const Mode mode("check");
  const Tensor w = ones({3}).requires_grad_();
  auto f = compile([&](const Tensor& x) { return (x * w).detach() + 1; });
  const Tensor x = ones({3});
  const Tensor pending = (w * w * x).sum();
  for (int i = 0; i < 3; ++i) f(x);
  EXPECT_NO_THROW(pending.backward());
}

TEST(CompileMode, CheckComparesTheModesOfModules) {
  const Mode mode("check");
  nn::Dropout dropout(0.5);
  bool leave = true;
  auto f = compile([&](const Tensor& x) {
    dropout.eval();
    const Tensor y = dropout(x) * 2;
    if (leave) dropout.train();
    return y;
  });
  for (int i = 0; i < 3; ++i) EXPECT_NO_THROW(f(ones({3})));
  EXPECT_TRUE(dropout.training());
  leave = false;
  EXPECT_NE(error_of([&] { f(ones({3})); }).find("the training mode of a module has changed"),
            std::string::npos);
}

// A momentum that follows from the number of batches.
TEST(CompileMode, CheckAcceptsNormsThatCount) {
  const Mode mode("check");
  nn::BatchNorm1d norm(3, {.momentum = std::nullopt});
  auto f = compile([&](const Tensor& x) { return norm(x); }, {.mode = CompileMode::kExact});
  for (uint64_t i = 0; i < 4; ++i) {
    EXPECT_NO_THROW(f(randn({5, 3}, kFloat32, {}, Generator(i)))) << i;
  }
  EXPECT_EQ(norm.num_batches_tracked.item<int64_t>(), 4);
}

// Norms that a checkpoint runs again, and that are counted once.
TEST(CompileMode, CheckAcceptsNormsInCheckpoints) {
  const Mode mode("check");
  nn::BatchNorm1d norm(3);
  nn::Dropout dropout(0.5);
  const auto checkpointed = [&](bool draws) {
    return [&, draws](const Tensor& x) {
      return autograd::checkpoint(
          [&](const std::vector<Tensor>& in) {
            const Tensor y = norm(in[0]).square();
            return std::vector<Tensor>{draws ? dropout(y) : y};
          },
          {x})[0];
    };
  };
  auto outside = compile(checkpointed(false), {.mode = CompileMode::kExact});
  auto drawn = compile(checkpointed(true), {.mode = CompileMode::kExact});
  auto inside = compile([&](const Tensor& x) { checkpointed(true)(x).sum().backward(); },
                        {.mode = CompileMode::kExact});
  for (uint64_t i = 0; i < 4; ++i) {
    const auto x = [&] { return randn({5, 3}, kFloat32, {}, Generator(i)).requires_grad_(); };
    EXPECT_NO_THROW(outside(x()).sum().backward()) << i;
    EXPECT_NO_THROW(drawn(x()).sum().backward()) << i;
    EXPECT_NO_THROW(inside(x())) << i;
  }
  EXPECT_EQ(norm.num_batches_tracked.item<int64_t>(), 12);
}

// A plan that fails does not leave what it wrote.
TEST(CompileMode, CheckReportsPlansThatFail) {
  const Mode mode("check");
  const Tensor total = zeros({2});
  bool fits = true;
  auto f = compile([&](const Tensor& x, const Tensor& index) {
    total.add_(1);
    return fits ? x.index_select(0, index) : x.index_select(0, index * 0);
  });
  const Tensor x = ones({3});
  for (int i = 0; i < 2; ++i) f(x, tensor({1}));
  const std::string both = error_of([&] { f(x, tensor({7})); });
  EXPECT_NE(both.find("index_select"), std::string::npos);
  EXPECT_EQ(both.find("the function does not"), std::string::npos) << both;
  fits = false;
  EXPECT_NE(error_of([&] { f(x, tensor({7})); }).find("fails, and the function does not: "),
            std::string::npos);
  EXPECT_EQ(total[0].item<float>(), 4);  // once a call
}

}  // namespace
}  // namespace mytorch
