#include "mytorch/nn/deferred.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <thread>

#include "core/runtime/cpu_pool.h"
#include "mytorch/mytorch.h"
#include "mytorch/nn/models/bert.h"
#include "mytorch/nn/models/deepseek.h"
#include "mytorch/nn/models/gpt2.h"
#include "mytorch/nn/models/llama.h"
#include "mytorch/nn/models/resnet.h"
#include "tests/nn/data/expect_error.h"

namespace mytorch::nn {
namespace {

using mytorch::testing::expect_error;
using Init = std::function<void(const Tensor&)>;

void compare(const char* what, const NamedList<Tensor>& found, const NamedList<Tensor>& expected) {
  ASSERT_EQ(found.size(), expected.size()) << what;
  for (const auto& [name, tensor] : expected) {
    const Tensor other = *found.find(name);
    EXPECT_EQ(other.dtype(), tensor.dtype()) << what << ": " << name;
    EXPECT_EQ(other.strides().vec(), tensor.strides().vec()) << what << ": " << name;
    EXPECT_EQ(other.requires_grad(), tensor.requires_grad()) << what << ": " << name;
    EXPECT_TRUE(mytorch::equal(other.detach(), tensor.detach())) << what << ": " << name;
  }
}

// Compares what `make` makes at once and later, bit by bit, and the state of the generator behind.
template <class F>
void expect_same(const char* what, F make) {
  manual_seed(7);
  auto expected = make();
  const uint64_t call = default_generator().call();
  manual_seed(7);
  auto found = deferred_init(make);
  EXPECT_EQ(default_generator().call(), call) << what;
  EXPECT_TRUE(is_deferred(found)) << what;
  manual_seed(99);  // what is drawn in between changes nothing
  (void)rand({3});
  const NamedList<Tensor> before = found.named_parameters();
  materialize(found);
  EXPECT_FALSE(is_deferred(found)) << what;
  for (const auto& [name, tensor] : found.named_parameters()) {
    EXPECT_TRUE(tensor.is_same(*before.find(name))) << what << ": " << name;
  }
  compare(what, found.named_parameters(), expected.named_parameters());
  compare(what, found.named_buffers(), expected.named_buffers());
}

TEST(Deferred, ModulesHaveTheElementsOfOnesMadeAtOnce) {
  expect_same("Linear", [] { return Linear(30, 20); });
  expect_same("Bilinear", [] { return Bilinear(3, 4, 5); });
  expect_same("Embedding", [] { return Embedding(10, 6, {.padding_idx = 3}); });
  expect_same("EmbeddingBag", [] { return EmbeddingBag(10, 6); });
  expect_same("Conv2d", [] { return Conv2d(4, 6, 3, {.groups = 2}); });
  expect_same("ConvTranspose3d", [] { return ConvTranspose3d(2, 3, 3); });
  expect_same("BatchNorm2d", [] { return BatchNorm2d(5); });
  expect_same("LayerNorm", [] { return LayerNorm(9); });
  expect_same("GroupNorm", [] { return GroupNorm(2, 6); });
  expect_same("RMSNorm", [] { return RMSNorm(6); });
  expect_same("PReLU", [] { return PReLU(); });
  expect_same("LSTM", [] { return LSTM(3, 5, {.num_layers = 2, .bidirectional = true}); });
  expect_same("GRUCell", [] { return GRUCell(3, 5); });
  expect_same("MultiheadAttention", [] { return MultiheadAttention(8, 2, {.add_bias_kv = true}); });
  expect_same("Transformer", [] {
    return Transformer(8, 2,
                       {.num_encoder_layers = 2, .num_decoder_layers = 1, .dim_feedforward = 16});
  });
  expect_same("AdaptiveLogSoftmaxWithLoss", [] {
    return AdaptiveLogSoftmaxWithLoss(8, 20, {4, 10});
  });
}

TEST(Deferred, ModelsHaveTheElementsOfOnesMadeAtOnce) {
  expect_same("GPT-2", [] {
    return models::GPT2LMHeadModel(
        {.vocab_size = 20, .n_positions = 8, .n_embd = 12, .n_layer = 2, .n_head = 3});
  });
  expect_same("Llama", [] {
    return models::LlamaForCausalLM({.vocab_size = 20,
                                     .hidden_size = 16,
                                     .intermediate_size = 24,
                                     .num_hidden_layers = 2,
                                     .num_attention_heads = 4});
  });
  expect_same("DeepSeek-V3", [] {
    return models::DeepseekV3ForCausalLM({.vocab_size = 20,
                                          .hidden_size = 16,
                                          .intermediate_size = 24,
                                          .moe_intermediate_size = 8,
                                          .num_hidden_layers = 2,
                                          .num_attention_heads = 2,
                                          .n_routed_experts = 4,
                                          .num_experts_per_tok = 2,
                                          .n_group = 2,
                                          .topk_group = 1,
                                          .first_k_dense_replace = 1,
                                          .kv_lora_rank = 8,
                                          .qk_nope_head_dim = 4,
                                          .qk_rope_head_dim = 4,
                                          .v_head_dim = 4});
  });
  expect_same("BERT", [] {
    return models::BertModel({.vocab_size = 20,
                              .hidden_size = 16,
                              .num_hidden_layers = 2,
                              .num_attention_heads = 2,
                              .intermediate_size = 24});
  });
  expect_same("ResNet", [] {
    return models::ResNet({.layers = {1, 1, 1, 1}, .bottleneck = false});
  });
}

TEST(Deferred, InitializationsAreDrawnLater) {
  const std::pair<const char*, Init> all[] = {
      {"uniform_", [](const Tensor& t) { init::uniform_(t, -1, 2); }},
      {"constant_", [](const Tensor& t) { init::constant_(t, 3); }},
      {"xavier_normal_", [](const Tensor& t) { init::xavier_normal_(t); }},
      {"kaiming_uniform_", [](const Tensor& t) { init::kaiming_uniform_(t); }},
      {"trunc_normal_", [](const Tensor& t) { init::trunc_normal_(t, 0.5, 2, -1, 1); }},
      {"orthogonal_", [](const Tensor& t) { init::orthogonal_(t, 2); }},
      {"eye_", [](const Tensor& t) { init::eye_(t); }},
      {"sparse_", [](const Tensor& t) { init::sparse_(t, 0.4); }},
      {"sparse_ by a generator", [](const Tensor& t) { init::sparse_(t, 0.4, 0.1, Generator(5)); }},
      {"a transposed view", [](const Tensor& t) { init::orthogonal_(t.detach().t()); }}};
  for (const auto& [name, fill] : all) {
    expect_same(name, [&fill = fill] {
      Linear layer(6, 10);
      fill(layer.weight);
      init::normal_(layer.bias);
      return layer;
    });
  }
  expect_same("dirac_", [] {
    Conv1d layer(4, 4, 3);
    init::dirac_(layer.weight);
    return layer;
  });
  expect_same("transformer_", [] {
    TransformerEncoderLayer layer(8, 2, {.dim_feedforward = 16});
    init::transformer_(layer, {.residual = {"linear2.weight"}, .num_layers = 3});
    return layer;
  });
}

// What constructors do besides: views, other types, values from the host, results of operators.
struct Varied : Module {
  Tensor scaled = randn({4, 6});
  Tensor rows = mytorch::empty({5, 3});
  Tensor mask = triu(full({4, 4}, -std::numeric_limits<double>::infinity()), 1);
  Tensor angles = outer(arange(5), pow(10000.0, arange(0, 4, 2).to(kFloat32) / -4));
  Tensor order = randperm(9);
  Tensor given = mytorch::tensor({1.5, 2.5, 4.0});
  Tensor half = randn({7}).to(kBFloat16);
  Tensor whole = randn({6, 4});
  Tensor part = whole.narrow(0, 2, 3).t();
  Tensor joined = cat({ones({2, 2}), zeros({2, 2})}, 1);
  Tensor none = mytorch::empty({0, 3});
  Tensor phases = mytorch::polar(ones({3}), arange(3).to(kFloat32));
  Varied() {
    scaled.mul_(0.02).add_(scaled[0].clone(), 2);
    for (int64_t i = 0; i < rows.size(0); ++i) rows[i].fill_(static_cast<double>(i) + 0.5);
    rows[1][2] = tensor(9.0);
    rows.select(1, 0).copy_(mytorch::tensor({5, 4, 3, 2, 1}));
    whole[2].zero_();
    register_parameter("scaled", scaled);
    register_parameter("rows", rows);
    for (const auto& [name, member] : {std::pair("mask", &mask),
                                       {"angles", &angles},
                                       {"order", &order},
                                       {"given", &given},
                                       {"half", &half},
                                       {"whole", &whole},
                                       {"part", &part},
                                       {"joined", &joined},
                                       {"none", &none},
                                       {"phases", &phases}}) {
      register_buffer(name, *member, name != std::string("angles"));
    }
    requires_grad(false);
    rows.requires_grad_();
  }
};

TEST(Deferred, WhatConstructorsComputeIsComputedLater) {
  expect_same("Varied", [] { return Varied(); });
  Varied net = deferred_init([] { return Varied(); });
  EXPECT_FALSE(is_deferred(net.given));  // the host gave its values
  materialize(net);
  net.whole.fill_(3);
  EXPECT_EQ(net.part.sum().item<double>(), 36);  // still a part of it
}

TEST(Deferred, ModulesAreConvertedAndTiedBeforeTheyAreMaterialized) {
  const auto make = [] {
    Sequential net(Linear(6, 6), Linear(6, 6));
    net.at<Linear>(1).weight = net.at<Linear>(0).weight;
    net.to(kFloat64);
    net.at<Linear>(0).requires_grad(false);
    return net;
  };
  expect_same("tied", make);
  Sequential net = deferred_init(make);
  optim::SGD optimizer(net.parameters(), 0.1);
  materialize(net);
  EXPECT_TRUE(net.at<Linear>(0).weight.is_same(net.at<Linear>(1).weight));
  net(ones({2, 6}, kFloat64)).sum().backward();
  const Tensor before = net.at<Linear>(1).bias.detach().clone();
  optimizer.step();  // of parameters that were there before
  EXPECT_FALSE(mytorch::equal(before, net.at<Linear>(1).bias.detach()));
}

TEST(Deferred, TakesNoMemory) {
  const uint64_t before = cpu_pool::stats().large_in_use;
  const Sequential net = deferred_init([] {  // 256 GiB
    return Sequential(Linear(int64_t{1} << 18, int64_t{1} << 17),
                      Linear(int64_t{1} << 17, int64_t{1} << 18));
  });
  EXPECT_EQ(cpu_pool::stats().large_in_use, before);
  EXPECT_GT(net.num_parameters(), int64_t{1} << 36);
}

TEST(Deferred, ReadingSaysHowToMaterialize) {
  Linear net = deferred_init([] { return Linear(3, 2); });
  const Tensor w = net.weight.detach();
  for (const std::function<void()>& read : {std::function<void()>([&] { (void)w.sum().item(); }),
                                            {[&] { (void)w.data<float>(); }},
                                            {[&] { (void)w.const_data<float>(); }},
                                            {[&] { (void)w.data_ptr(); }},
                                            {[&] { (void)w.to(kCPU); }},
                                            {[&] { (void)w.to_vector<float>(); }},
                                            {[&] { (void)w.nonzero(); }},
                                            {[&] {
                                              (void)mytorch::zeros({2, 3}).copy_(w);
                                            }}}) {
    expect_error(ErrorCode::kValue, {"nn::materialize"}, read);
  }
  expect_error(ErrorCode::kDevice, {"meta:0"}, [&] { net(ones({1, 3})); });
  EXPECT_TRUE(is_deferred(w));
  EXPECT_EQ(w.sizes().vec(), (std::vector<int64_t>{2, 3}));
}

TEST(Deferred, ScopesNestAndAreOfOneThread) {
  const DeferredInit outer;
  {
    const DeferredInit inner;
    EXPECT_TRUE(is_deferred(ones({2})));
  }
  EXPECT_TRUE(is_deferred(ones({2})));
  EXPECT_FALSE(is_deferred(ones({2}, kFloat32, kCPU)));
  EXPECT_EQ(materialize(ones({2})).sum().item<double>(), 2);
  std::thread([] { EXPECT_FALSE(is_deferred(ones({2}))); }).join();
  const Tensor here = ones({2}, kFloat32, kCPU);
  EXPECT_TRUE(materialize(here).is_same(here));
}

TEST(Deferred, LongHistories) {
  Tensor counted, doubled, mixed;
  {
    const DeferredInit deferred;
    counted = zeros({4});
    for (int i = 0; i < 30000; ++i) counted.add_(1);
    doubled = ones({4});
    for (int i = 0; i < 60; ++i) doubled = doubled + doubled;  // each is read twice
    mixed = zeros({2}, kFloat64);
    const Tensor other = ones({2}, kFloat64);
    for (int i = 0; i < 30; ++i) {
      mixed.add_(other);
      other.add_(mixed);
    }
    Tensor deep = ones({1});
    expect_error(ErrorCode::kUnsupported, {"kCPU"}, [&] {
      for (int i = 0; i < 1000; ++i) deep = deep + 1;
    });
  }
  EXPECT_EQ(materialize(counted)[3].item<double>(), 30000);
  EXPECT_EQ(materialize(doubled)[0].item<double>(), std::pow(2.0, 60));
  double a = 0, b = 1;
  for (int i = 0; i < 30; ++i) {
    a += b;
    b += a;
  }
  EXPECT_EQ(materialize(mixed)[0].item<double>(), a);
}

TEST(Deferred, LoadsIntoEmptyMemory) {
  BatchNorm1d trained(4);
  trained.running_mean.fill_(2);
  init::normal_(trained.weight);
  BatchNorm1d net = deferred_init([] { return BatchNorm1d(4); });
  to_empty(net);
  EXPECT_FALSE(is_deferred(net));
  net.load_state_dict(trained.state_dict());
  EXPECT_TRUE(mytorch::equal(net.weight, trained.weight));
  EXPECT_TRUE(mytorch::equal(net.running_mean, trained.running_mean));
  // Loaded values are kept also before there is memory.
  BatchNorm1d later = deferred_init([] { return BatchNorm1d(4); });
  later.load_state_dict(trained.state_dict());
  materialize(later);
  EXPECT_TRUE(mytorch::equal(later.weight, trained.weight));
}

// A buffer that no state has is drawn.
TEST(Deferred, EmptyMemoryKeepsWhatIsNotLoaded) {
  Varied expected;
  Varied net = deferred_init([] { return Varied(); });
  to_empty(net);
  EXPECT_TRUE(mytorch::equal(net.angles, expected.angles));
}

}  // namespace
}  // namespace mytorch::nn
