// Trains a linear layer, then calls hypot on each backend given on the command line.
#include <cmath>
#include <cstdio>
#include <string>

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
  for (int i = 1; i < argc; ++i) {
    mytorch::load_backend(argv[i]);
    std::string name;
    for (const mytorch::BackendInfo& info : mytorch::backend_infos()) {
      if (info.path == argv[i]) name = info.name;
    }
    const mytorch::Prefer answer("cpu", name);
    std::printf("%s answers %g\n", name.c_str(), mytorch::hypot(x, x).sum().item<float>() / 64);
  }
  return 0;
}
