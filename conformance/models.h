// Small networks with synthetic data, which represent the work of training.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "mytorch/tensor.h"

namespace mytorch::conformance {

// mnist-mlp: 784-32-10, trained with plain gradient descent. mnist-cnn: the network of
// examples/mnist, two convolutions and two linear layers, trained with AdamW. transformer: a block
// of pre-norm attention over sequences of 8 tokens, trained with AdamW.
std::vector<std::string> model_names();

struct Training {
  std::function<float()> step;  // forward, backward, optimizer; returns the loss before the step
};

// Makes a network on a device and one batch for all steps. Throws Error(kValue) for an unknown
// name.
Training make_training(const std::string& model, Device device, int64_t batch);

}  // namespace mytorch::conformance
