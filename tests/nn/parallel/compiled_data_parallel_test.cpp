// Data parallelism in compiled functions.
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "mytorch/compile.h"
#include "mytorch/distributed.h"
#include "mytorch/mytorch.h"
#include "mytorch/nn/parallel/distributed_data_parallel.h"
#include "tests/nn/parallel/three_layers.h"

namespace mytorch::nn::compiled_data_parallel {
namespace {

using parallel_test::batch;
using parallel_test::Net;
using ranks::Data;
using ranks::set_parameters;

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
TEST(CompiledDataParallel, TrainsInACompiledStepWithBreaks) {
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
TEST(CompiledDataParallel, TrainsInACompiledStep) {
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
TEST(CompiledDataParallel, RanksNeedNotRecordInTheSameStep) {
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
TEST(CompiledDataParallel, CompiledStepsFollowNoSync) {
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

TEST(CompiledDataParallel, HooksRunInEachCallOfAStepWithBreaks) {
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
TEST(CompiledDataParallel, FindsUnusedParametersInAStepWithBreaks) {
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

TEST(CompiledDataParallel, SaysWhatAGraphCannotRepeat) {
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
TEST(CompiledDataParallel, ReducesBehindACompiledForward) {
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

}  // namespace
}  // namespace mytorch::nn::compiled_data_parallel
