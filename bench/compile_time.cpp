// How long it takes to compile the training step of GPT-2: the recording beside the same call in
// eager mode, each pass, and the plan, which runs each kernel once. Prints milliseconds, for each
// number of layers; with the times of a narrow model, which computes little, one sees what grows
// faster than the graph.
//
//   bench_compile_time [LAYERS WIDTH]...      default: 12 768, and 1, 4, 16, 64 layers of width 64
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <utility>
#include <vector>

#include "mytorch/compile.h"
#include "mytorch/mytorch.h"
#include "mytorch/nn/models/gpt2.h"

namespace {

using mytorch::Tensor;
namespace nn = mytorch::nn;
namespace F = mytorch::nn::functional;

template <class Call>
double milliseconds(const Call& call) {
  const auto begin = std::chrono::steady_clock::now();
  call();
  return 1e3 * std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

void measure(int64_t layers, int64_t width) {
  nn::models::GPT2Config config;
  config.n_layer = layers;
  config.n_embd = width;
  config.n_head = width / 64;
  if (width < 768) config.vocab_size = 256;
  nn::models::GPT2LMHeadModel model(config);
  nn::optim::AdamW adam(model.parameters(), {.lr = 1e-4});
  const auto step = [&](const Tensor& x, const Tensor& y) {
    adam.zero_grad();
    const Tensor loss = F::cross_entropy(model(x).flatten(0, 1), y.flatten());
    loss.backward();
    adam.step();
    return loss.detach();
  };
  const Tensor x = mytorch::randint(0, 256, {1, 16}), y = mytorch::randint(0, 256, {1, 16});
  for (int i = 0; i < 2; ++i) step(x, y);
  const double eager = milliseconds([&] { step(x, y); });
  auto compiled = mytorch::compile(step);
  for (int i = 0; i < 3; ++i) compiled(x, y);
  const double replay = milliseconds([&] { compiled(x, y); });
  const mytorch::CompileStats stats = compiled.stats();
  std::printf("%lld layers of width %lld: eager %.1f, replay %.1f, kernel calls %lld\n",
              static_cast<long long>(layers), static_cast<long long>(width), eager, replay,
              static_cast<long long>(stats.kernel_calls));
  double passes = 0;
  for (const auto& [name, seconds] : stats.seconds) {
    std::printf("  %-24s %9.1f\n", name.c_str(), 1e3 * seconds);
    if (name != "record" && name != "plan") passes += 1e3 * seconds;
  }
  std::printf("  %-24s %9.1f\n", "all passes", passes);
  std::printf("  %-24s %9.1f\n", "record, beyond eager", 1e3 * stats.seconds.at("record") - eager);
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) try {
  std::vector<std::pair<int64_t, int64_t>> sizes;
  for (int i = 1; i + 1 < argc; i += 2) {
    sizes.emplace_back(std::strtoll(argv[i], nullptr, 10), std::strtoll(argv[i + 1], nullptr, 10));
  }
  if (sizes.empty()) sizes = {{12, 768}, {1, 64}, {4, 64}, {16, 64}, {64, 64}};
  for (const auto& [layers, width] : sizes) measure(layers, width);
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "bench_compile_time: %s\n", error.what());
  return 1;
}
