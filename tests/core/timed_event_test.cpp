// Timing events of the CPU and of a device with its own clock.
#include "mytorch/timed_event.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <utility>

#include "core/runtime/context.h"
#include "core/runtime/device_registry.h"
#include "tests/nn/data/expect_error.h"

namespace mytorch {
namespace {

using testing::expect_error;

// A device whose clock advances by a second with every event.
struct Clock {
  int64_t seconds = 0;
  int events = 0, waits = 0;
};

mt_device_ops clock_ops() {
  mt_device_ops ops{};
  ops.size = sizeof(ops);
  ops.device_count = [](void*) { return 2; };
  ops.allocate = [](void*, int32_t, size_t bytes, void*) { return std::malloc(bytes); };
  ops.release = [](void*, int32_t, void* data, size_t, void*) { std::free(data); };
  ops.copy = [](void*, int32_t, int32_t, void* to, const void* from, size_t bytes, void*) {
    std::memcpy(to, from, bytes);
    return int{MT_OK};
  };
  ops.create_stream = [](void*, int32_t, int32_t) -> void* { return std::malloc(1); };
  ops.synchronize = [](void*, int32_t, void*) { return int{MT_OK}; };
  ops.record_event = [](void*, int32_t, void*) -> void* { return nullptr; };
  ops.wait_event = [](void* self, int32_t, void*, void*) {
    ++static_cast<Clock*>(self)->waits;
    return int{MT_OK};
  };
  ops.destroy_event = [](void* self, void* event) {
    --static_cast<Clock*>(self)->events;
    delete static_cast<int64_t*>(event);
  };
  ops.record_timed_event = [](void* self, int32_t, void* stream) -> void* {
    auto* clock = static_cast<Clock*>(self);
    if (stream == nullptr) return nullptr;
    ++clock->events;
    return new int64_t(clock->seconds++);
  };
  ops.event_elapsed = [](void*, void* begin, void* end, double* seconds) {
    *seconds = static_cast<double>(*static_cast<int64_t*>(end) - *static_cast<int64_t*>(begin));
    return int{MT_OK};
  };
  return ops;
}

TEST(TimedEvent, OnTheCpuRecordsTheTimeOfConstruction) {
  EXPECT_TRUE(TimedEvent::known_by(kCPU));
  const TimedEvent begin(kCPU);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  TimedEvent end(kCPU);
  EXPECT_GE(end.seconds_since(begin), 0.02);
  EXPECT_LT(end.seconds_since(begin), 20);
  EXPECT_LE(begin.seconds_since(end), -0.02);
  const double first = end.seconds_since(begin);
  end = TimedEvent(kCPU);
  EXPECT_GE(end.seconds_since(begin), first);
}

TEST(TimedEvent, MeasuresDeviceTime) {
  static Clock clock;
  const mt_device_ops ops = clock_ops();
  const int slot = register_device_type("clock", &ops, &clock);
  const Device device("clock");
  EXPECT_EQ(device.type, device_type(slot).type);
  EXPECT_TRUE(TimedEvent::known_by(device));
  {
    const TimedEvent begin(device);
    TimedEvent skipped(device);
    const TimedEvent end(device);
    EXPECT_EQ(end.seconds_since(begin), 2);
    EXPECT_EQ(clock.waits, 2);
    EXPECT_EQ(clock.events, 3);
    const TimedEvent moved = std::move(skipped);
    EXPECT_EQ(moved.seconds_since(begin), 1);
    expect_error(ErrorCode::kDevice, {"both must be of one device"},
                 [&] { end.seconds_since(TimedEvent(Device("clock:1"))); });
    expect_error(ErrorCode::kDevice, {"belong to cpu"},
                 [&] { end.seconds_since(TimedEvent(kCPU)); });
  }
  EXPECT_EQ(clock.events, 0);
}

TEST(TimedEvent, RejectsDevicesWithoutTimingEvents) {
  mt_device_ops ops = clock_ops();
  ops.event_elapsed = nullptr;
  register_device_type("timeless", &ops, nullptr);
  EXPECT_FALSE(TimedEvent::known_by(Device("timeless")));
  expect_error(ErrorCode::kUnsupported, {"has no timing events"},
               [] { TimedEvent event(Device("timeless")); });
}

}  // namespace
}  // namespace mytorch
