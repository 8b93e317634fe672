// Streams: each thread has its own, backward runs each node on the stream of its forward, and no
// work uses data that it has not waited for. The fake device detects violations.
#include <cmath>
#include <functional>
#include <thread>

#include "mytorch/autograd.h"
#include "mytorch/autograd/function.h"
#include "mytorch/ops/full.h"
#include "mytorch/ops/mm.h"
#include "tests/dispatcher/util.h"

namespace mytorch {
namespace {

using testing::DeviceCalls;
using testing::expect_error;
using testing::FakeDevice;
using testing::full;
using testing::Values;
using testing::values;

Tensor on_full(const Tensor& x, int index = 0) { return x.to(full().device(index)); }

template <class F>
void on_another_thread(F f) {
  std::thread(f).join();
}

class StreamsTest : public ::testing::Test {
 protected:
  StreamsTest() { full().take_races(); }
  ~StreamsTest() override {
    for (const std::string& race : full().take_races()) ADD_FAILURE() << race;
    EXPECT_EQ(full().calls().events_recorded, full().calls().events_destroyed);
  }
};

// Verifies that the fake device detects a race between two threads.
TEST(FakeDeviceTest, NoticesUnorderedWork) {
  const Tensor x = on_full(tensor({1.0, 2}));
  full().take_races();
  Tensor y;
  on_another_thread([&] { y = x * 2; });
  EXPECT_TRUE(full().take_races().empty());  // x was copied and waited for
  y.add_(1);
  const std::vector<std::string> races = full().take_races();
  ASSERT_FALSE(races.empty());
  EXPECT_NE(races[0].find("does not wait for mul.Tensor"), std::string::npos) << races[0];
}

TEST_F(StreamsTest, OpsRunOnTheDevice) {
  const DeviceCalls before = full().calls();
  const Tensor x = on_full(tensor({1.0, 2, 3, 4}).view({2, 2}));
  EXPECT_EQ(full().calls().copies[MT_COPY_TO_DEVICE], before.copies[MT_COPY_TO_DEVICE] + 1);
  EXPECT_EQ(values(mm(x, x) + x.t()), (Values{8, 13, 17, 26}));
  EXPECT_GE(full().calls().kernels, before.kernels + 2);
  EXPECT_EQ(full().calls().copies[MT_COPY_TO_HOST], before.copies[MT_COPY_TO_HOST] + 1);
  EXPECT_EQ(x.sum().item<float>(), 10);
  EXPECT_EQ(x.to(kCPU).to(full().device()).device(), full().device());
}

TEST_F(StreamsTest, MemoryGoesBack) {
  const int64_t before = full().calls().blocks;
  {
    const Tensor x = on_full(tensor({1.0, 2, 3})).requires_grad_();
    (x * x).sum().backward();
    EXPECT_GT(full().calls().blocks, before);
  }
  EXPECT_EQ(full().calls().blocks, before);
}

// On a single stream, nothing needs to wait.
TEST_F(StreamsTest, BackwardOnTheSameThreadNeedsNoEvents) {
  const Tensor x = on_full(tensor({1.0, 2, 3})).requires_grad_();
  const DeviceCalls before = full().calls();
  const Tensor y = (x * x + x.exp()).sum();
  y.backward();
  EXPECT_EQ(full().calls().events_recorded, before.events_recorded);
  EXPECT_EQ(full().calls().streams, before.streams);
  EXPECT_EQ(full().calls().synchronizations, before.synchronizations);
  EXPECT_NEAR(values(x.grad())[1], 4 + std::exp(2.0), 1e-5);
}

TEST_F(StreamsTest, BackwardOfAnotherThreadsForward) {
  const Tensor x = on_full(tensor({1.0, 2, 3})).requires_grad_();
  Tensor y;
  on_another_thread([&] { y = (x * x * 2).sum(); });
  const DeviceCalls before = full().calls();
  y.backward();
  // It used data of this thread, and this thread may use its result.
  EXPECT_GE(full().calls().events_waited, before.events_waited + 2);
  EXPECT_EQ(values(x.grad()), (Values{4, 8, 12}));
  const Tensor step = x.grad() * 0.5;
  EXPECT_EQ(values(step), (Values{2, 4, 6}));
}

// Gradients from different streams are added on a third stream.
TEST_F(StreamsTest, BranchesOfSeveralThreads) {
  const Tensor x = on_full(tensor({1.0, 2, 3})).requires_grad_();
  const Tensor h = x * 1;
  values(h);  // makes it available to the other threads
  Tensor parts[4];
  for (Tensor& part : parts) {
    on_another_thread([&] { part = (h * h).sum(); });
  }
  std::vector<Tensor> outputs;
  for (Tensor& part : parts) outputs.push_back(part);
  autograd::backward(outputs);
  EXPECT_EQ(values(x.grad()), (Values{8, 16, 24}));
  EXPECT_EQ(values(x.grad() + 1), (Values{9, 17, 25}));
}

// Gives one gradient to both.
struct Sum : autograd::Function<Sum> {
  static Tensor forward(autograd::FunctionContext* /*ctx*/, const Tensor& a, const Tensor& b) {
    return a + b;
  }
  static std::vector<Tensor> backward(autograd::FunctionContext* /*ctx*/,
                                      const std::vector<Tensor>& grads) {
    return {grads[0], grads[0]};
  }
};

// Work of b's stream may still read the gradient when its node has let it go, and a gets another
// one.
TEST_F(StreamsTest, GradientsThatAnotherStreamReadsAreNotWritten) {
  const Tensor x = on_full(tensor({1.0, 2})).requires_grad_();
  const Tensor a = x * 2;
  values(a);
  Tensor b, other;
  on_another_thread([&] {
    other = (a * 5).sum();
    on_another_thread([&] {
      const Tensor first = x * 1;  // nodes run in the reverse order of their threads
      b = first * 3;
      values(b);
    });
  });
  autograd::backward({(Sum::apply(a, b) * 1).sum(), other});
  EXPECT_EQ(values(x.grad()), (Values{15, 15}));
}

// Gradients of parts come from several streams, and are then added as wholes.
TEST_F(StreamsTest, PartsOfSeveralThreads) {
  const Tensor x = on_full(tensor({1.0, 2, 3, 4}).view({4, 1})).requires_grad_();
  const Tensor h = x * 1;
  values(h);
  std::vector<Tensor> outputs;
  // Threads that follow each other may have one stream.
  const std::function<void(int)> use_from = [&](int i) {
    outputs.push_back((h.select(0, i) * (i + 1)).sum());
    if (i < 3) on_another_thread([&] { use_from(i + 1); });
  };
  on_another_thread([&] { use_from(0); });
  autograd::backward(outputs);
  EXPECT_EQ(values(x.grad()), (Values{1, 2, 3, 4}));
  EXPECT_EQ(values(x.grad() + 1), (Values{2, 3, 4, 5}));
}

// A parameter of one thread is trained by another one.
TEST_F(StreamsTest, PartsOfALeafOfAnotherThread) {
  const Tensor x = on_full(tensor({1.0, 2, 3, 4}).view({4, 1})).requires_grad_();
  values(x);
  on_another_thread([&] {
    Tensor all = (x * 2).sum();
    for (int i = 0; i < 4; ++i) all = all + (x.select(0, i) * (i + 1)).sum();
    all.backward();
  });
  EXPECT_EQ(values(x.grad()), (Values{3, 4, 5, 6}));
}

TEST_F(StreamsTest, AccumulationIntoAGradientThatIsThere) {
  const Tensor x = on_full(tensor({1.0, 2})).requires_grad_();
  for (int i = 0; i < 3; ++i) {
    Tensor y;
    on_another_thread([&] { y = (x * 3).sum(); });
    y.backward();
    EXPECT_EQ(values(x.grad() * 1), (Values{3.0 * (i + 1), 3.0 * (i + 1)}));
  }
}

TEST_F(StreamsTest, GradientsGivenAndCaptured) {
  const Tensor x = on_full(tensor({1.0, 2})).requires_grad_();
  Tensor h, y;
  on_another_thread([&] {
    h = x * x;
    y = h * 3;
  });
  const Tensor seed = on_full(tensor({1.0, 10})) * 1;  // computed on this thread's stream
  const std::vector<Tensor> grads = autograd::grad({y}, {x, h}, {seed});
  EXPECT_EQ(values(grads[0] * 1), (Values{6, 120}));
  EXPECT_EQ(values(grads[1] * 1), (Values{3, 30}));
}

TEST_F(StreamsTest, HooksAndRetainedGradients) {
  const Tensor x = on_full(tensor({1.0, 2})).requires_grad_();
  Tensor h, y, seen;
  on_another_thread([&] {
    h = x * x;
    y = (h * 3).sum();
  });
  h.retain_grad();
  h.register_hook([&](const Tensor& grad) {
    seen = grad * 2;
    return Tensor();
  });
  y.backward();
  EXPECT_EQ(values(h.grad() * 1), (Values{3, 3}));
  EXPECT_EQ(values(seen * 1), (Values{6, 6}));
}

TEST_F(StreamsTest, SecondGradientsWaitForTheirStreams) {
  const Tensor x = on_full(tensor({1.0, 2})).requires_grad_();
  Tensor y;
  on_another_thread([&] { y = (x * x * x).sum(); });
  const Tensor first = autograd::grad({y}, {x}, {}, {.create_graph = true})[0];
  const Tensor second = autograd::grad({first.sum()}, {x})[0];
  EXPECT_EQ(values(second * 1), (Values{6, 12}));
}

TEST_F(StreamsTest, GradientsCrossDevices) {
  const Tensor x = on_full(tensor({1.0, 2, 3})).requires_grad_();
  const DeviceCalls before = full().calls();
  const Tensor there = (x * 2).to(full().device(1)) * 3;
  const Tensor back = there.to(full().device(0)) * x;
  const Tensor total = back.sum() + there.to(kCPU).sum().to(full().device());
  EXPECT_GE(full().calls().peer_copies, before.peer_copies + 2);
  total.backward();
  EXPECT_EQ(x.grad().device(), full().device());
  EXPECT_EQ(values(x.grad() * 1), (Values{18, 30, 42}));
}

// The source of a copy may be overwritten immediately.
TEST_F(StreamsTest, CopiesBetweenDevicesKeepTheirSource) {
  const Tensor x = on_full(tensor({1.0, 2}));
  x.mul_(2);
  const Tensor there = x.to(full().device(1));
  x.add_(1);
  EXPECT_EQ(values(there * 1), (Values{2, 4}));
  EXPECT_EQ(values(x), (Values{3, 5}));
}

TEST_F(StreamsTest, ManyThreadsOneModel) {
  const Tensor w = on_full(tensor({1.0, 2})).requires_grad_();
  std::vector<std::thread> threads;
  std::vector<Values> found(4);
  for (size_t t = 0; t < found.size(); ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 20; ++i) {
        const Tensor input = on_full(tensor({static_cast<double>(t), 1}));
        found[t] = values(autograd::grad({(w * w * input).sum()}, {w})[0]);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (size_t t = 0; t < found.size(); ++t) {
    EXPECT_EQ(found[t], (Values{2.0 * static_cast<double>(t), 4}));
  }
}

TEST_F(StreamsTest, FailingEventsAreErrors) {
  const Tensor x = on_full(tensor({1.0, 2})).requires_grad_();
  Tensor y;
  on_another_thread([&] { y = (x * x).sum(); });
  for (const char* function : {"record_event", "wait_event"}) {
    full().let_fail(function);
    expect_error(ErrorCode::kDevice, {"[backward]", "streams of full:0"},
                 [&] { y.backward({}, true); });
    full().let_fail("");
  }
  EXPECT_FALSE(x.grad().defined());
  y.backward();
  EXPECT_EQ(values(x.grad()), (Values{2, 4}));
}

TEST_F(StreamsTest, FailingCopiesAreErrors) {
  const Tensor x = on_full(tensor({1.0, 2}));
  full().let_fail("copy");
  expect_error(ErrorCode::kDevice, {"[to] copy_:", "full:0", "failed"}, [&] { x.to(kCPU); });
  expect_error(ErrorCode::kDevice, {"[to] copy_:"}, [] { on_full(tensor({1.0})); });
  full().let_fail("synchronize");
  expect_error(ErrorCode::kDevice, {"[to] copy_:", "waiting"}, [&] { x.to(kCPU); });
  full().let_fail("allocate");
  expect_error(ErrorCode::kOutOfMemory, {"full:0", "8 bytes"}, [&] { x * 2; });
  full().let_fail("");
  EXPECT_EQ(values(x), (Values{1, 2}));
}

}  // namespace
}  // namespace mytorch
