#include "mytorch/nn/parallel/pipeline.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <tuple>

#include "mytorch/mytorch.h"
#include "mytorch/nn/parallel/pipeline_timeline.h"
#include "tests/nn/parallel/ranks.h"

namespace mytorch::nn {
namespace {

using ranks::batch;
using ranks::Data;
using ranks::expect;
using ranks::expect_close;
using ranks::kBatch;

Sequential model() {
  Sequential net(Linear(6, 16), Tanh(), Linear(16, 12), ReLU(), Linear(12, 16), Tanh(),
                 Linear(16, 16), Tanh(), LayerNorm(16), Linear(16, 16), Tanh(), Linear(16, 5));
  ranks::set_parameters(net, 0);
  return net;
}

Tensor loss_of(const Tensor& y, const Tensor& target) { return cross_entropy(y, target); }

TEST(PipelineStage, SharesModulesAndKeepsNames) {
  for (const int stages : {1, 2, 3, 5, 12}) {
    Sequential net = model();
    std::vector<std::string> names;
    int64_t largest = 0;
    for (int s = 0; s < stages; ++s) {
      Sequential part = pipeline_stage(net, stages, s);
      EXPECT_FALSE(part.empty());
      for (const auto& [name, tensor] : part.named_parameters()) {
        names.push_back(name);
        EXPECT_TRUE(net.named_parameters()[name].is_same(tensor)) << name;
      }
      largest = std::max(largest, part.num_parameters());
    }
    EXPECT_EQ(names, net.named_parameters().keys());
    if (stages == 2) {
      EXPECT_LE(largest, net.num_parameters() * 2 / 3);
    }
  }
  Sequential net = model();
  EXPECT_THROW(pipeline_stage(net, 13, 0), Error);
  EXPECT_THROW(pipeline_stage(net, 2, 2), Error);
  EXPECT_THROW(pipeline_stages(net, 2, 2, 1), Error);
  EXPECT_THROW(pipeline_stages(net, 2, 0, 0), Error);
  EXPECT_THROW(pipeline_stages(net, 4, 0, 4), Error);
  const std::vector<Sequential> chunks = pipeline_stages(net, 2, 1, 3);
  ASSERT_EQ(chunks.size(), 3);
  for (int c = 0; c < 3; ++c) {
    EXPECT_EQ(chunks[static_cast<size_t>(c)].named_parameters().keys(),
              pipeline_stage(net, 6, 2 * c + 1).named_parameters().keys());
  }
}

// What one rank computes in some steps, and afterwards.
struct OneRank {
  Sequential net = model();
  std::vector<double> losses = {};
  Tensor output = {};

