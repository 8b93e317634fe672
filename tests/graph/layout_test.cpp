// Convolutions of inference, whose tensors become channels-last.
#include <cstdlib>

#include "dispatcher/choice/choice.h"
#include "gtest/gtest.h"
#include "mytorch/compile.h"
#include "mytorch/mytorch.h"
#include "mytorch/nn/models/resnet.h"
#include "tests/graph/device.h"

namespace mytorch {
namespace {

namespace F = nn::functional;

// Returns how often the pass changed a function, whose results are compared with its own.
template <class Function>
int64_t fired(const Function& f, const Tensor& like, CompileMode mode = CompileMode::kDefault) {
  auto compiled = compile(f, {.mode = mode});
  for (uint64_t i = 0; i < 4; ++i) {
    const Tensor x = drawn_on_cpu(like.sizes(), 40 + i).to(like.dtype());
    const Tensor expected = f(x.clone()), found = compiled(x);
    EXPECT_TRUE(allclose(found, expected, 1e-3, 1e-3)) << i;
    EXPECT_TRUE(found.strides() == expected.strides()) << i;
    EXPECT_EQ(found.dtype(), expected.dtype());
  }
  const CompileStats stats = compiled.stats();
  const auto at = stats.rewritten.find("layout");
  return at == stats.rewritten.end() ? 0 : at->second;
}

class Layout : public ::testing::Test {
 protected:
  // The convolutions of cpu-onednn gain.
  void SetUp() override {
    setenv("MYTORCH_COMPILE_LAYOUT", "always", 1);  // on any processor
    relu(ones({1}));                                // loads the backends
    for (const Backend* each : backends()) {
      if (each->name == "cpu-onednn") return;
    }
    GTEST_SKIP() << "needs cpu-onednn";
  }

  void TearDown() override { unsetenv("MYTORCH_COMPILE_LAYOUT"); }

  const NoGradGuard no_grad;
  const Tensor x = drawn_on_cpu({2, 64, 32, 32}, 1);
  // 3 x 3 taps would be computed by tiles in row-major tensors.
  Tensor w = drawn_on_cpu({64, 64, 5, 5}, 2) * 0.02;
  const Tensor b = drawn_on_cpu({64}, 3);

  Tensor conv(const Tensor& input) const { return conv2d(input, w, b, {1, 1}, {2, 2}); }
  // Enough of them, beside which the copies of the first input and of the result are small.
  Tensor stack(const Tensor& input) const {
    Tensor y = input;
    for (int i = 0; i < 6; ++i) y = relu(conv(y)) + y;
    return y;
  }
};

TEST_F(Layout, ConvolutionsPassItOn) {
  EXPECT_EQ(fired([&](const Tensor& in) { return stack(in); }, x), 1);
  EXPECT_EQ(fired([&](const Tensor& in) { return F::max_pool2d(stack(in), 2).flatten(1); }, x), 1);
  EXPECT_EQ(fired([&](const Tensor& in) { return stack(in).mean({2, 3}); }, x), 1);
  EXPECT_EQ(fired([&](const Tensor& in) { return cat({stack(in), stack(in * 2)}, 1); }, x), 1);
}

TEST_F(Layout, WeightsThatChangeAreConvertedAgain) {
  auto compiled = compile([&](const Tensor& in) { return stack(in); });
  for (int i = 0; i < 6; ++i) {
    EXPECT_TRUE(allclose(compiled(x), stack(x), 1e-3, 1e-3)) << i;
    if (i == 3) w.mul_(0.5);
    if (i == 4) w.set_data(drawn_on_cpu({64, 64, 5, 5}, 9) * 0.02);
  }
  EXPECT_GT(compiled.stats().kept, 0);
}

TEST_F(Layout, StaysIfItGainsNothing) {
  // The bits of another kernel.
  EXPECT_EQ(fired([&](const Tensor& in) { return stack(in); }, x, CompileMode::kExact), 0);
  // More is copied than convolved.
  EXPECT_EQ(fired([&](const Tensor& in) { return conv(in); }, x), 0);
  const auto views = [&](const Tensor& in) {
    return conv(conv(conv(in).view({2, 64, 1024}).view({2, 64, 32, 32}))
                    .view({2, 32, 2, 32, 32})
                    .view({2, 64, 32, 32}));
  };
  EXPECT_EQ(fired(views, x), 0);
  const auto groups = [&](const Tensor& in) {
    return conv2d(stack(in), ones({64, 1, 3, 3}), {}, {1, 1}, {1, 1}, {1, 1}, 64);
  };
  EXPECT_EQ(fired(groups, x), 0);
  const auto writes = [&](const Tensor& in) { return stack(in).add_(1); };
  EXPECT_EQ(fired(writes, x), 0);
  const Tensor wide = w.to(kFloat64), bias = b.to(kFloat64);
  const auto doubles = [&](const Tensor& in) {
    Tensor y = in;
    for (int i = 0; i < 6; ++i) y = relu(conv2d(y, wide, bias, {1, 1}, {2, 2}));
    return y;
  };
  EXPECT_EQ(fired(doubles, x.to(kFloat64)), 0);
  const auto lines = [&](const Tensor& in) {
    return conv1d(in.flatten(2), ones({64, 64, 3}) * 0.01, {}, {1}, {1});
  };
  EXPECT_EQ(fired(lines, x), 0);
  // The products of 3 x 3 taps are shared by tiles (cpu-openmp), which only row-major tensors have.
  const Tensor taps = drawn_on_cpu({64, 64, 3, 3}, 4) * 0.03;
  const auto tiles = [&](const Tensor& input) {
    return relu(conv2d(input, taps, b, {1, 1}, {1, 1})) + input;
  };
  const auto only = [&](const Tensor& in) { return tiles(tiles(tiles(tiles(tiles(tiles(in)))))); };
  EXPECT_EQ(fired(only, x), 0);
  EXPECT_EQ(fired([&](const Tensor& in) { return tiles(stack(in)); }, x), 1);
}

TEST_F(Layout, CanBeDisabled) {
  setenv("MYTORCH_COMPILE_WITHOUT", "layout", 1);
  EXPECT_EQ(fired([&](const Tensor& in) { return stack(in); }, x), 0);
  unsetenv("MYTORCH_COMPILE_WITHOUT");
}

TEST_F(Layout, TrainingKeepsItsOwn) {
  Tensor weight = w.clone().requires_grad_();
  auto compiled = compile([&](const Tensor& in) {
    const EnableGradGuard grad;
    const Tensor loss = (relu(conv2d(in, weight, b)) * 2).mean();
    loss.backward();
    return loss.detach();
  });
  for (int i = 0; i < 3; ++i) compiled(x);
  EXPECT_EQ(compiled.stats().rewritten.count("layout"), 0);
}

TEST_F(Layout, ResNet) {
  nn::models::ResNet net(nn::models::ResNetConfig::resnet18());
  net.eval();
  EXPECT_EQ(fired([&](const Tensor& in) { return net(in); }, drawn_on_cpu({1, 3, 128, 128}, 1)), 1);
}

}  // namespace
}  // namespace mytorch
