// When a device came to a point of its queue.
#pragma once

#include "mytorch/device.h"

namespace mytorch {

// A point behind all that this thread has queued on a device. While the queue is never empty, two
// of them have the time of what lies between, without the host's part:
//
//   const TimedEvent begin(device);
//   run();
//   const TimedEvent end(device);
//   const double seconds = end.seconds_since(begin);  // waits
//
// The CPU, which works at once, takes the time when the event is made. A device that has no clock
// gives Error(kUnsupported), and so does one whose work is being recorded (mytorch/graph.h).
class TimedEvent {
 public:
  explicit TimedEvent(Device device = Device("cuda"));
  TimedEvent(TimedEvent&& other) noexcept;
  TimedEvent& operator=(TimedEvent&& other) noexcept;
  ~TimedEvent();

  // Whether events of a device know a time.
  static bool known_by(Device device);
  // Waits until the device has come to both, which are of the same device.
  double seconds_since(const TimedEvent& begin) const;

 private:
  void wait() const;

  Device device_;
  void* event_ = nullptr;  // the device's; of the CPU none
  double time_ = 0;        // the CPU's, in seconds
};

}  // namespace mytorch
