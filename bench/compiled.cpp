// Compiled functions beside the same functions, run as usual: the time of a call of each, in turns.
// bench/peers/compiled_torch.py has the same cases; scripts/bench-compiled prints both side by
// side.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include "mytorch/compile.h"
#include "mytorch/grad_mode.h"
#include "mytorch/mytorch.h"

namespace {

using mytorch::Tensor;
namespace nn = mytorch::nn;
using Call = std::function<void()>;

double seconds(const Call& call, int calls) {
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < calls; ++i) call();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() / calls;
}

double median(std::vector<double> times) {
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

// Prints the name and the medians in microseconds.
void compare(const std::string& name, const Call& eager, const Call& compiled) {
  for (int i = 0; i < 5; ++i) {
    eager();
    compiled();
  }
  constexpr double kRound = 0.02;
  const int calls = std::max(1, static_cast<int>(kRound / seconds(compiled, 3)));
  std::vector<double> plain, replayed;
  for (int round = 0; round < 15; ++round) {
    plain.push_back(seconds(eager, calls));
    replayed.push_back(seconds(compiled, calls));
  }
  std::printf("%s %.3f %.3f\n", name.c_str(), 1e6 * median(plain), 1e6 * median(replayed));
}

void chain(const std::string& name, int64_t size, int operators) {
  const mytorch::NoGradGuard no_grad;
  const Tensor x = mytorch::randn({size});
  const auto function = [operators](Tensor y) {
    for (int i = 0; i < operators; i += 2) y = y * 1.0001 + 0.5;
    return y;
  };
  auto compiled = mytorch::compile(function);
  compare(
      name, [&] { function(x); }, [&] { compiled(x); });
}

struct Mlp : nn::Module {
  nn::Linear fc1{register_module("fc1", nn::Linear(784, 256))};
  nn::Linear fc2{register_module("fc2", nn::Linear(256, 256))};
  nn::Linear fc3{register_module("fc3", nn::Linear(256, 10))};
  Tensor forward(const Tensor& x) { return fc3(relu(fc2(relu(fc1(x))))); }
};

void train_mlp(int64_t batch) {
  Mlp model;
  nn::optim::SGD sgd(model.parameters(), nn::optim::SGDOptions(0.01));
  const Tensor x = mytorch::randn({batch, 784}), y = mytorch::randint(0, 10, {batch});
  const auto step = [&](const Tensor& images, const Tensor& labels) {
    sgd.zero_grad();
    Tensor loss = nn::functional::cross_entropy(model.forward(images), labels);
    loss.backward();
    sgd.step();
    return loss.detach();
  };
  auto compiled = mytorch::compile(step);
  compare(
      "mlp_step_" + std::to_string(batch), [&] { step(x, y); }, [&] { compiled(x, y); });
}

}  // namespace

int main() try {
  chain("chain_100_of_8", 8, 100);
  chain("chain_10_of_16M", 1 << 24, 10);
  train_mlp(1);
  train_mlp(64);
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "bench_compiled: %s\n", error.what());
  return 1;
}
