// Compiled functions over several devices: made-up ones with the kernels of the reference, which
// detect work that uses data without waiting for it.
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
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

// ---- errors in the middle of a call, on a device that has graphs and on one that has none

FakeDevice& with_graphs() {
  static FakeDevice& device = FakeDevice::create({"graphed", 1, nullptr, nullptr, true});
  return device;
}

// Lets functions of a device fail within a scope.
class Failing {
 public:
  Failing(FakeDevice& device, const char* function, int after = 0) : device_(device) {
    device.let_fail(function, after);
  }
  ~Failing() { device_.let_fail(""); }
  Failing(const Failing&) = delete;
  Failing& operator=(const Failing&) = delete;

 private:
  FakeDevice& device_;
};

// A step that writes two tensors from outside, and returns a result.
struct Step {
  explicit Step(FakeDevice& on, bool interpreted = false)
      : w(ones({3, 4}).to(on.device())), m(zeros({3, 4}).to(on.device())) {
    step = [this, interpreted](const Tensor& x) {
      m.mul_(0.5);
      m.add_(x);
      w.sub_(m);
      // Copies between devices run through the interpreter, which allocates in the middle.
      const Tensor y = interpreted ? (w.to(kCPU) * 2).to(w.device()) : tanh(w);
      return (y * 2).t().contiguous();
    };
  }
  Tensor w, m;
  std::function<Tensor(const Tensor&)> step;
};

class FailingCalls : public CompiledDevices {};

TEST_F(FailingCalls, DeviceGraphsGiveTheBitsOfTheFunction) {
  Step eager(with_graphs()), compiled(with_graphs());
  auto step = compile(compiled.step, {.mode = CompileMode::kExact});
  for (uint64_t i = 0; i < 6; ++i) {
    const Tensor x = numbers(i).to(with_graphs().device());
    expect_same(step(x), eager.step(x));
    expect_same(compiled.w, eager.w);
  }
  EXPECT_TRUE(step.stats().device_graph);
  EXPECT_EQ(step.stats().recorded, 1);
  EXPECT_GE(with_graphs().calls().graph_launches, 3);
}

TEST_F(FailingCalls, LaunchesThatFailSayWhatMayBeWritten) {
  Step compiled(with_graphs());
  auto step = compile(compiled.step);
  const Tensor x = numbers(1).to(with_graphs().device());
  for (int i = 0; i < 4; ++i) step(x);
  const uint64_t version = compiled.w.impl()->storage->abi.version;
  {
    const Failing failing(with_graphs(), "launch_graph");
    const std::string error = error_of([&] { step(x); });
    EXPECT_NE(error.find("the replay on graphed:0 failed"), std::string::npos) << error;
    EXPECT_NE(error.find("the compiled call is partial: its device graph failed, which may have "
                         "written 2 tensors from outside"),
              std::string::npos)
        << error;
  }
  EXPECT_GT(compiled.w.impl()->storage->abi.version, version);  // for what was saved before
  // A function that writes nothing has changed nothing.
  auto pure = compile([](const Tensor& y) { return (tanh(exp(y) * y + 1) / 2).t().contiguous(); });
  for (int i = 0; i < 4; ++i) pure(x);
  EXPECT_TRUE(pure.stats().device_graph);
  const Failing failing(with_graphs(), "launch_graph");
  EXPECT_EQ(error_of([&] { pure(x); }).find("partial"), std::string::npos);
}

// Whatever allocation fails: the call has changed nothing, or its error says what, or it has
// succeeded without the memory. The next call goes on from there.
void run_out_of_memory(FakeDevice& on, bool interpreted, bool expect_partial) {
  bool partial = false, unchanged = false;
  for (int calls_before = 1; calls_before <= 4; ++calls_before) {
    for (int after = 0;; ++after) {
      ASSERT_LT(after, 60);
      Step compiled(on, interpreted);
      auto step = compile(compiled.step, {.mode = CompileMode::kExact});
      const Tensor x = numbers(1).to(on.device());
      for (int i = 0; i < calls_before; ++i) step(x);
      const Tensor w = compiled.w.to(kCPU), m = compiled.m.to(kCPU);
      std::string error;
      {
        const Failing failing(on, "allocate", after);
        error = error_of([&] { step(x); });
      }
      if (error.empty()) break;  // it allocates no more
      if (error.find("partial") == std::string::npos) {
        expect_same(compiled.w.to(kCPU), w);
        expect_same(compiled.m.to(kCPU), m);
        unchanged = true;
      } else {
        EXPECT_NE(error.find("tensors from outside"), std::string::npos) << error;
        partial = true;
      }
      Step eager(on, interpreted);
      eager.w.copy_(compiled.w);
      eager.m.copy_(compiled.m);
      for (int i = 0; i < 3; ++i) expect_same(step(x), eager.step(x));
      expect_same(compiled.w, eager.w);
    }
  }
  EXPECT_TRUE(unchanged);
  EXPECT_EQ(partial, expect_partial);
}

TEST_F(FailingCalls, OutOfMemoryWithAGraph) { run_out_of_memory(with_graphs(), false, true); }
TEST_F(FailingCalls, OutOfMemoryWithoutAGraph) { run_out_of_memory(fake(), false, true); }
TEST_F(FailingCalls, OutOfMemoryInTheMiddle) { run_out_of_memory(fake(), true, true); }

// A replay allocates before its first kernel.
TEST_F(FailingCalls, ReplaysThatRunOutOfMemoryChangeNothing) {
  for (FakeDevice* on : {&fake(), &with_graphs()}) {
    Step compiled(*on);
    auto step = compile(compiled.step);
    const Tensor x = numbers(1).to(on->device());
    for (int i = 0; i < 4; ++i) step(x);
    const Tensor w = compiled.w.to(kCPU);
    const Failing failing(*on, "allocate");
    const std::string error = error_of([&] { step(x); });
    EXPECT_NE(error, "");
    EXPECT_EQ(error.find("partial"), std::string::npos) << error;
    expect_same(compiled.w.to(kCPU), w);
  }
}

}  // namespace
}  // namespace mytorch
