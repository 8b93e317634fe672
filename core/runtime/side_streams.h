// Streams beside the one that a thread has of a device, for work that is independent of its own.
#pragma once

#include <memory>
#include <vector>

#include "core/runtime/context.h"
#include "mytorch/device.h"

namespace mytorch {

struct DeviceType;

// Each stream has a context of its own, with scratch memory, which kernels get in place of the
// thread's while the stream is in use. Within a capture, a stream belongs to it from the first mark
// that it waits for, and the thread's own stream must have waited for all of them in the end.
class SideStreams {
 public:
  // `count` streams besides this thread's own on the device, which is number 0.
  SideStreams(int slot, Device device, int count);
  // Returns to the thread's own stream. The streams must have no work that is not waited for.
  ~SideStreams();
  SideStreams(const SideStreams&) = delete;
  SideStreams& operator=(const SideStreams&) = delete;

  // Has this thread queue its work on a stream.
  void use(int stream);
  // Returns a mark behind the work that the stream in use has now. It lives as long as this object.
  void* mark();
  // Has the stream in use wait for the work before a mark.
  void wait(void* mark);

 private:
  const int slot_;
  const Device device_;
  const DeviceType& type_;
  mt_ctx* const own_;
  std::vector<std::unique_ptr<ThreadContext>> side_;
  std::vector<void*> marks_;
};

}  // namespace mytorch
