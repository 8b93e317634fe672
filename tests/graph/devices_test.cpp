// Compiled functions over several devices: made-up ones with the kernels of the reference, which
// detect work that uses data without waiting for it.
#include <gtest/gtest.h>

#include <string>

#include "mytorch/compile.h"
#include "mytorch/device_memory.h"
#include "mytorch/mytorch.h"
#include "tests/autograd/util.h"
#include "tests/core/same_bits.h"
#include "tests/dispatcher/fake_device.h"

namespace mytorch {
namespace {

using testing::FakeDevice;

FakeDevice& fake() {
  static FakeDevice& device = FakeDevice::create({"compiled", 2, nullptr, nullptr});
  return device;
}

Tensor numbers(uint64_t seed) { return randn({3, 4}, kFloat32, {}, Generator(seed)); }

class CompiledDevices : public ::testing::Test {
 protected:
  CompiledDevices() { fake().take_races(); }
  ~CompiledDevices() override {
    for (const std::string& race : fake().take_races()) ADD_FAILURE() << race;
  }
};

// Here and there again, with a tensor from outside on each device.
TEST_F(CompiledDevices, CopiesBetweenDevices) {
  const Device first = fake().device(0), second = fake().device(1);
  const Tensor here = numbers(1), there = numbers(2).to(second);
  const auto f = [&](const Tensor& x) {
    const Tensor a = exp(x.to(first)) * 2;
    const Tensor b = a.to(second) + there;
    return (b.to(kCPU) - here) * a.to(kCPU);
  };
  auto compiled = compile(f, {.mode = CompileMode::kExact});
  int peer_copies = 0;
  for (uint64_t i = 0; i < 5; ++i) {
    const Tensor x = numbers(10 + i);
    const Tensor expected = f(x);
    const int before = fake().calls().peer_copies;
    const Tensor found = compiled(x);
    peer_copies = fake().calls().peer_copies - before;
    expect_same(found, expected);
    there.add_(1);  // seen by the next call
  }
  EXPECT_EQ(compiled.stats().recorded, 1);
  EXPECT_EQ(compiled.stats().replayed, 4);
  EXPECT_EQ(peer_copies, 1);  // of a replay
}

TEST_F(CompiledDevices, ResultsOnTwoDevices) {
  const auto f = [](const Tensor& x, const Tensor& y) {
    const Tensor sum = x.to(y.device()) + y;
    return std::vector<Tensor>{x * 2, sum, sum.to(x.device()).t()};
  };
  auto compiled = compile(f, {.mode = CompileMode::kExact});
  for (uint64_t i = 0; i < 4; ++i) {
    const Tensor x = numbers(i).to(fake().device(0)), y = numbers(20 + i).to(fake().device(1));
    const std::vector<Tensor> expected = f(x, y), found = compiled(x, y);
    for (size_t k = 0; k < expected.size(); ++k) {
      EXPECT_EQ(found[k].device(), expected[k].device()) << k;
      expect_same(found[k], expected[k]);
    }
  }
  EXPECT_EQ(compiled.stats().recorded, 1) << compiled.stats().reason;
}

TEST_F(CompiledDevices, ArgumentsOnAnotherDeviceRecordAgain) {
  auto compiled =
      compile([](const Tensor& x) { return tanh(x) * x; }, {.mode = CompileMode::kExact});
  const Device devices[] = {kCPU, fake().device(0), fake().device(1)};
  for (int round = 0; round < 3; ++round) {
    for (const Device& device : devices) {
      const Tensor x = numbers(static_cast<uint64_t>(round)).to(device);
      const Tensor found = compiled(x);
      EXPECT_EQ(found.device(), device);
      expect_same(found, tanh(x) * x);
    }
    EXPECT_EQ(compiled.stats().recorded, 3);
  }
  EXPECT_EQ(compiled.stats().replayed, 6);
}

// A backward over several devices runs on several threads, of which none can be recorded. A
// function without it still can.
TEST_F(CompiledDevices, BackwardAcrossDevicesIsRefused) {
  const auto f = [](const Tensor& x) {
    return exp(x.to(fake().device(0)) * 0.5).to(fake().device(1)).to(kCPU) * x;
  };
  auto inside = compile([&](const Tensor& x) {
    const Tensor leaf = x.detach().requires_grad_();
    f(leaf).sum().backward();
    return leaf.grad() * 1;
  });
  auto outside = compile(f);
  for (uint64_t i = 0; i < 3; ++i) {
    const Tensor x = numbers(40 + i);
    EXPECT_ERROR(inside(x), "cannot record a backward over several devices");
    EXPECT_ERROR(outside(x.clone().requires_grad_()), "compile a function for each device");
    expect_same(outside(x), f(x));
  }
}

TEST_F(CompiledDevices, BackwardOnAnotherDevice) {
  const Tensor w = numbers(1).to(fake().device(1)).requires_grad_();
  const auto f = [&](const Tensor& x) { return tanh(x * w) * x; };
  auto compiled = compile(f, {.mode = CompileMode::kExact});
  for (uint64_t i = 0; i < 4; ++i) {
    const Tensor x = numbers(50 + i).to(fake().device(1));
    f(x).sum().backward();
    const Tensor expected = w.grad();
    w.set_grad({});
    compiled(x).sum().backward();
    expect_same(w.grad(), expected);
    w.set_grad({});
  }
  EXPECT_EQ(compiled.stats().recorded, 1);
}

}  // namespace
}  // namespace mytorch
