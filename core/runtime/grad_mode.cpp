#include "mytorch/grad_mode.h"

#include "mytorch/thread_state.h"

namespace mytorch {

bool grad_enabled() { return thread_state.grad_mode; }

void set_grad_enabled(bool enabled) {
  thread_state.grad_mode = enabled;
  if (enabled) {
    thread_state.layers |= kLayerAutograd;
  } else {
    thread_state.layers &= ~uint32_t{kLayerAutograd};
  }
}

InferenceMode::InferenceMode()
    : saved_grad_(thread_state.grad_mode), saved_inference_(thread_state.inference_mode) {
  set_grad_enabled(false);
  thread_state.inference_mode = true;
}

InferenceMode::~InferenceMode() {
  set_grad_enabled(saved_grad_);
  thread_state.inference_mode = saved_inference_;
}

bool inference_mode_enabled() { return thread_state.inference_mode; }

}  // namespace mytorch
