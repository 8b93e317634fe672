// Tensors that a module keeps.
#pragma once

#include "mytorch/thread_state.h"

namespace mytorch::nn {

// Leaves inference mode in its scope. Tensors that are made in it may be written and saved for
// backward later, outside inference mode.
class LastingTensors {
 public:
  LastingTensors() : saved_(thread_state.inference_mode) { thread_state.inference_mode = false; }
  ~LastingTensors() { thread_state.inference_mode = saved_; }
  LastingTensors(const LastingTensors&) = delete;
  LastingTensors& operator=(const LastingTensors&) = delete;

 private:
  bool saved_;
};

}  // namespace mytorch::nn
