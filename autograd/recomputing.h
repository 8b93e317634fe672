// Checkpoints (mytorch/autograd/checkpoint.h) that run their function a second time.
#pragma once

namespace mytorch::autograd {

// Returns whether this thread computes the values of a checkpoint again. What a function counts, as
// norms count batches, it has counted in its first run.
bool is_recomputing();

}  // namespace mytorch::autograd
