// Copies between the host and a device beside what the device computes.
#pragma once

#include <functional>
#include <memory>

#include "core/runtime/context.h"
#include "mytorch/device.h"
#include "mytorch/tensor.h"

namespace mytorch {
struct DeviceType;
}

namespace mytorch::nn::sharded {

// A stream of a device besides those of threads, which work is ordered with by marks. Devices
// without streams, and the CPU, do all work at once, and their marks are null.
class SideCopies {
 public:
  using Mark = std::shared_ptr<void>;

  // `pins`: host memory is pinned, if the device has such memory.
  SideCopies(Device device, bool pins);
  ~SideCopies();  // after finish()
  SideCopies(const SideCopies&) = delete;
  SideCopies& operator=(const SideCopies&) = delete;

  // Has `work` queue what it does on this stream, behind all that this thread has queued on its own
  // so far. Returns the mark behind it. Host memory in which it reads or writes stays alive, and is
  // not touched, until finish(). Throws Error(kUnsupported) in a recorded or captured function.
  Mark run(const std::function<void()>& work);
  // Has this thread's stream wait for the work before a mark.
  void wait(const Mark& mark) const;
  // Has the host wait for all work.
  void finish();

  // Returns uninitialized, contiguous host memory.
  Tensor host_tensor(int64_t size, ScalarType dtype) const;

 private:
  Mark record(const mt_ctx& ctx) const;
  void order(void* stream, const Mark& mark) const;

  const Device device_;
  const int slot_;
  const DeviceType& type_;
  const bool pins_;
  std::unique_ptr<ThreadContext> side_;  // null for a device without streams
  Mark last_;
};

}  // namespace mytorch::nn::sharded
