// Steps that are captured: what their graphs cost, counted by hand, and what data parallelism adds.
#include "plan/captured.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "bench/harness/graph_cost.h"
#include "graph/formats/parse.h"
#include "mytorch/compile.h"
#include "mytorch/mytorch.h"
#include "mytorch/nn/models/resnet.h"
#include "tests/plan/mistakes.h"

namespace mytorch::plan {
namespace {

using bench::captured_step;

Captured captured_text(const std::string& text) {
  const graph::Graph graph = graph::parse_text(text);
  return captured_step(graph);
}

template <class F>
Captured captured_function(const F& step) {
  auto compiled = compile(step);
  (void)compiled();
  return captured_text(compiled.text());
}

double products(const Captured& captured) {
  double flops = 0;
  for (const Kernel& kernel : captured.kernels) {
    if (kernel.kind == Kernel::kProduct) flops += kernel.flops;
  }
  return flops;
}

// ---- products ----

TEST(PlanCaptured, FindsTheSizesOfProducts) {
  const double m = 48, n = 6, k = 100;
  std::vector<double> numels = {m * k, k * n, m * n};
  std::sort(numels.begin(), numels.end());
  do {
    const Kernel kernel = product_of("mm", 2 * m * n * k, 1, 2, numels);
    std::vector<double> sizes = {kernel.m, kernel.n, kernel.k};
    std::sort(sizes.begin(), sizes.end());
    EXPECT_NEAR(sizes[0], n, 1e-9);
    EXPECT_NEAR(sizes[1], m, 1e-9);
    EXPECT_NEAR(sizes[2], k, 1e-9);
  } while (std::next_permutation(numels.begin(), numels.end()));
  // A convolution of (2, 3, 8, 8) with (4, 3, 3, 3) to (2, 4, 6, 6): 72 rows of 27 by 4.
  const Kernel convolution =
      product_of("convolution", 2 * 72 * 27 * 4, 1, 2, {2 * 3 * 64, 4 * 27, 72 * 4});
  EXPECT_NEAR(convolution.m, 72, 1e-9);
  EXPECT_NEAR(convolution.n * convolution.k, 27 * 4, 1e-9);
}

TEST(PlanCaptured, ProductsWithoutSizesAreStreams) {
  EXPECT_EQ(product_of("mm", 0, 8, 2, {4, 4, 4}).kind, Kernel::kStream);
  EXPECT_EQ(product_of("mm", 8, 8, 2, {0, 4}).kind, Kernel::kStream);
  EXPECT_EQ(product_of("mm", 8, 8, 2, {}).kind, Kernel::kStream);
}

TEST(PlanCaptured, KernelsTakeTheLongerOfWorkAndMemory) {
  Gpu gpu;
  gpu.flops = 1e12;
  gpu.single = 1e11;
  gpu.bandwidth = 1e9;
  gpu.stream = gpu.matmul = gpu.attention_forward = 1;
  gpu.matmul_half = gpu.attention_half = 1e-12;
  gpu.kernel = 1e-3;
  EXPECT_NEAR(kernel_seconds(gpu, {.bytes = 2e9}), 2.001, 1e-9);
  Kernel product = product_of("mm", 2e12, 1e9, 2, {1e6, 1e6, 1e6});
  EXPECT_NEAR(kernel_seconds(gpu, product), 2.001, 1e-6);
  product.element = 4;
  EXPECT_NEAR(kernel_seconds(gpu, product), 20.001, 1e-5);
  product.bytes = 30e9;
  EXPECT_NEAR(kernel_seconds(gpu, product), 30.001, 1e-9);
  Kernel attention{Kernel::kAttention, "attention_forward", 3e12, 1e9};
  attention.length = 1e3;
  attention.width = 128;
  EXPECT_NEAR(kernel_seconds(gpu, attention), 3.001, 1e-6);
}

// ---- graphs ----

// y = relu(x W1^T) W2^T, its mean, backward, and SGD.
constexpr const char* kPerceptron = R"(
graph(%0: float32[32, 64]) {
  %1: float32[128, 64] = outside(0)
  %2: float32[10, 128] = outside(1)
  %3: float32[64, 128; 1, 64] in %1 = transpose.int(%1, 0, 1)
  %4: float32[32, 128] = mm(%0, %3)
  %5: float32[32, 128] = relu(%4)
  %6: float32[128, 10; 1, 128] in %2 = transpose.int(%2, 0, 1)
  %7: float32[32, 10] = mm(%5, %6)
  %8: float32[32, 10] = mul.Tensor(%7, 0.003125)
  %9: float32[10, 32; 1, 10] in %8 = transpose.int(%8, 0, 1)
  %10: float32[10, 128] = mm(%9, %5)
  %11: float32[32, 128] = mm(%8, %2)
  %12: float32[32, 128] = relu_grad(%11, %5)
  %13: float32[128, 32; 1, 128] in %12 = transpose.int(%12, 0, 1)
  %14: float32[128, 64] = mm(%13, %0)
  add_.Tensor(%1, %14, -0.1)
  add_.Tensor(%2, %10, -0.1)
  grad(outside 0) = %14
  grad(outside 1) = %10
  return %7
}
)";

TEST(PlanCaptured, OfAPerceptronIsCountedByHand) {
  const Captured c = captured_text(kPerceptron);
  ASSERT_EQ(c.kernels.size(), 10);  // views are none
  EXPECT_EQ(c.update, 8);
  EXPECT_EQ(products(c), 2.0 * 32 * 128 * (64 * 2 + 10 * 3));
  const double numels[] = {32 * 64 + 64 * 128 + 32 * 128,  // mm
                           2 * 32 * 128,                   // relu
                           32 * 128 + 128 * 10 + 32 * 10,  // mm
                           2 * 32 * 10,                    // mul
                           32 * 128 + 128 * 10 + 32 * 10,  // gradients of the second layer
                           32 * 128 + 128 * 10 + 32 * 10,
                           3 * 32 * 128,  // relu_grad
                           32 * 64 + 64 * 128 + 32 * 128};
  for (size_t i = 0; i < 8; ++i) EXPECT_EQ(c.kernels[i].bytes, 4 * numels[i]) << i;
  EXPECT_EQ(c.kernels[0].element, 4);
  ASSERT_EQ(c.parameters.size(), 2);
  EXPECT_EQ(c.parameters[0].bytes, 4 * 128 * 64);
  EXPECT_EQ(c.parameters[0].gradient_bytes, 4 * 128 * 64);
  EXPECT_EQ(c.parameters[0].gradient, 7);
  EXPECT_EQ(c.parameters[0].uses, std::vector<int>{0});
  EXPECT_EQ(c.parameters[1].bytes, 4 * 10 * 128);
  EXPECT_EQ(c.parameters[1].gradient, 4);
  EXPECT_EQ(c.parameters[1].uses, (std::vector<int>{2, 5}));
  EXPECT_EQ(c.inputs, 4 * 32 * 64);
  EXPECT_EQ(c.state, 0);
  EXPECT_TRUE(c.buffers.empty());
  // While relu_grad runs: its operands and result, and the results of the step and of mul, which
  // is not used again.
  EXPECT_EQ(c.activations, 4 * (3 * 32 * 128 + 32 * 10));
}

// A gradient of two parts, of which the second is added in place, running statistics, momentum, and
// an input that is no parameter.
constexpr const char* kConvolution = R"(
graph(%0: float32[2, 3, 8, 8]) {
  %1: float32[4, 3, 3, 3] = outside(0)
  %2: float32[4] = outside(1)
  %3: float32[4, 3, 3, 3] = outside(2)
  %4: float32[2, 4, 6, 6] = convolution(%0, %1, none, [1, 1], [0, 0], [1, 1], false, [0, 0], 1)
  mul_.Tensor(%2, 0.9)
  %5: float32[2, 4, 6, 6] = relu(%4)
  %6: float32[4, 3, 3, 3] = convolution_backward_weight(%5, %0, [4, 3, 3, 3], [1, 1], [0, 0], [1, 1], false, [0, 0], 1, none)
  add_.Tensor(%6, %1, 0.01)
  mul_.Tensor(%3, 0.9)
  add_.Tensor(%3, %6, 1)
  add_.Tensor(%1, %3, -0.1)
  grad(outside 0) = %6
  return %5
}
)";

