#include <gtest/gtest.h>

#include <algorithm>
#include <any>
#include <cmath>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "mytorch/distributed.h"
#include "mytorch/mytorch.h"
#include "mytorch/nn/parallel/distributed_data_parallel.h"
#include "mytorch/nn/parallel/distributed_sampler.h"
#include "tests/nn/parallel/three_layers.h"

namespace mytorch::nn {
namespace {

using parallel_test::batch;
using parallel_test::Net;
using ranks::Data;
using ranks::set_parameters;

constexpr int64_t kLargeBatch = 24;
constexpr int kDataParallelSteps = 12;

std::vector<double> losses_of_one() {
  Net net;
  set_parameters(net, 0);
  optim::SGD optimizer(net.parameters(), optim::SGDOptions(0.2).momentum(0.9));
  std::vector<double> losses;
  for (int step = 0; step < kDataParallelSteps; ++step) {
    const Data data = batch(step, 0, kLargeBatch);
    optimizer.zero_grad();
    const Tensor loss = cross_entropy(net(data.x), data.y);
    loss.backward();
    optimizer.step();
    losses.push_back(loss.item<double>());
  }
  return losses;
}

class DataParallel : public ::testing::TestWithParam<std::tuple<int, int64_t>> {};
TEST_P(DataParallel, HasTheLossesOfOneProcess) {
  const auto& [ranks, bucket] = GetParam();
  const std::vector<double> expected = losses_of_one();
  distributed::run_local(
      ranks, [&, ranks = ranks, bucket = bucket](const distributed::Group& world) {
        Net net;
        set_parameters(net, world.rank());  // rank 0's are broadcast
        DistributedDataParallel parallel(
            net, {.bucket_bytes = bucket, .first_bucket_bytes = std::max<int64_t>(bucket / 4, 1)});
        optim::SGD optimizer(net.parameters(), optim::SGDOptions(0.2).momentum(0.9));
        const int64_t size = kLargeBatch / ranks;
        for (int step = 0; step < kDataParallelSteps; ++step) {
          const Data data = batch(step, world.rank() * size, size);
          optimizer.zero_grad();
          const Tensor loss = cross_entropy(parallel(data.x), data.y);
          loss.backward();
          optimizer.step();
          const Tensor mean = loss.detach().clone();
          world.all_reduce(mean, {distributed::ReduceOp::kAverage});
          const double found = mean.item<double>();
          if (std::abs(found - expected[static_cast<size_t>(step)]) > 1e-5) {
            throw Error(ErrorCode::kInternal,
                        "step " + std::to_string(step) + ": loss " + std::to_string(found) +
                            ", expected " + std::to_string(expected[static_cast<size_t>(step)]));
          }
        }
        if (bucket < 100 && parallel.num_buckets() < 6) {
          throw Error(ErrorCode::kInternal, "there should be a bucket for each parameter");
        }
      });
}
INSTANTIATE_TEST_SUITE_P(Ranks, DataParallel,
                         ::testing::Combine(::testing::Values(1, 2, 4),
                                            ::testing::Values<int64_t>(16, 600, 1 << 20)));

TEST(NoSync, ReducesTheSumOfGradients) {
  distributed::run_local(2, [](const distributed::Group& world) {
    Net net;
    set_parameters(net, 0);
    DistributedDataParallel parallel(net);
    const auto backward = [&](int64_t step) {
      const Data data = batch(step, world.rank() * 4, 4);
      cross_entropy(parallel(data.x), data.y).backward();
    };
    {
      const auto guard = parallel.no_sync();
      backward(0);
      backward(1);
    }
    backward(2);
    // By hand, on one rank.
    Net one;
    set_parameters(one, 0);
    for (int rank = 0; rank < 2; ++rank) {
      for (int64_t step = 0; step < 3; ++step) {
        const Data data = batch(step, rank * 4, 4);
        (cross_entropy(one(data.x), data.y) / 2).backward();
      }
    }
    for (size_t i = 0; i < net.parameters().size(); ++i) {
      const Tensor difference = net.parameters()[i].grad() - one.parameters()[i].grad();
      if (difference.abs().max().item<double>() > 1e-6) {
        throw Error(ErrorCode::kInternal, "parameter " + std::to_string(i) + " differs");
      }
    }
  });
}

TEST(DistributedDataParallel, NamesParametersWithoutAGradient) {
  distributed::run_local(2, [](const distributed::Group&) {
    Net net;
    DistributedDataParallel parallel(net);
    net.hidden(mytorch::ones({2, 6})).sum().backward();
    try {
      parallel(mytorch::ones({2, 6}));
    } catch (const Error& error) {
      if (std::string(error.what())
              .find("no gradient to middle.weight, middle.bias, output.weight") !=
          std::string::npos) {
        return;
      }
      throw;
    }
    throw Error(ErrorCode::kInternal, "no error");
  });
}

// Uses one of its branches.
struct Branches : Module {
  Linear shared{6, 8};
  Linear left{8, 3}, right{8, 3}, never{8, 3};
  bool goes_left = true;
  Branches() {
    register_module("shared", shared);
    register_module("left", left);
    register_module("right", right);
    register_module("never", never);
  }
  Tensor forward(const Tensor& x) override {
    const Tensor h = tanh(shared(x));
    return goes_left ? left(h) : right(h);
  }
};

class UnusedParameters : public ::testing::TestWithParam<std::tuple<int64_t, bool>> {};
TEST_P(UnusedParameters, HaveTheGradientsOfOneProcess) {
  const auto& [bucket, walks] = GetParam();
  const int ranks = 3;
  // On one rank: the sum of the three ranks' losses, in two steps.
  Branches one;
  set_parameters(one, 0);
  optim::SGD optimizer(one.parameters(), optim::SGDOptions(0.3));
  const auto left = [](int64_t step, int rank) { return (rank + step) % 3 == 0; };
  for (int64_t step = 0; step < 4; ++step) {
    optimizer.zero_grad();
    for (int rank = 0; rank < ranks; ++rank) {
      one.goes_left = left(step, rank);
      const Data data = batch(step, rank * 4, 4);
      (cross_entropy(one(data.x), data.y) / ranks).backward();
    }
    optimizer.step();
  }
  distributed::run_local(ranks, [&, bucket = bucket, walks = walks](const distributed::Group& g) {
    Branches net;
    set_parameters(net, 0);
    DistributedDataParallel parallel(
        net,
        {.bucket_bytes = bucket, .first_bucket_bytes = bucket, .find_unused_parameters = true});
    optim::SGD sgd(net.parameters(), optim::SGDOptions(0.3));
    for (int64_t step = 0; step < 4; ++step) {
      sgd.zero_grad();
      net.goes_left = left(step, g.rank());
      const Data data = batch(step, g.rank() * 4, 4);
      Tensor y;
      if (walks) {
        y = parallel(data.x);
      } else {
        parallel.begin();
        y = net(data.x);
      }
      cross_entropy(y, data.y).backward();
      ranks::expect(!net.never.weight.grad().defined(), "no rank used it, but it has a gradient");
      ranks::expect(net.left.weight.grad().defined() && net.right.weight.grad().defined(),
                    "a parameter that another rank used has no gradient");
      sgd.step();
    }
    for (size_t i = 0; i < net.parameters().size(); ++i) {
      ranks::expect_close(net.parameters()[i], one.parameters()[i], 1e-5,
                          "parameter " + std::to_string(i));
    }
  });
}
INSTANTIATE_TEST_SUITE_P(Buckets, UnusedParameters,
                         ::testing::Combine(::testing::Values<int64_t>(16, 1 << 20),
                                            ::testing::Bool()));

TEST(UnusedParameters, KeepWhatNoSyncHasAddedUp) {
  distributed::run_local(2, [](const distributed::Group& g) {
    Branches net, one;
    set_parameters(net, 0);
    set_parameters(one, 0);
    DistributedDataParallel parallel(net, {.find_unused_parameters = true});
    for (int rank = 0; rank < 2; ++rank) {
      for (int64_t step = 0; step < 2; ++step) {
        one.goes_left = step == 0;
        const Data data = batch(step, rank * 4, 4);
        (cross_entropy(one(data.x), data.y) / 2).backward();
      }
    }
    const auto backward = [&](int64_t step) {
      net.goes_left = step == 0;
      const Data data = batch(step, g.rank() * 4, 4);
      cross_entropy(parallel(data.x), data.y).backward();
    };
    {
      const auto guard = parallel.no_sync();
      backward(0);
    }
    backward(1);
    for (size_t i = 0; i < 6; ++i) {
      ranks::expect_close(net.parameters()[i].grad(), one.parameters()[i].grad(), 1e-5,
                          "parameter " + std::to_string(i));
    }
  });
}

// Runs a backward inside of backward, as a checkpoint of another library may: each use of the
// module gives its parameters a gradient.
struct Reentrant : autograd::Function<Reentrant> {
  static Tensor forward(autograd::FunctionContext* ctx, const Tensor& x, Linear* linear) {
    ctx->save_for_backward({x});
    ctx->saved_data["linear"] = linear;
    return (*linear)(x);
  }
  static autograd::tensor_list backward(autograd::FunctionContext* ctx,
                                        const autograd::tensor_list& grads) {
    const EnableGradGuard enable;
    const Tensor x = ctx->saved_tensors()[0].detach().requires_grad_();
    (*std::any_cast<Linear*>(ctx->saved_data["linear"]))(x).backward(grads[0]);
    return {x.grad(), Tensor()};
  }
};

// Uses one layer three times, and some layers not at all.
struct Repeats : Module {
  Linear first{6, 6}, again{6, 6}, left{6, 3}, right{6, 3};
  int times = 3;
  bool goes_left = true;
  Repeats() {
    register_module("first", first);
    register_module("again", again);
    register_module("left", left);
    register_module("right", right);
  }
  Tensor forward(const Tensor& x) override {
    Tensor h = tanh(first(x));
    for (int i = 0; i < times; ++i) h = tanh(Reentrant::apply(h, &again));
    return goes_left ? left(h) : right(h);
  }
};

class StaticGraph : public ::testing::TestWithParam<std::tuple<int64_t, bool>> {};
TEST_P(StaticGraph, ReducesEachGradientOnce) {
  const auto& [bucket, mixed] = GetParam();
  Repeats one;
  set_parameters(one, 0);
  optim::SGD optimizer(one.parameters(), optim::SGDOptions(0.3));
  for (int64_t step = 0; step < 4; ++step) {
    optimizer.zero_grad();
    for (int rank = 0; rank < 2; ++rank) {
      one.goes_left = !mixed || rank == 0;
      const Data data = batch(step, rank * 4, 4);
      (cross_entropy(one(data.x), data.y) / 2).backward();
    }
    optimizer.step();
  }
  distributed::run_local(2, [&, bucket = bucket, mixed = mixed](const distributed::Group& g) {
    Repeats net;
    net.goes_left = !mixed || g.rank() == 0;
    set_parameters(net, 0);
    DistributedDataParallel parallel(
        net, {.bucket_bytes = bucket, .first_bucket_bytes = bucket, .static_graph = true});
    optim::SGD sgd(net.parameters(), optim::SGDOptions(0.3));
    uint64_t calls = 0;
    for (int64_t step = 0; step < 4; ++step) {
      sgd.zero_grad();
      const Data data = batch(step, g.rank() * 4, 4);
      const Tensor loss = cross_entropy(parallel(data.x), data.y);
      const uint64_t before = g.sequence();
      loss.backward();
      calls = g.sequence() - before;
      ranks::expect(net.right.weight.grad().defined() == mixed, "used by another rank, or by none");
      sgd.step();
    }
    ranks::expect(calls == static_cast<uint64_t>(parallel.num_buckets()),
                  "a later step has a reduction for each bucket, and has " + std::to_string(calls));
    for (size_t i = 0; i < net.parameters().size(); ++i) {
      ranks::expect_close(net.parameters()[i], one.parameters()[i], 1e-5,
                          "parameter " + std::to_string(i));
    }
  });
}
INSTANTIATE_TEST_SUITE_P(Buckets, StaticGraph,
                         ::testing::Combine(::testing::Values<int64_t>(16, 1 << 20),
                                            ::testing::Bool()));

TEST(StaticGraph, NamesWhatHasChanged) {
  distributed::run_local(2, [](const distributed::Group&) {
    const auto changed = [](const std::function<void(Repeats&)>& change, const std::string& error) {
      Repeats net;
      DistributedDataParallel parallel(net, {.static_graph = true});
      const auto step = [&] { parallel(mytorch::ones({2, 6})).sum().backward(); };
      step();
      step();
      change(net);
      ranks::expect_error(step, error);
      ranks::expect_error(step, "the last backward ended in an error");
    };
    changed([](Repeats& net) { net.times = 2; },
            "again.weight has 2 gradients in this backward, and had 3 in the first one");
    changed([](Repeats& net) { net.times = 4; },
            "has more than 3 gradients in this backward, and had 3");
    changed([](Repeats& net) { net.goes_left = false; },
            "has more than 0 gradients in this backward, and had 0");
  });
}

class CommunicationHooks : public ::testing::TestWithParam<int> {};
TEST_P(CommunicationHooks, ReduceInOtherTypes) {
  const std::vector<double> expected = losses_of_one();
  const CommunicationHook hooks[] = {compress_bf16, compress_fp16};
  const CommunicationHook& hook = hooks[GetParam()];
  distributed::run_local(2, [&](const distributed::Group& world) {
    Net net;
    set_parameters(net, 0);
    int calls = 0;
    DistributedDataParallel parallel(
        net, {.hook = [&](const distributed::Group& group, const Tensor& bucket, double scale) {
          ++calls;
          const auto complete = hook(group, bucket, scale);
          return [complete, bucket, this_type = GetParam() == 0 ? kBFloat16 : kFloat16] {
            complete();
            const Tensor rounded = bucket.to(this_type).to(kFloat32);
            ranks::expect_close(rounded, bucket, 0, "a gradient has more bits than its type");
          };
        }});
    optim::SGD optimizer(net.parameters(), optim::SGDOptions(0.2).momentum(0.9));
    for (int step = 0; step < kDataParallelSteps; ++step) {
      const Data data = batch(step, world.rank() * kLargeBatch / 2, kLargeBatch / 2);
      optimizer.zero_grad();
      const Tensor loss = cross_entropy(parallel(data.x), data.y);
      loss.backward();
      optimizer.step();
      const Tensor mean = loss.detach().clone();
      world.all_reduce(mean, {distributed::ReduceOp::kAverage});
      ranks::expect_close(mean.item<double>(), expected[static_cast<size_t>(step)],
                          GetParam() == 0 ? 0.02 : 0.003, "loss");
    }
    ranks::expect(calls >= kDataParallelSteps, "the hook was not called");
  });
}
INSTANTIATE_TEST_SUITE_P(Types, CommunicationHooks, ::testing::Values(0, 1));

enum class Leaves { kNone, kFound, kStatic };
class Join : public ::testing::TestWithParam<std::tuple<bool, Leaves>> {};
TEST_P(Join, ServesRanksWithMoreBatches) {
  const auto& [active, unused] = GetParam();
  const int steps[] = {2, 5, 1};
  // One rank that adds up what those with data would.
  Net one;
  set_parameters(one, 0);
  optim::SGD optimizer(one.parameters(), optim::SGDOptions(0.2));
  for (int step = 0; step < 5; ++step) {
    optimizer.zero_grad();
    const auto n = std::count_if(steps, steps + 3, [&](int s) { return s > step; });
    for (int rank = 0; rank < 3; ++rank) {
      if (step >= steps[rank]) continue;
      const Data data = batch(step, rank * 4, 4);
      (cross_entropy(one(data.x), data.y) / (active ? static_cast<double>(n) : 3.0)).backward();
    }
    optimizer.step();
  }
  distributed::run_local(3, [&, active = active, unused = unused](const distributed::Group& g) {
    Net net;
    set_parameters(net, 0);
    DistributedDataParallel parallel(net, {.bucket_bytes = 600,
                                           .first_bucket_bytes = 100,
                                           .find_unused_parameters = unused == Leaves::kFound,
                                           .static_graph = unused == Leaves::kStatic});
    optim::SGD sgd(net.parameters(), optim::SGDOptions(0.2));
    parallel.join(
        [&] {
          for (int step = 0; step < steps[g.rank()]; ++step) {
            const Data data = batch(step, g.rank() * 4, 4);
            sgd.zero_grad();
            cross_entropy(parallel(data.x), data.y).backward();
            sgd.step();
          }
        },
        {.average_over_active = active});
    for (size_t i = 0; i < net.parameters().size(); ++i) {
      ranks::expect_close(net.parameters()[i], one.parameters()[i], 1e-5,
                          "parameter " + std::to_string(i));
    }
    // Without join the ranks go on together.
    sgd.zero_grad();
    const Data data = batch(9, g.rank() * 4, 4);
    cross_entropy(parallel(data.x), data.y).backward();
  });
}
INSTANTIATE_TEST_SUITE_P(Options, Join,
                         ::testing::Combine(::testing::Bool(),
                                            ::testing::Values(Leaves::kNone, Leaves::kFound,
                                                              Leaves::kStatic)));

TEST(DistributedSampler, DealsEveryIndex) {
  for (const bool drop_last : {false, true}) {
    std::multiset<int64_t> dealt;
    for (int rank = 0; rank < 3; ++rank) {
      const data::DistributedSampler sampler(std::make_shared<data::RandomSampler>(10, 5), 3, rank,
                                             drop_last);
      const std::vector<int64_t> indices = sampler.indices(2);
      EXPECT_EQ(sampler.size(), drop_last ? 3 : 4);
      EXPECT_EQ(static_cast<int64_t>(indices.size()), sampler.size());
      dealt.insert(indices.begin(), indices.end());
    }
    const std::set<int64_t> different(dealt.begin(), dealt.end());
    EXPECT_EQ(different.size(), drop_last ? 9u : 10u);
    EXPECT_EQ(dealt.size(), drop_last ? 9u : 12u);
  }
  const data::DistributedSampler none(std::make_shared<data::SequentialSampler>(0), 2, 1);
  EXPECT_TRUE(none.indices(0).empty());
  EXPECT_THROW(data::DistributedSampler(std::make_shared<data::SequentialSampler>(3), 2, 2), Error);
}

}  // namespace
}  // namespace mytorch::nn
