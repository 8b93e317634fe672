// The networks and their training recipes.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "mytorch/mytorch.h"

struct Recipe {
  int64_t epochs;
  double lr;  // the maximum of the schedule
};

std::vector<std::string> model_names();
Recipe recipe_of(const std::string& model);

// A network from images (n, 1, 28, 28) to scores (n, 10), with its loss and optimizer.
class Task {
 public:
  virtual ~Task() = default;
  virtual mytorch::nn::Module& network() = 0;
  // Returns the mean loss of a batch; `labels` are int64 of shape (n).
  virtual mytorch::Tensor loss(const mytorch::Tensor& images, const mytorch::Tensor& labels) = 0;
  // Makes the optimizer and its schedule of `steps` steps.
  virtual void begin(double lr, int64_t steps) = 0;
  // Updates the parameters with their gradients and clears the gradients.
  virtual void step() = 0;
};

std::unique_ptr<Task> make_task(const std::string& model, mytorch::Device device);
