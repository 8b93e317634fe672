#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>

#include "mytorch/autograd/checkpoint.h"
#include "mytorch/compile.h"
#include "mytorch/distributed.h"
#include "mytorch/mytorch.h"
#include "mytorch/nn/parallel/fully_sharded_data_parallel.h"
#include "tests/nn/parallel/ranks.h"

namespace mytorch::nn {
namespace {

using ranks::batch;
using ranks::Data;
using ranks::expect;
using ranks::expect_close;
using ranks::kBatch;
using ranks::set_parameters;

// What is recomputed in backward: nothing, the products of a block, or the call of a block.
enum class Recomputed { kNothing, kInside, kAround };

Tensor recomputed(const Tensor& x, const std::function<Tensor(const Tensor&)>& function) {
  return autograd::checkpoint(
      [function](const std::vector<Tensor>& h) { return std::vector<Tensor>{function(h[0])}; },
      {x})[0];
}

struct Block : Module {
  Linear in{8, 24};
  Linear out{24, 8};
  LayerNorm norm{8};
  bool checkpointed = false;
  Block() {
    register_module("in", in);
    register_module("out", out);
    register_module("norm", norm);
  }
  Tensor forward(const Tensor& x) override {
    const auto body = [this](const Tensor& h) { return out(gelu(in(h))); };
    return x + (checkpointed ? recomputed(norm(x), body) : body(norm(x)));
  }
};

struct Model : Module {
  Linear first{6, 8};
  ModuleList blocks;
  Linear head{8, 5};
  Tensor scale = mytorch::ones({});
  Recomputed how;
  explicit Model(Recomputed how_ = Recomputed::kNothing) : how(how_) {
    register_module("first", first);
    for (int i = 0; i < 3; ++i) {
      auto block = std::make_shared<Block>();
      block->checkpointed = how == Recomputed::kInside;
      blocks.push_back(block);
    }
    register_module("blocks", blocks);
    register_module("head", head);
    register_parameter("scale", scale);
  }
  Tensor forward(const Tensor& x) override {
    Tensor h = first(x);
    for (size_t i = 0; i < blocks.size(); ++i) {
      const auto call = [&block = blocks[i]](const Tensor& x) { return block(x); };
      h = how == Recomputed::kAround ? recomputed(h, call) : call(h);
    }
    return head(h) * scale;
  }
};

constexpr int kSteps = 6;

using MakeOptimizer = std::function<std::unique_ptr<optim::Optimizer>(std::vector<Tensor>)>;
std::unique_ptr<optim::Optimizer> adam(std::vector<Tensor> parameters) {
  return std::make_unique<optim::AdamW>(std::move(parameters), optim::AdamWOptions(0.02));
}
std::unique_ptr<optim::Optimizer> sgd(std::vector<Tensor> parameters) {
  return std::make_unique<optim::SGD>(std::move(parameters), optim::SGDOptions(0.1).momentum(0.9));
}

struct Course {
  std::vector<double> losses, norms;
  TensorMap state;
};
Course run_one(const MakeOptimizer& make) {
  Model net;
  set_parameters(net, 0);
  const auto optimizer = make(net.parameters());
  Course course;
  for (int step = 0; step < kSteps; ++step) {
    const Data data = batch(step, 0, kBatch, 6, 5);
    optimizer->zero_grad();
    const Tensor loss = cross_entropy(net(data.x), data.y);
    loss.backward();
    course.norms.push_back(optim::clip_grad_norm_(net.parameters(), 0.5).item<double>());
    optimizer->step();
    course.losses.push_back(loss.item<double>());
  }
  for (const auto& [name, tensor] : net.state_dict()) course.state[name] = tensor.detach().clone();
  return course;
}

void run_sharded(const distributed::Group& world, const Course& expected, const MakeOptimizer& make,
                 FullyShardedDataParallelOptions options, Recomputed how, double tolerance) {
  Model net(how);
  set_parameters(net, world.rank());  // rank 0's are broadcast
  options.group = world;
  FullyShardedDataParallel parallel(net, options);
  expect(parallel.num_units() == 4, "there should be 4 units");
  expect(parallel.gathered_bytes() == 0, "parameters are whole before the first forward");
  const auto optimizer = make(net.parameters());
  const int64_t size = kBatch / world.size();
  for (int step = 0; step < kSteps; ++step) {
    const Data data = batch(step, world.rank() * size, size, 6, 5);
    optimizer->zero_grad();
    const Tensor loss = cross_entropy(parallel(data.x), data.y);
    loss.backward();
    expect(parallel.gathered_bytes() == 0, "parameters are whole after backward");
    const double norm = parallel.clip_grad_norm_(0.5).item<double>();
    optimizer->step();
    const Tensor mean = loss.detach().clone();
    world.all_reduce(mean, {distributed::ReduceOp::kAverage});
    const std::string what = "step " + std::to_string(step);
    expect_close(mean.item<double>(), expected.losses[static_cast<size_t>(step)], tolerance, what);
    expect_close(norm, expected.norms[static_cast<size_t>(step)], 3 * tolerance, what + ", norm");
  }
  const TensorMap state = parallel.full_state_dict();
  expect(state.size() == expected.state.size(), "the state has other names");
  for (const auto& [name, tensor] : expected.state) {
    expect_close(state.at(name), tensor, 10 * tolerance, name);
  }
}

class FullySharded : public ::testing::TestWithParam<std::tuple<int, bool, bool, Recomputed>> {};
TEST_P(FullySharded, HasTheLossesAndParametersOfOneProcess) {
  const auto& [ranks, reshard, prefetch, how] = GetParam();
  const FullyShardedDataParallelOptions options{.reshard_after_forward = reshard,
                                                .prefetch = prefetch};
  for (const MakeOptimizer& make : {MakeOptimizer(adam), MakeOptimizer(sgd)}) {
    const Course expected = run_one(make);
    distributed::run_local(ranks, [&, how = how](const distributed::Group& g) {
      run_sharded(g, expected, make, options, how, 2e-5);
    });
  }
}
INSTANTIATE_TEST_SUITE_P(Ranks, FullySharded,
                         ::testing::Combine(::testing::Values(1, 2, 3, 4), ::testing::Bool(),
                                            ::testing::Bool(),
                                            ::testing::Values(Recomputed::kNothing,
                                                              Recomputed::kInside,
                                                              Recomputed::kAround)));

TEST(FullyShardedDataParallel, KeepsAnEvenPartOnEachRank) {
  distributed::run_local(4, [](const distributed::Group& world) {
    Model net;
    const int64_t all = net.num_parameters();
    FullyShardedDataParallel parallel(net);
    const Tensor mine = mytorch::full({1}, static_cast<double>(net.num_parameters()), kFloat64);
    const Tensor sum = mine.clone();
    world.all_reduce(sum);
    expect(sum.item<double>() == static_cast<double>(all), "elements are missing or kept twice");
    // Each of 4 units is padded to multiples of 32 elements for each parameter and rank.
    expect(mine.item<double>() <= static_cast<double>(all) / 4 + 4 * 32 * 8, "parts are uneven");
    int64_t n = 0;
    for (const auto& shard : parallel.shards()) {
      expect(shard.tensor.numel() == shard.end - shard.begin, "a shard has another size");
      n += shard.tensor.numel();
    }
    expect(n == net.num_parameters(), "shards() and parameters() differ");
  });
}

TEST(FullyShardedDataParallel, FreesUnitsDuringForward) {
  distributed::run_local(2, [](const distributed::Group&) {
    Model net;
    FullyShardedDataParallel parallel(net, {.prefetch = false});
    int64_t largest = 0;
    for (size_t i = 0; i < net.blocks.size(); ++i) {
      net.blocks[i].register_forward_hook([&](Module&, const Tensor&, const Tensor&) {
        largest = std::max(largest, parallel.gathered_bytes());
      });
    }
    const Tensor loss = parallel(batch(0, 0, 4, 6, 5).x).sum();
    const int64_t whole = 4 * (3 * (8 * 24 + 24 + 24 * 8 + 8 + 16) + 6 * 8 + 8 + 8 * 5 + 5 + 1);
    expect(largest < whole * 2 / 3, "more than one block is whole: " + std::to_string(largest));
    loss.backward();
  });
}

TEST(FullyShardedDataParallel, MixedPrecisionComputesInBFloat16AndStoresFloat32) {
  const Course expected = run_one(sgd);
  for (const ScalarType reduce : {kBFloat16, kFloat32}) {
    distributed::run_local(2, [&](const distributed::Group& world) {
      Model net;
      set_parameters(net, 0);
      FullyShardedDataParallel parallel(
          net,
          {.group = world, .mixed_precision = {.param_dtype = kBFloat16, .reduce_dtype = reduce}});
      const auto optimizer = sgd(net.parameters());
      for (int step = 0; step < kSteps; ++step) {
        const Data data = batch(step, world.rank() * kBatch / 2, kBatch / 2, 6, 5);
        optimizer->zero_grad();
        const Tensor y = parallel(data.x);
        expect(y.dtype() == kBFloat16, "the result is not bfloat16");
        const Tensor loss = cross_entropy(y.to(kFloat32), data.y);
        loss.backward();
        for (const Tensor& p : net.parameters()) {
          expect(p.dtype() == kFloat32 && p.grad().dtype() == kFloat32, "not stored in float32");
        }
        (void)parallel.clip_grad_norm_(0.5);
        optimizer->step();
        const Tensor mean = loss.detach().clone();
        world.all_reduce(mean, {distributed::ReduceOp::kAverage});
        expect_close(mean.item<double>(), expected.losses[static_cast<size_t>(step)], 0.03, "loss");
      }
    });
  }
}

TEST(FullyShardedDataParallel, NoSyncAddsUpGradients) {
  Model one;
  set_parameters(one, 0);
  for (int64_t step = 0; step < 3; ++step) {
    const Data data = batch(step, 0, kBatch, 6, 5);
    cross_entropy(one(data.x), data.y).backward();
  }
  std::vector<Tensor> gradients;
  for (const Tensor& p : one.parameters()) gradients.push_back(p.grad());
  distributed::run_local(2, [&](const distributed::Group& world) {
    Model net;
    set_parameters(net, 0);
    FullyShardedDataParallel parallel(net);
    const auto backward = [&](int64_t step) {
      const Data data = batch(step, world.rank() * kBatch / 2, kBatch / 2, 6, 5);
      cross_entropy(parallel(data.x), data.y).backward();
    };
    {
      const auto guard = parallel.no_sync();
      backward(0);
      for (const Tensor& p : net.parameters()) expect(!p.grad().defined(), "reduced too early");
    }
    backward(1);
    backward(2);  // is added to what is there
    const auto shards = parallel.shards();
    for (size_t i = 0; i < shards.size(); ++i) {
      expect_close(shards[i].tensor.grad(),
                   gradients[i].flatten().slice(0, shards[i].begin, shards[i].end), 1e-5,
                   shards[i].name);
    }
  });
}

TEST(FullyShardedDataParallel, FrozenAndTiedParametersAndModulesUsedTwice) {
  struct Tied : Module {
    Linear a{6, 6}, b{6, 6}, frozen{6, 6};
    Sequential middle;
    Tied() {
      register_module("a", a);
      register_module("b", b);
      register_module("frozen", frozen);
      middle.push_back(Linear(6, 6));
      middle.push_back(Linear(6, 6));
      register_module("middle", middle);
      b.weight = a.weight;
      frozen.requires_grad(false);
      set_parameters(*this, 1);
    }
    Tensor forward(const Tensor& x) override { return b(frozen(middle(tanh(middle(a(x)))))); }
  };
  Tied one;
  const auto input = [](int64_t begin, int64_t size) { return batch(0, begin, size, 6, 5).x; };
  one(input(0, 8)).pow(2).mean().backward();
  distributed::run_local(2, [&](const distributed::Group& world) {
    Tied net;
    FullyShardedDataParallel parallel(net);
    const Tensor x = input(world.rank() * 4, 4).requires_grad_();
    parallel(x).pow(2).mean().backward();
    expect(x.grad().defined(), "the input has no gradient");
    expect(parallel.gathered_bytes() == 0, "parameters are whole after backward");
    const auto parameters = one.named_parameters();
    const auto shards = parallel.shards();
    expect(shards.size() == parameters.size(), "shards are missing");
    for (const auto& shard : shards) {
      Tensor expected;
      for (const auto& [name, parameter] : parameters) {
        if (name == shard.name) expected = parameter.grad();
      }
      expect(expected.defined() == shard.tensor.grad().defined(), shard.name + ": grad");
      if (!expected.defined()) continue;
      expect_close(shard.tensor.grad(), expected.flatten().slice(0, shard.begin, shard.end), 1e-5,
                   shard.name);
    }
  });
}

TEST(FullyShardedDataParallel, AModuleWithoutParametersOfItsOwn) {
  const auto make = [] {
    Sequential net(Linear(6, 8), Tanh(), Linear(8, 5));
    set_parameters(net, 0);
    return net;
  };
  Sequential one = make();
  const Data data = batch(0, 0, kBatch, 6, 5);
  cross_entropy(one(data.x), data.y).backward();
  distributed::run_local(2, [&](const distributed::Group& world) {
    Sequential net = make();
    FullyShardedDataParallel parallel(net);
    expect(parallel.num_units() == 3, "there should be 3 units");
    const Data mine = batch(0, world.rank() * kBatch / 2, kBatch / 2, 6, 5);
    cross_entropy(parallel(mine.x), mine.y).backward();
    const auto expected = one.parameters();
    const auto shards = parallel.shards();
    for (size_t i = 0; i < shards.size(); ++i) {
      expect_close(shards[i].tensor.grad(),
                   expected[i].grad().flatten().slice(0, shards[i].begin, shards[i].end), 1e-5,
                   shards[i].name);
    }
  });
}

// A forward of two tensors has no tensor-only operator(); the unit takes its first argument.
TEST(FullyShardedDataParallel, ForwardsOfSeveralArguments) {
  struct Pair : Callable<Pair> {
    Linear a{6, 5}, b{6, 5};
    Pair() {
      register_module("a", a);
      register_module("b", b);
      set_parameters(*this, 0);
    }
    Tensor forward(const Tensor& x, const Tensor& y) { return a(x) * b(y); }
  };
  Pair one;
  const Data data = batch(0, 0, 4, 6, 5);
  one(data.x, data.x * 2).sum().backward();
  distributed::run_local(2, [&](const distributed::Group&) {
    Pair net;
    FullyShardedDataParallel parallel(net);
    Tensor loss;
    {
      const auto forward = parallel.forward();
      loss = net(data.x, data.x * 2).sum();
    }
    loss.backward();
    const auto expected = one.parameters();
    const auto shards = parallel.shards();
    for (size_t i = 0; i < shards.size(); ++i) {
      expect_close(shards[i].tensor.grad(),
                   expected[i].grad().flatten().slice(0, shards[i].begin, shards[i].end), 1e-5,
                   shards[i].name);
    }
  });
}

TEST(FullyShardedDataParallel, LoadsAWholeState) {
  Model one;
  set_parameters(one, 3);
  const TensorMap state = one.state_dict();
  const Tensor x = batch(0, 0, 4, 6, 5).x;
  const Tensor expected = one(x).detach();
  distributed::run_local(3, [&](const distributed::Group&) {
    Model net;
    set_parameters(net, 0);
    FullyShardedDataParallel parallel(net);
    parallel.load_full_state_dict(state);
    const NoGradGuard no_grad;
    expect_close(parallel(x), expected, 1e-6, "the result");
    TensorMap wrong = state;
    wrong["other"] = mytorch::ones({2});
    ranks::expect_error([&] { parallel.load_full_state_dict(wrong); }, "other");
    wrong = state;
    wrong["head.bias"] = mytorch::ones({2});
    ranks::expect_error([&] { parallel.load_full_state_dict(wrong); }, "head.bias");
  });
}

TEST(FullyShardedDataParallel, RefusesWhatWouldGiveWrongGradients) {
  distributed::run_local(2, [](const distributed::Group&) {
    Model net;
    FullyShardedDataParallel parallel(net);
    const Tensor x = batch(0, 0, 4, 6, 5).x;
    ranks::expect_error([&] { net(x); }, "call the FullyShardedDataParallel");
    const Tensor loss = parallel(x).sum();
    {
      const NoGradGuard no_grad;
      for (const Tensor& p : net.parameters()) p.mul_(2);
    }
    ranks::expect_error([&] { loss.backward(); }, "changed between forward and backward");
  });
}

TEST(FullyShardedDataParallel, RecoversFromAnErrorInForward) {
  distributed::run_local(2, [](const distributed::Group&) {
    Model net;
    FullyShardedDataParallel parallel(net);
    bool fails = true;
    net.blocks[1].register_forward_pre_hook([&](Module&, const Tensor&) {
      if (fails) throw Error(ErrorCode::kValue, "on purpose");
    });
    const Tensor x = batch(0, 0, 4, 6, 5).x;
    ranks::expect_error([&] { parallel(x); }, "on purpose");
    expect(parallel.gathered_bytes() == 0, "parameters stay whole");
    for (const auto& shard : parallel.shards()) {
      expect(shard.tensor.dim() == 1, "a parameter is no shard");
    }
    for (const Tensor& p : net.parameters()) expect(p.dim() == 1, "a member is no shard");
    fails = false;
    parallel(x).sum().backward();
  });
}

// Parameters are gathered and freed in each call of a function with breaks.
TEST(FullyShardedDataParallel, TrainsInACompiledStepWithBreaks) {
  const Course expected = run_one(sgd);
  distributed::run_local(2, [&](const distributed::Group& world) {
    for (const bool prefetch : {false, true}) {
      Model net;
      set_parameters(net, world.rank());
      FullyShardedDataParallel parallel(net, {.prefetch = prefetch});
      const auto optimizer = sgd(net.parameters());
      auto train = mytorch::compile(
          [&](const Tensor& x, const Tensor& y) {
            optimizer->zero_grad();
            const Tensor loss = cross_entropy(parallel(x), y);
            loss.backward();
            parallel.clip_grad_norm_(0.5);
            optimizer->step();
            return loss.detach();
          },
          {.allow_breaks = true});
      const int64_t size = kBatch / world.size();
      for (int step = 0; step < kSteps; ++step) {
        const Data data = batch(step, world.rank() * size, size, 6, 5);
        const Tensor mean = train(data.x, data.y).clone();
        world.all_reduce(mean, {distributed::ReduceOp::kAverage});
        expect_close(mean.item<double>(), expected.losses[static_cast<size_t>(step)], 2e-5,
                     "step " + std::to_string(step));
      }
      expect(train.stats().replayed_segments > 0, "nothing was replayed");
    }
  });
}

TEST(FullyShardedDataParallel, IsRefusedInACompiledStepWithoutBreaks) {
  distributed::run_local(2, [&](const distributed::Group& world) {
    Model net;
    set_parameters(net, world.rank());
    FullyShardedDataParallel parallel(net);
    auto forward = mytorch::compile([&](const Tensor& x) { return parallel(x); });
    const Tensor x = batch(0, 0, 4, 6, 5).x;
    ranks::expect_error([&] { forward(x); }, "Group::all_gather() communicates");
    expect(parallel.gathered_bytes() == 0, "parameters stay whole");
    parallel(x).sum().backward();
  });
}

}  // namespace
}  // namespace mytorch::nn
