// A rank of a launcher: trains one model by every strategy, and compares losses and parameters with
// those of one rank, which each rank computes, too.
//
//   mpirun -n 4 parallel_ranks
//   mytorch launch --ranks 2 parallel_ranks cuda
//
// With `dies`, rank 1 kills itself while a parameter server trains.
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <functional>

#include "mytorch/distributed/attention.h"
#include "mytorch/mytorch.h"
#include "mytorch/nn/parallel/distributed_data_parallel.h"
#include "mytorch/nn/parallel/fully_sharded_data_parallel.h"
#include "mytorch/nn/parallel/mixture_of_experts.h"
#include "mytorch/nn/parallel/parameter_server.h"
#include "mytorch/nn/parallel/pipeline.h"
#include "mytorch/nn/parallel/sharded_checkpoint.h"
#include "mytorch/nn/parallel/tensor_parallel.h"
#include "tests/nn/parallel/ranks.h"

namespace mytorch::nn {
namespace {

using distributed::Group;
using ranks::Data;
using ranks::expect_close;

constexpr int64_t kBatch = 48, kWidth = 64, kHidden = 240, kClasses = 12;
constexpr int kSteps = 5;
constexpr double kTolerance = 2e-3;
Device here = kCPU;

struct Block : Module {
  LayerNorm norm{kWidth};
  Linear up{kWidth, kHidden}, down{kHidden, kWidth};
  Block() {
    register_module("norm", norm);
    register_module("up", up);
    register_module("down", down);
  }
  Tensor forward(const Tensor& x) override { return x + down(gelu(up(norm(x)))); }
};

Sequential model() {
  Sequential net(Linear(16, kWidth), Block(), Block(), Block(), Block(), Linear(kWidth, kClasses));
  ranks::set_parameters(net, 0);
  const NoGradGuard no_grad;
  for (const Tensor& p : net.parameters()) p.mul_(0.3);
  net.to(here);
  return net;
}

Data batch(int64_t step, const Group& g, bool split) {
  const int64_t size = split ? kBatch / g.size() : kBatch;
  const Data data = ranks::batch(step, split ? g.rank() * size : 0, size, 16, kClasses);
  return {data.x.to(here), data.y.to(here)};
}

std::unique_ptr<optim::Optimizer> optimizer_of(const std::vector<Tensor>& parameters) {
  return std::make_unique<optim::AdamW>(parameters, optim::AdamWOptions(0.01));
}

double mean_of_ranks(const Group& g, const Tensor& loss) {
  const Tensor mean = loss.detach().clone();
  g.all_reduce(mean, {distributed::ReduceOp::kAverage});
  return mean.item<double>();
}

struct Expected {
  std::vector<double> losses;
  TensorMap state;
};
Expected one_rank(const Group& g) {
  Sequential net = model();
  const auto optimizer = optimizer_of(net.parameters());
  Expected expected;
  for (int step = 0; step < kSteps; ++step) {
    const Data data = batch(step, g, false);
    optimizer->zero_grad();
    const Tensor loss = cross_entropy(net(data.x), data.y);
    loss.backward();
    optimizer->step();
    expected.losses.push_back(loss.item<double>());
  }
  for (const auto& [name, tensor] : net.state_dict()) expected.state[name] = tensor.to(kCPU);
  return expected;
}

void expect_losses(const std::vector<double>& found, const Expected& expected,
                   const std::string& what) {
  for (size_t i = 0; i < found.size(); ++i) {
    expect_close(found[i], expected.losses[i], kTolerance, what + ", loss " + std::to_string(i));
  }
}

void data_parallel(const Group& g, const Expected& expected) {
  for (const bool compressed : {false, true}) {
    Sequential net = model();
    DistributedDataParallel parallel(
        net, {.group = g,
              .bucket_bytes = 64 << 10,
              .first_bucket_bytes = 16 << 10,
              .hook = compressed ? CommunicationHook(compress_bf16) : CommunicationHook()});
    const auto optimizer = optimizer_of(net.parameters());
    std::vector<double> losses;
    for (int step = 0; step < kSteps; ++step) {
      const Data data = batch(step, g, true);
      optimizer->zero_grad();
      const Tensor loss = cross_entropy(parallel(data.x), data.y);
      loss.backward();
      optimizer->step();
      losses.push_back(mean_of_ranks(g, loss));
    }
    if (!compressed) expect_losses(losses, expected, "data parallel");
    if (compressed) expect_close(losses.back(), expected.losses.back(), 0.05, "compressed");
  }
}

void fully_sharded(const Group& g, const Expected& expected) {
  const std::string folder = "saved";  // in the folder of this run, which the ranks share
  for (const auto& [reshard, offload] : {std::pair(true, false), {false, false}, {true, true}}) {
    Sequential net = model();
    FullyShardedDataParallel parallel(
        net,
        {.group = g, .reshard_after_forward = reshard, .cpu_offload = {.offload_params = offload}});
    const auto optimizer = optimizer_of(net.parameters());
    std::vector<double> losses;
    for (int step = 0; step < kSteps; ++step) {
      const Data data = batch(step, g, true);
      optimizer->zero_grad();
      const Tensor loss = cross_entropy(parallel(data.x), data.y);
      loss.backward();
      optimizer->step();
      losses.push_back(mean_of_ranks(g, loss));
    }
    expect_losses(losses, expected, offload ? "fully sharded, offloaded" : "fully sharded");
    save_sharded(folder, parallel, optimizer.get());
    Sequential other = model();
    FullyShardedDataParallel loaded(other, {.group = g});
    const auto resumed = optimizer_of(other.parameters());
    load_sharded(folder, loaded, resumed.get());
    for (const auto& [name, tensor] : loaded.full_state_dict()) {
      expect_close(tensor, expected.state.at(name), kTolerance, "fully sharded, " + name);
    }
    g.barrier();
    if (g.rank() == 0) std::filesystem::remove_all(folder);
    g.barrier();
  }
  Sequential net = model();
  FullyShardedDataParallel mixed(
      net, {.group = g, .mixed_precision = {.param_dtype = kBFloat16, .reduce_dtype = kFloat32}});
  const auto optimizer = optimizer_of(net.parameters());
  double last = 0;
  for (int step = 0; step < kSteps; ++step) {
    const Data data = batch(step, g, true);
    optimizer->zero_grad();
    const Tensor loss = cross_entropy(mixed(data.x).to(kFloat32), data.y);
    loss.backward();
    optimizer->step();
    last = mean_of_ranks(g, loss);
  }
  expect_close(last, expected.losses.back(), 0.05, "mixed precision");
}

void tensor_parallel(const Group& g, const Expected& expected) {
  for (const bool sequence : {false, true}) {
    Sequential net = model();
    std::vector<Tensor> parameters;
    const auto add = [&](Module& module) {
      for (const Tensor& p : module.parameters()) parameters.push_back(p);
    };
    std::vector<std::pair<ColumnParallelLinear, RowParallelLinear>> products;
    for (size_t i = 1; i < 5; ++i) {
      Block& block = net.at<Block>(i);
      products.emplace_back(
          ColumnParallelLinear(block.up, {.sequence_parallel = sequence, .group = g}),
          RowParallelLinear(block.down, {.sequence_parallel = sequence, .group = g}));
      if (sequence) sum_gradients_of_ranks(block.norm, g);
      add(block.norm);
      add(products.back().first);
      add(products.back().second);
    }
    add(net[0]);
    add(net[5]);
    const auto optimizer = optimizer_of(parameters);
    std::vector<double> losses;
    for (int step = 0; step < kSteps; ++step) {
      const Data data = batch(step, g, false);
      optimizer->zero_grad();
      Tensor x = net[0](data.x);
      if (sequence) x = part_of_rank(x, 0, g);
      for (size_t i = 1; i < 5; ++i) {
        x = x + products[i - 1].second(gelu(products[i - 1].first(net.at<Block>(i).norm(x))));
      }
      if (sequence) x = join_ranks(x, 0, g);
      const Tensor loss = cross_entropy(net[5](x), data.y);
      loss.backward();
      optimizer->step();
      losses.push_back(loss.item<double>());
    }
    expect_losses(losses, expected, sequence ? "sequence parallel" : "tensor parallel");
  }
}

void pipeline_parallel(const Group& g, const Expected& expected) {
  if (g.size() > 6) return;
  for (const auto& [schedule, chunks] :
       {std::pair(PipelineSchedule::kGPipe, 1), std::pair(PipelineSchedule::k1F1B, 1),
        std::pair(PipelineSchedule::kInterleaved1F1B, g.size() > 3 ? 1 : 2),
        std::pair(PipelineSchedule::kZeroBubble, 1)}) {
    Sequential whole = model();
    std::vector<Sequential> stages = pipeline_stages(whole, g.size(), g.rank(), chunks);
    Pipeline pipeline(stages, {.group = g, .micro_batches = 8, .schedule = schedule});
    const auto optimizer = optimizer_of(pipeline.parameters());
    std::vector<double> losses;
    for (int step = 0; step < kSteps; ++step) {
      const Data data = batch(step, g, false);
      optimizer->zero_grad();
      losses.push_back(
          pipeline
              .step(data.x, data.y,
                    [](const Tensor& y, const Tensor& target) { return cross_entropy(y, target); })
              .item<double>());
      optimizer->step();
    }
    expect_losses(losses, expected, "pipeline");
  }
}

// The loss of steps of a layer whose result is to be as small as that of one rank's, where `sum`
// adds up over the ranks.
template <class Forward>
std::vector<double> losses_of(const std::vector<Tensor>& parameters, const Group& sum,
                              const Forward& forward) {
  const auto optimizer = optimizer_of(parameters);
  std::vector<double> losses;
  for (int step = 0; step < kSteps; ++step) {
    optimizer->zero_grad();
    const Tensor loss = forward();
    loss.backward();
    optimizer->step();
    const Tensor total = loss.detach().clone();
    if (sum.defined()) sum.all_reduce(total);
    losses.push_back(total.item<double>());
  }
  return losses;
}

void context_parallel(const Group& g, const Expected& /*expected*/) {
  constexpr int64_t kHeads = 12;  // of 6 features
  const int64_t length = 4 * g.size();
  const Tensor x = ranks::batch(0, 0, length, kWidth, 2).x.unsqueeze(0).to(here);
  const AttentionMasks masks{.is_causal = true, .need_weights = false};
  const auto layer = [&](const AttentionFunction& attention) {
    TransformerEncoderLayer made(
        kWidth + 8, kHeads,
        {.dim_feedforward = 96, .dropout = 0, .batch_first = true, .attention = attention});
    ranks::set_parameters(made, 0);
    made.to(here);
    return made;
  };
  const Tensor wide = mytorch::cat({x, x.narrow(2, 0, 8)}, 2);
  TransformerEncoderLayer one = layer({});
  const std::vector<double> losses =
      losses_of(one.parameters(), {}, [&] { return one(wide, masks).pow(2).mean(); });
  for (const bool ring : {true, false}) {
    if (!ring && kHeads % g.size() != 0) continue;
    TransformerEncoderLayer mine =
        layer([&](const Tensor& q, const Tensor& k, const Tensor& v, bool is_causal) {
          return ring ? distributed::ring_attention(q, k, v, g, {.is_causal = is_causal})
                      : distributed::ulysses_attention(q, k, v, g, {.is_causal = is_causal});
        });
    sum_gradients_of_ranks(mine, g);
    const Tensor part = distributed::split_sequence(wide, 1, g);
    const std::vector<double> found =
        losses_of(mine.parameters(), g, [&] { return mine(part, masks).pow(2).mean() / g.size(); });
    expect_losses(found, {losses, {}}, ring ? "ring" : "all-to-all over heads");
  }
}

void expert_parallel(const Group& g, const Expected& /*expected*/) {
  const int64_t experts = 2 * g.size();
  const Tensor x = ranks::batch(0, 0, kBatch, kWidth, 2).x.to(here);
  MixtureOfExperts one(kWidth, 32, experts, {.gated = true, .z_loss = 0.001});
  ranks::set_parameters(one, 0);
  MixtureOfExperts mine(kWidth, 32, experts, {.gated = true, .z_loss = 0.001, .group = g});
  {
    const NoGradGuard no_grad;
    mine.router.weight.copy_(one.router.weight);
    mine.up.copy_(one.up.narrow(0, 2 * g.rank(), 2));
    mine.down.copy_(one.down.narrow(0, 2 * g.rank(), 2));
  }
  one.to(here);
  mine.to(here);
  sum_gradients_of_ranks(mine.router, g);
  // In statements of their own: the order of operands is not that of the text.
  const auto loss_of = [](MixtureOfExperts& layer, const Tensor& tokens) {
    const Tensor y = layer(tokens);
    return (y - tokens).pow(2).mean() + layer.auxiliary_loss();
  };
  const std::vector<double> losses =
      losses_of(one.parameters(), {}, [&] { return loss_of(one, x); });
  const int64_t rows = kBatch / g.size();
  const Tensor part = x.narrow(0, g.rank() * rows, rows);
  const std::vector<double> found =
      losses_of(mine.parameters(), g, [&] { return loss_of(mine, part) / g.size(); });
  expect_losses(found, {losses, {}}, "experts");
}

void parameter_server(const Group& g, const Expected& expected) {
  if (!here.is_cpu()) return;  // NCCL has no windows
  Sequential net = model();
  ParameterServer<optim::AdamW> server(net.parameters(), optim::AdamWOptions(0.01).args(),
                                       {.group = g});
  std::vector<double> losses;
  for (int step = 0; step < kSteps; ++step) {
    const Data data = batch(step, g, true);
    server.pull();
    net.zero_grad();
    const Tensor loss = cross_entropy(net(data.x), data.y);
    loss.backward();
    server.push();
    losses.push_back(mean_of_ranks(g, loss));
  }
  server.close();
  expect_losses(losses, expected, "parameter server");
  for (const auto& [name, tensor] : net.state_dict()) {
    expect_close(tensor, expected.state.at(name), kTolerance, "parameter server, " + name);
  }
  // Sums of integers say whether each gradient was applied once.
  constexpr int64_t kElements = 5000, kRounds = 20;
  for (const int64_t staleness : {int64_t{2}, ParameterServerOptions::kUnbounded}) {
    const Tensor p = mytorch::zeros({kElements}, kFloat64).requires_grad_();
    const Tensor q = mytorch::zeros({3}, kFloat64).requires_grad_();
    ParameterServer<optim::SGD> asynchronous({p, q}, {.lr = 1},
                                             {.staleness = staleness, .group = g});
    double sum = 0;
    for (int64_t round = 0; round < kRounds; ++round) {
      asynchronous.pull();
      ranks::expect(asynchronous.staleness() <= staleness, "too far ahead");
      p.set_grad(mytorch::full({kElements}, g.rank() * 100 + round + 1, kFloat64));
      q.set_grad(mytorch::ones({3}, kFloat64));
      asynchronous.push();
      for (int rank = 0; rank < g.size(); ++rank) {
        sum += rank * 100.0 + static_cast<double>(round) + 1;
      }
    }
    asynchronous.close();
    ranks::expect(p.detach().min().item<double>() == -sum, "a gradient was lost");
    ranks::expect(p.detach().max().item<double>() == -sum, "a gradient was applied in part");
    ranks::expect(q.detach().sum().item<double>() == -3.0 * kRounds * g.size(), "lost gradients");
  }
}

void lose_a_worker(const Group& g) {
  const Tensor p = mytorch::zeros({10}).requires_grad_();
  ParameterServer<optim::SGD> server({p}, {.lr = 1}, {.staleness = 1, .servers = {0}, .group = g});
  for (int step = 0;; ++step) {
    if (g.rank() == 1 && step == 3) std::raise(SIGKILL);
    server.pull();
    p.set_grad(mytorch::ones({10}));
    server.push();
  }
}

}  // namespace
}  // namespace mytorch::nn

