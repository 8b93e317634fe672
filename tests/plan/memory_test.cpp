// Formulas for memory, against what the tree's own strategies allocate for a small model.
#include "plan/memory.h"

#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <memory>
#include <set>

#include "mytorch/autograd.h"
#include "mytorch/autograd/checkpoint.h"
#include "mytorch/mytorch.h"
#include "mytorch/nn/models/gpt2.h"
#include "mytorch/nn/models/llama.h"
#include "mytorch/nn/parallel/fully_sharded_data_parallel.h"
#include "mytorch/nn/parallel/mixture_of_experts.h"
#include "mytorch/nn/parallel/pipeline.h"
#include "mytorch/nn/parallel/tensor_parallel.h"
#include "tests/nn/parallel/ranks.h"

namespace mytorch::plan {
namespace {

using distributed::Group;
using nn::ranks::expect;

constexpr int64_t kWidth = 64, kHeads = 4, kHidden = 256, kVocabulary = 96, kSequence = 32;
// float32 throughout, with AdamW.
constexpr Precision kSingle{.parameter = 4, .gradient = 4, .optimizer = 8, .activation = 4};

Model small(int64_t layers) {
  Model m;
  m.name = "small";
  m.layers = layers;
  m.width = kWidth;
  m.heads = m.key_heads = kHeads;
  m.head_width = kWidth / kHeads;
  m.hidden = kHidden;
  m.vocabulary = kVocabulary;
  m.sequence = kSequence;
  m.batch = 8;
  m.biases = true;
  return m;
}

// A layer of the model, of which each rank of `group` has a part.
struct Block : nn::Module {
  nn::LayerNorm norm1{kWidth}, norm2{kWidth};
  nn::ColumnParallelLinear qkv, up;
  nn::RowParallelLinear out, down;
  Group group;
  explicit Block(const Group& g) : group(g) {
    const bool split = g.size() > 1;  // along the sequence, too
    qkv = nn::ColumnParallelLinear(kWidth, 3 * kWidth,
                                   {.sequence_parallel = split, .sequence_dim = 1, .group = g});
    up = nn::ColumnParallelLinear(kWidth, kHidden,
                                  {.sequence_parallel = split, .sequence_dim = 1, .group = g});
    out = nn::RowParallelLinear(kWidth, kWidth,
                                {.sequence_parallel = split, .sequence_dim = 1, .group = g});
    down = nn::RowParallelLinear(kHidden, kWidth,
                                 {.sequence_parallel = split, .sequence_dim = 1, .group = g});
    register_module("norm1", norm1);
    register_module("qkv", qkv);
    register_module("out", out);
    register_module("norm2", norm2);
    register_module("up", up);
    register_module("down", down);
  }
  Tensor forward(const Tensor& x) override {
    const int64_t heads = kHeads / group.size();
    std::vector<Tensor> parts = qkv(norm1(x)).chunk(3, -1);
    for (Tensor& part : parts) part = part.unflatten(-1, {heads, kWidth / kHeads}).transpose(1, 2);
    const Tensor a =
        mytorch::scaled_dot_product_attention(parts[0], parts[1], parts[2], {}, 0, true);
    const Tensor y = x + out(a.transpose(1, 2).flatten(2));
    return y + down(mytorch::gelu(up(norm2(y))));
  }
};

// A group of this rank alone.
Group alone(const Group& g) { return g.split(g.rank()); }

nn::Sequential whole(const Model& m, const Group& one, bool with_ends = true) {
  nn::Sequential net;
  if (with_ends) net.push_back(nn::Embedding(m.vocabulary, m.width));
  for (int64_t i = 0; i < m.layers; ++i) net.push_back(Block(one));
  if (with_ends) net.push_back(nn::LayerNorm(m.width));
  if (with_ends) net.push_back(nn::Linear(m.width, m.vocabulary, /*bias=*/false));
  return net;
}

double bytes_of(const std::vector<Tensor>& tensors) {
  double sum = 0;
  for (const Tensor& t : tensors) {
    sum += static_cast<double>(t.numel()) * static_cast<double>(t.element_size());
  }
  return sum;
}
double bytes_of(const nn::TensorMap& tensors) {
  double sum = 0;
  for (const auto& [name, t] : tensors) {
    // Not the numbers of options and steps.
    if (t.numel() > 1)
      sum += static_cast<double>(t.numel()) * static_cast<double>(t.element_size());
  }
  return sum;
}
double elements_of(const std::vector<Tensor>& tensors) {
  double sum = 0;
  for (const Tensor& t : tensors) sum += static_cast<double>(t.numel());
  return sum;
}

void expect_within(double found, double expected, double share, const std::string& what) {
  expect(std::abs(found - expected) <= share * expected,
         what + ": " + std::to_string(found) + ", expected " + std::to_string(expected));
}

// What forwards save for backward on this thread, without parameters.
struct Saved {
  struct Entry {
    Tensor tensor;
    std::shared_ptr<int64_t> live;
    ~Entry() { --*live; }
  };
  std::shared_ptr<int64_t> live = std::make_shared<int64_t>(0);  // entries
  int64_t most = 0;
  std::map<uint64_t, std::map<const void*, int64_t>> views = {};  // bytes by storage and address
  std::set<uint64_t> parameters = {};
  autograd::SavedTensorHooks hooks;

