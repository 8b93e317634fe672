// The per-thread state that every call reads.
#pragma once

#include <cstdint>

#include "mytorch/abi.h"
#include "mytorch/tensor_impl.h"

namespace mytorch {

// Device types that can be in use at once in a process: the CPU, CUDA, and those brought by
// backends.
inline constexpr int kMaxDeviceTypes = 8;

struct ThreadState {
  uint32_t layers = ~0u;  // the layers that are not masked
  uint32_t wanted = 0;    // the layers that every call enters, whatever its tensors
  bool grad_mode = true;
  bool inference_mode = false;
  mt_ctx* contexts[kMaxDeviceTypes] = {};  // of the current device of each type, or null
};

extern thread_local constinit ThreadState thread_state __attribute__((tls_model("initial-exec")));

// The layers that a call on tensors with these flags enters before its kernel.
inline uint32_t wanted_layers(uint32_t tensor_flags) {
  return (thread_state.wanted | tensor_flags) & thread_state.layers;
}
inline bool layers_wanted(uint32_t tensor_flags) { return wanted_layers(tensor_flags) != 0; }

// The context of this thread for a device; makes it on first use.
mt_ctx* make_context(int device_slot, Device device);
inline mt_ctx* context(int device_slot, mt_device device) {
  mt_ctx* ctx = thread_state.contexts[device_slot];
  if (ctx != nullptr && ctx->device.index == device.index) [[likely]]
    return ctx;
  return make_context(device_slot, Device(device.type, device.index));
}

// Masks layers of this thread in its scope.
class LayerMask {
 public:
  explicit LayerMask(uint32_t masked) : saved_(thread_state.layers) {
    thread_state.layers &= ~masked;
  }
  ~LayerMask() { thread_state.layers = saved_; }
  LayerMask(const LayerMask&) = delete;
  LayerMask& operator=(const LayerMask&) = delete;

 private:
  uint32_t saved_;
};

}  // namespace mytorch