int main(int argc, char** argv) {
  namespace distributed = mytorch::distributed;
  namespace nn = mytorch::nn;
  const bool dies = argc > 1 && std::strcmp(argv[1], "dies") == 0;
  // The launcher may send it as soon as a rank is dead, before the others have said so.
  if (dies) std::signal(SIGTERM, SIG_IGN);
  try {
    const bool cuda = argc > 1 && std::strcmp(argv[1], "cuda") == 0;
    const distributed::Group world =
        distributed::init({.device = cuda ? mytorch::Device("cuda") : mytorch::kCPU});
    nn::here = world.device();
    if (dies) nn::lose_a_worker(world);
    const nn::Expected expected = nn::one_rank(world);
    const std::pair<const char*, void (*)(const distributed::Group&, const nn::Expected&)> all[] = {
        {"data parallel", nn::data_parallel},       {"fully sharded", nn::fully_sharded},
        {"tensor parallel", nn::tensor_parallel},   {"pipeline", nn::pipeline_parallel},
        {"context parallel", nn::context_parallel}, {"experts", nn::expert_parallel},
        {"parameter server", nn::parameter_server}};
    for (const auto& [name, run] : all) {
      std::fprintf(stderr, "rank %d of %d by %s: %s\n", world.rank(), world.size(),
                   world.engine().c_str(), name);
      run(world, expected);
    }
    distributed::finalize();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 3;
  }
  return 0;
}