  explicit Saved(const nn::Module& net)
      : hooks(
            [this](const Tensor& t) -> std::shared_ptr<void> {
              const uint64_t id = t.impl()->storage->abi.id;
              // Views of one storage count by where they begin: queries, keys and values are three
              // views of one projection.
              if (!parameters.contains(id)) views[id].insert_or_assign(t.raw_data(), t.nbytes());
              most = std::max(most, ++*live);
              return std::shared_ptr<Entry>(new Entry{t, live});
            },
            [](const std::shared_ptr<void>& packed) {
              return std::static_pointer_cast<Entry>(packed)->tensor;
            }) {
    for (const Tensor& p : net.parameters()) parameters.insert(p.impl()->storage->abi.id);
  }
  double bytes() const {
    double sum = 0;
    for (const auto& [id, parts] : views) {
      int64_t bytes = 0;
      for (const auto& [address, size] : parts) bytes += size;
      sum += static_cast<double>(bytes);
    }
    return sum;
  }
};

// ---- parameters ----

TEST(PlanParameters, AreThoseOfTheModelsOfTheTree) {
  const std::string folder = MODEL_GOLDENS;
  const auto gpt = nn::models::GPT2LMHeadModel::from_pretrained(folder + "/gpt2");
  EXPECT_EQ(find_model(folder + "/gpt2/config.json").parameters(), gpt.num_parameters());
  const auto llama = nn::models::LlamaForCausalLM::from_pretrained(folder + "/llama");
  EXPECT_EQ(find_model(folder + "/llama/config.json").parameters(), llama.num_parameters());
}

TEST(PlanParameters, AreThosePublished) {
  const std::pair<const char*, double> published[] = {
      {"gpt2", 124.4e6 + 38.6e6},  // an untied head beside
      {"gpt3-175b", 175.8e9},     {"llama2-7b", 6.74e9},      {"llama2-70b", 69.0e9},
      {"llama3-8b", 8.03e9},      {"llama3-70b", 70.6e9},     {"llama3.1-405b", 405.9e9},
      {"mixtral-8x7b", 46.7e9},   {"mixtral-8x22b", 140.6e9}, {"gpt-462b", 462e9}};
  for (const auto& [name, expected] : published) {
    EXPECT_NEAR(find_model(name).parameters() / expected, 1, 0.01) << name;
  }
}

class PlanRanks : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, PlanRanks, ::testing::Values(1, 2, 4));

TEST_P(PlanRanks, OfTensorParallelismHaveThatManyParameters) {
  distributed::run_local(GetParam(), [](const Group& g) {
    const Model m = small(3);
    Layout l;
    l.tensor = g.size();
    double found = 0;
    for (int64_t i = 0; i < m.layers; ++i) found += elements_of(Block(g).parameters());
    found +=
        elements_of(nn::VocabParallelEmbedding(m.vocabulary, m.width, {.group = g}).parameters());
    found += elements_of(
        nn::ColumnParallelLinear(m.width, m.vocabulary, {.bias = false, .group = g}).parameters());
    found += elements_of(nn::LayerNorm(m.width).parameters());
    expect_within(found, parameters_of_rank(m, l, 0).all(), 0, "parameters");
  });
}

TEST_P(PlanRanks, OfPipelinesHaveThatManyParameters) {
  distributed::run_local(GetParam(), [](const Group& g) {
    const Model m = small(4);
    Layout l;
    l.pipeline = g.size();
    nn::Sequential net = whole(m, alone(g));
    nn::Sequential stage = nn::pipeline_stage(net, g.size(), g.rank());
    expect_within(elements_of(stage.parameters()), parameters_of_rank(m, l, g.rank()).all(), 0,
                  "parameters of a stage");
  });
}

TEST_P(PlanRanks, OfExpertsHaveThatManyParameters) {
  distributed::run_local(GetParam(), [](const Group& g) {
    Model m = small(1);
    m.biases = false;
    m.experts = 8;
    m.top_k = 2;
    m.gated = true;
    Layout l;
    l.data = l.expert = g.size();
    nn::MixtureOfExperts experts(kWidth, kHidden, 8, {.gated = true, .group = g});
    expect_within(elements_of({experts.up, experts.down}), parameters_of_rank(m, l, 0).experts, 0,
                  "parameters of experts");
  });
}

// ---- parameters, gradients and optimizer state in memory ----

TEST_P(PlanRanks, HoldTheStateThatZeroLeavesThem) {
  distributed::run_local(GetParam(), [](const Group& g) {
    const Model m = small(4);
    for (const int zero : {0, 3}) {
      nn::Sequential net = whole(m, alone(g));
      std::optional<nn::FullyShardedDataParallel> sharded;
      if (zero == 3) sharded.emplace(net, nn::FullyShardedDataParallelOptions{.group = g});
      nn::optim::AdamW optimizer(net.parameters());
      const Tensor ids = mytorch::zeros({2, kSequence}, kInt64);
      const Tensor y = sharded ? (*sharded)(ids) : net(ids);
      y.pow(2).mean().backward();
      optimizer.step();
      std::vector<Tensor> gradients;
      for (const Tensor& p : net.parameters()) {
        if (p.grad().defined()) gradients.push_back(p.grad());
      }
      Layout l;
      l.data = g.size();
      l.zero = zero;
      l.micro_batch = 2;
      const Memory memory = memory_of(m, l, kSingle, Gpu{});
      // Units are cut into equal shards, whose ends are padded.
      const double slack = zero == 3 ? 0.03 : 0;
      expect_within(bytes_of(net.parameters()), memory.parameters, slack, "parameters");
      expect_within(bytes_of(gradients), memory.gradients, slack, "gradients");
      expect_within(bytes_of(optimizer.state_dict()), memory.optimizer, slack, "optimizer");
    }
  });
}

// ---- activations ----

TEST_P(PlanRanks, KeepTheActivationsOfALayer) {
  distributed::run_local(GetParam(), [](const Group& g) {
    const Model m = small(1);
    Layout l;
    l.tensor = g.size();
    l.micro_batch = 2;
    Block block(g);
    const Tensor x = mytorch::ones({2, kSequence / g.size(), kWidth}).requires_grad_();
    Saved saved(block);
    const Tensor y = block(x);
    // Beside what the formula counts: mean and deviation of rows of norms.
    expect_within(saved.bytes(), layer_activations(m, l, kSingle), 0.05, "activations");
  });
}

TEST(PlanActivations, OfARecomputedLayerAreItsInput) {
  const Model m = small(1);
  Layout l;
  l.micro_batch = 2;
  l.recompute = Recompute::kFull;
  distributed::run_local(1, [&](const Group& g) {
    Block block(g);
    const Tensor x = mytorch::ones({2, kSequence, kWidth}).requires_grad_();
    Saved saved(block);
    const std::vector<Tensor> y = autograd::checkpoint(
        [&](const std::vector<Tensor>& t) { return std::vector<Tensor>{block(t[0])}; }, {x});
    expect_within(saved.bytes(), layer_activations(m, l, kSingle), 0, "activations");
  });
}

TEST_P(PlanRanks, OfPipelinesKeepAsManyMicroBatches) {
  distributed::run_local(GetParam(), [](const Group& g) {
    const Model m = small(4);
    for (const int64_t micro_batches : {2, 8}) {
      Layout l;
      l.pipeline = g.size();
      l.micro_batch = m.batch / micro_batches;
      nn::Sequential net = whole(m, alone(g), /*with_ends=*/false);
      nn::Sequential stage = nn::pipeline_stage(net, g.size(), g.rank());
      nn::Pipeline pipeline(stage, {.group = g, .micro_batches = micro_batches});
      const Tensor x = mytorch::ones({m.batch, kSequence, kWidth});
      int64_t one = 0;
      {
        Saved saved(stage);
        const Tensor y = stage(mytorch::ones({1, kSequence, kWidth}).requires_grad_());
        one = saved.most;
      }
      Saved saved(stage);
      pipeline.step(x, x, [](const Tensor& y, const Tensor&) { return y.mean(); });
      // The first stage's input needs no gradient, and the last one has a loss.
      const double found = static_cast<double>(saved.most) / static_cast<double>(one);
      expect(std::abs(found - micro_batches_in_flight(m, l, g.rank())) < 0.2,
             "micro-batches in flight: " + std::to_string(found) + ", expected " +
                 std::to_string(micro_batches_in_flight(m, l, g.rank())));
    }
  });
}

// Of stages that are interleaved, by the order in which Megatron runs pieces: forwards of as many
// pieces as below, then one forward and one backward in turn.
TEST(PlanActivations, OfInterleavedStages) {
  Model m = small(24);
  m.batch = 24;
  for (const int64_t pipeline : {2, 3, 4}) {
    for (const int64_t interleave : {2, 3}) {
      Layout l;
      l.pipeline = pipeline;
      l.interleave = interleave;
      for (int64_t stage = 0; stage < pipeline; ++stage) {
        const int64_t warm_up = 2 * (pipeline - stage - 1) + (interleave - 1) * pipeline;
        int64_t live = 0, most = 0;
        for (int64_t piece = 0, done = 0; done < m.batch * interleave;) {
          if (piece < m.batch * interleave) most = std::max(most, ++live);
          if (++piece > warm_up) {
            --live;
            ++done;
          }
        }
        EXPECT_NEAR(micro_batches_in_flight(m, l, stage),
                    static_cast<double>(most) / static_cast<double>(interleave), 1e-9)
            << pipeline << " " << interleave << " " << stage;
      }
    }
  }
}

}  // namespace
}  // namespace mytorch::plan
