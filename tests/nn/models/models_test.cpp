// GPT-2, Llama, DeepSeek-V3 and BERT against transformers: scripts/make-model-goldens writes the
// tiny random models, their outputs and gradients.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "mytorch/autograd.h"
#include "mytorch/grad_mode.h"
#include "mytorch/nn/generate.h"
#include "mytorch/nn/models/bert.h"
#include "mytorch/nn/models/deepseek.h"
#include "mytorch/nn/models/gpt2.h"
#include "mytorch/nn/models/llama.h"
#include "mytorch/nn/serialize.h"
#include "mytorch/ops/add.h"
#include "mytorch/ops/layer_norm.h"
#include "mytorch/ops/mul.h"
#include "mytorch/ops/randn.h"
#include "mytorch/ops/stack.h"
#include "mytorch/ops/sum.h"
#include "mytorch/ops/unsqueeze.h"
#include "mytorch/ops/zeros.h"
#include "mytorch/profiler.h"
#include "tests/nn/data/expect_error.h"
#include "tests/nn/data/temp_directory.h"
#include "tests/nn/values.h"

namespace mytorch::nn::models {
namespace {

using mytorch::testing::expect_error;
using mytorch::testing::expect_values;
using mytorch::testing::read_file;
using mytorch::testing::TempDirectory;
using mytorch::testing::values;
using mytorch::testing::write_file;

std::string golden(const std::string& name) { return std::string(MODEL_GOLDENS) + "/" + name; }

TensorMap expected(const std::string& name) {
  return load_safetensors(golden(name) + "/expected.safetensors");
}

// Compares the gradient of each parameter.
void expect_gradients(const Module& model, const TensorMap& expected,
                      const std::vector<std::string>& transposed = {}) {
  size_t compared = 0;
  for (const auto& [name, parameter] : model.named_parameters()) {
    SCOPED_TRACE(name);
    const auto found = expected.find("grad." + name);
    ASSERT_NE(found, expected.end());
    if (!parameter.grad().defined()) {  // of an expert without tokens
      EXPECT_EQ(sum(mul(found->second, found->second)).item<double>(), 0);
      continue;
    }
    const bool turned = std::any_of(
        transposed.begin(), transposed.end(),
        [&key = name](const auto& end) { return key.size() > end.size() && key.ends_with(end); });
    expect_values(turned ? parameter.grad().t() : parameter.grad(), values(found->second), 1e-5);
    ++compared;
  }
  EXPECT_GT(compared, 20u);
}

template <class Model>
void expect_language_model(const std::string& name, const std::vector<std::string>& transposed) {
  const TensorMap golden_values = expected(name);
  auto model = Model::from_pretrained(golden(name));
  EXPECT_FALSE(model.training());
  expect_values(model(golden_values.at("input_ids")), values(golden_values.at("logits")), 1e-5);
  const Tensor loss = model.loss(golden_values.at("input_ids"), golden_values.at("targets"));
  expect_values(loss, values(golden_values.at("loss")), 1e-5);
  loss.backward();
  expect_gradients(model, golden_values, transposed);
  // The chunked loss equals it, with its gradients.
  model.zero_grad();
  const Tensor chunked =
      model.loss(golden_values.at("input_ids"), golden_values.at("targets"), {.chunked = true});
  expect_values(chunked, values(golden_values.at("loss")), 1e-5);
  chunked.backward();
  expect_gradients(model, golden_values, transposed);
  expect_error(ErrorCode::kShape, {"targets", "expected that of input_ids"}, [&] {
    model.loss(golden_values.at("input_ids"), golden_values.at("targets").narrow(1, 0, 1),
               {.chunked = true});
  });
  // Greedy continuation with a cache equals that of transformers.
  const int64_t count = golden_values.at("input_ids").size(1);
  std::vector<int64_t> prompt;
  for (const double id : values(golden_values.at("input_ids").narrow(0, 0, 1))) {
    prompt.push_back(static_cast<int64_t>(id));
  }
  KVCache cache(2, 1, count + 6);
  const TokenLists made = generate(model, {prompt}, cache, {.max_new_tokens = 6});
  const Tensor generated = golden_values.at("generated");
  EXPECT_EQ(std::vector<double>(made[0].begin(), made[0].end()), values(generated));
}

// Compares the logits of sequences of unequal lengths, token by token and in pieces, with those
// without a cache.
template <class Model>
void expect_cached_logits(const std::string& name) {
  const NoGradGuard no_grad;
  auto model = Model::from_pretrained(golden(name));
  const Tensor ids = expected(name).at("input_ids");
  const Tensor full = model(ids);
  KVCache cache(2, 2, 16);
  cache.set_counts({2, 3});
  const Tensor first = model(ids.narrow(1, 0, 3), &cache);
  ASSERT_TRUE(first.sizes() == IntList({2, 1, 24}));
  expect_values(first.select(0, 0), values(full.select(0, 0).narrow(0, 1, 1)), 1e-5);
  expect_values(first.select(0, 1), values(full.select(0, 1).narrow(0, 2, 1)), 1e-5);
  for (int64_t step = 0; step < 3; ++step) {
    const Tensor next =
        stack({ids.select(0, 0).narrow(0, 2 + step, 1), ids.select(0, 1).narrow(0, 3 + step, 1)});
    const Tensor logits = model(next, &cache);
    expect_values(logits.select(0, 0), values(full.select(0, 0).narrow(0, 2 + step, 1)), 1e-5);
    expect_values(logits.select(0, 1), values(full.select(0, 1).narrow(0, 3 + step, 1)), 1e-5);
  }
}

TEST(GPT2, CachedLogitsEqualFullOnes) { expect_cached_logits<GPT2LMHeadModel>("gpt2"); }
TEST(Llama, CachedLogitsEqualFullOnes) { expect_cached_logits<LlamaForCausalLM>("llama"); }

TEST(Deepseek, CachedLogitsEqualFullOnes) {
  expect_cached_logits<DeepseekV3ForCausalLM>("deepseek");
  expect_cached_logits<DeepseekV3ForCausalLM>("deepseek_plain");
}

TEST(Deepseek, CompressedQueriesGroupsAndYarnEqualTransformers) {
  expect_language_model<DeepseekV3ForCausalLM>("deepseek", {});
}

TEST(Deepseek, PlainQueriesBiasesAndTiesEqualTransformers) {
  expect_language_model<DeepseekV3ForCausalLM>("deepseek_plain", {});
}

TEST(Deepseek, SavedModelsAreReadAgain) {
  const NoGradGuard no_grad;
  const Tensor ids = expected("deepseek").at("input_ids");
  auto model = DeepseekV3ForCausalLM::from_pretrained(golden("deepseek"));
  expect_error(ErrorCode::kShape, {"balance", "after a forward"},
               [&] { model.model.balance_experts(); });
  const Tensor logits = model(ids);
  model.model.balance_experts(10);  // other experts
  const Tensor other = model(ids);
  EXPECT_GT(sum(mul(other - logits, other - logits)).item<double>(), 1e-3);
  const TempDirectory folder;
  model.save_pretrained(folder.path());
  auto copy = DeepseekV3ForCausalLM::from_pretrained(folder.path());
  expect_values(copy(ids), values(other), 0);
}

TEST(Deepseek, PretrainedBiasesOfExpertsAreFloat32InModelsOf16Bits) {
  auto model = DeepseekV3ForCausalLM::from_pretrained(golden("deepseek"), {.dtype = kBFloat16});
  auto& gate = model.model.layers.at<DeepseekV3DecoderLayer>(1).moe.gate;
  EXPECT_EQ(gate.weight.dtype(), kBFloat16);
  const TensorMap files = load_safetensors(golden("deepseek") + "/model.safetensors");
  const Tensor bias = files.at("model.layers.1.mlp.gate.e_score_correction_bias");
  expect_values(gate.e_score_correction_bias, values(bias), 0);
  EXPECT_EQ(model(expected("deepseek").at("input_ids")).dtype(), kBFloat16);
  EXPECT_EQ(model.model.layers.at<DeepseekV3DecoderLayer>(1).moe(zeros({0, 12}, kBFloat16)).numel(),
            0);
}

// A cache of one head of latents, whose values are a part of the keys.
TEST(Deepseek, CachesHoldOneVectorForEachToken) {
  const NoGradGuard no_grad;
  auto model = DeepseekV3ForCausalLM::from_pretrained(golden("deepseek"));
  const Tensor ids = expected("deepseek").at("input_ids");
  for (const int64_t block_size : {0, 4}) {
    KVCache cache(2, 2, 16, {.block_size = block_size});
    model(ids.narrow(1, 0, 5), &cache);
    const Tensor full = model(ids);
    expect_values(model(ids.narrow(1, 5, 2), &cache).squeeze(1), values(full.select(1, 6)), 1e-5);
    cache.truncate({5, 5});
    cache.reorder({1, 1});
    expect_values(model(ids.narrow(1, 5, 2).select(0, 1).expand({2, 2}), &cache).select(0, 1),
                  values(full.select(0, 1).narrow(0, 6, 1)), 1e-5);
  }
}

// Training with the balance gives each expert tokens.
TEST(Deepseek, ExpertsAreBalancedWithoutALossOfTheirOwn) {
  DeepseekV3MoE experts({.hidden_size = 8,
                         .moe_intermediate_size = 4,
                         .n_shared_experts = 0,
                         .n_routed_experts = 8,
                         .num_experts_per_tok = 2,
                         .n_group = 1,
                         .topk_group = 1,
                         .initializer_range = 1});
  manual_seed(3);
  const Tensor x = randn({256, 8});
  experts.gate.e_score_correction_bias.narrow(0, 0, 1).fill_(1);
  const auto most = [&] {
    const std::vector<int64_t>& tokens = experts.tokens_of_experts();
    EXPECT_EQ(std::accumulate(tokens.begin(), tokens.end(), int64_t{0}), 512);
    return *std::max_element(tokens.begin(), tokens.end());
  };
  experts(x);
  const int64_t before = most();
  for (int step = 0; step < 200; ++step) {
    experts(x);
    experts.balance(0.01, experts.tokens_of_experts());
  }
  EXPECT_EQ(before, 256);
  EXPECT_LT(most(), 80);  // 64 are the mean
  EXPECT_FALSE(experts.gate.e_score_correction_bias.requires_grad());
}

TEST(Deepseek, ConfigurationsThatDoNotFitAreErrors) {
  const DeepseekV3Config small = DeepseekV3Config::read(golden("deepseek"));
  DeepseekV3Config config = small;
  config.n_group = 3;
  expect_error(ErrorCode::kValue, {"n_group 3", "n_routed_experts 4"},
               [&] { DeepseekV3Model model(config); });
  config = small;
  config.num_experts_per_tok = 3;
  expect_error(ErrorCode::kValue, {"num_experts_per_tok is 3", "2 of 4 experts"},
               [&] { DeepseekV3Model model(config); });
  const TempDirectory folder;
  write_file(folder.path() + "/config.json", small.json());
  const DeepseekV3Config again = DeepseekV3Config::read(folder.path());
  EXPECT_EQ(again.json(), small.json());
  EXPECT_EQ(again.rope_scaling.mscale_all_dim, 1.2);
}

TEST(Llama, ShardsLogitsLossAndGradientsEqualTransformers) {
  expect_language_model<LlamaForCausalLM>("llama", {});
}

TEST(Llama, ScaledFrequenciesBiasesAndTiesEqualTransformers) {
  expect_language_model<LlamaForCausalLM>("llama3", {});
}

TEST(GPT2, HooksOfANormSeeTheResidualSum) {
  auto model = GPT2LMHeadModel::from_pretrained(golden("gpt2"));
  const Tensor ids = expected("gpt2").at("input_ids");
  const Tensor before = model(ids);
  Tensor sum, normed;
  LayerNorm* norm = model.named_modules()["transformer.h.0.ln_2"]->as<LayerNorm>();
  ASSERT_NE(norm, nullptr);
  norm->register_forward_hook([&](Module&, const Tensor& input, const Tensor& output) {
    sum = input;
    normed = output;
  });
  expect_values(model(ids), values(before), 1e-6);
  ASSERT_TRUE(sum.defined());
  expect_values(
      layer_norm(sum, {sum.size(-1)}, norm->weight, norm->bias, model.config().layer_norm_epsilon),
      values(normed), 1e-6);
}

TEST(GPT2, HooksOfABlockSeeTheResidualSum) {
  auto model = GPT2LMHeadModel::from_pretrained(golden("gpt2"));
  const Tensor ids = expected("gpt2").at("input_ids");
  const Tensor before = model(ids);
  Tensor in, out;
  auto& block = model.transformer.h.at<GPT2Block>(1);
  HookHandle hook =
      block.register_forward_hook([&](Module&, const Tensor& input, const Tensor& output) {
        in = input;
        out = output;
      });
  expect_values(model(ids), values(before), 1e-6);
  hook.remove();
  ASSERT_TRUE(in.defined() && out.defined());
  expect_values(block(in), values(out), 1e-6);
  // The second block is the last.
  expect_values(model.lm_head(model.transformer.ln_f(out)), values(before), 1e-6);
}

// Queries, keys and values are slices of one tensor, and so are their gradients.
TEST(GPT2, TheGradientOfAttentionIsJoinedWithoutCopies) {
  auto model = GPT2LMHeadModel::from_pretrained(golden("gpt2"));
  const TensorMap golden_values = expected("gpt2");
  const Tensor loss = model.loss(golden_values.at("input_ids"), golden_values.at("targets"));
  profiler::Profile profile;
  loss.backward();
  int found = 0;
  for (const profiler::KernelTime& time : profile.times()) {
    EXPECT_NE(time.op, "cat");
    found += time.op == "attention_backward" ? static_cast<int>(time.calls) : 0;
  }
  EXPECT_EQ(found, 2);
  // With a recorded gradient they are joined by an operator that has one.
  const Tensor again = model.loss(golden_values.at("input_ids"), golden_values.at("targets"));
  const std::vector<Tensor> weights{model.transformer.h.at<GPT2Block>(0).attn.c_attn.weight};
  const Tensor grad = autograd::grad({again}, weights, {}, std::nullopt, /*create_graph=*/true)[0];
  expect_values(grad, values(weights[0].grad()), 1e-6);
  EXPECT_TRUE(grad.requires_grad());
}

TEST(GPT2, ACacheCountsPositions) {
  const NoGradGuard no_grad;
  auto model = GPT2LMHeadModel::from_pretrained(golden("gpt2"));
  KVCache cache(2, 1, 100);
  model(zeros({1, 10}, kInt64), &cache);
  expect_error(ErrorCode::kShape, {"17 tokens", "n_positions is 16"}, [&] {
    model(zeros({1, 7}, kInt64), &cache);
  });
  model(zeros({1, 6}, kInt64), &cache);
}

TEST(GPT2, LogitsLossAndGradientsEqualTransformers) {
  expect_language_model<GPT2LMHeadModel>("gpt2",
                                         {".c_attn.weight", ".c_proj.weight", ".c_fc.weight"});
}

TEST(Bert, OutputsAndGradientsEqualTransformers) {
  const TensorMap golden_values = expected("bert");
  auto model = BertModel::from_pretrained(golden("bert"));
  const Tensor mask = golden_values.at("attention_mask");
  const auto [hidden, pooled] = model(
      golden_values.at("input_ids"),
      BertInputs{.attention_mask = mask, .token_type_ids = golden_values.at("token_type_ids")});
  const Tensor kept = mul(hidden, unsqueeze(mask, 2).to(kFloat32));
  expect_values(kept, values(golden_values.at("hidden")), 1e-5);
  expect_values(pooled, values(golden_values.at("pooler_output")), 1e-5);
  add(sum(mul(kept, kept)), sum(pooled)).backward();
  expect_gradients(model, golden_values);
}

TEST(Bert, ABoolMaskEqualsAnIntegerMask) {
  const TensorMap golden_values = expected("bert");
  auto model = BertModel::from_pretrained(golden("bert"));
  const Tensor ids = golden_values.at("input_ids"), mask = golden_values.at("attention_mask");
  const Tensor with_ints = model(ids, BertInputs{.attention_mask = mask}).pooler_output;
  const Tensor with_bools = model(ids, BertInputs{.attention_mask = mask.to(kBool)}).pooler_output;
  expect_values(with_ints, values(with_bools), 0);
  EXPECT_GT(sum(add(with_ints, model(ids).pooler_output, -1).abs()).item<double>(), 1e-4);
}

TEST(Bert, MeanPoolingLeavesOutPadding) {
  const Tensor hidden = mytorch::testing::filled({2, 2, 2}, {1, 2, 3, 4, 5, 6, 100, 200});
  const Tensor mask = tensor(std::vector<int64_t>{1, 1, 1, 0}).view({2, 2});
  expect_values(mean_pooling(hidden, mask), {2, 3, 5, 6});
  expect_values(mean_pooling(hidden.to(kBFloat16), mask), {2, 3, 5, 6});
  expect_error(ErrorCode::kShape, {"[mean_pooling]", "(2, 1)"},
               [&] { mean_pooling(hidden, mask.narrow(1, 0, 1)); });
}

// ---- files ----

TEST(SavePretrained, WritesWhatItLoads) {
  TempDirectory folder;
  GPT2LMHeadModel::from_pretrained(golden("gpt2")).save_pretrained(folder.path());
  const TensorMap saved = load_safetensors(folder.file("model.safetensors"));
  const TensorMap original = load_safetensors(golden("gpt2") + "/model.safetensors");
  ASSERT_EQ(saved.size(), original.size());
  for (const auto& [name, tensor] : original) {
    SCOPED_TRACE(name);
    ASSERT_TRUE(saved.at(name).sizes() == tensor.sizes());
    expect_values(saved.at(name), values(tensor), 0);
  }
  EXPECT_EQ(SafetensorsFile(folder.file("model.safetensors")).metadata().at("format"), "pt");
}

TEST(SavePretrained, ShardsAreLoadedByTheirIndex) {
  TempDirectory folder;
  auto model = GPT2LMHeadModel::from_pretrained(golden("gpt2"));
  const TensorMap golden_values = expected("gpt2");
  model.save_pretrained(folder.path());
  model.save_pretrained(folder.path(), 3000);
  EXPECT_GT(folder.names().size(), 5u);
  for (const std::string& name : folder.names()) EXPECT_NE(name, "model.safetensors");
  auto again = GPT2LMHeadModel::from_pretrained(folder.path());
  expect_values(again(golden_values.at("input_ids")), values(golden_values.at("logits")), 1e-5);
  auto by_index = GPT2LMHeadModel(GPT2Config::read(folder.path()));
  by_index.load_pretrained(folder.file("model.safetensors.index.json"));
  // Then one file, which replaces the shards.
  model.save_pretrained(folder.path());
  EXPECT_EQ(folder.names().size(), 2u);
}

TEST(LoadPretrained, ABodyAndAModelWithAHeadReadEachOthersFiles) {
  TempDirectory folder;
  const Tensor ids = expected("gpt2").at("input_ids");
  auto body = GPT2Model::from_pretrained(golden("gpt2"));
  body.save_pretrained(folder.path());  // without the prefix, as the file of "gpt2"
  EXPECT_TRUE(SafetensorsFile(folder.file("model.safetensors")).contains("h.0.attn.c_attn.weight"));
  auto model = GPT2LMHeadModel::from_pretrained(folder.path());
  expect_values(model(ids), values(expected("gpt2").at("logits")), 1e-5);
  expect_values(model.transformer(ids), values(body(ids)), 0);
}

TEST(LoadPretrained, ATiedWeightMayHaveTheNameOfTheHead) {
  TempDirectory folder;
  TensorMap tensors = load_safetensors(golden("gpt2") + "/model.safetensors");
  tensors["lm_head.weight"] = tensors.at("transformer.wte.weight");
  save_safetensors(folder.file("both.safetensors"), tensors);
  tensors.erase("transformer.wte.weight");
  save_safetensors(folder.file("head.safetensors"), tensors);
  const TensorMap golden_values = expected("gpt2");
  for (const char* file : {"both.safetensors", "head.safetensors"}) {
    GPT2LMHeadModel model(GPT2Config::read(golden("gpt2")));
    model.eval();
    model.load_pretrained(folder.file(file));
    expect_values(model(golden_values.at("input_ids")), values(golden_values.at("logits")), 1e-5);
  }
}

TEST(LoadPretrained, ConvertsTypes) {
  TempDirectory folder;
  TensorMap tensors = load_safetensors(golden("gpt2") + "/model.safetensors");
  for (auto& [name, tensor] : tensors) tensor = tensor.to(kBFloat16);
  save_safetensors(folder.file("model.safetensors"), tensors);
  write_file(folder.file("config.json"), read_file(golden("gpt2") + "/config.json"));
  auto model = GPT2LMHeadModel::from_pretrained(folder.path());
  EXPECT_EQ(model.lm_head.weight.dtype(), kFloat32);
  expect_values(model.lm_head.weight, values(tensors.at("transformer.wte.weight")), 0);
  auto half = GPT2LMHeadModel::from_pretrained(folder.path(), {.dtype = kFloat16});
  EXPECT_EQ(half.transformer.wpe.weight.dtype(), kFloat16);
  // The tie survives the conversion.
  EXPECT_EQ(half.lm_head.weight.raw_data(), half.transformer.wte.weight.raw_data());
}

TEST(LoadPretrained, MissingAndUnexpectedNamesAreListedAndNothingChanges) {
  TempDirectory folder;
  TensorMap tensors = load_safetensors(golden("gpt2") + "/model.safetensors");
  const Tensor moved = tensors.at("transformer.h.1.ln_2.bias");
  tensors.erase("transformer.h.1.ln_2.bias");
  tensors["transformer.h.1.ln_3.bias"] = moved;
  tensors["transformer.h.0.attn.bias"] = moved;  // a mask, as in files of early versions
  const std::string file = folder.file("model.safetensors");
  save_safetensors(file, tensors);
  GPT2LMHeadModel model(GPT2Config::read(golden("gpt2")));
  const std::vector<double> before = values(model.lm_head.weight);
  expect_error(ErrorCode::kValue,
               {file, "missing 'transformer.h.1.ln_2.bias'",
                "unexpected 'transformer.h.1.ln_3.bias'", "strict = false"},
               [&] { model.load_pretrained(file); });
  expect_values(model.lm_head.weight, before, 0);
  const LoadReport report = model.load_pretrained(file, false);
  EXPECT_EQ(report.missing, std::vector<std::string>{"transformer.h.1.ln_2.bias"});
  EXPECT_EQ(report.unexpected, std::vector<std::string>{"transformer.h.1.ln_3.bias"});
}

TEST(LoadPretrained, OtherShapesAndTypesAreNamed) {
  TempDirectory folder;
  GPT2Config config = GPT2Config::read(golden("gpt2"));
  config.n_positions = 17;
  GPT2LMHeadModel model(config);
  expect_error(ErrorCode::kShape, {"'transformer.wpe.weight' has shape (16, 8)", "(17, 8)"},
               [&] { model.load_pretrained(golden("gpt2")); });
  TensorMap tensors = load_safetensors(golden("gpt2") + "/model.safetensors");
  tensors["transformer.wpe.weight"] = tensors.at("transformer.wpe.weight").to(kInt8);
  save_safetensors(folder.file("q.safetensors"), tensors);
  expect_error(ErrorCode::kValue, {"'transformer.wpe.weight'", "int8", "quantized"},
               [&] { model.load_pretrained(folder.file("q.safetensors")); });
}

TEST(LoadPretrained, FoldersWithoutWeightsAndFalseIndicesAreRefused) {
  TempDirectory folder;
  GPT2LMHeadModel model(GPT2Config::read(golden("gpt2")));
  expect_error(ErrorCode::kIo, {folder.path(), "model.safetensors.index.json"},
               [&] { model.load_pretrained(folder.path()); });
  write_file(folder.file("pytorch_model.bin"), "x");
  expect_error(ErrorCode::kIo, {"pickle", "save_pretrained"},
               [&] { model.load_pretrained(folder.path()); });
  const std::string index = folder.file("model.safetensors.index.json");
  write_file(index, R"({"weight_map": {"a": "../x.safetensors"}})");
  expect_error(ErrorCode::kValue, {"../x.safetensors", "not in its folder"},
               [&] { model.load_pretrained(folder.path()); });
  write_file(index, R"({"weight_map": {"a": "x.safetensors"}})");
  save_safetensors(folder.file("x.safetensors"), {{"b", tensor({1.0})}});
  expect_error(ErrorCode::kIo, {"x.safetensors lacks tensor 'a'"},
               [&] { model.load_pretrained(index); });
  write_file(index, "{}");
  expect_error(ErrorCode::kValue, {"has no weight_map"}, [&] { model.load_pretrained(index); });
}

// ---- configurations ----

TEST(Config, WritesWhatItReads) {
  GPT2Config config;
  config.n_inner = 7;
  config.layer_norm_epsilon = 0.1;
  TempDirectory folder;
  write_file(folder.file("config.json"), config.json());
  const GPT2Config again = GPT2Config::read(folder.path());
  EXPECT_EQ(again.n_inner, 7);
  EXPECT_EQ(again.layer_norm_epsilon, 0.1);
  EXPECT_EQ(again.json(), config.json());
}

TEST(Config, LlamaReadsBothSpellingsOfRope) {
  TempDirectory folder;
  const std::string file = folder.file("config.json");
  const LlamaConfig newer = LlamaConfig::read(golden("llama3"));
  EXPECT_EQ(newer.rope_theta, 500);
  EXPECT_EQ(newer.rope_scaling.type, RotaryScalingType::kLlama3);
  EXPECT_EQ(newer.rope_scaling.factor, 8);
  EXPECT_TRUE(newer.mlp_bias);
  write_file(file, newer.json());  // the older spelling
  EXPECT_NE(newer.json().find("rope_scaling"), std::string::npos);
  const LlamaConfig older = LlamaConfig::read(file);
  EXPECT_EQ(older.json(), newer.json());
  EXPECT_EQ(older.rope_scaling.original_max_position_embeddings, 8);
  write_file(file, R"({"model_type": "llama", "rope_scaling": {"type": "su", "factor": 2}})");
  expect_error(ErrorCode::kValue, {"type is \"su\"", "yarn"}, [&] { LlamaConfig::read(file); });
}

TEST(Config, ErrorsNameFileFieldAndValue) {
  TempDirectory folder;
  const std::string file = folder.file("config.json");
  const auto expect = [&](const std::string& text, std::initializer_list<std::string> parts) {
    write_file(file, text);
    expect_error(ErrorCode::kValue, parts, [&] { GPT2Config::read(file); });
  };
  expect_error(ErrorCode::kIo, {"config.json"}, [&] { GPT2Config::read(folder.path()); });
  expect("[1]", {file, "not a JSON object"});
  expect("{\"n_head\"", {file, "not a JSON object"});
  expect(std::string(100000, '['), {file, "not a JSON object"});
  expect(R"({"model_type": "llama"})", {file, "model_type is \"llama\"", "\"gpt2\""});
  expect(R"({"model_type": "gpt2", "n_head": "two"})", {"n_head is \"two\"", "whole number"});
  expect(R"({"model_type": "gpt2", "n_head": 2.5})", {"n_head is 2.5", "whole number"});
  expect(R"({"model_type": "gpt2", "n_head": 18446744073709551615})", {"whole number"});
  expect(R"({"model_type": "gpt2", "resid_pdrop": true})", {"resid_pdrop is true, not a number"});
  expect(R"({"model_type": "gpt2", "scale_attn_by_inverse_layer_idx": true})",
         {"scale_attn_by_inverse_layer_idx is true", "not supported"});
}

TEST(Config, BertTakesAbsolutePositionsAlone) {
  TempDirectory folder;
  const std::string file = folder.file("config.json");
  write_file(file, R"({"model_type": "bert", "position_embedding_type": "absolute"})");
  EXPECT_EQ(BertConfig::read(file).hidden_size, 768);
  write_file(file, R"({"model_type": "bert", "position_embedding_type": "relative_key"})");
  expect_error(ErrorCode::kValue, {"position_embedding_type is \"relative_key\"", "\"absolute\""},
               [&] { BertConfig::read(file); });
}

TEST(Config, SizesThatDoNotFitAreRefused) {
  GPT2Config config{.vocab_size = 5, .n_positions = 4, .n_embd = 6, .n_layer = 1, .n_head = 4};
  expect_error(ErrorCode::kValue, {"n_head 4 does not divide n_embd 6"},
               [&] { GPT2LMHeadModel model(config); });
  config.n_head = 0;
  expect_error(ErrorCode::kValue, {"n_head is 0"}, [&] { GPT2LMHeadModel model(config); });
  config.n_head = 2;
  config.activation_function = "sine";
  expect_error(ErrorCode::kValue, {"'sine'", "gelu_new"}, [&] { GPT2LMHeadModel model(config); });
  config.activation_function = "relu";
  GPT2LMHeadModel model(config);
  expect_error(ErrorCode::kShape, {"5 tokens", "n_positions is 4"}, [&] {
    model(zeros({1, 5}, kInt64));
  });
  expect_error(ErrorCode::kShape, {"(3,)"}, [&] { model(zeros({3}, kInt64)); });
  expect_error(ErrorCode::kShape, {"targets", "(1, 2)", "(1, 3)"}, [&] {
    model.loss(zeros({1, 3}, kInt64), zeros({1, 2}, kInt64));
  });
}

}  // namespace
}  // namespace mytorch::nn::models
