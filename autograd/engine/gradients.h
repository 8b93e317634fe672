// Operations on gradients between nodes.
#pragma once

#include "autograd/access.h"
#include "autograd/engine/wholes.h"

namespace mytorch::autograd {

// sum += gradient; `sum` may be undefined. Adds in place if one of the buffers has no other user.
void add_gradient(Tensor* sum, Tensor&& gradient);

// Adds the gradient of a node of kind kPart to its part of `sum`, the gradient of the whole so far,
// which `info` describes. Without one, or where no other part has been, the part is copied. Returns
// false, and does nothing, if the sum must not be written, or if the part repeats elements.
bool add_gradient_of_part(const Node& node, const Tensor& gradient, const GradInfo& info,
                          Tensor* sum, Wholes* wholes);

// Returns the gradient along edge i of a node, reduced over broadcast dimensions and converted to
// the type of the input.
Tensor fit(const Node* node, uint32_t i, Tensor gradient);

// Checks that a gradient matches the node input that it goes to. Converts another floating type to
// the input's, as promotion did in the forward, and moves a 0-dim gradient to the input's device.
// Throws Error(kShape, kType or kDevice); `from` names its origin.
void fit_gradient_slow(Tensor* gradient, const GradInfo& info, const std::string& from);

// Throws Error(kValue) if a gradient that a node has computed contains NaN.
void check_nan(const Node& node, const Tensor* out);

// Calls the hooks on the gradients of a node's inputs, and stores the gradients to retain.
void run_hooks(Node* node, Tensor* grads);
void run_accumulated_hooks(Node* leaf);

}  // namespace mytorch::autograd
