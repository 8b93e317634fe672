// Compiled functions with dynamic_dims: what a new size costs. Prints a line for each case: its
// name, and the medians in microseconds of recording and planning a size (two calls), of the first
// call at a size that follows from others (its graph, its plan and its first run), and of a replay.
// bench/peers/compiled_sizes_torch.py has the same cases.
//
//   bench_compiled_sizes [CASE...]
#include <algorithm>
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "bench/in_turns.h"
#include "mytorch/compile.h"
#include "mytorch/mytorch.h"
#include "mytorch/nn/models/gpt2.h"
#include "mytorch/nn/models/resnet.h"

namespace {

using mytorch::Tensor;
namespace nn = mytorch::nn;
namespace F = mytorch::nn::functional;

const std::vector<int64_t> kSizes = {8, 60, 24, 12, 16, 20, 28, 32, 40, 44, 48, 56};

// `call` runs the compiled function at a size; the first three sizes are recorded.
template <class Compiled, class Call>
void measure(const std::string& name, const Compiled& compiled, const Call& call) {
  std::vector<double> recorded, instantiated, replayed;
  // What the first call of all makes, such as the state of an optimizer, counts for none.
  call(10);
  for (const int64_t size : kSizes) {
    const int64_t before = compiled.stats().instantiated;
    const double first = bench::seconds([&] { call(size); }, 1) * 1e6;
    const bool made = compiled.stats().instantiated > before;
    const double second = bench::seconds([&] { call(size); }, 1) * 1e6;
    (made ? instantiated : recorded).push_back(made ? first : first + second);
    if (!made) continue;
    replayed.push_back(bench::seconds([&] { call(size); }, 1) * 1e6);
  }
  if (instantiated.empty()) {
    std::printf("%s: %s\n", name.c_str(), compiled.stats().dynamic_reason.c_str());
    return;
  }
  std::printf("%-28s %10.0f %10.0f %10.0f\n", name.c_str(), bench::median(recorded),
              bench::median(instantiated), bench::median(replayed));
}

// The network of examples/gpt; batches of sequences of a varying length.
void character_gpt(const std::string& name) {
  nn::models::GPT2Config config;
  config.vocab_size = 65;
  config.n_positions = 64;
  config.n_embd = 128;
  config.n_layer = 4;
  config.n_head = 4;
  config.resid_pdrop = config.embd_pdrop = config.attn_pdrop = 0;
  nn::models::GPT2LMHeadModel model(config);
  nn::optim::AdamW adam(model.parameters(), {.lr = 1e-3});
  auto step = mytorch::compile(
      [&](const Tensor& x, const Tensor& y) {
        adam.zero_grad();
        const Tensor loss = F::cross_entropy(model(x).flatten(0, 1), y.flatten());
        loss.backward();
        adam.step();
        return loss.detach();
      },
      {.dynamic_dims = {{0, 1}, {1, 1}}});
  measure(name, step, [&](int64_t length) {
    step(mytorch::randint(0, 65, {4, length}), mytorch::randint(0, 65, {4, length}));
  });
}

void resnet18(const std::string& name) {
  nn::models::ResNet net(nn::models::ResNetConfig::resnet18());
  net.eval();
  const mytorch::NoGradGuard no_grad;
  auto infer = mytorch::compile([&](const Tensor& x) { return net(x); },
                                mytorch::CompileOptions{.dynamic_dims = {{0, 0}}});
  measure(name, infer, [&](int64_t batch) { infer(mytorch::randn({batch, 3, 64, 64})); });
}

}  // namespace

int main(int argc, char** argv) try {
  const std::vector<std::string> wanted(argv + 1, argv + argc);
  const auto run = [&](const std::string& name, void (*f)(const std::string&)) {
    if (wanted.empty() || std::find(wanted.begin(), wanted.end(), name) != wanted.end()) f(name);
  };
  std::printf("%-28s %10s %10s %10s\n", "microseconds", "record", "new size", "replay");
  run("character_gpt_step_4xN", character_gpt);
  run("resnet18_Nx64x64", resnet18);
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "bench_compiled_sizes: %s\n", error.what());
  return 1;
}
