#include "mytorch/grad_mode.h"

#include "core/runtime/grad_layer.h"
#include "mytorch/thread_state.h"

namespace mytorch {

thread_local constinit bool grad_layer_masked = false;

bool grad_enabled() { return thread_state.grad_mode; }

void set_grad_enabled(bool enabled) {
  thread_state.grad_mode = enabled;
  if (enabled && !grad_layer_masked) {
    thread_state.layers |= kLayerAutograd;
  } else if (!enabled) {
    thread_state.layers &= ~uint32_t{kLayerAutograd};
  }
}

InferenceMode::InferenceMode(bool enabled)
    : saved_grad_(thread_state.grad_mode), saved_inference_(thread_state.inference_mode) {
  set_grad_enabled(!enabled);
  thread_state.inference_mode = enabled;
}

InferenceMode::~InferenceMode() {
  set_grad_enabled(saved_grad_);
  thread_state.inference_mode = saved_inference_;
}

bool inference_mode_enabled() { return thread_state.inference_mode; }

}  // namespace mytorch
