#include "mytorch/nn/parallel/pipeline.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "mytorch/mytorch.h"
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
                 Linear(16, 16), Tanh(), Linear(16, 5));
  ranks::set_parameters(net, 0);
  return net;
}

Tensor loss_of(const Tensor& y, const Tensor& target) { return cross_entropy(y, target); }

TEST(PipelineStage, SharesModulesAndKeepsNames) {
  for (const int stages : {1, 2, 3, 5, 9}) {
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
  EXPECT_THROW(pipeline_stage(net, 10, 0), Error);
  EXPECT_THROW(pipeline_stage(net, 2, 2), Error);
}

class Pipelines : public ::testing::TestWithParam<std::tuple<int, int64_t, PipelineSchedule>> {};
TEST_P(Pipelines, HaveTheLossesAndGradientsOfOneRank) {
  const auto& [ranks, n, schedule] = GetParam();
  Sequential one = model();
  optim::SGD sgd(one.parameters(), optim::SGDOptions(0.2));
  std::vector<double> losses;
  for (int64_t step = 0; step < 3; ++step) {
    const Data data = batch(step, 0, kBatch, 6, 5);
    sgd.zero_grad();
    const Tensor loss = loss_of(one(data.x), data.y);
    loss.backward();
    sgd.step();
    losses.push_back(loss.item<double>());
  }
  const Tensor output = one(batch(7, 0, kBatch, 6, 5).x).detach();
  distributed::run_local(ranks, [&, n = n, schedule = schedule](const distributed::Group& g) {
    Sequential whole = model();
    Sequential stage = pipeline_stage(whole, g.size(), g.rank());
    Pipeline pipeline(stage, {.group = g, .micro_batches = n, .schedule = schedule});
    optim::SGD optimizer(stage.parameters(), optim::SGDOptions(0.2));
    for (int64_t step = 0; step < 3; ++step) {
      const Data data = batch(step, 0, kBatch, 6, 5);
      optimizer.zero_grad();
      const Tensor loss = pipeline.step(g.rank() == 0 ? data.x : Tensor(),
                                        g.rank() == g.size() - 1 ? data.y : Tensor(), loss_of);
      optimizer.step();
      expect_close(loss.item<double>(), losses[static_cast<size_t>(step)], 1e-5, "loss");
    }
    auto expected = one.named_parameters();
    for (const auto& [name, tensor] : stage.named_parameters()) {
      expect_close(tensor, expected[name], 1e-5, name);
    }
    // Each micro-batch goes forward and backward once, and no more are kept than planned.
    int64_t kept = 0, most = 0, forwards = 0;
    for (const Pipeline::Event& event : pipeline.events()) {
      forwards += event.backward ? 0 : 1;
      most = std::max(most, kept += event.backward ? -1 : 1);
    }
    expect(forwards == n && kept == 0, "a micro-batch is missing");
    const int64_t planned =
        schedule == PipelineSchedule::kGPipe ? n : std::min<int64_t>(n, g.size() - g.rank());
    expect(most == planned, std::to_string(most) + " micro-batches are kept");
    const Tensor found = pipeline.forward(batch(7, 0, kBatch, 6, 5).x);
    expect(found.defined() == (g.rank() == g.size() - 1), "the output is on the last stage");
    if (found.defined()) expect_close(found, output, 1e-5, "output");
  });
}
INSTANTIATE_TEST_SUITE_P(
    Stages, Pipelines,
    ::testing::Combine(::testing::Values(1, 2, 3, 4), ::testing::Values<int64_t>(1, 2, 4, 12),
                       ::testing::Values(PipelineSchedule::kGPipe, PipelineSchedule::k1F1B)));

TEST(Pipeline, RefusesBatchesThatCannotBeCut) {
  distributed::run_local(1, [](const distributed::Group& g) {
    Sequential net = model();
    Pipeline pipeline(net, {.group = g, .micro_batches = 5});
    const Data data = batch(0, 0, kBatch, 6, 5);
    ranks::expect_error([&] { pipeline.step(data.x, data.y, loss_of); }, "multiple of the 5");
    ranks::expect_error([&] { Pipeline(net, {.group = g, .micro_batches = 0}); }, "at least 1");
  });
}

}  // namespace
}  // namespace mytorch::nn
