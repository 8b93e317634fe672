// Timed events, compared with the host's clock.
#include "mytorch/timed_event.h"

#include <algorithm>
#include <chrono>

#include "mytorch/cuda.h"
#include "mytorch/mytorch.h"
#include "tests/backends/cuda/gpu.h"
#include "tests/nn/data/expect_error.h"

namespace mytorch::testing {
namespace {

using Clock = std::chrono::steady_clock;

class TimedEvents : public Gpu {};

TEST_F(TimedEvents, MeasureTheWorkBetweenThem) {
  const Device device("cuda");
  ASSERT_TRUE(TimedEvent::known_by(device));
  const Tensor x = empty({64 << 20}, kFloat32, device);
  x.fill_(1);
  synchronize(device);
  const auto start = Clock::now();
  const TimedEvent begin(device);
  for (int i = 0; i < 10; ++i) x.fill_(2);
  const TimedEvent middle(device);
  for (int i = 0; i < 90; ++i) x.fill_(3);
  const TimedEvent end(device);
  const double all = end.seconds_since(begin);
  const double passed = std::chrono::duration<double>(Clock::now() - start).count();
  EXPECT_LE(all, passed);
  EXPECT_NEAR(middle.seconds_since(begin) + end.seconds_since(middle), all, 1e-5);
  // 2.56 and 23 GB at less than 25.6 TB/s, which other work on the device may slow down.
  EXPECT_GT(middle.seconds_since(begin), 1e-4);
  EXPECT_GT(end.seconds_since(middle), 9e-4);
}

// A reused event has its new time.
TEST_F(TimedEvents, AreReused) {
  const Tensor x = empty({16 << 20}, kFloat32, "cuda");
  x.fill_(1);
  double least = 1e9, most = 0;
  for (int i = 0; i < 50; ++i) {
    const TimedEvent begin;
    x.fill_(i);
    const double seconds = TimedEvent().seconds_since(begin);
    least = std::min(least, seconds);
    most = std::max(most, seconds);
  }
  EXPECT_GT(least, 1e-6);
  EXPECT_LT(most, 60);
}

TEST_F(TimedEvents, AreRefusedDuringACapture) {
  const Tensor x = zeros({8}, kFloat32, "cuda");
  Graph graph;
  graph.capture([&] {
    x.add_(1);
    expect_error(ErrorCode::kUnsupported, {"being captured"}, [] { TimedEvent event; });
  });
  graph.replay();
  EXPECT_EQ(sum(x).item<double>(), 8);
}

}  // namespace
}  // namespace mytorch::testing
