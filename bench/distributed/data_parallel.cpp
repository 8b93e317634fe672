// Copies of a model on all ranks, each with its own batch of the same size.
#include <cstdint>
#include <functional>
#include <optional>

#include "bench/distributed/bench.h"
#include "mytorch/nn/models/gpt2.h"
#include "mytorch/nn/models/resnet.h"
#include "mytorch/nn/parallel/distributed_data_parallel.h"

namespace bench {
namespace {

using mytorch::Tensor;
namespace nn = mytorch::nn;
namespace models = mytorch::nn::models;
namespace optim = mytorch::nn::optim;

struct Training {
  nn::Module& model;
  optim::Optimizer& optimizer;
  std::function<Tensor()> loss;
  bool autocast;
  double items;  // of a rank
  const char* unit;
};

Tensor step_of(const Settings& settings, const Training& t) {
  Tensor value;
  {
    std::optional<mytorch::AutocastGuard> autocast;
    if (t.autocast) autocast.emplace(settings.device, mytorch::kBFloat16);
    value = t.loss();
  }
  t.optimizer.zero_grad();
  value.backward();
  t.optimizer.step();
  return value.detach();
}

// Measures steps with the reduction and, on several ranks, without it: what the reduction adds to a
// step is the part of it that backward did not hide.
void train(const Group& world, const Settings& settings, Record& record, const Training& t) {
  nn::DistributedDataParallel parallel(t.model, {.static_graph = true});
  const auto step = [&] {
    parallel.begin();
    return step_of(settings, t);
  };
  const Timing timing = measure(world, settings, record, step, t.items * world.size(), t.unit);
  int64_t bytes = 0;
  for (const Tensor& parameter : t.model.parameters()) bytes += parameter.nbytes();
  record.add("gradient_bytes", static_cast<double>(bytes))
      .add("buckets", static_cast<double>(parallel.num_buckets()));
  if (world.size() == 1) return;
  double alone = 0;
  {
    const auto no_sync = parallel.no_sync();
    (void)step();
    alone = timed(world, settings, [&] { (void)step(); }).median;
  }
  const double reduction = all_reduce_seconds(world, settings, bytes);
  record.add("no_sync_ms", 1e3 * alone)
      .add("all_reduce_ms", 1e3 * reduction)
      .add("hidden", 1 - (timing.median - alone) / reduction);
}

// A stack of many small layers: 200 tensors, whose steps are the host's work.
struct SmallLayers final : nn::Layer<SmallLayers> {
  nn::ModuleList layers;
  SmallLayers(int64_t width, int64_t depth) {
    for (int64_t i = 0; i < depth; ++i) layers.push_back(nn::Linear(width, width));
    register_module("layers", layers);
  }
  Tensor forward(const Tensor& x) override {
    Tensor h = x;
    for (size_t i = 0; i < layers.size(); ++i) h = mytorch::relu(layers[i](h));
    return h;
  }
};

Tensor channels_last(const Tensor& x) {
  return permute(permute(x, {0, 2, 3, 1}).contiguous(), {0, 3, 1, 2});
}

}  // namespace

void ddp_gpt2(const Group& world, const Settings& settings) {
  const int64_t batch = settings.size(16, 2), length = settings.size(1024, 16);
  models::GPT2Config config;
  config.vocab_size = settings.size(50304, 128);
  config.n_embd = settings.size(768, 32);
  config.n_layer = settings.size(12, 2);
  config.n_head = settings.size(12, 2);
  config.n_positions = length;
  config.resid_pdrop = config.embd_pdrop = config.attn_pdrop = 0;
  models::GPT2LMHeadModel model(config);
  model.to(settings.device);
  optim::AdamW adam(model.parameters(), {.lr = 1e-4, .betas = {0.9, 0.95}, .weight_decay = 0.1});
  seed_data(world);
  const auto ids = [&] {
    return mytorch::randint(config.vocab_size, {batch, length}, mytorch::kInt64)
        .to(settings.device);
  };
  const Tensor x = ids(), y = ids();
  Record record("ddp-gpt2", world);
  train(world, settings, record,
        {.model = model,
         .optimizer = adam,
         .loss = [&] { return model.loss(x, y, {.chunked = true}); },
         .autocast = true,
         .items = static_cast<double>(batch * length),
         .unit = "tokens"});
  mytorch::plan::Model shape = mytorch::plan::find_model("gpt2");
  shape.layers = config.n_layer;
  shape.width = config.n_embd;
  shape.heads = shape.key_heads = config.n_head;
  shape.head_width = config.n_embd / config.n_head;
  shape.hidden = 4 * config.n_embd;
  shape.vocabulary = config.vocab_size;
  shape.sequence = length;
  shape.batch = batch * world.size();
  shape.tied = shape.fused_loss = true;
  mytorch::plan::Layout layout;
  layout.data = world.size();
  layout.micro_batch = batch;
  predict(record, settings,
          {.model = shape,
           .layout = layout,
           .precision = {.parameter = 4, .gradient = 4, .optimizer = 8, .activation = 2}});
  record.print();
}

void ddp_resnet50(const Group& world, const Settings& settings) {
  const int64_t batch = settings.size(128, 2), side = settings.size(224, 32);
  models::ResNetConfig config = models::ResNetConfig::resnet50();
  if (settings.tiny) {
    config = models::ResNetConfig::resnet18();
    config.width = 8;
    config.num_classes = 10;
  }
  models::ResNet model(config);
  model.to(settings.device);
  for (const Tensor& parameter : model.parameters()) {
    if (parameter.dim() == 4) parameter.set_data(channels_last(parameter.detach()));
  }
  optim::SGD sgd(model.parameters(), {.lr = 1e-3, .momentum = 0.9, .weight_decay = 1e-4});
  seed_data(world);
  const Tensor x = channels_last(mytorch::randn({batch, 3, side, side}).to(settings.device));
  const Tensor y =
      mytorch::randint(config.num_classes, {batch}, mytorch::kInt64).to(settings.device);
  Record record("ddp-resnet50", world);
  const Training training{.model = model,
                          .optimizer = sgd,
                          .loss = [&] { return cross_entropy(model(x), y); },
                          .autocast = true,
                          .items = static_cast<double>(batch),
                          .unit = "images"};
  train(world, settings, record, training);
  predict_step(record, settings, world, [&] { return step_of(settings, training); });
  record.print();
}

void ddp_mlp(const Group& world, const Settings& settings) {
  const int64_t batch = settings.size(1024, 8), width = settings.size(256, 8);
  SmallLayers model(width, 100);
  model.to(settings.device);
  optim::SGD sgd(model.parameters(), {.lr = 1e-3, .momentum = 0.9});
  seed_data(world);
  const Tensor x = mytorch::randn({batch, width}).to(settings.device);
  Record record("ddp-mlp", world);
  const Training training{.model = model,
                          .optimizer = sgd,
                          .loss = [&] { return model(x).square().mean(); },
                          .autocast = false,
                          .items = static_cast<double>(batch),
                          .unit = "rows"};
  train(world, settings, record, training);
  predict_step(record, settings, world, [&] { return step_of(settings, training); });
  record.print();
}

}  // namespace bench
