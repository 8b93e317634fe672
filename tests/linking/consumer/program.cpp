// Trains a line, and, when given a backend of its own, lets that compute.
#include <cmath>
#include <cstdio>

#include "mytorch/mytorch.h"

namespace nn = mytorch::nn;

int main(int argc, char** argv) {
  mytorch::manual_seed(0);
  const mytorch::Tensor x = mytorch::rand({64, 1});
  const mytorch::Tensor y = x * 3.0 + 1.0;
  nn::Linear line(1, 1);
  nn::optim::SGD sgd(line.parameters(), {.lr = 0.5});
  for (int step = 0; step < 300; ++step) {
    sgd.zero_grad();
    mytorch::mse_loss(line(x), y).backward();
    sgd.step();
  }
  const float weight = line.weight.item<float>();
  std::printf("weight %.3f\n", weight);
  if (std::abs(weight - 3) > 0.01) return 1;
  if (argc > 1) {
    mytorch::load_backend(argv[1]);
    const mytorch::Prefer answer("cpu", "answer");
    if (mytorch::hypot(x, x).sum().item<float>() != 64 * 42) return 2;
    std::printf("the backend answers\n");
  }
  return 0;
}
