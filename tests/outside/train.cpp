// Trains two small networks on a device, the CNN of examples/mnist and a transformer block, on data
// that is made up here:
//
//   train DEVICE [native]
//
// Fails where the loss does not fall to a quarter of what it was at first, or, with `native`, where
// an operator ran on the CPU.
#include <cstdio>
#include <cstring>
#include <functional>

#include "dispatcher/choice/choice.h"
#include "mytorch/mytorch.h"

namespace {

using mytorch::Device;
using mytorch::Tensor;
namespace nn = mytorch::nn;

// Steps of AdamW on one batch. Whether the loss falls.
bool learns(const char* name, std::vector<Tensor> parameters, double lr, int steps,
            const std::function<Tensor()>& loss) {
  nn::optim::AdamW adam(std::move(parameters), {.lr = lr});
  float first = 0;
  float last = 0;
  for (int step = 0; step < steps; ++step) {
    const Tensor now = loss();
    last = now.item<float>();
    if (step == 0) first = last;
    adam.zero_grad();
    now.backward();
    adam.step();
  }
  std::printf("%s: loss %.4f -> %.4f in %d steps\n", name, static_cast<double>(first),
              static_cast<double>(last), steps);
  return last < first / 4;
}

bool cnn(Device device) {
  nn::Sequential network{nn::Conv2d(1, 16, 3),  nn::ReLU(),           nn::MaxPool2d(2),
                         nn::Conv2d(16, 32, 3), nn::ReLU(),           nn::MaxPool2d(2),
                         nn::Flatten(),         nn::Linear(800, 128), nn::ReLU(),
                         nn::Dropout(0.25),     nn::Linear(128, 10)};
  network.to(device);
  const Tensor images = mytorch::randn({10, 1, 28, 28}).to(device);
  const Tensor labels = mytorch::arange(10, mytorch::kInt64).to(device);
  return learns("cnn", network.parameters(), 0.004, 25,
                [&] { return mytorch::cross_entropy(network(images), labels); });
}

// Pre-norm attention and a feed-forward part, over sequences of 8 tokens, 4 heads.
struct Block {
  nn::LayerNorm norm1{{32}};
  nn::Linear qkv{32, 96};
  nn::Linear out{32, 32};
  nn::LayerNorm norm2{{32}};
  nn::Linear up{32, 64};
  nn::Linear down{64, 32};

  std::vector<Tensor> to(Device device) {
    std::vector<Tensor> all;
    for (nn::Module* m :
         std::initializer_list<nn::Module*>{&norm1, &qkv, &out, &norm2, &up, &down}) {
      m->to(device);
      for (const Tensor& p : m->parameters()) all.push_back(p);
    }
    return all;
  }
  Tensor operator()(const Tensor& x) {
    const int64_t batch = x.size(0);
    const Tensor mixed = qkv(norm1(x)).view({batch, 8, 3, 4, 8}).permute({2, 0, 3, 1, 4});
    const Tensor attended = mytorch::scaled_dot_product_attention(
        mixed.select(0, 0), mixed.select(0, 1), mixed.select(0, 2), {}, 0.0, true);
    const Tensor y = x + out(attended.transpose(1, 2).reshape({batch, 8, 32}));
    return y + down(mytorch::gelu(up(norm2(y))));
  }
};

bool transformer(Device device) {
  Block block;
  nn::Linear head(32, 16);
  Tensor table = mytorch::randn({16, 32}).to(device).requires_grad_();
  std::vector<Tensor> parameters = block.to(device);
  head.to(device);
  for (const Tensor& p : head.parameters()) parameters.push_back(p);
  parameters.push_back(table);
  const Tensor tokens = mytorch::randint(16, {4, 8}).to(mytorch::kInt64).to(device);
  return learns("transformer", parameters, 0.01, 25, [&] {
    const Tensor logits = head(block(mytorch::embedding(table, tokens)));
    return mytorch::cross_entropy(logits.view({32, 16}), tokens.view({32}));
  });
}

}  // namespace

int main(int argc, char** argv) {
  const bool native = argc > 2 && std::strcmp(argv[2], "native") == 0;
  mytorch::allow_fallback(!native);
  mytorch::manual_seed(1);
  const Device device(argc > 1 ? argv[1] : "cpu");
  const bool learned = cnn(device) & transformer(device);
  uint64_t fallbacks = 0;
  for (const mytorch::SlowPaths& s : mytorch::slow_paths()) fallbacks += s.fallbacks;
  std::printf("%llu calls on the CPU\n", static_cast<unsigned long long>(fallbacks));
  return learned && (!native || fallbacks == 0) ? 0 : 1;
}
