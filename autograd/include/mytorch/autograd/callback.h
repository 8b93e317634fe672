// Work for the end of a backward.
#pragma once

#include "mytorch/std_function.h"

namespace mytorch::autograd {

// Calls `function` when the backward that runs on this thread has ended, on the thread that began
// it; of nested ones, the outermost. To be called from hooks and from backward functions: throws
// Error(kValue) outside of a backward. After an error of backward it is not called.
void queue_callback(std::function<void()> function);

// Returns whether this thread runs a backward.
bool in_backward();

}  // namespace mytorch::autograd
