// Forms of modules, containers and optimizers that programs for libtorch use.
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "mytorch/mytorch.h"
#include "tests/nn/data/expect_error.h"
#include "tests/nn/values.h"

namespace mytorch::nn {
namespace {

using mytorch::testing::expect_error;
using mytorch::testing::expect_values;
using Names = std::vector<std::string>;

// ---- modules ----

struct Scaled : Module {
  Linear fc{2, 3};
  Tensor scale = ones({2});
  Tensor shift = zeros({2});
  Scaled() : Module("Net") {
    register_module("fc", fc);
    register_parameter("scale", scale);
    register_buffer("shift", shift);
    register_module("norm", BatchNorm1d(3));
  }
  using Module::unregister_module;
};

TEST(Forms, ListsOfOwnMembersOnly) {
  const Scaled net;
  EXPECT_EQ(net.named_parameters(/*recurse=*/false).keys(), (Names{"scale"}));
  EXPECT_EQ(net.named_buffers(false).keys(), (Names{"shift"}));
  EXPECT_EQ(net.parameters(false).size(), 1u);
  EXPECT_EQ(net.parameters(true).size(), 5u);
  EXPECT_TRUE(net.buffers(false)[0].is_same(net.shift));
}

TEST(Forms, NamesOfModulesHaveAPrefix) {
  Scaled net;
  EXPECT_EQ(net.named_modules("net").keys(), (Names{"net", "net.fc", "net.norm"}));
  EXPECT_EQ(net.named_modules("", false).keys(), (Names{"fc", "norm"}));
  Names names;
  net.apply([&](const std::string& name, Module& /*module*/) { names.push_back(name); });
  EXPECT_EQ(names, (Names{"fc", "norm", ""}));
  names.clear();
  net.apply([&](const std::string& name, Module& /*module*/) { names.push_back(name); }, "net");
  EXPECT_EQ(names, (Names{"net.fc", "net.norm", "net"}));
  net.unregister_module("fc");
  EXPECT_EQ(net.named_children().keys(), (Names{"norm"}));
  expect_error(ErrorCode::kValue, {"[Scaled]", "'fc'", "norm"},
               [&] { net.unregister_module("fc"); });
}

TEST(Forms, ANameStandsForTheClass) {
  const Scaled net;
  EXPECT_EQ(net.name(), "Net");
  EXPECT_EQ(net.str().substr(0, 5), "Net(\n");
  const Scaled copy = net;
  EXPECT_EQ(copy.name(), "Net");
  Scaled assigned;
  assigned = copy;
  EXPECT_EQ(assigned.name(), "Net");
  EXPECT_EQ(Linear(1, 1).name(), "Linear");
}

struct Printed : Module {
  void pretty_print(std::ostream& stream) const override { stream << "printed"; }
};
struct PrintedParent : Module {
  PrintedParent() { register_module("part", Printed()); }
  void pretty_print(std::ostream& stream) const override { stream << "parent"; }
};

TEST(Forms, PrettyPrintIsTheLineOfAModule) {
  std::ostringstream text;
  text << Printed();
  EXPECT_EQ(text.str(), "printed");
  EXPECT_EQ(PrintedParent().str(), "parent(\n  (part): printed\n)");
  std::ostringstream line;
  Dropout(0.5)->pretty_print(line);
  EXPECT_EQ(line.str(), "Dropout(p=0.5)");
}

TEST(Forms, ZeroGradKeepsZerosIfAsked) {
  Linear fc(2, 1);
  fc(ones({1, 2})).sum().backward();
  const Tensor grad = fc->weight.grad();
  fc->zero_grad(/*set_to_none=*/false);
  EXPECT_TRUE(fc->weight.grad().is_same(grad));
  expect_values(grad, {0, 0});
  fc->zero_grad(true);
  EXPECT_FALSE(fc->weight.grad().defined());
}

TEST(Forms, ToTakesNonBlocking) {
  Linear fc(2, 1);
  fc->to(kCPU, kFloat64, /*non_blocking=*/true);
  EXPECT_EQ(fc->weight.dtype(), kFloat64);
  fc->to(kFloat32, true);
  fc->to(kCPU, true);
  EXPECT_EQ(fc->weight.dtype(), kFloat32);
}

struct PartsImpl : Cloneable<PartsImpl> {
  PartsImpl() { reset(); }
  void reset() override { fc = register_module("fc", Linear(2, 2)); }
  Tensor forward(const Tensor& x, double factor) { return fc(x) * factor; }
  Linear fc{nullptr};
};
MYTORCH_MODULE(Parts);

TEST(Forms, CloneableModulesMakeTheirPartsInReset) {
  Parts net;
  expect_values(net(ones({1, 2}), 0.0), {0, 0});
  const std::shared_ptr<PartsImpl> copy = net->clone();
  EXPECT_FALSE(copy->fc->weight.is_same(net->fc->weight));
  EXPECT_TRUE(copy->fc->weight.equal(net->fc->weight));
  EXPECT_EQ(copy->named_parameters().keys(), (Names{"fc.weight", "fc.bias"}));
}

TEST(Forms, LayersAreTestedAndTakenAsPointers) {
  Linear fc = nullptr;
  if (!fc) fc = Linear(2, 2);
  EXPECT_TRUE(static_cast<bool>(fc));
  EXPECT_EQ(fc.get(), &fc);
}

// ---- containers ----

TEST(Forms, AnyModuleHoldsAModuleOfAnyClass) {
  AnyModule any(Linear(2, 2));
  EXPECT_TRUE(any.forward(ones({1, 2})).equal(any.forward<Tensor>(ones({1, 2}))));
  EXPECT_EQ(any.ptr().get(), &any.get<Linear>());
  EXPECT_EQ(any.ptr<Linear>().get(), any.ptr().get());
  expect_error(ErrorCode::kType, {"[AnyModule]", "Linear"}, [&] { any.get<Conv2d>(); });
  AnyModule other;
  EXPECT_TRUE(other.is_empty());
  expect_error(ErrorCode::kValue, {"AnyModule", "empty"}, [&] { other.forward(ones({1})); });
  other = ReLU();
  expect_values(other.forward(tensor({-1.0, 2.0})), {0, 2});
  Sequential net(any, other);
  net->push_back("last", any);
  EXPECT_EQ(&net.at<Linear>(0), &any.get<Linear>());
  Sequential named({NamedAnyModule("fc", any), {"act", other}});
  EXPECT_EQ(named->named_children().keys(), (Names{"fc", "act"}));
  // A copy of its own class, although it is held as any.
  EXPECT_FALSE(named->clone()->parameters()[0].is_same(named->parameters()[0]));
}

TEST(Forms, ListsInsertAndExtend) {
  ModuleList list(Linear(2, 2), Linear(2, 2));
  const std::shared_ptr<Module> first = list->ptr(0);
  list->insert(0, ReLU());
  list->insert(3, Tanh());
  EXPECT_EQ(list->named_children().keys(), (Names{"0", "1", "2", "3"}));
  EXPECT_EQ(list[0].name(), "ReLU");
  EXPECT_EQ(list[3].name(), "Tanh");
  EXPECT_EQ(list->ptr(1), first);
  EXPECT_EQ(list->ptr<Linear>(1).get(), first.get());
  EXPECT_EQ(list[1]->as<Linear>(), first.get());
  expect_error(ErrorCode::kValue, {"[ModuleList]", "5"}, [&] { list->insert(5, ReLU()); });
  expect_error(ErrorCode::kValue, {"[ModuleList]", "4"}, [&] { list->ptr(4); });
  expect_error(ErrorCode::kType, {"ReLU"}, [&] { list->ptr<Linear>(0); });
  EXPECT_EQ(list->size(), 4u);

  ModuleList more;
  EXPECT_TRUE(more->is_empty());
  more->extend(*list);
  EXPECT_EQ(&more[1], &list[1]);
  more->extend(std::vector<Linear>{Linear(2, 2)});
  EXPECT_EQ(more->named_children().keys(), (Names{"0", "1", "2", "3", "4"}));
  Sequential net(Linear(2, 2));
  net->extend(*net);
  EXPECT_EQ(net->ptr(0), net->ptr(1));
  EXPECT_EQ(net->forward<Tensor>(ones({1, 2})).numel(), 2);
  EXPECT_NE(net.ptr()->clone(), nullptr);
}

TEST(Forms, DictionariesOfModules) {
  ModuleDict dict({{"fc", Linear(2, 3)}, {"act", ReLU()}});
  EXPECT_EQ(dict->keys(), (Names{"fc", "act"}));
  EXPECT_EQ(dict->values()[1]->name(), "ReLU");
  dict->update({{"fc", Linear(5, 3)}, {"last", Tanh()}});  // in its place
  EXPECT_EQ(dict->keys(), (Names{"fc", "act", "last"}));
  EXPECT_EQ(dict->at<Linear>("fc").weight.size(1), 5);
  const std::shared_ptr<Module> popped = dict->pop("act");
  EXPECT_EQ(popped->name(), "ReLU");
  EXPECT_FALSE(dict->contains("act"));
  expect_error(ErrorCode::kValue, {"'act'", "fc, last"}, [&] { dict->pop("act"); });
  // Nothing changes if a module cannot be added.
  expect_error(ErrorCode::kValue, {"null"}, [&] {
    dict->update({{"fc", std::shared_ptr<Linear>()}});
  });
  EXPECT_EQ(dict->keys(), (Names{"fc", "last"}));
  const ModuleDict same(dict->items());
  EXPECT_EQ(same.items(), dict->items());
  ModuleDict other;
  other->update(*dict);
  EXPECT_EQ(other->items(), dict->items());
  other->clear();
  EXPECT_TRUE(other->is_empty());
  EXPECT_EQ(dict->size(), 2u);
}

TEST(Forms, ListsAndDictionariesOfParameters) {
  ParameterList list(ones({2}), zeros({3}));
  list->extend(std::vector<Tensor>{ones({4})});
  list->extend(ParameterList({ones({5})}));
  EXPECT_EQ(list->named_parameters().keys(), (Names{"0", "1", "2", "3"}));
  EXPECT_EQ(list->at(3).numel(), 5);
  EXPECT_FALSE(list->is_empty());

  ParameterDict dict;
  EXPECT_TRUE(dict->is_empty());
  dict->insert("a", ones({2}));
  const Tensor replaced = dict->get("a");
  dict->update({{"a", zeros({2})}, {"b", ones({3})}});
  EXPECT_EQ(dict->keys(), (Names{"a", "b"}));
  EXPECT_FALSE(dict->get("a").is_same(replaced));
  EXPECT_TRUE(dict->parameters()[0].requires_grad());
  EXPECT_TRUE(dict->values()[1].is_same(dict["b"]));
  ParameterDict other;
  other->update(*dict);
  EXPECT_EQ(dict->pop("a").numel(), 2);
  EXPECT_EQ(dict->items()[0].first, "b");
  expect_error(ErrorCode::kValue, {"'a'", "b"}, [&] { dict->pop("a"); });
  EXPECT_EQ(other->size(), 2u);
  other->clear();
  EXPECT_EQ(other->size(), 0u);
}

TEST(Forms, FunctionsWithMoreArgumentsAreModules) {
  Sequential net(Functional(log_softmax, 1, std::nullopt));
  const Tensor x = tensor({{1.0f, 2.0f}});
  EXPECT_TRUE(net(x).equal(log_softmax(x, 1)));
}

TEST(Forms, NamedListsAreOrderedDicts) {
  Linear fc(2, 3);
  OrderedDict<std::string, Tensor> parameters = fc->named_parameters();
  EXPECT_TRUE(parameters.find("bias")->is_same(fc->bias));
  EXPECT_EQ(parameters.find("scale"), nullptr);
  EXPECT_EQ(parameters.pairs()[1].first, "bias");
  for (auto& item : parameters) {
    EXPECT_TRUE((*item).is_same(item.value()));
    EXPECT_EQ(item->dim(), item.value().dim());
    EXPECT_EQ(item.pair().first, item.key());
  }
  EXPECT_EQ(parameters.items().size(), 2u);
  EXPECT_FALSE(parameters.is_empty());
}

// ---- options ----

TEST(Forms, ALayersOptionsAreRead) {
  Linear fc(LinearOptions(4, 2).bias(false));
  EXPECT_EQ(fc->options.in_features(), 4);
  EXPECT_EQ(fc->options.out_features(), 2);
  EXPECT_FALSE(fc->options.bias());
  Conv2d conv(Conv2dOptions(3, 6, {3, 5}).stride(2).groups(3));
  EXPECT_EQ(conv->options.in_channels(), 3);
  EXPECT_EQ(conv->options.out_channels(), 6);
  EXPECT_EQ(conv->options.kernel_size()[1], 5);
  EXPECT_EQ(conv->options.stride()[0], 2);
  EXPECT_EQ(conv->options.groups(), 3);
  BatchNorm2d norm(BatchNorm2dOptions(3).momentum(0.3));
  EXPECT_EQ(norm->options.num_features(), 3);
  EXPECT_EQ(norm->options.momentum(), 0.3);
  norm->set_momentum(0.4);
  EXPECT_EQ(norm->options.momentum(), 0.4);
  EXPECT_EQ(LayerNorm(LayerNormOptions({2, 3}))->options.normalized_shape(),
            (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(GroupNorm(2, 4)->options.num_channels(), 4);
  Embedding table(EmbeddingOptions(10, 4).padding_idx(-1));
  EXPECT_EQ(table->options.num_embeddings(), 10);
  EXPECT_EQ(table->options.embedding_dim(), 4);
  EXPECT_EQ(table->options.padding_idx(), 9);
  EXPECT_EQ(Dropout(0.25)->options.p(), 0.25);
  EXPECT_EQ(MaxPool2d(MaxPool2dOptions(3).padding(1))->options.kernel_size()[0], 3);
  EXPECT_EQ(AdaptiveAvgPool2d({2, 3})->options.output_size()[1], 3);
  LSTM lstm(LSTMOptions(3, 5).num_layers(2).batch_first(true));
  EXPECT_EQ(lstm->options.input_size(), 3);
  EXPECT_EQ(lstm->options.hidden_size(), 5);
  EXPECT_EQ(lstm->options.num_layers(), 2);
  EXPECT_TRUE(lstm->options.batch_first());
  RNN rnn(RNNOptions(3, 5).nonlinearity(kReLU));
  EXPECT_EQ(rnn->options.nonlinearity(), RNNNonlinearity::kReLU);
  GRUCell cell(GRUCellOptions(3, 5).bias(false));
  EXPECT_FALSE(cell->options.bias());
  MultiheadAttention attention(4, 2);
  EXPECT_EQ(attention->options.embed_dim(), 4);
  EXPECT_EQ(attention->options.num_heads(), 2);
  TransformerEncoderLayer layer(TransformerEncoderLayerOptions(4, 2).dim_feedforward(8));
  EXPECT_EQ(layer->options.d_model(), 4);
  EXPECT_EQ(layer->options.dim_feedforward(), 8);
  EXPECT_EQ(ConstantPad1d(ConstantPad1dOptions({1, 2}, 3.5))->options.value(), 3.5);
  EXPECT_EQ(Hardshrink(0.3)->options.lambda(), 0.3);
  EXPECT_EQ(CrossEntropyLoss(CrossEntropyLossOptions().ignore_index(7))->options.ignore_index(), 7);
}

TEST(Forms, OptionsOfLazyLayersFollowTheFirstInput) {
  LazyLinear fc(2);
  EXPECT_EQ(fc->options.in_features(), 0);
  fc(ones({1, 3}));
  EXPECT_EQ(fc->options.in_features(), 3);
  LazyConv1d conv(4, 3);
  conv(ones({1, 2, 5}));
  EXPECT_EQ(conv->options.in_channels(), 2);
  LazyBatchNorm1d norm;
  EXPECT_EQ(norm->options.num_features(), 0);
  norm(ones({2, 3, 4}));
  EXPECT_EQ(norm->options.num_features(), 3);
}

// Weights of losses are buffers: they move with the loss, and the options have the moved ones.
TEST(Forms, OptionsOfLossesHaveTheirWeights) {
  NLLLoss loss(NLLLossOptions().weight(ones({3})));
  loss->to(kFloat64);
  EXPECT_EQ(loss->options.weight().dtype(), kFloat64);
}

TEST(Forms, EmbeddingsOfGivenRows) {
  const Tensor rows = tensor({{1.0f, 2.0f}, {3.0f, 4.0f}, {5.0f, 6.0f}});
  Embedding table = Embedding::from_pretrained(rows);
  expect_values(table(tensor({2, 0})), {5, 6, 1, 2});
  EXPECT_FALSE(table->weight.requires_grad());
  EXPECT_EQ(table->weight.raw_data(), rows.raw_data());
  EXPECT_EQ(table->named_parameters().keys(), (Names{"weight"}));
  EXPECT_EQ(table->options.num_embeddings(), 3);
  EXPECT_EQ(table->options.embedding_dim(), 2);
  Embedding trained = Embedding::from_pretrained(
      rows, EmbeddingFromPretrainedOptions().freeze(false).padding_idx(-1));
  trained(tensor({2, 0})).sum().backward();
  expect_values(trained->weight.grad(), {1, 1, 0, 0, 0, 0});
  EXPECT_FALSE(rows.requires_grad());
  EmbeddingBag bag = EmbeddingBag::from_pretrained(
      rows, EmbeddingBagFromPretrainedOptions().mode(kSum).freeze(true));
  expect_values(bag(tensor({{0, 1}})), {4, 6});
  EXPECT_FALSE(bag->weight.requires_grad());
  expect_error(ErrorCode::kShape, {"[Embedding]", "(3,)"},
               [] { Embedding::from_pretrained(zeros({3})); });
  expect_error(ErrorCode::kType, {"[EmbeddingBag]", "int64"}, [] {
    EmbeddingBag::from_pretrained(zeros({3, 2}, kInt64));
  });
  expect_error(ErrorCode::kValue, {"[Embedding]", "3"},
               [&] { Embedding::from_pretrained(rows, {.padding_idx = 3}); });
}

TEST(Forms, OptionsFollowTheFunctionOfAnOperatorsName) {
  namespace F = functional;
  const Tensor x = arange(4).view({1, 4, 1, 1});
  EXPECT_TRUE(F::pixel_shuffle(x, F::PixelShuffleFuncOptions(2)).equal(F::pixel_shuffle(x, 2)));
  const Tensor y = arange(4).view({1, 1, 2, 2});
  EXPECT_TRUE(
      F::pixel_unshuffle(y, F::PixelUnshuffleFuncOptions(2)).equal(F::pixel_unshuffle(y, 2)));
}

// ---- optimizers ----

TEST(Forms, TheNormOfGradientsIsANumber) {
  Tensor x = tensor({3.0, 4.0}).requires_grad_();
  (x * x).sum().backward();  // the gradient is (6, 8)
  const double norm = utils::clip_grad_norm_({x}, 5.0);
  EXPECT_DOUBLE_EQ(norm, 10);
  const auto clipped = utils::clip_grad_norm_({x}, 100.0);
  EXPECT_TRUE(clipped > 4 && 6.0f > clipped && clipped != 4.0);
  EXPECT_FALSE(clipped < 4 || clipped >= 6);
  EXPECT_NEAR(clipped * 2 + 1 / clipped, 10.2, 1e-5);
  EXPECT_TRUE(std::isfinite(clipped));
  const Tensor kept = clipped;
  expect_values(kept, {5}, 1e-5);
  expect_values(kept * clipped, {25}, 1e-5);
  expect_values(clipped * 0.5, {2.5}, 1e-5);  // without waiting for the device
  const double half = clipped * 0.5;
  EXPECT_NEAR(half, 2.5, 1e-5);
  EXPECT_NEAR(clipped.item<double>(), 5, 1e-5);
}

TEST(Forms, OptimizersInArchives) {
  Linear fc(2, 1);
  optim::Adam adam(fc->parameters(), optim::AdamOptions(0.1)), other(fc->parameters(), 0.2);
  EXPECT_EQ(adam.size(), 2u);
  fc(ones({1, 2})).sum().backward();
  adam.step();
  serialize::OutputArchive output;
  adam.save(output);
  std::stringstream stream;
  output.save_to(stream);
  serialize::InputArchive input;
  input.load_from(stream);
  other.load(input);
  EXPECT_EQ(other.lr(), 0.1);
  EXPECT_EQ(other.state_dict().size(), adam.state_dict().size());
}

TEST(Forms, AbsentNumbersAreNullopt) {
  const Tensor x = tensor({1.0, 5, 9});
  EXPECT_TRUE(equal(clamp(x, std::nullopt, 6), tensor({1.0, 5, 6})));
  const std::optional<double> low = 3;
  std::optional<Scalar> high;
  EXPECT_TRUE(equal(x.clamp(low, high), tensor({3.0, 5, 9})));
  high = 4;
  EXPECT_TRUE(equal(clamp(x, low, high), tensor({3.0, 4, 4})));
}

TEST(Forms, StacksTakeANormOfAnyClass) {
  const TransformerEncoderLayer layer(TransformerEncoderLayerOptions(4, 2).dim_feedforward(8));
  TransformerEncoder stack(
      TransformerEncoderOptions(layer, 2).norm(AnyModule(RMSNorm(RMSNormOptions({4})))));
  stack->eval();
  TransformerEncoder plain(layer, 2);
  plain->eval();
  const Tensor x = randn({3, 1, 4});
  EXPECT_TRUE(allclose(stack(x), rms_norm(plain(x), {4}), 1e-5, 1e-6));
  EXPECT_TRUE(stack->named_parameters().contains("norm.weight"));
  // Copies have parameters of their own.
  const TransformerEncoder copy = clone(stack);
  EXPECT_FALSE(
      copy->named_parameters()["norm.weight"].is_same(stack->named_parameters()["norm.weight"]));
  EXPECT_EQ(TransformerDecoder(TransformerDecoderLayer(4, 2), 1,
                               TransformerDecoderArgs{.norm = LayerNorm(4)})
                ->named_parameters()
                .contains("norm.bias"),
            true);
  EXPECT_FALSE(TransformerEncoder(layer, 1, {.norm = LayerNorm(nullptr)})
                   ->named_parameters()
                   .contains("norm.weight"));
}

TEST(Forms, GroupsTakeBuilders) {
  optim::SGD optimizer({tensor({1.0}).requires_grad_()}, optim::SGDOptions(0.1));
  optimizer.add_param_group({tensor({2.0}).requires_grad_()},
                            optim::SGDOptions(0.01).momentum(0.5));
  EXPECT_EQ(optimizer.lr(1), 0.01);
  EXPECT_EQ(optimizer.momentum(1), 0.5);
}

}  // namespace
}  // namespace mytorch::nn
