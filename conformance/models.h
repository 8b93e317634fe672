// Small networks, with data that is made up, for what a device has to do when networks are trained.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "mytorch/tensor.h"

namespace mytorch::conformance {

// mnist-mlp: 784-32-10 by plain gradient descent. mnist-cnn: two convolutions and two linear
// layers, of examples/mnist. transformer: a block of pre-norm attention over sequences of 8 tokens.
// The last two by AdamW.
std::vector<std::string> model_names();

struct Training {
  std::function<float()> step;  // forward, backward and the optimizer's; the loss before it
};

// A network on a device, with one batch that every step sees. Throws Error(kValue) for a name that
// is not among the above.
Training make_training(const std::string& model, Device device, int64_t batch);

}  // namespace mytorch::conformance
