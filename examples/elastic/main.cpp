// Training that survives the death of a rank.
//
//   mytorch launch --ranks 3 --restarts 5 --min-ranks 1 elastic FOLDER 20
//
// trains a sharded model for 20 steps, and saves a checkpoint in FOLDER every 4 steps while it
// trains on. When a rank dies, the launcher ends the others and starts again with one rank fewer,
// from the last checkpoint. Every step has the same examples, whatever the number of ranks, so that
// the losses, a line of each step, are those of a run without a failure:
//
//   step 7 of 20, 3 ranks: loss 1.536512
//
// A last argument, "1:9", makes rank 1 kill itself at step 9 of the first run.
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "mytorch/cuda.h"
#include "mytorch/distributed.h"
#include "mytorch/mytorch.h"
#include "mytorch/nn/parallel/fully_sharded_data_parallel.h"
#include "mytorch/nn/parallel/sharded_checkpoint.h"

namespace {

namespace distributed = mytorch::distributed;
namespace nn = mytorch::nn;
using mytorch::Tensor;

constexpr int64_t kBatch = 24, kWidth = 16, kClasses = 8, kSaveEvery = 4;

struct Options {
  std::string folder;
  int64_t steps = 0;
  int failing_rank = -1;
  int64_t failing_step = -1;
};

Options parse(int argc, char** argv) {
  Options options;
  if (argc < 3 || argc > 4) throw std::runtime_error("usage: elastic FOLDER STEPS [RANK:STEP]");
  options.folder = argv[1];
  options.steps = std::atoll(argv[2]);
  const char* restarts = std::getenv("MYTORCH_RESTARTS");  // which the launcher sets
  const bool first_run = restarts == nullptr || std::string(restarts) == "0";
  long long step = 0;
  if (argc == 4 && std::sscanf(argv[3], "%d:%lld", &options.failing_rank, &step) != 2) {
    throw std::runtime_error("the last argument is not RANK:STEP");
  }
  options.failing_step = first_run ? step : -1;
  return options;
}

// Examples of a step: those of this rank.
std::pair<Tensor, Tensor> batch(int64_t step, const distributed::Group& world) {
  mytorch::manual_seed(1000 + static_cast<uint64_t>(step));
  const Tensor x = mytorch::randn({kBatch, kWidth});
  const Tensor y = x.narrow(1, 0, kClasses).argmax(1);
  const int64_t size = kBatch / world.size(), begin = size * world.rank();
  return {x.narrow(0, begin, size).to(world.device()), y.narrow(0, begin, size).to(world.device())};
}

void train(const Options& options) {
  const distributed::Group world = distributed::init(
      {.device = mytorch::Device(mytorch::cuda::is_available() ? "cuda" : "cpu")});
  if (kBatch % world.size() != 0) {
    throw std::runtime_error("the ranks cannot divide a batch of 24 examples equally");
  }
  mytorch::manual_seed(0);  // the same parameters on all ranks
  nn::Sequential net(nn::Linear(kWidth, 64), nn::Tanh(), nn::Linear(64, 64), nn::Tanh(),
                     nn::Linear(64, kClasses));
  net.to(world.device());
  nn::FullyShardedDataParallel parallel(net);
  nn::optim::AdamW optimizer(net.parameters(), {.lr = 1e-2});

  // The number of steps that are done is part of the checkpoint.
  const Tensor done = mytorch::zeros({}, mytorch::kInt64);
  const nn::TensorPart done_part{"step", {}, nn::TensorPart::kWhole, 0, 0, done};
  if (nn::has_checkpoint(options.folder)) {
    nn::load_sharded(options.folder, parallel, &optimizer);
    nn::load_parts(options.folder, {done_part});
  }
  nn::CheckpointSave saving;
  for (int64_t step = done.item<int64_t>(); step < options.steps;) {
    if (world.rank() == options.failing_rank && step == options.failing_step) std::raise(SIGKILL);
    const auto [x, y] = batch(step, world);
    optimizer.zero_grad();
    const Tensor loss = cross_entropy(parallel(x), y);
    loss.backward();
    optimizer.step();
    const Tensor mean = loss.detach().clone();
    world.all_reduce(mean, {distributed::ReduceOp::kAverage});
    const double value = mean.item<double>();
    done.fill_(++step);
    if (world.rank() == 0) {
      std::printf("step %lld of %lld, %d ranks: loss %.6f\n", static_cast<long long>(step),
                  static_cast<long long>(options.steps), world.size(), value);
      std::fflush(stdout);
    }
    if (step % kSaveEvery != 0 && step != options.steps) continue;
    std::vector<nn::TensorPart> parts = parts_of(parallel);
    for (nn::TensorPart& part : parts_of(optimizer, parallel)) parts.push_back(std::move(part));
    parts.push_back(done_part);
    saving = nn::save_async(options.folder, parts, world);
  }
  saving.wait();
  distributed::finalize();
}

}  // namespace

int main(int argc, char** argv) {
  try {
    train(parse(argc, argv));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "elastic: %s\n", error.what());
    return 1;
  }
  return 0;
}
