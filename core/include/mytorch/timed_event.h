// Measures device time between two points of a stream.
#pragma once

#include "mytorch/device.h"

namespace mytorch {

// A timing event in this thread's stream of a device, after all work queued so far. The difference
// between two events is the device time of the work between them, excluding host overhead as long
// as the stream never runs empty:
//
//   const TimedEvent begin(device);
//   run();
//   const TimedEvent end(device);
//   const double seconds = end.seconds_since(begin);  // waits
//
// The CPU runs work synchronously, so its events record the time of construction. Throws
// Error(kUnsupported) if the device has no timing events, or if this thread is capturing a graph on
// it (mytorch/device_graph.h).
class TimedEvent {
 public:
  explicit TimedEvent(Device device = Device("cuda"));
  TimedEvent(TimedEvent&& other) noexcept;
  TimedEvent& operator=(TimedEvent&& other) noexcept;
  ~TimedEvent();

  // Returns whether the device supports timing events.
  static bool known_by(Device device);
  // Returns the seconds from `begin` to this event, after waiting for both. Both events must belong
  // to the same device.
  double seconds_since(const TimedEvent& begin) const;

 private:
  void wait() const;

  Device device_;
  void* event_ = nullptr;  // the device's event; null for the CPU
  double time_ = 0;        // CPU only: time of construction in seconds
};

}  // namespace mytorch
