// Replayed graphs give the same bits as eager calls, however often they are replayed.
#include "mytorch/graph.h"

#include <cmath>
#include <cstring>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "mytorch/generator.h"
#include "mytorch/mytorch.h"
#include "mytorch/nn/models/gpt2.h"
#include "mytorch/nn/models/resnet.h"
#include "tests/backends/cuda/gpu.h"
#include "tests/backends/cuda/host/bytes_of.h"
#include "tests/nn/data/expect_error.h"

namespace mytorch::testing {
namespace {

namespace F = mytorch;

class Graphs : public Gpu {};

using testing::expect_error;

TEST_F(Graphs, ReplayComputesWithTheCurrentInputs) {
  const Tensor x = F::full({1000}, 2, kFloat32, "cuda");
  Tensor y;
  Graph graph;
  EXPECT_FALSE(graph.captured());
  graph.capture([&] { y = F::sum(F::mul(F::add(x, 1), x)); });
  EXPECT_TRUE(graph.captured());
  for (const double value : {2.0, 5.0, -3.0}) {
    x.fill_(value);
    graph.replay();
    EXPECT_EQ(y.item<double>(), 1000 * (value + 1) * value);
  }
}

TEST_F(Graphs, CapturedWorkDoesNotRunUntilReplay) {
  const Tensor x = F::zeros({8}, kFloat32, "cuda");
  Graph graph;
  graph.capture([&] { x.add_(1); });
  EXPECT_EQ(F::sum(x).item<double>(), 0);
  graph.replay();
  graph.replay();
  EXPECT_EQ(F::sum(x).item<double>(), 16);
}

// Memory released during the capture is not reused by other work.
TEST_F(Graphs, KeepTheirMemory) {
  const int64_t n = 3 << 20;
  const Tensor x = F::full({n}, 1, kFloat32, "cuda");
  Tensor y;
  Graph graph;
  graph.capture([&] {
    Tensor z = x;
    for (int i = 0; i < 10; ++i) z = F::add(z, 1);
    y = z;
  });
  std::vector<Tensor> others;
  for (int i = 0; i < 40; ++i) others.push_back(F::full({n}, 100 + i, kFloat32, "cuda"));
  graph.replay();
  EXPECT_EQ(F::amax(y).item<double>(), 11);
  EXPECT_EQ(F::amin(y).item<double>(), 11);
  for (int i = 0; i < 40; ++i) EXPECT_EQ(F::amin(others[i]).item<double>(), 100 + i);
  const Tensor kept = y;
  graph = Graph();
  EXPECT_EQ(F::amax(kept).item<double>(), 11) << "a tensor that outlives the graph";
}

// Sums use scratch memory and counters; matrix products use a workspace.
TEST_F(Graphs, CaptureOperatorsOfEveryFamily) {
  manual_seed(3);
  const Tensor a = F::randn({256, 300}, kFloat32, "cuda");
  const Tensor b = F::randn({300, 200}, kFloat32, "cuda");
  const Tensor image = F::randn({2, 3, 20, 20}, kFloat32, "cuda");
  const Tensor weight = F::randn({8, 3, 3, 3}, kFloat32, "cuda");
  const Tensor index = F::randint(256, {70}, kInt64, "cuda");
  const auto compute = [&] {
    std::vector<Tensor> all;
    all.push_back(F::matmul(a, b));
    all.push_back(F::sum(all[0]));
    all.push_back(F::sum(all[0], {1}));
    all.push_back(F::softmax(all[0], 1));
    all.push_back(F::conv2d(image, weight));
    all.push_back(F::index_select(a, 0, index));
    all.push_back(F::index_add(F::zeros_like(a), 0, index, all[5]));
    all.push_back(std::get<0>(F::sort(a, 1)));
    all.push_back(F::cumsum(a, 1));
    all.push_back(F::cat({a, F::transpose(F::contiguous(F::transpose(a, 0, 1)), 0, 1)}));
    all.push_back(F::layer_norm(a, {300}));
    all.push_back(F::gelu(a).to(kBFloat16));
    all.push_back(F::max_pool2d(image, {2, 2}));
    return all;
  };
  const std::vector<Tensor> expected = compute();
  std::vector<Tensor> found;
  Graph graph;
  graph.capture([&] { found = compute(); });
  for (int round = 0; round < 3; ++round) {
    for (const Tensor& each : found) each.fill_(0);
    graph.replay();
    for (size_t i = 0; i < found.size(); ++i) {
      EXPECT_TRUE(bytes_of(found[i]) == bytes_of(expected[i])) << "result " << i;
    }
  }
}

TEST_F(Graphs, DrawNewRandomNumbersInEachReplay) {
  const Tensor x = F::ones({10000}, kFloat32, "cuda");
  std::vector<std::string> expected;
  manual_seed(11);
  for (int i = 0; i < 4; ++i) {
    expected.push_back(bytes_of(F::dropout(x, 0.5, true)));
    expected.push_back(bytes_of(F::randn({500}, kFloat32, "cuda")));
  }
  manual_seed(11);
  Tensor dropped, normal;
  Graph graph;
  graph.capture([&] {
    dropped = F::dropout(x, 0.5, true);
    normal = F::randn({500}, kFloat32, "cuda");
  });
  EXPECT_EQ(default_generator().call(), 0u) << "nothing has been drawn";
  for (int i = 0; i < 4; ++i) {
    graph.replay();
    EXPECT_TRUE(bytes_of(dropped) == expected[2 * i]) << i;
    EXPECT_TRUE(bytes_of(normal) == expected[2 * i + 1]) << i;
    if (i == 1) {  // another random call between two replays
      EXPECT_EQ(default_generator().call(), 4u);
    }
  }
  manual_seed(12);
  expect_error(ErrorCode::kValue, {"seed"}, [&] { graph.replay(); });
}

TEST_F(Graphs, RefuseToWaitForTheHostDuringACapture) {
  const Tensor x = F::ones({4}, kFloat32, "cuda");
  Graph graph;
  const auto refused = [&](const char* part, const std::function<void()>& call) {
    expect_error(ErrorCode::kUnsupported, {part}, [&] { graph.capture(call); });
    EXPECT_FALSE(graph.captured());
    EXPECT_EQ(F::sum(x).item<double>(), 4) << "the stream is usable again";
  };
  refused("[item]", [&] { F::sum(x).item(); });
  refused("[to] copy_:", [&] { x.to(kCPU); });
  refused("[to] copy_:", [&] { tensor({1.0, 2, 3}).to("cuda"); });
  refused("[nonzero]", [&] { F::nonzero(x); });
  expect_error(ErrorCode::kValue, {"being captured already"},
               [&] { graph.capture([] { Graph().capture([] {}); }); });
  expect_error(ErrorCode::kValue, {"capture()"}, [&] { graph.replay(); });
  expect_error(ErrorCode::kUnsupported, {"does not support graphs"},
               [] { Graph("cpu").capture([] {}); });
}

// The next wait after a replay reports an index out of range.
TEST_F(Graphs, ReportFaultsOfReplays) {
  const Tensor x = F::ones({4}, kFloat32, "cuda");
  const Tensor index = F::zeros({2}, kInt64, "cuda");
  Tensor y;
  Graph graph;
  graph.capture([&] { y = F::gather(x, 0, index); });
  graph.replay();
  EXPECT_EQ(F::sum(y).item<double>(), 2);
  index.fill_(9);
  expect_error(ErrorCode::kValue, {"[gather] index 9"}, [&] {
    graph.replay();
    F::sum(y).item();
  });
}

// The first random call of a capture does not depend on memory that a replay overwrites.
TEST_F(Graphs, DrawTheSameNumbersAfterOtherWork) {
  const Tensor x = F::ones({100}, kFloat32, "cuda");
  const auto work = [&] {
    for (int i = 0; i < 20; ++i) F::add(F::mul(x, 3), 1);
    return F::dropout(x, 0.5, true);
  };
  manual_seed(2);
  const std::string expected = bytes_of(work());
  manual_seed(2);
  Tensor found;
  Graph graph;
  graph.capture([&] { found = work(); });
  graph.replay();
  EXPECT_TRUE(bytes_of(found) == expected);
}

// The parts of a training step, tested separately.
TEST_F(Graphs, ReplayThePartsOfATrainingStep) {
  manual_seed(5);
  const Tensor x = F::randn({32, 20}, kFloat32, "cuda");
  const Tensor w = F::randn({64, 20}, kFloat32, "cuda").requires_grad_();
  const Tensor b = F::randn({64}, kFloat32, "cuda").requires_grad_();
  const Tensor scores = F::randn({32, 5}, kFloat32, "cuda").requires_grad_();
  const Tensor target = F::randint(5, {32}, kInt64, "cuda");
  const auto forget = [&] {
    for (const Tensor& each : {w, b, scores}) each.set_grad({});
  };
  using Results = std::vector<Tensor>;
  const std::vector<std::pair<const char*, std::function<Results()>>> pieces = {
      {"linear", [&] { return Results{F::linear(x, w, b).detach()}; }},
      {"relu", [&] { return Results{F::relu(x)}; }},
      {"gelu of linear", [&] { return Results{F::gelu(F::linear(x, w, b)).detach()}; }},
      {"dropout", [&] { return Results{F::dropout(x, 0.3, true)}; }},
      {"cross_entropy", [&] { return Results{F::cross_entropy(scores, target).detach()}; }},
      {"cross_entropy backward",
       [&] {
         forget();
         F::cross_entropy(scores, target).backward();
         return Results{scores.grad()};
       }},
      {"linear, gelu, dropout backward",
       [&] {
         forget();
         F::sum(F::dropout(F::gelu(F::linear(x, w, b)), 0.1, true)).backward();
         return Results{w.grad(), b.grad()};
       }},
  };
  for (const auto& [name, piece] : pieces) {
    const uint64_t call = default_generator().call();
    std::vector<std::vector<std::string>> expected;
    for (int i = 0; i < 3; ++i) {
      expected.emplace_back();
      for (const Tensor& each : piece()) expected.back().push_back(bytes_of(each));
    }
    default_generator().set_call(call);
    Results found;
    Graph graph;
    graph.capture([&] { found = piece(); });
    for (size_t i = 0; i < 3; ++i) {
      graph.replay();
      for (size_t k = 0; k < found.size(); ++k) {
        EXPECT_TRUE(bytes_of(found[k]) == expected[i][k]) << name << ", result " << k << ", " << i;
      }
    }
  }
}

// ---- a training step

struct Network {
  Network()
      : model(nn::Linear(20, 64), nn::ReLU(), nn::Dropout(0.3), nn::Linear(64, 50), nn::GELU(),
              nn::Dropout(0.1), nn::Linear(50, 5)) {
    model.to("cuda");
  }
  Tensor loss(const Tensor& x, const Tensor& y) { return F::cross_entropy(model(x), y); }
  nn::Sequential model;
};

struct Batches {
  explicit Batches(int64_t count)
      : x(F::randn({count, 32, 20}, kFloat32, "cuda")),
        y(F::randint(5, {count, 32}, kInt64, "cuda")) {}
  Tensor x, y;
};

// Returns the losses of `steps` steps: `warm` eager steps, then replays.
template <class Optimizer, class Options>
std::vector<std::string> train(const Options& options, int64_t steps, int64_t warm) {
  manual_seed(5);
  Network network;
  const Batches batches(8);
  Optimizer optimizer(network.model.parameters(), options);
  nn::optim::CosineAnnealingLR schedule(optimizer, 50);
  const Tensor x = F::empty({32, 20}, kFloat32, "cuda");
  const Tensor y = F::empty({32}, kInt64, "cuda");
  Tensor loss;
  const auto step = [&] {
    optimizer.zero_grad();
    loss = network.loss(x, y);
    loss.backward();
    optimizer.step();
  };
  Graph graph;
  std::vector<std::string> losses;
  for (int64_t i = 0; i < steps; ++i) {
    x.copy_(batches.x[i % 8]);
    y.copy_(batches.y[i % 8]);
    if (i == warm) graph.capture(step);
    if (i < warm) {
      step();
    } else {
      graph.replay();
    }
    losses.push_back(bytes_of(loss));
    schedule.step();
  }
  const auto state = optimizer.state_dict();
  losses.push_back(bytes_of(state.at("parameter0.step")));
  losses.push_back(bytes_of(network.model.parameters()[0]));
  return losses;
}

template <class Optimizer, class Options>
void expect_same(const Options& options) {
  constexpr int64_t kSteps = 200;
  const auto eager = train<Optimizer>(options, kSteps, kSteps);
  float first, last;
  std::memcpy(&first, eager[0].data(), sizeof(first));
  std::memcpy(&last, eager[kSteps - 1].data(), sizeof(last));
  EXPECT_LT(last, 0.8f * first) << "it learns";
  ASSERT_TRUE(train<Optimizer>(options, 5, 5)[4] == eager[4]) << "not even two eager runs agree";
  for (const int64_t warm : {0, 3}) {
    const auto replayed = train<Optimizer>(options, kSteps, warm);
    ASSERT_EQ(replayed.size(), eager.size());
    for (size_t i = 0; i < eager.size(); ++i) {
      float a, b;
      std::memcpy(&a, replayed[i].data(), sizeof(a));
      std::memcpy(&b, eager[i].data(), sizeof(b));
      ASSERT_TRUE(replayed[i] == eager[i])
          << "step " << i << " after " << warm << " before: " << a << " and " << b;
    }
  }
}

TEST_F(Graphs, TrainLikeEagerWithAdamW) {
  expect_same<nn::optim::AdamW>(nn::optim::AdamWArgs{.lr = 0.01});
}
TEST_F(Graphs, TrainLikeEagerWithAmsgrad) {
  expect_same<nn::optim::Adam>(
      nn::optim::AdamArgs{.lr = 0.01, .weight_decay = 0.01, .amsgrad = true});
}
TEST_F(Graphs, TrainLikeEagerWithSgd) {
  expect_same<nn::optim::SGD>(nn::optim::SGDArgs{.lr = 0.1, .momentum = 0.9, .weight_decay = 1e-4});
}
TEST_F(Graphs, TrainLikeEagerWithRmsprop) {
  expect_same<nn::optim::RMSprop>(nn::optim::RMSpropArgs{.lr = 0.001, .momentum = 0.5});
}
TEST_F(Graphs, TrainLikeEagerWithAdagrad) {
  expect_same<nn::optim::Adagrad>(nn::optim::AdagradArgs{.lr = 0.05, .lr_decay = 0.01});
}

// ---- training steps of models

enum class Precision { kFloat32, kAutocast, kBFloat16 };

// Returns the losses of eight steps, of which the first `warm` are eager, and the parameters.
std::vector<std::string> train(nn::Module& model, Precision precision,
                               const std::function<Tensor()>& loss_of, int64_t warm) {
  nn::optim::AdamW adam(model.parameters(), {.lr = 1e-3});
  Tensor loss;
  const auto step = [&] {
    adam.zero_grad();
    {
      std::optional<AutocastGuard> autocast;
      if (precision == Precision::kAutocast) autocast.emplace(Device("cuda"), kBFloat16);
      loss = loss_of();
    }
    loss.backward();
    adam.step();
  };
  constexpr int64_t kSteps = 8;
  Graph graph;
  std::vector<std::string> found;
  for (int64_t i = 0; i < kSteps; ++i) {
    if (i == warm) graph.capture(step);
    if (i < warm) {
      step();
    } else {
      graph.replay();
    }
    found.push_back(bytes_of(loss));
  }
  for (const Tensor& parameter : model.parameters()) found.push_back(bytes_of(parameter));
  return found;
}

class GraphsOfModels : public Gpu, public ::testing::WithParamInterface<Precision> {
 protected:
  // Expects that replays give the bits of eager steps. `train_model` builds the model anew and
  // returns the results of train().
  static void expect_same(const std::function<std::vector<std::string>(int64_t)>& train_model) {
    const auto eager = train_model(8);
    ASSERT_TRUE(train_model(8) == eager) << "not even two eager runs agree";
    EXPECT_NE(eager[0], eager[7]) << "it learns";
    const auto replayed = train_model(2);
    ASSERT_EQ(replayed.size(), eager.size());
    for (size_t i = 0; i < eager.size(); ++i) EXPECT_TRUE(replayed[i] == eager[i]) << i;
  }
  static void place(nn::Module& model) {
    model.to("cuda", GetParam() == Precision::kBFloat16 ? kBFloat16 : kFloat32);
  }
};

TEST_P(GraphsOfModels, AStepOfGpt2) {
  for (const bool chunked : {true, false}) {
    expect_same([&](int64_t warm) {
      manual_seed(7);
      nn::models::GPT2Config config;
      config.vocab_size = 96;
      config.n_positions = 64;
      config.n_embd = 128;
      config.n_layer = config.n_head = 2;
      config.attn_pdrop = 0;  // the other dropouts stay on
      nn::models::GPT2LMHeadModel model(config);
      place(model);
      const Tensor x = F::randint(96, {2, 64}, kInt64, "cuda");
      const Tensor y = F::randint(96, {2, 64}, kInt64, "cuda");
      return train(
          model, GetParam(), [&] { return model.loss(x, y, {.chunked = chunked}); }, warm);
    });
  }
}

TEST_P(GraphsOfModels, AStepOfAResNet) {
  if (GetParam() == Precision::kBFloat16) GTEST_SKIP() << "statistics are float32";
  expect_same([&](int64_t warm) {
    manual_seed(7);
    nn::models::ResNet model({.layers = {1, 1, 1, 1}, .num_classes = 10, .width = 16});
    place(model);
    const Tensor images = F::randn({4, 32, 32, 3}, kFloat32, "cuda").permute({0, 3, 1, 2});
    const Tensor y = F::randint(10, {4}, kInt64, "cuda");
    return train(
        model, GetParam(), [&] { return F::cross_entropy(model(images), y); }, warm);
  });
}

INSTANTIATE_TEST_SUITE_P(Precisions, GraphsOfModels,
                         ::testing::Values(Precision::kFloat32, Precision::kAutocast,
                                           Precision::kBFloat16),
                         [](const auto& info) {
                           return info.param == Precision::kFloat32    ? "Float32"
                                  : info.param == Precision::kAutocast ? "Autocast"
                                                                       : "BFloat16";
                         });

}  // namespace
}  // namespace mytorch::testing
