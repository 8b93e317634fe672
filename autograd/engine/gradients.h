// What happens to gradients between nodes.
#pragma once

#include "autograd/access.h"

namespace mytorch::autograd {

// sum += gradient; `sum` may be undefined. Adds in place where nobody else has one of the buffers.
void add_gradient(Tensor* sum, Tensor&& gradient);

// The gradient of a node's edge i as its input needs it: summed over broadcast dimensions, of its
// type.
Tensor fit(const Node* node, uint32_t i, Tensor gradient);

// Checks that a gradient fits the input of a node that it goes to. A floating type other than the
// input's is converted, as promotion did forward; a 0-dim gradient is moved to the input's device.
// Throws Error(kShape, kType, kDevice); `from` says who computed it.
void fit_gradient_slow(Tensor* gradient, const GradInfo& info, const std::string& from);

// Calls the hooks on the gradients of a node's inputs, and keeps those that are to be retained.
void run_hooks(Node* node, Tensor* grads);
void run_accumulated_hooks(Node* leaf);

}  // namespace mytorch::autograd
