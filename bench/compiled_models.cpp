// Training steps and inference of small models: eager, and as compiled functions. Prints a line for
// each case: its name, and the medians in microseconds. bench/peers/compiled_models_torch.py has
// the same cases; scripts/bench-compiled --models prints both side by side.
//
//   bench_compiled_models [DEVICE [CASE...]]
#include <algorithm>
#include <cstdio>
#include <exception>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "bench/in_turns.h"
#include "mytorch/compile.h"
#include "mytorch/mytorch.h"
#include "mytorch/nn/models/bert.h"
#include "mytorch/nn/models/gpt2.h"
#include "mytorch/nn/models/resnet.h"

namespace {

using bench::compare;
using bench::device;
using mytorch::cat;
using mytorch::sigmoid;
using mytorch::tanh;
using mytorch::Tensor;
namespace nn = mytorch::nn;
namespace F = mytorch::nn::functional;

// A step of training: forward, backward and optimizer are one graph.
template <class Optimizer, class Loss>
void train(const std::string& name, Optimizer& optimizer, const Loss& loss_of, const Tensor& x,
           const Tensor& y) {
  const auto step = [&](const Tensor& inputs, const Tensor& targets) {
    optimizer.zero_grad();
    const Tensor loss = loss_of(inputs, targets);
    loss.backward();
    optimizer.step();
    return loss.detach();
  };
  auto compiled = mytorch::compile(step);
  compare(
      name, [&] { step(x, y); }, [&] { compiled(x, y); });
}

// The input is an argument: what follows from tensors from outside alone is kept from call to call.
template <class Function>
void infer(const std::string& name, const Function& function, const Tensor& x) {
  const mytorch::NoGradGuard no_grad;
  auto compiled = mytorch::compile(function);
  compare(
      name, [&] { function(x); }, [&] { compiled(x); });
}

Tensor images(int64_t batch) { return mytorch::randn({batch, 1, 28, 28}).to(device); }
Tensor labels(mytorch::IntList sizes, int64_t classes) {
  return mytorch::randint(0, classes, sizes).to(device);
}

void mnist_mlp(const std::string& name) {
  nn::Sequential net(nn::Flatten(), nn::Linear(784, 32), nn::ReLU(), nn::Linear(32, 10));
  net.to(device);
  nn::optim::SGD sgd(net.parameters(), {.lr = 0.01});
  const auto loss = [&](const Tensor& x, const Tensor& y) { return F::mse_loss(net(x), y); };
  train(name, sgd, loss, images(64), mytorch::randn({64, 10}).to(device));
}

void mnist_cnn(const std::string& name) {
  nn::Sequential net(nn::Conv2d(1, 16, 3, {.padding = 1}), nn::ReLU(), nn::MaxPool2d(2),
                     nn::Conv2d(16, 32, 3, {.padding = 1}), nn::ReLU(), nn::MaxPool2d(2),
                     nn::Flatten(), nn::Linear(1568, 128), nn::ReLU(), nn::Linear(128, 10));
  net.to(device);
  nn::optim::SGD sgd(net.parameters(), {.lr = 0.01, .momentum = 0.9});
  const auto loss = [&](const Tensor& x, const Tensor& y) { return F::cross_entropy(net(x), y); };
  train(name, sgd, loss, images(64), labels({64}, 10));
}

// The network of examples/gpt, which reads characters.
void character_gpt(const std::string& name) {
  nn::models::GPT2Config config;
  config.vocab_size = 65;
  config.n_positions = 64;
  config.n_embd = 128;
  config.n_layer = 4;
  config.n_head = 4;
  config.resid_pdrop = config.embd_pdrop = config.attn_pdrop = 0;
  nn::models::GPT2LMHeadModel model(config);
  model.to(device);
  nn::optim::AdamW adam(model.parameters(), {.lr = 1e-3});
  const auto loss = [&](const Tensor& x, const Tensor& y) {
    return F::cross_entropy(model(x).flatten(0, 1), y.flatten());
  };
  train(name, adam, loss, labels({64, 64}, 65), labels({64, 64}, 65));
}

// The equations of an LSTM, written out, over 32 steps.
struct HandWrittenLstm : nn::Module {
  nn::Linear gates{register_module("gates", nn::Linear(64 + 128, 4 * 128))};
  nn::Linear head{register_module("head", nn::Linear(128, 10))};
  Tensor forward(const Tensor& x) {
    Tensor h = mytorch::zeros({x.size(0), 128}).to(x.device()), c = h;
    for (int64_t t = 0; t < x.size(1); ++t) {
      const auto parts = gates(cat({x.select(1, t), h}, 1)).chunk(4, 1);
      c = sigmoid(parts[1]) * c + sigmoid(parts[0]) * tanh(parts[2]);
      h = sigmoid(parts[3]) * tanh(c);
    }
    return head(h);
  }
};
void lstm(const std::string& name) {
  HandWrittenLstm net;
  net.to(device);
  nn::optim::SGD sgd(net.parameters(), {.lr = 0.01});
  const auto loss = [&](const Tensor& x, const Tensor& y) {
    return F::cross_entropy(net.forward(x), y);
  };
  train(name, sgd, loss, mytorch::randn({32, 32, 64}).to(device), labels({32}, 10));
}

void resnet18(const std::string& name, int64_t batch) {
  nn::models::ResNet net(nn::models::ResNetConfig::resnet18());
  net.to(device);
  net.eval();
  infer(
      name, [&](const Tensor& x) { return net(x); },
      mytorch::randn({batch, 3, 224, 224}).to(device));
}

// The shape of all-MiniLM-L6-v2: 6 layers, 384 wide.
void minilm(const std::string& name, int64_t batch, int64_t length) {
  nn::models::BertConfig config;
  config.hidden_size = 384;
  config.num_hidden_layers = 6;
  config.num_attention_heads = 12;
  config.intermediate_size = 1536;
  nn::models::BertModel model(config);
  model.to(device);
  model.eval();
  infer(
      name, [&](const Tensor& ids) { return model(ids).last_hidden_state.mean({1}); },
      labels({batch, length}, 30522));
}

using Case = std::function<void(const std::string&)>;
const std::vector<std::pair<std::string, Case>>& cases() {
  static const std::vector<std::pair<std::string, Case>> all = {
      {"mnist_mlp_step_64", mnist_mlp},
      {"mnist_cnn_step_64", mnist_cnn},
      {"character_gpt_step_64x64", character_gpt},
      {"hand_lstm_step_32x32", lstm},
      {"resnet18_1", [](const std::string& name) { resnet18(name, 1); }},
      {"resnet18_8", [](const std::string& name) { resnet18(name, 8); }},
      {"minilm_1x32", [](const std::string& name) { minilm(name, 1, 32); }},
      {"minilm_16x64", [](const std::string& name) { minilm(name, 16, 64); }},
  };
  return all;
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc > 1) device = mytorch::Device(argv[1]);
  const std::vector<std::string> wanted(argv + std::min(argc, 2), argv + argc);
  for (const auto& [name, run] : cases()) {
    if (wanted.empty() || std::find(wanted.begin(), wanted.end(), name) != wanted.end()) run(name);
  }
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "bench_compiled_models: %s\n", error.what());
  return 1;
}