TEST(PlanCaptured, OfAConvolutionIsCountedByHand) {
  const Captured c = captured_text(kConvolution);
  ASSERT_EQ(c.kernels.size(), 8);
  EXPECT_EQ(c.update, 5);
  EXPECT_EQ(products(c), 2 * 2.0 * 72 * 27 * 4);
  EXPECT_NEAR(c.kernels[0].m, 72, 1e-9);
  EXPECT_NEAR(c.kernels[3].m, 72, 1e-9);
  EXPECT_EQ(c.kernels[0].bytes, 4 * (2 * 3 * 64 + 4 * 27 + 72 * 4));
  ASSERT_EQ(c.parameters.size(), 1);
  EXPECT_EQ(c.parameters[0].gradient, 4);  // with the part that is added
  EXPECT_EQ(c.parameters[0].uses, (std::vector<int>{0, 4}));
  EXPECT_EQ(c.buffers, std::vector<double>{4 * 4});
  EXPECT_EQ(c.state, 4 * 4 * 27);
  EXPECT_EQ(c.activations, 4 * 2 * 72 * 4);
}

TEST(PlanCaptured, GradientsAreCompleteBeforeTheyAreClipped) {
  const Captured c = captured_text(R"(
graph(%0: float32[8, 4]) {
  %1: float32[6, 4] = outside(0)
  %2: float32[6, 8] = outside(1)
  %3: float32[6, 4] = mm(%2, %0)
  %4: float32[6, 4] = mul.Tensor(%3, %3)
  mul_.Tensor(%3, 0.5)
  add_.Tensor(%1, %3, -0.1)
  grad(outside 0) = %3
  return %4
}
)");
  ASSERT_EQ(c.kernels.size(), 4);
  EXPECT_EQ(c.update, 1);
  EXPECT_EQ(c.parameters.at(0).gradient, 0);
  EXPECT_TRUE(c.parameters.at(0).uses.empty());
  EXPECT_EQ(c.state, 0);
  for (int zero = 0; zero < 4; ++zero) {
    EXPECT_GT(plan_of(c, machine_of("h100", "ib400"), 2, zero).step.data, 0) << zero;
  }
}

