#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "mytorch/distributed.h"
#include "mytorch/mytorch.h"
#include "mytorch/nn/parallel/distributed_data_parallel.h"
#include "mytorch/nn/parallel/zero_redundancy_optimizer.h"
#include "tests/nn/parallel/ranks.h"

namespace mytorch::nn {
namespace {

constexpr int64_t kZeroSteps = 6;

Sequential zero_net() {
  Sequential net(Linear(6, 16), Tanh(), Linear(16, 8), Tanh(), Linear(8, 3));
  ranks::set_parameters(net, 0);
  return net;
}

// Groups of the weights and of the biases.
optim::ParamGroups two_groups(const Module& net) {
  std::vector<Tensor> weights, biases;
  for (const Tensor& p : net.parameters()) (p.dim() > 1 ? weights : biases).push_back(p);
  return std::vector<optim::OptimizerParamGroup>{
      {weights, std::make_unique<optim::AdamWOptions>(optim::AdamWArgs{.lr = 0.02})}, {biases}};
}

// Trains a model on this rank's part of each batch, steps [begin, end).
template <class Model, class Optimizer>
void train_zero(Model& model, Optimizer& optimizer, int64_t begin, int64_t end,
                const distributed::Group& world) {
  const int64_t size = ranks::kBatch / world.size();
  for (int64_t step = begin; step < end; ++step) {
    const ranks::Data data = ranks::batch(step, world.rank() * size, size, 6, 3);
    optimizer.zero_grad();
    cross_entropy(model(data.x), data.y).backward();
    optimizer.step();
  }
}

class ZeroRedundancy : public ::testing::TestWithParam<int> {};
TEST_P(ZeroRedundancy, TrainsAsOneProcess) {
  Sequential one = zero_net();
  optim::AdamW whole(two_groups(one), {.lr = 0.1, .weight_decay = 0.1});
  train_zero(one, whole, 0, kZeroSteps, distributed::world());
  distributed::run_local(GetParam(), [&](const distributed::Group& world) {
    Sequential net = zero_net();
    DistributedDataParallel parallel(net);
    ZeroRedundancyOptimizer<optim::AdamW> optimizer(two_groups(net),
                                                    {.lr = 0.1, .weight_decay = 0.1});
    train_zero(parallel, optimizer, 0, kZeroSteps, world);
    for (size_t i = 0; i < net.parameters().size(); ++i) {
      ranks::expect_close(net.parameters()[i], one.parameters()[i], 1e-5,
                          "parameter " + std::to_string(i));
    }
    // Each rank has state for its parameters alone, and together they have that of one process.
    const TensorMap own = optimizer.state_dict(), expected = whole.state_dict();
    const Tensor count = mytorch::zeros({1}, kInt64);
    for (const auto& [name, tensor] : own) {
      ranks::expect(expected.count(name) == 1, "there is no state " + name);
      ranks::expect_close(tensor, expected.at(name), 1e-4, name);
      if (name.compare(0, 9, "parameter") == 0) count.add_(1);
    }
    world.all_reduce(count);
    ranks::expect(count.item<int64_t>() == 6 * 3, "a step and two averages for each parameter");
    const int64_t elements = zero_net().num_parameters();
    int64_t mine = 0;
    for (size_t i = 0; i < optimizer.parameters().size(); ++i) {
      if (optimizer.owner(i) == world.rank()) mine += optimizer.parameters()[i].numel();
    }
    if (world.size() == 2) {
      ranks::expect(mine > elements * 2 / 5 && mine < elements * 3 / 5,
                    "about one half: " + std::to_string(mine));
    }
  });
}
// With 6 ranks, each has no parameter of one of the groups.
INSTANTIATE_TEST_SUITE_P(Ranks, ZeroRedundancy, ::testing::Values(1, 2, 3, 6));

TEST(ZeroRedundancy, TakesTheStateOfOneProcess) {
  Sequential one = zero_net();
  optim::AdamW whole(two_groups(one), {.lr = 0.1});
  train_zero(one, whole, 0, 3, distributed::world());
  const TensorMap model = one.state_dict(), state = whole.state_dict();
  TensorMap copy;
  for (const auto& [name, tensor] : model) copy[name] = tensor.clone();
  TensorMap kept;
  for (const auto& [name, tensor] : state) kept[name] = tensor.clone();
  train_zero(one, whole, 3, kZeroSteps, distributed::world());
  distributed::run_local(2, [&](const distributed::Group& world) {
    Sequential net = zero_net();
    net.load_state_dict(copy);
    DistributedDataParallel parallel(net);
    ZeroRedundancyOptimizer<optim::AdamW> optimizer(two_groups(net), {.lr = 0.1});
    optimizer.load_state_dict(kept);
    train_zero(parallel, optimizer, 3, kZeroSteps, world);
    for (size_t i = 0; i < net.parameters().size(); ++i) {
      ranks::expect_close(net.parameters()[i], one.parameters()[i], 1e-5,
                          "parameter " + std::to_string(i));
    }
    TensorMap wrong = kept;
    wrong["parameter9.step"] = mytorch::ones({}, kInt64);
    ranks::expect_error([&] { optimizer.load_state_dict(wrong); },
                        "'parameter9.step', but there are 6 parameters");
  });
}

// An optimizer that takes matrices alone, of which a rank may have none.
TEST(ZeroRedundancy, LeavesMatricesWhole) {
  distributed::run_local(3, [](const distributed::Group& world) {
    std::vector<Tensor> parameters, expected;
    for (int64_t i = 0; i < 2; ++i) {
      const Tensor p = ranks::batch(i, 0, 4, 3, 2).x;
      parameters.push_back(p.clone().requires_grad_());
      expected.push_back(p.clone().requires_grad_());
      parameters.back().set_grad(ranks::batch(i + 2, 0, 4, 3, 2).x);
      expected.back().set_grad(ranks::batch(i + 2, 0, 4, 3, 2).x);
    }
    ZeroRedundancyOptimizer<optim::Muon> optimizer(parameters, {.lr = 0.1}, world);
    optim::Muon whole(expected, {.lr = 0.1});
    optimizer.step();
    whole.step();
    for (size_t i = 0; i < parameters.size(); ++i) {
      ranks::expect_close(parameters[i], expected[i], 1e-6, "parameter " + std::to_string(i));
    }
    // What the optimizer refuses, all ranks refuse, not the owner alone.
    parameters.push_back(mytorch::ones({3}, mytorch::requires_grad()));
    ranks::expect_error(
        [&] { ZeroRedundancyOptimizer<optim::Muon>(parameters, {.lr = 0.1}, world); }, "Muon");
  });
}

// Half types, which the optimizer keeps in float32, parameters without gradients, and several
// types in one model.
TEST(ZeroRedundancy, SharesParametersOfSeveralTypes) {
  distributed::run_local(3, [](const distributed::Group& world) {
    std::vector<Tensor> parameters, expected;
    for (int64_t i = 0; i < 8; ++i) {
      const Tensor p = mytorch::full({i % 3 + 1, 2}, 0.5 * static_cast<double>(i),
                                     i % 2 == 0 ? kBFloat16 : kFloat32);
      parameters.push_back(p.clone().requires_grad_());
      expected.push_back(p.clone().requires_grad_());
      if (i == 5) continue;
      const Tensor grad = mytorch::full(p.sizes(), static_cast<double>(i + 1), p.dtype());
      parameters.back().set_grad(grad);
      expected.back().set_grad(grad.clone());
    }
    ZeroRedundancyOptimizer<optim::SGD> optimizer(parameters, {.lr = 0.1, .momentum = 0.9}, world);
    optim::SGD whole(expected, {.lr = 0.1, .momentum = 0.9});
    for (int step = 0; step < 3; ++step) {
      optimizer.step();
      whole.step();
    }
    for (size_t i = 0; i < parameters.size(); ++i) {
      ranks::expect_close(parameters[i], expected[i], 0, "parameter " + std::to_string(i));
    }
    optimizer.zero_grad();
    for (const Tensor& p : parameters) ranks::expect(!p.grad().defined(), "a gradient is left");
  });
}

}  // namespace
}  // namespace mytorch::nn
