// The plans of known models: what 1, 2 and 4 ranks compute is what one rank does.
#include <gtest/gtest.h>

#include "mytorch/nn/generate.h"
#include "mytorch/nn/models/bert.h"
#include "mytorch/nn/models/gpt2.h"
#include "mytorch/nn/models/llama.h"
#include "tests/nn/parallel/parallelized.h"

namespace mytorch::nn::parallel_models {
namespace {

using models::BertConfig;
using models::BertModel;
using models::GPT2Config;
using models::GPT2LMHeadModel;
using models::LlamaConfig;
using models::LlamaForCausalLM;
using ranks::expect;
using ranks::ids_of;
using ranks::made;
using ranks::run_alike;
using ranks::train;
using ranks::Trained;

constexpr double kTolerance = 1e-10;
constexpr int64_t kVocabulary = 50;  // which 4 ranks do not divide

GPT2LMHeadModel gpt2(bool tied = true) {
  return made([&] {
    return GPT2LMHeadModel(GPT2Config{.vocab_size = kVocabulary,
                                      .n_positions = 12,
                                      .n_embd = 16,
                                      .n_layer = 2,
                                      .n_head = 4,
                                      .resid_pdrop = 0.1,
                                      .embd_pdrop = 0.2,
                                      .attn_pdrop = 0.3,
                                      .initializer_range = 0.3,
                                      .tie_word_embeddings = tied});
  });
}

LlamaForCausalLM llama(bool tied = false) {
  return made([&] {
    return LlamaForCausalLM(LlamaConfig{.vocab_size = kVocabulary,
                                        .hidden_size = 12,
                                        .intermediate_size = 20,
                                        .num_hidden_layers = 2,
                                        .num_attention_heads = 8,
                                        .num_key_value_heads = 4,
                                        .head_dim = 6,
                                        .initializer_range = 0.3,
                                        .tie_word_embeddings = tied,
                                        .attention_bias = true,
                                        .attention_dropout = 0.2});
  });
}

BertModel bert() {
  return made([] {
    return BertModel(BertConfig{.vocab_size = kVocabulary,
                                .hidden_size = 16,
                                .num_hidden_layers = 2,
                                .num_attention_heads = 4,
                                .intermediate_size = 24,
                                .hidden_dropout_prob = 0.1,
                                .attention_probs_dropout_prob = 0.2,
                                .max_position_embeddings = 12,
                                .initializer_range = 0.3,
                                .pad_token_id = 1});
  });
}

template <class Model>
std::function<Tensor(Model&, int64_t)> language_loss(bool chunked) {
  return [chunked](Model& model, int64_t step) {
    const Tensor ids = ids_of({3, 8}, kVocabulary, step);
    const Tensor targets = ids_of({3, 8}, kVocabulary, step + 9);
    targets.select(1, 2).fill_(-100);  // which do not count
    return model.loss(ids, targets, {.chunked = chunked});
  };
}

template <class Model>
void expect_trains_alike(Model one, int ranks, const ParallelPlan& plan,
                         const std::function<Model()>& make,
                         const std::function<Tensor(Model&, int64_t)>& loss,
                         const ParallelizeArgs& options = {}) {
  const int64_t numel = one.num_parameters();
  const Trained expected = train<Model>(one, loss);
  run_alike(ranks, [&](const distributed::Group& g) {
    Model model = make();
    parallelize(model, plan, g, options);
    expect(g.size() == 1 || model.num_parameters() < numel, "a rank has all parameters");
    ranks::expect_same(train<Model>(model, loss), expected, kTolerance);
  });
}

class ParallelModels : public ::testing::TestWithParam<int> {};

TEST_P(ParallelModels, TrainGPT2) {
  for (const bool tied : {true, false}) {
    for (const bool chunked : {true, false}) {
      expect_trains_alike<GPT2LMHeadModel>(
          gpt2(tied), GetParam(), gpt2_plan(), [&] { return gpt2(tied); },
          language_loss<GPT2LMHeadModel>(chunked));
    }
  }
}

TEST_P(ParallelModels, TrainLlama) {
  for (const bool tied : {true, false}) {
    expect_trains_alike<LlamaForCausalLM>(
        llama(tied), GetParam(), llama_plan(), [&] { return llama(tied); },
        language_loss<LlamaForCausalLM>(tied));
  }
}

TEST_P(ParallelModels, TrainBert) {
  expect_trains_alike<BertModel>(bert(), GetParam(), bert_plan(), bert, [](auto& model, auto step) {
    const Tensor mask = mytorch::ones({3, 8}, kInt64);
    mask.select(0, 1).narrow(0, 4, 3).fill_(0);
    const models::BertOutput y = model(ids_of({3, 8}, kVocabulary, step), {.attention_mask = mask});
    const Tensor weights = ranks::wave64({3, 8, 16}, static_cast<double>(step));
    return (y.last_hidden_state * weights).mean() + y.pooler_output.pow(2).mean();
  });
}

// What lies between the split layers is split along the sequence.
TEST_P(ParallelModels, SplitSequences) {
  const ParallelizeArgs sequences{.sequence_dim = -2};
  for (const bool chunked : {true, false}) {
    expect_trains_alike<GPT2LMHeadModel>(
        gpt2(chunked), GetParam(), gpt2_plan(), [&] { return gpt2(chunked); },
        language_loss<GPT2LMHeadModel>(chunked), sequences);
    expect_trains_alike<LlamaForCausalLM>(
        llama(chunked), GetParam(), llama_plan(), [&] { return llama(chunked); },
        language_loss<LlamaForCausalLM>(chunked), sequences);
  }
}

TEST(ParallelSequences, HaveTheirPartsAndNoCache) {
  run_alike(2, [](const distributed::Group& g) {
    GPT2LMHeadModel model = gpt2();
    model.eval();
    parallelize(model, gpt2_plan(), g, {.sequence_dim = -2});
    const NoGradGuard no_grad;
    expect(model.transformer(ids_of({3, 8}, kVocabulary, 0)).sizes() == IntList({3, 4, 16}),
           "features of whole sequences");
    ranks::expect_error([&] { model(ids_of({3, 7}, kVocabulary, 0)); }, "cannot be split over 2");
    KVCache cache(2, 1, 12);
    ranks::expect_error(
        [&] {
          generate(model, {{1, 2, 3, 4}}, cache, {.max_new_tokens = 2});
        },
        "without sequence_dim");
  });
}

// A table that the model reads directly, too.
TEST_P(ParallelModels, SplitPositions) {
  ParallelPlan plan = gpt2_plan();
  plan.push_back({"**.wpe", ParallelStyle::kVocabulary});
  expect_trains_alike<GPT2LMHeadModel>(
      gpt2(), GetParam(), plan, [&] { return gpt2(); }, language_loss<GPT2LMHeadModel>(false));
  plan = bert_plan();
  plan.push_back({"embeddings.position_embeddings", ParallelStyle::kVocabulary});
  plan.push_back({"embeddings.token_type_embeddings", ParallelStyle::kVocabulary});
  expect_trains_alike<BertModel>(bert(), GetParam(), plan, bert, [](auto& model, auto step) {
    return model(ids_of({3, 8}, kVocabulary, step), {}).last_hidden_state.pow(2).mean() +
           model(ids_of({3, 8}, kVocabulary, step), {}).pooler_output.sum();
  });
}

template <class Model>
TokenLists tokens_of(Model& model, double temperature, int64_t block_size) {
  const GeneratorGuard guard{Generator(5)};
  model.eval();
  KVCache cache(2, 2, 12, {.block_size = block_size});
  return generate(model, {{5, 8, 2}, {7}}, cache,
                  {.max_new_tokens = 8, .temperature = temperature});
}

// Each rank caches its own heads.
TEST_P(ParallelModels, Generate) {
  for (const int64_t block_size : {0, 4}) {
    for (const double temperature : {0.0, 1.0}) {
      GPT2LMHeadModel one = gpt2();
      LlamaForCausalLM other = llama();
      const TokenLists expected = tokens_of(one, temperature, block_size);
      const TokenLists others = tokens_of(other, temperature, block_size);
      run_alike(GetParam(), [&](const distributed::Group& g) {
        GPT2LMHeadModel model = gpt2();
        parallelize(model, gpt2_plan(), g);
        expect(tokens_of(model, temperature, block_size) == expected, "GPT-2's tokens differ");
        LlamaForCausalLM second = llama();
        parallelize(second, llama_plan(), g);
        expect(tokens_of(second, temperature, block_size) == others, "Llama's tokens differ");
      });
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, ParallelModels, ::testing::Values(1, 2, 4));

TEST(ParallelPlans, FitTheBodies) {
  run_alike(2, [](const distributed::Group& g) {
    GPT2LMHeadModel whole = gpt2(), split = gpt2();
    whole.eval();
    split.eval();
    const std::string text = parallelize(split.transformer, gpt2_plan(), g);
    expect(text.find("h.1.attn (GPT2Attention) kHeads: c_attn.weight (48, 16) -> (24, 16)") !=
               std::string::npos,
           text);
    const Tensor ids = ids_of({2, 5}, kVocabulary, 0);
    ranks::expect_close(split.transformer(ids), whole.transformer(ids), kTolerance, "features");
    ranks::expect_error([&] { split.transformer.save_pretrained("/nowhere"); }, "split over ranks");
  });
}

TEST(ParallelPlans, HeadsThatRanksDoNotDivide) {
  run_alike(3, [](const distributed::Group& g) {
    GPT2LMHeadModel model = gpt2();
    ranks::expect_error([&] { parallelize(model, gpt2_plan(), g); },
                        "'transformer.h.0.attn' (GPT2Attention) has 4 heads of 'c_attn'");
    expect(model.lm_head.weight.size(0) == kVocabulary, "the model has changed");
    ranks::expect_error(
        [&] {
          parallelize(model, {{"**.attn", ParallelStyle::kRow}}, g);
        },
        "kRow, which is for Linear");
  });
  run_alike(8, [](const distributed::Group& g) {
    LlamaForCausalLM model = llama();
    ranks::expect_error([&] { parallelize(model, llama_plan(), g); }, "4 heads of 'k_proj'");
  });
}

// One parameter of two modules.
TEST(ParallelPlans, TiedWeightsAreSplitAlike) {
  run_alike(2, [](const distributed::Group& g) {
    GPT2LMHeadModel model = gpt2();
    ranks::expect_error(
        [&] {
          parallelize(model, {{"**.wte", ParallelStyle::kVocabulary}}, g);
        },
        "'transformer.wte.weight' and 'lm_head.weight' are one parameter");
    parallelize(model, gpt2_plan(), g);
    expect(model.lm_head.weight.is_same(model.transformer.wte.weight), "no longer tied");
  });
}

}  // namespace
}  // namespace mytorch::nn::parallel_models