TEST(PlanCaptured, OfAGraphWithoutGradientsIsRefused) {
  expect_error(
      [] {
        captured_text("graph(%0: float32[4]) {\n  %1: float32[4] = relu(%0)\n  return %1\n}\n");
      },
      "capture a step with its backward");
}

TEST(PlanCaptured, OfAModelHasItsParameters) {
  manual_seed(0);
  nn::models::ResNetConfig config = nn::models::ResNetConfig::resnet18();
  config.width = 8;
  config.num_classes = 10;
  nn::models::ResNet model(config);
  nn::optim::SGD sgd(model.parameters(), {.lr = 1e-3, .momentum = 0.9});
  const Tensor x = randn({2, 3, 32, 32}), y = zeros({2}, kInt64);
  const auto step = [&] {
    sgd.zero_grad();
    const Tensor loss = cross_entropy(model(x), y);
    loss.backward();
    sgd.step();
    return loss.detach();
  };
  step();  // makes the optimizer's state
  const Captured c = captured_function(step);
  double bytes = 0, gradients = 0, expected = 0, buffers = 0, statistics = 0;
  for (const CapturedParameter& p : c.parameters) {
    bytes += p.bytes;
    gradients += p.gradient_bytes;
    EXPECT_FALSE(p.uses.empty());
    EXPECT_GT(p.gradient, p.uses.front());
  }
  for (const Tensor& p : model.parameters()) expected += static_cast<double>(p.nbytes());
  for (const Tensor& b : model.buffers()) statistics += static_cast<double>(b.nbytes());
  for (const double each : c.buffers) buffers += each;
  EXPECT_EQ(c.parameters.size(), model.parameters().size());
  EXPECT_EQ(bytes, expected);
  EXPECT_EQ(gradients, expected);
  EXPECT_EQ(c.state, expected + 8);  // momentum, and the number of steps
  EXPECT_EQ(buffers, statistics);
  EXPECT_LT(c.update, static_cast<int>(c.kernels.size()));
  EXPECT_GT(c.activations, 0);
}

// ---- plans ----

// A second for each gigabyte, in kernels and between two ranks; nothing else takes time.
Machine plain_machine() {
  Machine m = machine_of("h100", "ib400");
  m.gpu.bandwidth = 1e9;
  m.gpu.stream = 1;
  m.gpu.kernel = m.gpu.host = m.gpu.step = 1e-12;
  m.gpu.memory = 1e12;
  m.gpu.reserved = 1;
  m.inner = {"", 1e9, 1e-12, 1};
  m.data_overlap = 1;
  return m;
}

// Two kernels forward, two backward, and an update, of two parameters of 1 GB each.
Captured plain_step() {
  Captured c;
  for (const double gigabytes : {1, 1, 2, 3, 4}) c.kernels.push_back({.bytes = gigabytes * 1e9});
  c.update = 4;
  c.parameters = {{1e9, 1e9, 3, {0, 3}}, {1e9, 1e9, 2, {1, 2}}};
  c.state = 4e9;
  c.activations = 5e9;
  c.inputs = 1e9;
  return c;
}

TEST(PlanCaptured, OneRankComputes) {
  const Plan plan = plan_of(plain_step(), plain_machine(), 1, 0);
  EXPECT_NEAR(plan.step.compute, 7, 1e-9);
  EXPECT_NEAR(plan.step.optimizer, 4, 1e-9);
  EXPECT_EQ(plan.step.data, 0);
  EXPECT_NEAR(plan.memory.total(), 1 + 2e9 + 2e9 + 4e9 + 5e9 + 1e9, 1);
}

