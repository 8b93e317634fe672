// The training step of a small GPT-2 with less memory for what lives from forward to backward:
// prints, for each budget, the milliseconds of a replay, the bytes of intermediates, and how many
// of those that lived from forward to backward do no longer.
//
//   bench_memory_budget [DEVICE [LAYERS WIDTH BATCH LENGTH]]      default: 4 layers of 128, 64 x 64
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <exception>
#include <vector>

#include "bench/in_turns.h"
#include "mytorch/compile.h"
#include "mytorch/mytorch.h"
#include "mytorch/nn/models/gpt2.h"

namespace {

using mytorch::Tensor;
namespace nn = mytorch::nn;
namespace F = mytorch::nn::functional;

void measure(int64_t layers, int64_t width, int64_t batch, int64_t length) {
  nn::models::GPT2Config config;
  config.vocab_size = 256;
  config.n_positions = length;
  config.n_layer = layers;
  config.n_embd = width;
  config.n_head = width < 128 ? 1 : width / 32;
  config.resid_pdrop = config.embd_pdrop = config.attn_pdrop = 0;
  nn::models::GPT2LMHeadModel model(config);
  model.to(bench::device);
  nn::optim::AdamW adam(model.parameters(), {.lr = 1e-4});
  const auto step = [&](const Tensor& x, const Tensor& y) {
    adam.zero_grad();
    const Tensor loss = F::cross_entropy(model(x).flatten(0, 1), y.flatten());
    loss.backward();
    adam.step();
    return loss.detach();
  };
  const Tensor x = mytorch::randint(0, 256, {batch, length}).to(bench::device);
  const Tensor y = mytorch::randint(0, 256, {batch, length}).to(bench::device);
  const std::vector<double> budgets = {1, 0.75, 0.5, 0};
  std::deque<mytorch::Compiled<decltype(step)>> compiled;
  for (const double budget : budgets) {
    compiled.emplace_back(step, mytorch::CompileOptions{.memory_budget = budget});
    for (int i = 0; i < 3; ++i) compiled.back()(x, y);
  }
  std::vector<std::vector<double>> times(budgets.size());
  for (int round = 0; round < 9; ++round) {
    for (size_t i = 0; i < budgets.size(); ++i) {
      times[i].push_back(bench::seconds([&] { compiled[i](x, y); }, 2));
    }
  }
  for (size_t i = 0; i < budgets.size(); ++i) {
    const mytorch::CompileStats stats = compiled[i].stats();
    const auto count = [&](const char* name) -> long long {
      const auto found = stats.rewritten.find(name);
      return found == stats.rewritten.end() ? 0 : found->second;
    };
    std::printf(
        "budget %.2f: %.2f ms, intermediates %.2f MiB; %lld nodes recomputed, %.2f MiB less\n",
        budgets[i], 1e3 * bench::median(times[i]),
        static_cast<double>(stats.planned_bytes) / (1 << 20), count("recomputation"),
        static_cast<double>(count("recomputation: bytes")) / (1 << 20));
  }
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc > 1) bench::device = mytorch::Device(argv[1]);
  const auto number = [&](int at, int64_t otherwise) {
    return argc > at ? std::strtoll(argv[at], nullptr, 10) : otherwise;
  };
  measure(number(2, 4), number(3, 128), number(4, 64), number(5, 64));
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "bench_memory_budget: %s\n", error.what());
  return 1;
}
