// Tensors whose memory comes later (graph/deferred): where this thread makes them, and what keeps
// the host from reading them.
#pragma once

#include <atomic>

#include "mytorch/device.h"
#include "mytorch/tensor_impl.h"

namespace mytorch {

// The slot of the device whose tensors have no memory; -1 before it is registered.
inline std::atomic<int> deferred_slot{-1};
inline bool is_deferred(const TensorImpl& impl) {
  return impl.device_slot == deferred_slot.load(std::memory_order_relaxed);
}
// How the message of an Error goes on that says that a deferred tensor is read.
inline constexpr const char* kNotYetThere =
    "was made under nn::DeferredInit, and has no elements yet: nn::materialize the module, or give "
    "it to a FullyShardedDataParallel";

namespace detail {
extern thread_local constinit Device place_of_new __attribute__((tls_model("initial-exec")));
}
// The device of a new tensor for which none is given: the CPU, except in the scope of a
// DefaultDevice.
inline Device default_device() { return detail::place_of_new; }

class DefaultDevice {
 public:
  explicit DefaultDevice(Device device) : outer_(detail::place_of_new) {
    detail::place_of_new = device;
  }
  ~DefaultDevice() { detail::place_of_new = outer_; }
  DefaultDevice(const DefaultDevice&) = delete;
  DefaultDevice& operator=(const DefaultDevice&) = delete;

 private:
  const Device outer_;
};

}  // namespace mytorch
