// A Llama whose parameters, gradients and optimizer state are divided over the ranks.
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "bench/distributed/bench.h"
#include "mytorch/autograd/checkpoint.h"
#include "mytorch/error.h"
#include "mytorch/nn/init.h"
#include "mytorch/nn/models/llama.h"
#include "mytorch/nn/parallel/fully_sharded_data_parallel.h"

namespace bench {
namespace {

using mytorch::Tensor;
namespace nn = mytorch::nn;
namespace models = mytorch::nn::models;

// Token ids to the mean loss of the next tokens, which it holds: a forward of one tensor.
class LlamaLoss final : public nn::Layer<LlamaLoss> {
 public:
  // Weights are random, and made on the device: on the CPU this would take longer than the
  // benchmark.
  LlamaLoss(const models::LlamaConfig& config, Tensor targets, bool recompute,
            const mytorch::Device& device)
      : embed(config.vocab_size, config.hidden_size),
        norm(config.hidden_size, nn::RMSNormArgs{.eps = config.rms_norm_eps}),
        head(config.hidden_size, config.vocab_size, false),
        targets_(std::move(targets)),
        recompute_(recompute) {
    models::LlamaDecoderLayer layer(config);
    layer.to(device);
    for (int64_t i = 0; i < config.num_hidden_layers; ++i) layers.push_back(nn::clone(layer));
    register_module("embed", embed);
    register_module("layers", layers);
    register_module("norm", norm);
    register_module("head", head);
    to(device);
    const mytorch::NoGradGuard no_grad;
    for (const Tensor& parameter : parameters()) {
      if (parameter.dim() > 1) nn::init::normal_(parameter, 0, config.initializer_range);
    }
  }
  Tensor forward(const Tensor& ids) override {
    Tensor h = embed(ids);
    for (size_t i = 0; i < layers.size(); ++i) {
      auto& layer = layers.at<models::LlamaDecoderLayer>(i);
      if (recompute_) {
        h = mytorch::autograd::checkpoint(
            [&layer](const std::vector<Tensor>& x) { return std::vector<Tensor>{layer(x[0])}; },
            {h})[0];
      } else {
        h = layer(h);
      }
    }
    return linear_cross_entropy(norm(h), head.weight, targets_);
  }

  nn::Embedding embed;
  nn::ModuleList layers;
  nn::RMSNorm norm;
  nn::Linear head;

 private:
  Tensor targets_;
  bool recompute_;
};

}  // namespace

void fsdp(const Group& world, const Settings& settings) {
  models::LlamaConfig config;
  int64_t batch = 4, length = 2048;
  if (settings.tiny) {
    config.vocab_size = 64;
    config.hidden_size = 32;
    config.intermediate_size = 48;
    config.num_hidden_layers = 2;
    config.num_attention_heads = 2;
    batch = 2;
    length = 8;
  } else if (settings.model == "1.3b") {
    config.hidden_size = 2048;
    config.intermediate_size = 5504;
    config.num_hidden_layers = 24;
    config.num_attention_heads = 16;
  } else if (settings.model == "7b") {
    batch = 2;
  } else {
    throw mytorch::Error(mytorch::ErrorCode::kValue, "[bench_distributed] unknown model '" +
                                                         settings.model + "': give 1.3b or 7b");
  }
  const auto ids = [&] {
    return mytorch::randint(config.vocab_size, {batch, length}, mytorch::kInt64)
        .to(settings.device);
  };
  seed_data(world);  // the parameters of rank 0 are those of all
  const Tensor x = ids(), y = ids();
  LlamaLoss model(config, y, settings.recompute, settings.device);
  const double parameters = static_cast<double>(model.num_parameters());
  nn::FullyShardedDataParallel parallel(
      model,
      {.mixed_precision = {.param_dtype = mytorch::kBFloat16, .reduce_dtype = mytorch::kFloat32}});
  nn::optim::AdamW adam(model.parameters(),
                        {.lr = 1e-4, .betas = {0.9, 0.95}, .weight_decay = 0.1});
  if (!settings.device.is_cpu()) mytorch::empty_cache(settings.device);
  Record record("fsdp", world);
  const auto step = [&] {
    const Tensor loss = parallel(x);
    adam.zero_grad();
    loss.backward();
    adam.step();
    return loss.detach();
  };
  record.add("parameters", parameters);
  measure(world, settings, record, step, static_cast<double>(batch * length * world.size()),
          "tokens");
  mytorch::plan::Model shape;
  shape.name = "llama";
  shape.layers = config.num_hidden_layers;
  shape.width = config.hidden_size;
  shape.heads = shape.key_heads = config.num_attention_heads;
  shape.head_width = config.hidden_size / config.num_attention_heads;
  shape.hidden = config.intermediate_size;
  shape.vocabulary = config.vocab_size;
  shape.sequence = length;
  shape.batch = batch * world.size();
  shape.gated = shape.fused_loss = true;
  mytorch::plan::Layout layout;
  layout.data = world.size();
  layout.zero = 3;
  layout.micro_batch = batch;
  if (settings.recompute) layout.recompute = mytorch::plan::Recompute::kFull;
  predict(record, settings, {.model = shape, .layout = layout});
  record.print();
}

}  // namespace bench
