// Split models that are replicated or sharded over other ranks, in pipelines, and in checkpoints.
#include <gtest/gtest.h>

#include "mytorch/nn/models/gpt2.h"
#include "mytorch/nn/parallel/distributed_data_parallel.h"
#include "mytorch/nn/parallel/fully_sharded_data_parallel.h"
#include "mytorch/nn/parallel/pipeline.h"
#include "mytorch/nn/parallel/sharded_checkpoint.h"
#include "tests/nn/data/temp_directory.h"
#include "tests/nn/parallel/parallelized.h"

namespace mytorch::nn::parallel_mesh {
namespace {

using distributed::DeviceMesh;
using distributed::Group;
using models::GPT2Config;
using models::GPT2LMHeadModel;
using ranks::expect;
using ranks::expect_close;
using ranks::ids_of;
using ranks::made;
using ranks::run_alike;
using ranks::wave64;

constexpr double kTolerance = 1e-9;
constexpr int64_t kVocabulary = 30;

GPT2LMHeadModel gpt2() {
  return made([] {
    return GPT2LMHeadModel(GPT2Config{.vocab_size = kVocabulary,
                                      .n_positions = 8,
                                      .n_embd = 16,
                                      .n_layer = 2,
                                      .n_head = 4,
                                      .resid_pdrop = 0,
                                      .embd_pdrop = 0,
                                      .attn_pdrop = 0,
                                      .initializer_range = 0.3});
  });
}

// Examples [begin, begin + n) of a step's batch of 4.
Tensor loss_of(GPT2LMHeadModel& model, int64_t step, int64_t begin, int64_t n) {
  const Tensor ids = ids_of({4, 6}, kVocabulary, step).narrow(0, begin, n);
  const Tensor targets = ids_of({4, 6}, kVocabulary, step + 7).narrow(0, begin, n);
  return model.loss(ids, targets);
}

struct Steps {
  std::vector<double> losses, norms;
  TensorMap state;
};
constexpr double kMaxNorm = 0.5;

Steps one_rank(int64_t from, int64_t to, GPT2LMHeadModel& model, optim::Optimizer& optimizer) {
  Steps steps;
  for (int64_t step = from; step < to; ++step) {
    optimizer.zero_grad();
    const Tensor loss = loss_of(model, step, 0, 4);
    loss.backward();
    steps.norms.push_back(optim::clip_grad_norm_(model.parameters(), kMaxNorm));
    optimizer.step();
    steps.losses.push_back(loss.item<double>());
  }
  for (const auto& [name, tensor] : model.state_dict()) steps.state[name] = tensor.clone();
  return steps;
}

// Returns the mean over the ranks that have parts of a batch.
double mean_over(const Group& dp, const Tensor& loss) {
  const Tensor mean = loss.detach().clone();
  dp.all_reduce(mean, {distributed::ReduceOp::kAverage});
  return mean.item<double>();
}

TEST(ParallelMesh, SplitModelsAreReplicated) {
  GPT2LMHeadModel one = gpt2();
  optim::AdamW own(one.parameters(), {.lr = 0.05});
  const Steps expected = one_rank(0, 3, one, own);
  run_alike(4, [&](const Group& world) {
    const DeviceMesh mesh(world, {{"dp", 2}, {"tp", 2}});
    const Group dp = mesh.group("dp"), tp = mesh.group("tp");
    GPT2LMHeadModel model = gpt2();
    parallelize(model, gpt2_plan(), tp);
    DistributedDataParallel parallel(model, {.group = dp});
    optim::AdamW optimizer(model.parameters(), {.lr = 0.05});
    for (int64_t step = 0; step < 3; ++step) {
      const auto i = static_cast<size_t>(step);
      optimizer.zero_grad();
      parallel.begin();
      const Tensor loss = loss_of(model, step, 2 * dp.rank(), 2);
      loss.backward();
      expect_close(clip_grad_norm_(model, kMaxNorm), expected.norms[i], kTolerance, "norm");
      optimizer.step();
      expect_close(mean_over(dp, loss), expected.losses[i], kTolerance, "loss");
    }
    ranks::expect_same_state(whole_state_dict(model), expected.state, kTolerance, "state");
  });
}

class ParallelCheckpoint : public ::testing::Test {
 protected:
  std::string folder() const { return directory_.file("saved"); }
  mytorch::testing::TempDirectory directory_;
};

// Split over "tp" and sharded over "dp"; what it saves, one rank and others read.
TEST_F(ParallelCheckpoint, SplitModelsAreSharded) {
  GPT2LMHeadModel one = gpt2();
  optim::AdamW own(one.parameters(), {.lr = 0.05});
  const Steps expected = one_rank(0, 3, one, own);
  const Steps later = one_rank(3, 5, one, own);
  run_alike(4, [&](const Group& world) {
    const DeviceMesh mesh(world, {{"dp", 2}, {"tp", 2}});
    const Group dp = mesh.group("dp"), tp = mesh.group("tp");
    GPT2LMHeadModel model = gpt2();
    parallelize(model, gpt2_plan(), tp);
    FullyShardedDataParallel parallel(model, {.group = dp});
    optim::AdamW optimizer(model.parameters(), {.lr = 0.05});
    for (int64_t step = 0; step < 3; ++step) {
      const auto i = static_cast<size_t>(step);
      optimizer.zero_grad();
      Tensor loss;
      {
        const auto forward = parallel.forward();
        loss = loss_of(model, step, 2 * dp.rank(), 2);
      }
      loss.backward();
      expect_close(parallel.clip_grad_norm_(kMaxNorm), expected.norms[i], 1e-6, "norm");
      optimizer.step();
      expect_close(mean_over(dp, loss), expected.losses[i], 1e-5, "loss");
    }
    ranks::expect_error([&] { whole_state_dict(model); }, "save_parts()");
    save_sharded(folder(), parallel, &optimizer, world);
  });
  GPT2LMHeadModel read = gpt2();
  load_sharded(folder(), read);
  ranks::expect_same_state(read.state_dict(), expected.state, 1e-5, "state");
  for (const int ranks : {1, 2, 4}) {
    run_alike(ranks, [&](const Group& world) {
      GPT2LMHeadModel model = gpt2();
      parallelize(model, gpt2_plan(), world);
      optim::AdamW optimizer(model.parameters(), {.lr = 0.05});
      load_sharded(folder(), model, &optimizer);
      for (int64_t step = 3; step < 5; ++step) {
        optimizer.zero_grad();
        loss_of(model, step, 0, 4).backward();
        clip_grad_norm_(model, kMaxNorm);
        optimizer.step();
      }
      ranks::expect_same_state(whole_state_dict(model), later.state, 1e-4, "goes on");
    });
  }
}

// Of 2 ranks, 1 rank, 4 ranks and 1, with the state of the optimizer.
TEST_F(ParallelCheckpoint, OfTwoRanksIsReadByOneAndFour) {
  GPT2LMHeadModel one = gpt2();
  optim::AdamW own(one.parameters(), {.lr = 0.05});
  int64_t step = 0;
  for (const int ranks : {2, 1, 4, 2}) {
    const Steps expected = one_rank(step, step + 2, one, own);
    run_alike(ranks, [&](const Group& g) {
      GPT2LMHeadModel model = gpt2();
      parallelize(model, gpt2_plan(), g);
      optim::AdamW optimizer(model.parameters(), {.lr = 0.05});
      if (step > 0) load_sharded(folder(), model, &optimizer);
      for (int64_t i = step; i < step + 2; ++i) {
        optimizer.zero_grad();
        const Tensor loss = loss_of(model, i, 0, 4);
        loss.backward();
        clip_grad_norm_(model, kMaxNorm);
        optimizer.step();
        expect_close(loss.item<double>(), expected.losses[static_cast<size_t>(i - step)],
                     kTolerance, "loss of " + std::to_string(g.size()) + " ranks");
      }
      g.barrier();
      save_sharded(folder(), model, &optimizer, g);
    });
    step += 2;
    GPT2LMHeadModel read = gpt2();
    load_parts(folder(), parts_of(read));
    ranks::expect_same_state(read.state_dict(), expected.state, kTolerance, "one rank");
  }
}

// ---- pipelines ----

struct Block final : Layer<Block> {
  MultiheadAttention attention{8, 4, {.batch_first = true}};
  LayerNorm norm{8};
  Linear up{8, 12}, down{12, 8};
  Block() {
    register_module("attention", attention);
    register_module("norm", norm);
    register_module("up", up);
    register_module("down", down);
  }
  Tensor forward(const Tensor& x) override {
    const Tensor y = norm(x);
    const Tensor z =
        x + std::get<0>(attention(y, y, y, {.is_causal = true, .need_weights = false}));
    return z + down(gelu(up(z)));
  }
};

Sequential stack() {
  return made([] { return Sequential(Block(), Block(), Block(), Block(), Linear(8, 5)); });
}
const ParallelPlan& plan_of_stack() {
  static const auto* const plan = new ParallelPlan{{"*.attention", ParallelStyle::kHeads},
                                                   {"*.up", ParallelStyle::kColumn},
                                                   {"*.down", ParallelStyle::kRow},
                                                   {"4", ParallelStyle::kVocabulary}};
  return *plan;
}
Tensor stack_loss(const Tensor& y, const Tensor& target) { return (y - target).pow(2).mean(); }

// The stages of one rank's model, its layers over two ranks, and its examples over two.
TEST(ParallelMesh, OfTwoByTwoByTwo) {
  const Tensor x = wave64({8, 3, 8}, 0), target = wave64({8, 3, 5}, 4);
  Sequential one = stack();
  optim::SGD own(one.parameters(), {.lr = 0.1, .momentum = 0.9});
  std::vector<double> losses, norms;
  for (int step = 0; step < 3; ++step) {
    own.zero_grad();
    const Tensor loss = stack_loss(one(x), target);
    loss.backward();
    norms.push_back(optim::clip_grad_norm_(one.parameters(), 0.3));
    own.step();
    losses.push_back(loss.item<double>());
  }
  const TensorMap expected = one.state_dict();
  for (const auto schedule : {PipelineSchedule::k1F1B, PipelineSchedule::kZeroBubble}) {
    run_alike(8, [&](const Group& world) {
      const DeviceMesh mesh(world, {{"dp", 2}, {"pp", 2}, {"tp", 2}});
      const Group dp = mesh.group("dp"), pp = mesh.group("pp"), tp = mesh.group("tp");
      Sequential whole = stack();
      Sequential stage = pipeline_stage(whole, pp.size(), pp.rank());
      parallelize(stage, plan_of_stack(), tp, {.strict = false});
      Pipeline pipeline(stage, {.group = pp, .micro_batches = 2, .schedule = schedule});
      optim::SGD optimizer(pipeline.parameters(), {.lr = 0.1, .momentum = 0.9});
      const Tensor mine = x.narrow(0, 4 * dp.rank(), 4),
                   wanted = target.narrow(0, 4 * dp.rank(), 4);
      for (size_t step = 0; step < 3; ++step) {
        optimizer.zero_grad();
        const Tensor loss = pipeline.step(mine, wanted, stack_loss);
        for (const Tensor& p : pipeline.parameters()) {
          dp.all_reduce(p.grad().detach(), {distributed::ReduceOp::kAverage});
        }
        expect_close(clip_grad_norm_(stage, 0.3, {.stages = pp}), norms[step], kTolerance, "norm");
        optimizer.step();
        expect_close(mean_over(dp, loss), losses[step], 1e-6, "loss");  // which is float32
      }
      const TensorMap state = whole_state_dict(stage);
      expect(!state.empty(), "a stage has no parameters");
      for (const auto& [name, tensor] : state) {
        expect_close(tensor, expected.at(name), kTolerance, name);
      }
    });
  }
}

}  // namespace
}  // namespace mytorch::nn::parallel_mesh
