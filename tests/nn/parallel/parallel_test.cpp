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

#include "mytorch/compile.h"
#include "mytorch/distributed.h"
#include "mytorch/mytorch.h"
#include "mytorch/nn/parallel/distributed_data_parallel.h"
#include "mytorch/nn/parallel/distributed_sampler.h"
#include "tests/nn/parallel/ranks.h"

namespace mytorch::nn {
namespace {

struct Net : Module {
  Linear hidden{6, 16};
  Linear middle{16, 16};
  Linear output{16, 3};
  Net() {
    register_module("hidden", hidden);
    register_module("middle", middle);
    register_module("output", output);
  }
  Tensor forward(const Tensor& x) override { return output(relu(middle(tanh(hidden(x))))); }
};

using ranks::Data;
using ranks::set_parameters;
Data batch(int64_t step, int64_t begin, int64_t size) {
  return ranks::batch(step, begin, size, 6, 3);
}

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

// Returns the losses of some steps of training, each one call of a function.
enum class Step { kEager, kCompiled, kWithBreaks };
std::vector<double> losses_with(const distributed::Group& world, Step way,
                                DistributedDataParallelOptions options) {
  const bool static_graph = options.static_graph;
  Net net;
  set_parameters(net, 0);
  DistributedDataParallel parallel(net, std::move(options));
  optim::SGD optimizer(net.parameters(), optim::SGDOptions(0.2).momentum(0.9));
  const auto function = [&](const Tensor& x, const Tensor& y) {
    optimizer.zero_grad();
    const Tensor loss = cross_entropy(parallel(x), y);
    loss.backward();
    optimizer.step();
    return loss.detach();
  };
  auto step = mytorch::compile(function, {.allow_breaks = way == Step::kWithBreaks});
  std::vector<double> losses;
  for (int i = 0; i < 6; ++i) {
    const Data data = batch(i, world.rank() * 4, 4);
    // The first step is eager where it tells which parameters take part.
    const bool eager = way == Step::kEager || (i == 0 && static_graph);
    losses.push_back((eager ? function(data.x, data.y) : step(data.x, data.y)).item<double>());
  }
  if (way == Step::kWithBreaks) {
    ranks::expect(step.stats().replayed_segments + step.stats().replayed > 0,
                  "nothing was replayed");
  }
  if (way == Step::kCompiled) {
    ranks::expect(step.stats().recorded == 1 && step.stats().replayed >= 4, "replays");
  }
  return losses;
}

// Hooks run in each call of a function with breaks.
TEST(DistributedDataParallel, TrainsInACompiledStepWithBreaks) {
  distributed::run_local(2, [](const distributed::Group& world) {
    for (const bool unused : {false, true}) {
      for (const int64_t bucket : {16, 1 << 20}) {
        const DistributedDataParallelOptions options = {
            .bucket_bytes = bucket, .first_bucket_bytes = bucket, .find_unused_parameters = unused};
        const std::vector<double> expected = losses_with(world, Step::kEager, options);
        const std::vector<double> found = losses_with(world, Step::kWithBreaks, options);
        for (size_t i = 0; i < expected.size(); ++i) {
          ranks::expect_close(found[i], expected[i], 1e-5, "step " + std::to_string(i));
        }
      }
    }
  });
}

// Reductions are nodes of the graph.
TEST(DistributedDataParallel, TrainsInACompiledStep) {
  for (const int ranks : {1, 2, 3}) {
    distributed::run_local(ranks, [](const distributed::Group& world) {
      for (const bool is_static : {false, true}) {
        for (const int64_t bucket : {16, 1 << 20}) {
          const DistributedDataParallelOptions options = {
              .bucket_bytes = bucket, .first_bucket_bytes = bucket, .static_graph = is_static};
          const std::vector<double> expected = losses_with(world, Step::kEager, options);
          const std::vector<double> found = losses_with(world, Step::kCompiled, options);
          for (size_t i = 0; i < expected.size(); ++i) {
            ranks::expect_close(found[i], expected[i], 1e-5, "step " + std::to_string(i));
          }
        }
      }
    });
  }
}

// The batches of the ranks differ in their sizes, so that one rank records where others replay.
TEST(DistributedDataParallel, RanksNeedNotRecordInTheSameStep) {
  distributed::run_local(2, [](const distributed::Group& world) {
    Net net;
    set_parameters(net, 0);
    DistributedDataParallel parallel(net, {.bucket_bytes = 600, .first_bucket_bytes = 16});
    auto step = mytorch::compile([&](const Tensor& x, const Tensor& y) {
      for (const Tensor& p : net.parameters()) p.set_grad({});
      const Tensor loss = cross_entropy(parallel(x), y) * static_cast<double>(x.size(0));
      loss.backward();
      return loss.detach();
    });
    for (int i = 0; i < 6; ++i) {
      const int64_t size = world.rank() == 0 && i >= 3 ? 2 : 4;
      const Data data = batch(i, world.rank() * 4, size);
      (void)step(data.x, data.y);
      // Of both ranks' examples, in one process.
      Net one;
      set_parameters(one, 0);
      const Data first = batch(i, 0, i >= 3 ? 2 : 4), second = batch(i, 4, 4);
      const double rows = static_cast<double>(first.x.size(0));
      (cross_entropy(one(first.x), first.y) * (rows / 2) +
       cross_entropy(one(second.x), second.y) * 2.0)
          .backward();
      for (size_t k = 0; k < net.parameters().size(); ++k) {
        ranks::expect_close(net.parameters()[k].grad(), one.parameters()[k].grad(), 1e-5, "grads");
      }
    }
    ranks::expect(step.stats().recorded == (world.rank() == 0 ? 2 : 1), "recordings");
  });
}

// Gradients that are added up without being reduced belong to another recording.
TEST(DistributedDataParallel, CompiledStepsFollowNoSync) {
  distributed::run_local(2, [](const distributed::Group& world) {
    Net net, one;
    set_parameters(net, 0);
    set_parameters(one, 0);
    DistributedDataParallel parallel(net);
    auto step = mytorch::compile([&](const Tensor& x, const Tensor& y) {
      const Tensor loss = cross_entropy(parallel(x), y);
      loss.backward();
      return loss.detach();
    });
    for (int round = 0; round < 4; ++round) {
      net.zero_grad();
      one.zero_grad();
      for (int part = 0; part < 3; ++part) {
        const Data mine = batch(3 * round + part, world.rank() * 4, 4);
        if (part < 2) {
          const auto no_sync = parallel.no_sync();
          (void)step(mine.x, mine.y);
        } else {
          (void)step(mine.x, mine.y);
        }
        for (const int64_t rank : {0, 1}) {
          const Data data = batch(3 * round + part, rank * 4, 4);
          (cross_entropy(one(data.x), data.y) * 0.5).backward();
        }
      }
      for (size_t i = 0; i < net.parameters().size(); ++i) {
        ranks::expect_close(net.parameters()[i].grad(), one.parameters()[i].grad(), 1e-5,
                            "gradients of round " + std::to_string(round));
      }
    }
    ranks::expect(step.stats().replayed > 0, "nothing was replayed");
  });
}

TEST(DistributedDataParallel, HooksRunInEachCallOfAStepWithBreaks) {
  distributed::run_local(2, [](const distributed::Group& world) {
    Net net;
    set_parameters(net, 0);
    int64_t calls = 0;
    DistributedDataParallel parallel(
        net,
        {.hook = [&calls](const distributed::Group& group, const GradBucket& bucket, double scale) {
          ++calls;
          return compress_bf16(group, bucket, scale);
        }});
    auto step = mytorch::compile(
        [&](const Tensor& x, const Tensor& y) {
          const Tensor loss = cross_entropy(parallel(x), y);
          loss.backward();
          return loss.detach();
        },
        {.allow_breaks = true});
    for (int i = 0; i < 5; ++i) {
      const Data data = batch(i, world.rank() * 4, 4);
      net.zero_grad();
      (void)step(data.x, data.y);
      ranks::expect(calls == (i + 1) * parallel.num_buckets(), "the hook was not called");
    }
  });
}

// One rank uses a parameter that the other one does not.
TEST(DistributedDataParallel, FindsUnusedParametersInAStepWithBreaks) {
  distributed::run_local(2, [](const distributed::Group& world) {
    for (const bool with_breaks : {false, true}) {
      Net net;
      set_parameters(net, 0);
      DistributedDataParallel parallel(net, {.find_unused_parameters = true});
      const auto function = [&](const Tensor& x, const Tensor& y) {
        parallel.begin();
        const Tensor hidden = tanh(net.hidden(x));
        const Tensor used = world.rank() == 1 ? relu(net.middle(hidden)) : hidden;
        const Tensor result = net.output(used);
        parallel.find_unused({result});
        const Tensor loss = cross_entropy(result, y);
        loss.backward();
        return loss.detach();
      };
      auto step = mytorch::compile(function, {.allow_breaks = true});
      for (int i = 0; i < 4; ++i) {
        const Data data = batch(i, world.rank() * 4, 4);
        net.zero_grad();
        (void)(with_breaks ? step(data.x, data.y) : function(data.x, data.y));
        const Tensor grad = net.middle.weight.grad();
        ranks::expect(grad.defined(), "no gradient of the other rank");
        const Tensor mean = grad.clone();
        world.all_reduce(mean, {distributed::ReduceOp::kAverage});
        ranks::expect_close(mean, grad, 1e-6, "the ranks have different gradients");
      }
    }
  });
}

TEST(DistributedDataParallel, SaysWhatAGraphCannotRepeat) {
  distributed::run_local(2, [](const distributed::Group& world) {
    const std::vector<std::pair<DistributedDataParallelOptions, std::string>> cases = {
        {{.find_unused_parameters = true}, "that find_unused_parameters finds"},
        {{.static_graph = true}, "make one step before"},
        {{.hook = compress_bf16}, "by a hook"},
    };
    for (const auto& [options, part] : cases) {
      Net net, one;
      set_parameters(net, 0);
      set_parameters(one, 0);
      DistributedDataParallel parallel(net, options);
      const auto backward = [&](const Tensor& x, const Tensor& y) {
        const Tensor loss = cross_entropy(parallel(x), y);
        loss.backward();
        return loss.detach();
      };
      auto step = mytorch::compile(backward);
      const Data data = batch(0, world.rank() * 4, 4);
      for (int call = 0; call < 3; ++call) {
        ranks::expect_error([&] { step(data.x, data.y); }, part);
      }
      // A refusal leaves nothing behind.
      net.zero_grad();
      backward(data.x, data.y);
      const Data all = batch(0, 0, 8);
      cross_entropy(one(all.x), all.y).backward();
      const double tolerance = options.hook ? 1e-2 : 1e-6;
      for (size_t i = 0; i < net.parameters().size(); ++i) {
        ranks::expect_close(net.parameters()[i].grad(), one.parameters()[i].grad(), tolerance,
                            "grads");
      }
    }
  });
}

// Backward outside of the compiled forward calls the hooks.
TEST(DistributedDataParallel, ReducesBehindACompiledForward) {
  distributed::run_local(2, [](const distributed::Group& world) {
    Net net, one;
    set_parameters(net, 0);
    set_parameters(one, 0);
    DistributedDataParallel parallel(net);
    auto forward = mytorch::compile([&](const Tensor& x) { return parallel(x); });
    for (int call = 0; call < 4; ++call) {
      net.zero_grad();
      one.zero_grad();
      const Data data = batch(call, world.rank() * 4, 4), all = batch(call, 0, 8);
      cross_entropy(forward(data.x), data.y).backward();
      cross_entropy(one(all.x), all.y).backward();
      for (size_t i = 0; i < net.parameters().size(); ++i) {
        ranks::expect_close(net.parameters()[i].grad(), one.parameters()[i].grad(), 1e-6, "grads");
      }
    }
    ranks::expect(forward.stats().replayed > 0, "nothing was replayed");
  });
}

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
