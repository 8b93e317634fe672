#include <cmath>
#include <cstdlib>

#include "mytorch/compile.h"
#include "mytorch/mytorch.h"
#include "mytorch/nn/functional.h"
#include "tests/autograd/util.h"

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
  auto signs = compile([&](const Tensor& x) {
    sign = -sign;
    return copysign(x, sign);
  });
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
  EXPECT_NE(error_of([&] { draws(zeros({2})); }).find("random calls"), std::string::npos);
}

}  // namespace
}  // namespace mytorch