TEST(PlanCaptured, BucketsAreReducedBesideBackward) {
  // Gradients are complete at 4 + 2 and 9 + 2, for which a copy reads and writes a gigabyte; the
  // first reduction, of a second, ends in between, and the last one at 12.
  const Plan plan = plan_of(plain_step(), plain_machine(), 2, 0);
  EXPECT_NEAR(plan.step.compute, 11, 1e-9);
  EXPECT_NEAR(plan.step.data, 1, 1e-9);
  Machine slow = plain_machine();
  slow.inner.bandwidth = 1e8;  // 10 s each: from 6 to 16, and to 26
  EXPECT_NEAR(plan_of(plain_step(), slow, 2, 0).step.data, 26 - 11, 1e-9);
  Machine sharing = plain_machine();
  sharing.data_overlap = 0.5;  // the second beside the first reduction counts twice
  EXPECT_NEAR(plan_of(plain_step(), sharing, 2, 0).step.data, 1.5, 1e-9);
}

TEST(PlanCaptured, StagesOfZeroShardOneMoreThing) {
  const Machine machine = plain_machine();
  const auto of = [&](int zero) { return plan_of(plain_step(), machine, 2, zero); };
  // Half a second for each gather and for each half of a reduction.
  EXPECT_NEAR(of(1).step.data, 0.5 + 0.5, 1e-9);
  EXPECT_NEAR(of(1).step.optimizer, 2, 1e-9);
  EXPECT_NEAR(of(1).memory.optimizer, 2e9, 1);
  EXPECT_NEAR(of(2).memory.gradients, 1e9, 1);
  EXPECT_NEAR(of(2).step.data, of(1).step.data, 1e-9);
  EXPECT_NEAR(of(3).memory.parameters, 1e9, 1);
  // Backward waits for its first parameters, too.
  EXPECT_NEAR(of(3).step.data, 0.5 + 0.5 + 0.5, 1e-9);
}

TEST(PlanCaptured, BuffersAreBroadcastFirst) {
  Captured c = plain_step();
  c.buffers = {2e9, 1e9};
  EXPECT_NEAR(plan_of(c, plain_machine(), 2, 0).step.data, 3 + 1, 1e-9);
}

TEST(PlanCaptured, TheHostLimitsSmallKernels) {
  Machine machine = plain_machine();
  machine.gpu.host = 3;
  // Kernels begin at 3, 6, 9 and 12, and the last takes 3 seconds.
  const Plan plan = plan_of(plain_step(), machine, 1, 0);
  EXPECT_NEAR(plan.step.compute, 15, 1e-9);
  EXPECT_NEAR(plan.step.optimizer, 4, 1e-9);
  machine.gpu.host = 5;
  EXPECT_NEAR(plan_of(plain_step(), machine, 1, 0).step.optimizer, 5, 1e-9);
}

TEST(PlanCaptured, SearchRanksStagesThatFit) {
  Machine machine = plain_machine();
  const Found all = search(plain_step(), machine, 4, {});
  ASSERT_EQ(all.plans.size(), 4);
  for (size_t i = 1; i < 4; ++i) {
    EXPECT_GE(all.plans[i].step.seconds(), all.plans[i - 1].step.seconds());
  }
  machine.gpu.memory = all.plans[0].memory.total();
  for (const Plan& plan : all.plans) {
    machine.gpu.memory = std::min(machine.gpu.memory, plan.memory.total());
  }
  machine.gpu.memory -= 1;
  const Found none = search(plain_step(), machine, 4, {});
  EXPECT_TRUE(none.plans.empty());
  EXPECT_EQ(none.too_large, 4);
  ASSERT_TRUE(none.smallest.has_value());
  EXPECT_EQ(search(plain_step(), plain_machine(), 4, 2).plans.at(0).layout.zero, 2);
}

TEST(PlanCaptured, MistakesAreNamed) {
  const Machine machine = plain_machine();
  expect_error([&] { plan_of(plain_step(), machine, 0, 0); }, "0 GPUs: give 1 to 1048576");
  expect_error([&] { plan_of(plain_step(), machine, INT64_MAX, 0); }, "give 1 to");
  expect_error([&] { plan_of(plain_step(), machine, 2, 4); }, "ZeRO stage 4");
  expect_error([&] { search(plain_step(), machine, 2, -1); }, "ZeRO stage -1");
  Captured wrong = plain_step();
  wrong.parameters[0].gradient = 4;  // of the update
  expect_error([&] { plan_of(wrong, machine, 2, 0); }, "kernels it does not have");
  wrong = plain_step();
  wrong.parameters[1].uses = {-1};
  expect_error([&] { plan_of(wrong, machine, 2, 0); }, "kernels it does not have");
  wrong = Captured();  // buffers that nothing waits for
  EXPECT_EQ(plan_of(wrong, machine, 2, 0).step.compute, 0);
  wrong.buffers = {8};
  expect_error([&] { plan_of(wrong, machine, 2, 0); }, "kernels it does not have");
}

}  // namespace
}  // namespace mytorch::plan