  explicit OneRank(const Sequential& of = model(), int steps = 3) : net(of) {
    optim::SGD sgd(net.parameters(), optim::SGDOptions(0.2));
    for (int step = 0; step < steps; ++step) {
      const Data data = batch(step, 0, kBatch, 6, 5);
      sgd.zero_grad();
      const Tensor loss = loss_of(net(data.x), data.y);
      loss.backward();
      sgd.step();
      losses.push_back(loss.item<double>());
    }
    output = net(batch(7, 0, kBatch, 6, 5).x).detach();
  }
  // Trains a pipeline, and compares.
  void expect_same(Pipeline& pipeline, std::vector<Sequential>& chunks) const {
    const distributed::Group& g = pipeline.group();
    optim::SGD optimizer(pipeline.parameters(), optim::SGDOptions(0.2));
    for (size_t step = 0; step < losses.size(); ++step) {
      const Data data = batch(static_cast<int64_t>(step), 0, kBatch, 6, 5);
      optimizer.zero_grad();
      const Tensor loss = pipeline.step(g.rank() == 0 ? data.x : Tensor(),
                                        g.rank() == g.size() - 1 ? data.y : Tensor(), loss_of);
      optimizer.step();
      expect_close(loss.item<double>(), losses[step], 1e-5, "loss");
    }
    // Gradients of the last step, and what all steps made of the parameters.
    auto expected = net.named_parameters();
    for (const Sequential& chunk : chunks) {
      for (const auto& [name, tensor] : chunk.named_parameters()) {
        expect_close(tensor.grad(), expected[name].grad(), 1e-5, name + ".grad");
        expect_close(tensor, expected[name], 1e-5, name);
      }
    }
    // What is run is what is planned.
    std::vector<PipelineAction> found;
    double before = 0;
    for (const PipelineSpan& event : pipeline.events()) {
      found.push_back(event.action);
      expect(event.rank == g.rank() && event.begin >= before && event.end >= event.begin,
             "an event is out of order");
      before = event.end;
    }
    expect(found == pipeline.actions()[static_cast<size_t>(g.rank())], "other actions are run");
    const Tensor result = pipeline.forward(batch(7, 0, kBatch, 6, 5).x);
    expect(result.defined() == (g.rank() == g.size() - 1), "the output is on the last stage");
    if (result.defined()) expect_close(result, output, 1e-5, "output");
  }
};

class Pipelines
    : public ::testing::TestWithParam<std::tuple<int, int64_t, std::pair<PipelineSchedule, int>>> {
};
TEST_P(Pipelines, HaveTheLossesAndGradientsOfOneRank) {
  const auto& [ranks, n, of] = GetParam();
  const OneRank one;
  distributed::run_local(ranks, [&, n = n, of = of](const distributed::Group& g) {
    Sequential whole = model();
    std::vector<Sequential> chunks = pipeline_stages(whole, g.size(), g.rank(), of.second);
    Pipeline pipeline(chunks, {.group = g, .micro_batches = n, .schedule = of.first});
    expect(pipeline.num_stages() == g.size() * of.second, "number of stages");
    one.expect_same(pipeline, chunks);
  });
}
INSTANTIATE_TEST_SUITE_P(
    Stages, Pipelines,
    ::testing::Combine(::testing::Values(1, 2, 3, 4), ::testing::Values<int64_t>(1, 2, 3, 4, 6, 12),
                       ::testing::Values(std::pair(PipelineSchedule::kGPipe, 1),
                                         std::pair(PipelineSchedule::kGPipe, 2),
                                         std::pair(PipelineSchedule::k1F1B, 1),
                                         std::pair(PipelineSchedule::kInterleaved1F1B, 1),
                                         std::pair(PipelineSchedule::kInterleaved1F1B, 2),
                                         std::pair(PipelineSchedule::kInterleaved1F1B, 3),
                                         std::pair(PipelineSchedule::kZeroBubble, 1),
                                         std::pair(PipelineSchedule::kZeroBubble, 2),
                                         std::pair(PipelineSchedule::kZeroBubble, 3))));

TEST(Pipeline, RunsActionsOfOnesOwn) {
  const OneRank one;
  distributed::run_local(2, [&](const distributed::Group& g) {
    // Backwards in the opposite order, in two parts on one rank alone.
    PipelineActions actions(2);
    for (const int64_t i : {0, 1, 2}) {
      for (auto& of_rank : actions) of_rank.push_back({PipelineAction::Kind::kForward, i});
    }
    for (const int64_t i : {2, 1, 0}) {
      actions[0].push_back({PipelineAction::Kind::kBackward, i});
      actions[1].push_back({PipelineAction::Kind::kInputGradient, i});
    }
    for (const int64_t i : {1, 0, 2}) {
      actions[1].push_back({PipelineAction::Kind::kWeightGradient, i});
    }
    Sequential whole = model();
    std::vector<Sequential> chunks = pipeline_stages(whole, 2, g.rank(), 1);
    Pipeline pipeline(chunks, {.group = g, .micro_batches = 3, .actions = actions});
    one.expect_same(pipeline, chunks);
    actions.pop_back();
    ranks::expect_error(
        [&] { Pipeline(chunks, {.group = g, .micro_batches = 3, .actions = actions}); },
        "actions of 1 ranks");
  });
}

// A layer that two chunks of a rank share gets the gradients of both.
TEST(Pipeline, ChunksOfARankShareLayers) {
  const auto tied = [] {
    const auto shared = std::make_shared<Linear>(16, 16);
    Sequential net(Linear(6, 16), shared, Tanh(), Linear(16, 16), shared, Linear(16, 5));
    ranks::set_parameters(net, 0);
    return net;
  };
  const OneRank one(tied());
  for (const auto schedule : {PipelineSchedule::kInterleaved1F1B, PipelineSchedule::kZeroBubble}) {
    for (const int ranks : {1, 2}) {
      distributed::run_local(ranks, [&](const distributed::Group& g) {
        Sequential whole = tied();
        // Of two ranks, the first one has both: elements 0 and 1, and 3 and 4.
        std::vector<Sequential> chunks;
        for (const auto& [begin, end, rank] :
             {std::tuple(0, 2, 0), std::tuple(2, 3, 1), std::tuple(3, 5, 0), std::tuple(5, 6, 1)}) {
          if (rank % g.size() != g.rank()) continue;
          Sequential chunk;
          for (int i = begin; i < end; ++i) {
            chunk.push_back(std::to_string(i == 4 ? 1 : i), whole.ptr(static_cast<size_t>(i)));
          }
          chunks.push_back(chunk);
        }
        Pipeline pipeline(chunks, {.group = g, .micro_batches = 4, .schedule = schedule});
        expect(pipeline.parameters().size() == (g.size() == 1   ? 8
                                                : g.rank() == 0 ? 6
                                                                : 2),
               "a parameter is missing, or there twice");
        one.expect_same(pipeline, chunks);
      });
    }
  }
}

// Stages without parameters, and with constant ones, in the middle and at the beginning.
TEST(Pipeline, StagesNeedNoParameters) {
  for (const auto schedule : {PipelineSchedule::k1F1B, PipelineSchedule::kZeroBubble}) {
    const Data data = batch(0, 0, kBatch, 6, 5);
    const auto net = [] {
      Sequential made(Tanh(), Linear(6, 5), Tanh(), Linear(5, 5));
      ranks::set_parameters(made, 1);
      made[3].parameters()[0].requires_grad_(false);
      return made;
    };
    Sequential whole = net();
    loss_of(whole(data.x), data.y).backward();
    distributed::run_local(4, [&](const distributed::Group& g) {
      Sequential mine = net();
      Pipeline pipeline(mine[static_cast<size_t>(g.rank())],
                        {.group = g, .micro_batches = 3, .schedule = schedule});
      pipeline.step(data.x, data.y, loss_of);
      const std::vector<Tensor> expected = whole[static_cast<size_t>(g.rank())].parameters();
      for (size_t i = 0; i < expected.size(); ++i) {
        const Tensor grad = pipeline.parameters()[i].grad();
        expect(grad.defined() == expected[i].grad().defined(), "whether there is a gradient");
        if (grad.defined()) expect_close(grad, expected[i].grad(), 1e-5, "grad");
      }
    });
  }
}

TEST(Pipeline, GathersTheTimelineOfAllRanks) {
  distributed::run_local(3, [](const distributed::Group& g) {
    Sequential whole = model();
    std::vector<Sequential> chunks = pipeline_stages(whole, 3, g.rank(), 2);
    Pipeline pipeline(chunks, {.group = g,
                               .micro_batches = 4,
                               .schedule = PipelineSchedule::kZeroBubble,
                               .synchronize = true});
    const Data data = batch(0, 0, kBatch, 6, 5);
    pipeline.step(data.x, data.y, loss_of);
    const PipelineTimeline timeline = pipeline_timeline(pipeline);
    expect(timeline.ranks == 3 && timeline.begin() == 0, "the first action begins at 0");
    size_t i = 0;
    for (size_t rank = 0; rank < 3; ++rank) {
      for (const PipelineAction& action : pipeline.actions()[rank]) {
        const PipelineSpan& span = timeline.spans.at(i++);
        expect(span.rank == static_cast<int>(rank) && span.action == action, "an action is wrong");
        if (span.rank != g.rank()) continue;
        const PipelineSpan& mine = pipeline.events()[i - 1 - rank * 24];
        expect(std::abs((span.end - span.begin) - (mine.end - mine.begin)) < 1e-9, "times");
      }
    }
    expect(i == timeline.spans.size(), "there are more actions");
    const PipelineReport report = pipeline_report(timeline, pipeline.actions());
    for (const double idle : report.idle) expect(idle >= 0 && idle < 1, "a share");
    // All ranks have the same.
    const Tensor sum = mytorch::full({1}, report.bubble, kFloat64);
    g.all_reduce(sum);
    expect_close(sum.item<double>(), 3 * report.bubble, 1e-12, "the idle share of all ranks");
    pipeline.forward(data.x);
    const PipelineTimeline forwards = pipeline_timeline(pipeline);
    expect(forwards.spans.size() == 24, "forwards alone");
    ranks::expect_error([&] { pipeline_report(forwards, pipeline.actions()); }, "other actions");
  });
}

TEST(Pipeline, RefusesWhatItCannotRun) {
  distributed::run_local(1, [](const distributed::Group& g) {
    Sequential net = model();
    Pipeline pipeline(net, {.group = g, .micro_batches = 5});
    const Data data = batch(0, 0, kBatch, 6, 5);
    ranks::expect_error([&] { pipeline.step(data.x, data.y, loss_of); }, "multiple of the 5");
    ranks::expect_error([&] { Pipeline(net, {.group = g, .micro_batches = 0}); }, "at least 1");
    std::vector<Sequential> chunks = pipeline_stages(net, 1, 0, 2);
    ranks::expect_error([&] { Pipeline(chunks, {.group = g}); }, "use kInterleaved1F1B");
    ranks::expect_error([&] { Pipeline(std::vector<Module*>{nullptr}, {.group = g}); },
                        "a chunk is null");
    ranks::expect_error([&] { Pipeline(std::vector<Module*>{}, {.group = g}); }, "of 0 chunks");
  });
}

// The shapes of results differ between micro-batches.
struct Growing : Module {
  int64_t calls = 0;
  Tensor forward(const Tensor& x) override { return mytorch::cat(std::vector<Tensor>(++calls, x)); }
};
TEST(Pipeline, RefusesResultsOfOtherShapes) {
  EXPECT_THROW(distributed::run_local(2,
                                      [](const distributed::Group& g) {
                                        Growing growing;
                                        Pipeline pipeline(growing,
                                                          {.group = g, .micro_batches = 2});
                                        const Data data = batch(0, 0, kBatch, 6, 5);
                                        pipeline.step(data.x, data.y, loss_of);
                                      }),
               Error);
}

}  // namespace
}  // namespace mytorch::nn
