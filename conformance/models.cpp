#include "conformance/models.h"

#include <memory>
#include <utility>

#include "mytorch/error.h"
#include "mytorch/nn/activation.h"
#include "mytorch/nn/container.h"
#include "mytorch/nn/conv.h"
#include "mytorch/nn/dropout.h"
#include "mytorch/nn/linear.h"
#include "mytorch/nn/normalization.h"
#include "mytorch/nn/optim.h"
#include "mytorch/nn/pooling.h"
#include "mytorch/ops/arange.h"
#include "mytorch/ops/cross_entropy.h"
#include "mytorch/ops/embedding.h"
#include "mytorch/ops/eye.h"
#include "mytorch/ops/gelu.h"
#include "mytorch/ops/mse_loss.h"
#include "mytorch/ops/randint.h"
#include "mytorch/ops/randn.h"
#include "mytorch/ops/remainder.h"
#include "mytorch/ops/scaled_dot_product_attention.h"
#include "mytorch/tensor.h"

namespace mytorch::conformance {
namespace {

template <class Optimizer, class Options>
Training training(std::vector<Tensor> parameters, Options options, std::function<Tensor()> loss) {
  auto optimizer = std::make_shared<Optimizer>(std::move(parameters), options);
  return {[optimizer, loss = std::move(loss)] {
    const Tensor now = loss();
    optimizer->zero_grad();
    now.backward();
    optimizer->step();
    return now.item<float>();
  }};
}

struct Images {
  Images(Device device, int64_t batch)
      : pixels(randn({batch, 1, 28, 28}).to(device)),
        labels(remainder(arange(batch, kInt64), 10).to(device)) {}
  Tensor pixels, labels;
};

Training mlp(Device device, int64_t batch) {
  auto network = std::make_shared<nn::Sequential>(nn::Flatten(), nn::Linear(784, 32), nn::ReLU(),
                                                  nn::Linear(32, 10));
  network->to(device);
  const Images images(device, batch);
  const Tensor wanted = eye(10).to(device).index_select(0, images.labels);
  return training<optim::SGD>(
      network->parameters(), optim::SGDArgs{.lr = 0.5},
      [network, images, wanted] { return mse_loss((*network)(images.pixels), wanted); });
}

Training cnn(Device device, int64_t batch) {
  auto network = std::make_shared<nn::Sequential>(
      nn::Conv2d(1, 16, 3), nn::ReLU(), nn::MaxPool2d(2), nn::Conv2d(16, 32, 3), nn::ReLU(),
      nn::MaxPool2d(2), nn::Flatten(), nn::Linear(800, 128), nn::ReLU(), nn::Dropout(0.25),
      nn::Linear(128, 10));
  network->to(device);
  const Images images(device, batch);
  return training<optim::AdamW>(
      network->parameters(), optim::AdamWArgs{.lr = 0.004},
      [network, images] { return cross_entropy((*network)(images.pixels), images.labels); });
}

// Pre-norm attention with 4 heads and a feed-forward layer, between an embedding and token scores.
struct TransformerBlock {
  static constexpr int64_t kTokens = 16, kLength = 8, kWidth = 32, kHeads = 4;

  explicit TransformerBlock(Device device)
      : table(randn({kTokens, kWidth}).to(device).requires_grad_()) {
    parameters.push_back(table);
    for (nn::Module* m :
         std::initializer_list<nn::Module*>{&norm1, &qkv, &out, &norm2, &up, &down, &head}) {
      m->to(device);
      for (const Tensor& p : m->parameters()) parameters.push_back(p);
    }
  }
  Tensor operator()(const Tensor& tokens) {
    const int64_t batch = tokens.size(0);
    const Tensor x = embedding(table, tokens);
    const Tensor mixed =
        qkv(norm1(x)).view({batch, kLength, 3, kHeads, kWidth / kHeads}).permute({2, 0, 3, 1, 4});
    const Tensor attended = scaled_dot_product_attention(mixed.select(0, 0), mixed.select(0, 1),
                                                         mixed.select(0, 2), {}, 0.0, true);
    const Tensor y = x + out(attended.transpose(1, 2).reshape({batch, kLength, kWidth}));
    return head(y + down(gelu(up(norm2(y)))));
  }

  Tensor table;
  nn::LayerNorm norm1{{kWidth}}, norm2{{kWidth}};
  nn::Linear qkv{kWidth, 3 * kWidth}, out{kWidth, kWidth}, up{kWidth, 2 * kWidth},
      down{2 * kWidth, kWidth}, head{kWidth, kTokens};
  std::vector<Tensor> parameters;
};

Training transformer(Device device, int64_t batch) {
  auto block = std::make_shared<TransformerBlock>(device);
  const Tensor tokens =
      randint(TransformerBlock::kTokens, {batch, TransformerBlock::kLength}).to(kInt64).to(device);
  return training<optim::AdamW>(block->parameters, optim::AdamWArgs{.lr = 0.01}, [block, tokens] {
    return cross_entropy((*block)(tokens).view({-1, TransformerBlock::kTokens}), tokens.view({-1}));
  });
}

constexpr struct {
  const char* name;
  Training (*make)(Device device, int64_t batch);
} kModels[] = {{"mnist-mlp", mlp}, {"mnist-cnn", cnn}, {"transformer", transformer}};

}  // namespace

std::vector<std::string> model_names() {
  std::vector<std::string> names;
  for (const auto& model : kModels) names.emplace_back(model.name);
  return names;
}

Training make_training(const std::string& model, Device device, int64_t batch) {
  for (const auto& known : kModels) {
    if (model == known.name) return known.make(device, batch);
  }
  throw Error(ErrorCode::kValue, "[check] unknown network '" + model + "'");
}

}  // namespace mytorch::conformance
