// The networks, and how each is best trained.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "mytorch/mytorch.h"

struct Recipe {
  int64_t epochs;
  double lr;  // at its largest
};

std::vector<std::string> model_names();
Recipe recipe_of(const std::string& model);

// What is trained: a network from images (n, 1, 28, 28) to scores (n, 10), and what its scores
// cost.
class Task {
 public:
  virtual ~Task() = default;
  virtual mytorch::nn::Module& network() = 0;
  // The mean loss of a batch; labels are int64 (n).
  virtual mytorch::Tensor loss(const mytorch::Tensor& images, const mytorch::Tensor& labels) = 0;
  // Makes the optimizer of the network, which is on its device by then.
  virtual void begin(double lr, int64_t steps) = 0;
  // Changes the network by the gradients that are there.
  virtual void step() = 0;
};

std::unique_ptr<Task> make_task(const std::string& model, mytorch::Device device);
