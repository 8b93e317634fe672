// Training steps of whole models on a GPU, and sentence embeddings. bench/peers/torch_models.py has
// the same cases for PyTorch; scripts/bench-models runs both and prints ratios.
//
//   bench_models [CASE ...] [--precision autocast|bfloat16|float32] [--graph] [--compiled]
//                [--no-eager] [--profile] [--measured] [--seconds S] [--save FILE]
//
// --measured times the kernels of each operator in a first step and then uses the fastest ones.
// Data are random and stay the same, so that the loss begins near the logarithm of the number of
// classes and falls. Prints a line per case:
//
//   NAME PRECISION eager|graph|compiled MS UNIT_PER_S TFLOPS SHARE HOST_MS PEAK_GIB FIRST_LOSS
//   LAST_LOSS
//
// SHARE is that of the speed of a matrix product of side 8192 in the same process, HOST_MS the time
// in which the host queues a step. Floating-point operations are those of matrix products and
// convolutions, with backward as twice forward and half of attention if it is causal.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <functional>
#include <iostream>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "mytorch/choice.h"
#include "mytorch/compile.h"
#include "mytorch/graph.h"
#include "mytorch/mytorch.h"
#include "mytorch/nn/models/bert.h"
#include "mytorch/nn/models/gpt2.h"
#include "mytorch/nn/models/llama.h"
#include "mytorch/nn/models/resnet.h"
#include "mytorch/profiler.h"

namespace {

using namespace mytorch;
namespace models = mytorch::nn::models;
namespace optim = mytorch::nn::optim;
using Clock = std::chrono::steady_clock;

const Device kGpu("cuda");

struct Options {
  std::vector<std::string> cases;
  std::string precision;  // empty: that of each case
  bool eager = true, graph = false, compiled = false, profile = false, measured = false;
  double seconds = 1;
  std::string save;

  bool wants(const std::string& name) const {
    return cases.empty() || std::find(cases.begin(), cases.end(), name) != cases.end();
  }
  std::vector<std::string> precisions(std::vector<std::string> defaults) const {
    return precision.empty() ? std::move(defaults) : std::vector<std::string>{precision};
  }
};

double since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// ---- what is measured

// One step of a model. `step` returns the loss, or an undefined tensor.
struct Case {
  std::string name, precision;
  double items = 0;  // tokens, images or sentences of a step
  double flops = 0;
  std::function<Tensor()> step;
};

double peak_tflops() {
  static const double peak = [] {
    constexpr int64_t kSide = 8192;
    const auto random = [&] {
      return sub(rand({kSide, kSide}, kFloat32, kGpu), 0.5).to(kBFloat16);
    };
    const NoGradGuard no_grad;
    const Tensor a = random(), b = random();
    for (int i = 0; i < 5; ++i) matmul(a, b);
    synchronize();
    const auto start = Clock::now();
    constexpr int kTimes = 20;
    for (int i = 0; i < kTimes; ++i) matmul(a, b);
    synchronize();
    return 2e-12 * kSide * kSide * kSide * kTimes / since(start);
  }();
  return peak;
}

double number(const Tensor& loss) { return loss.defined() ? loss.item<double>() : std::nan(""); }

// Returns the seconds of a step and those in which the host queues it: medians of three batches.
std::pair<double, double> measure(const std::function<void()>& step, double seconds) {
  auto start = Clock::now();
  for (int i = 0; i < 3; ++i) step();
  synchronize();
  const int times = std::clamp(static_cast<int>(seconds / since(start)), 1, 1000);  // a third
  std::vector<double> all, host;
  for (int batch = 0; batch < 3; ++batch) {
    start = Clock::now();
    for (int i = 0; i < times; ++i) step();
    host.push_back(since(start) / times);
    synchronize();
    all.push_back(since(start) / times);
  }
  std::sort(all.begin(), all.end());
  std::sort(host.begin(), host.end());
  return {all[1], host[1]};
}

void report(const Case& c, const char* mode, const Options& options,
            const std::function<void()>& step, double first, const std::function<double()>& last) {
  reset_peak_memory();
  const auto [seconds, host] = measure(step, options.seconds);
  const double tflops = c.flops / seconds * 1e-12;
  std::printf(
      "%-8s %-8s %-8s %9.3f ms %10.0f /s %7.1f TFLOP/s %5.1f %% host %8.3f ms peak %6.2f GiB "
      "loss %.4f %.4f\n",
      c.name.c_str(), c.precision.c_str(), mode, seconds * 1e3, c.items / seconds, tflops,
      100 * tflops / peak_tflops(), host * 1e3,
      static_cast<double>(memory_stats().allocated_peak) / (1 << 30), first, last());
  std::fflush(stdout);
}

void run(const Case& c, const Options& options) try {
  peak_tflops();
  std::optional<Tuning> tuning;
  if (options.measured) tuning.emplace();
  const double first = number(c.step());
  Tensor loss;
  for (int i = 0; i < 3; ++i) loss = c.step();
  synchronize();
  tuning.reset();
  if (options.measured) set_choice(Choice::kMeasured);
  if (options.eager) {
    report(
        c, "eager", options, [&] { loss = c.step(); }, first, [&] { return number(loss); });
  }
  if (options.profile) {
    profiler::Profile profile({.wait = true});
    c.step();
    profile.stop();
    std::cout << profile.table() << std::flush;
  }
  if (options.graph) {
    Graph graph(kGpu);
    loss = {};
    graph.capture([&] { loss = c.step(); });
    report(
        c, "graph", options, [&] { graph.replay(); }, first, [&] { return number(loss); });
  }
  if (options.compiled) {
    auto compiled = compile(c.step);
    loss = {};
    const auto start = Clock::now();
    for (int i = 0; i < 4; ++i) loss = compiled();
    synchronize();
    const CompileStats stats = compiled.stats();
    std::printf(
        "%s compiled in %.3f s: %lld kernels, %lld fused, %lld nodes on the host, %.2f GiB%s\n",
        c.name.c_str(), since(start), static_cast<long long>(stats.kernel_calls),
        static_cast<long long>(stats.fused), static_cast<long long>(stats.interpreted),
        static_cast<double>(stats.planned_bytes) / (1 << 30),
        stats.device_graph ? ", one device graph" : "");
    for (const std::string& name : stats.interpreted_operators) {
      std::printf("%s: %s runs on the host\n", c.name.c_str(), name.c_str());
    }
    report(
        c, "compiled", options, [&] { loss = compiled(); }, first, [&] { return number(loss); });
  }
} catch (const Error& error) {
  std::printf("%s %s failed: %s\n", c.name.c_str(), c.precision.c_str(), error.what());
  std::fflush(stdout);
}

// ---- training

// Calls `loss` in the given precision: with float32 parameters under autocast, or with bfloat16
// parameters, of which the optimizer keeps float32 master weights.
template <class Optimizer>
std::function<Tensor()> training_step(const std::string& precision, Optimizer& optimizer,
                                      std::function<Tensor()> loss) {
  return [precision, &optimizer, loss = std::move(loss)] {
    Tensor value;
    {
      std::optional<AutocastGuard> autocast;
      if (precision == "autocast") autocast.emplace(kGpu, kBFloat16);
      value = loss();
    }
    optimizer.zero_grad();
    value.backward();
    optimizer.step();
    return value.detach();
  };
}

void place(nn::Module& model, const std::string& precision) {
  model.to(kGpu, precision == "bfloat16" ? kBFloat16 : kFloat32);
  model.train();
}

optim::AdamWArgs adamw() { return {.lr = 1e-4, .betas = {0.9, 0.95}, .weight_decay = 0.1}; }

Tensor ids(int64_t vocabulary, int64_t batch, int64_t length) {
  return randint(vocabulary, {batch, length}, kInt64).to(kGpu);
}

// 6 operations per token and parameter of a matrix product, and those of attention.
double transformer_flops(double products, int64_t layers, int64_t batch, int64_t length,
                         int64_t width, bool causal) {
  const double tokens = static_cast<double>(batch * length);
  const double attention = 12.0 * static_cast<double>(layers * width * length) * (causal ? 0.5 : 1);
  return tokens * (6 * products + attention);
}

void gpt2(const Options& options) {
  constexpr int64_t kBatch = 16, kLength = 1024;
  for (const std::string& precision : options.precisions({"bfloat16", "autocast"})) {
    manual_seed(0);
    models::GPT2Config config;
    config.vocab_size = 50304;
    config.resid_pdrop = config.embd_pdrop = config.attn_pdrop = 0;
    models::GPT2LMHeadModel model(config);
    place(model, precision);
    optim::AdamW adam(model.parameters(), adamw());
    const Tensor x = ids(50304, kBatch, kLength), y = ids(50304, kBatch, kLength);
    const auto products =
        static_cast<double>(model.num_parameters() - model.transformer.wpe.weight.numel());
    run({"gpt2", precision, kBatch * kLength,
         transformer_flops(products, config.n_layer, kBatch, kLength, config.n_embd, true),
         training_step(precision, adam, [&] { return model.loss(x, y, {.chunked = true}); })},
        options);
  }
}

void llama(const Options& options) {
  constexpr int64_t kBatch = 4, kLength = 2048;
  for (const std::string& precision : options.precisions({"bfloat16", "autocast"})) {
    manual_seed(0);
    models::LlamaConfig config;  // the shape of Llama 3.2 1B
    config.vocab_size = 128256;
    config.hidden_size = 2048;
    config.intermediate_size = 8192;
    config.num_hidden_layers = 16;
    config.num_attention_heads = 32;
    config.num_key_value_heads = 8;
    config.rope_theta = 500000;
    config.tie_word_embeddings = true;
    models::LlamaForCausalLM model(config);
    place(model, precision);
    optim::AdamW adam(model.parameters(), adamw());
    const Tensor x = ids(config.vocab_size, kBatch, kLength),
                 y = ids(config.vocab_size, kBatch, kLength);
    run({"llama", precision, kBatch * kLength,
         transformer_flops(static_cast<double>(model.num_parameters()), config.num_hidden_layers,
                           kBatch, kLength, config.hidden_size, true),
         training_step(precision, adam, [&] { return model.loss(x, y, {.chunked = true}); })},
        options);
  }
}

// A masked language model without the transform of BERT's head: the logits of all tokens, by the
// tied embedding.
void bert(const Options& options) {
  constexpr int64_t kBatch = 16, kLength = 512;
  for (const std::string& precision : options.precisions({"bfloat16", "autocast"})) {
    manual_seed(0);
    models::BertConfig config;
    config.hidden_dropout_prob = config.attention_probs_dropout_prob = 0;
    models::BertModel model(config, /*add_pooling_layer=*/false);
    place(model, precision);
    optim::AdamW adam(model.parameters(), adamw());
    const Tensor x = ids(config.vocab_size, kBatch, kLength),
                 y = ids(config.vocab_size, kBatch, kLength);
    const Tensor& table = model.embeddings.word_embeddings.weight;
    const auto products = static_cast<double>(model.num_parameters() -
                                              model.embeddings.position_embeddings.weight.numel());
    run({"bert", precision, kBatch * kLength,
         transformer_flops(products, config.num_hidden_layers, kBatch, kLength, config.hidden_size,
                           false),
         training_step(precision, adam,
                       [&] { return linear_cross_entropy(model(x).last_hidden_state, table, y); })},
        options);
  }
}

// A stack of encoder layers alone: no embeddings and no classes.
void encoder(const Options& options) {
  constexpr int64_t kBatch = 16, kLength = 512, kWidth = 768, kLayers = 12;
  for (const std::string& precision : options.precisions({"bfloat16", "autocast"})) {
    manual_seed(0);
    nn::TransformerEncoder model(nn::TransformerEncoderLayer(kWidth, 12,
                                                             {.dim_feedforward = 4 * kWidth,
                                                              .dropout = 0,
                                                              .activation = "gelu",
                                                              .batch_first = true}),
                                 kLayers);
    place(model, precision);
    optim::AdamW adam(model.parameters(), adamw());
    const Tensor x = randn({kBatch, kLength, kWidth}, kFloat32, kGpu)
                         .to(precision == "bfloat16" ? kBFloat16 : kFloat32);
    const auto products = static_cast<double>(kLayers * 12 * kWidth * kWidth);
    run({"encoder", precision, kBatch * kLength,
         transformer_flops(products, kLayers, kBatch, kLength, kWidth, false),
         training_step(precision, adam, [&] { return model(x).to(kFloat32).square().mean(); })},
        options);
  }
}

Tensor channels_last(const Tensor& x) {
  return permute(permute(x, {0, 2, 3, 1}).contiguous(), {0, 3, 1, 2});
}

void resnet50(const Options& options) {
  constexpr int64_t kBatch = 128;
  for (const std::string& precision : options.precisions({"autocast"})) {
    manual_seed(0);
    models::ResNet model(models::ResNetConfig::resnet50());
    place(model, precision);
    for (const Tensor& parameter : model.parameters()) {
      if (parameter.dim() == 4) parameter.set_data(channels_last(parameter.detach()));
    }
    optim::SGD sgd(model.parameters(), {.lr = 1e-3, .momentum = 0.9, .weight_decay = 1e-4});
    const Tensor x = channels_last(randn({kBatch, 3, 224, 224}, kFloat32, kGpu));
    const Tensor y = randint(1000, {kBatch}, kInt64).to(kGpu);
    run({"resnet50", precision, kBatch, 3 * 2 * 4.089e9 * kBatch,
         training_step(precision, sgd, [&] { return cross_entropy(model(x), y); })},
        options);
  }
}

// ---- embeddings

// 256 sentences of 16 to 128 tokens in the model of all-MiniLM-L6-v2 with other weights: a function
// of their place that the twin computes, too. They are one padded batch or, sorted by length,
// several (`minilm4`), as examples/embed makes them.
void minilm(const Options& options, int64_t parts) {
  constexpr int64_t kBatch = 256, kLength = 128;
  const NoGradGuard no_grad;
  for (const std::string& precision : options.precisions({"float32", "bfloat16"})) {
    models::BertConfig config;
    config.hidden_size = 384;
    config.num_hidden_layers = 6;
    config.intermediate_size = 1536;
    models::BertModel model(config, /*add_pooling_layer=*/false);
    int64_t place = 0;
    for (const auto& [name, parameter] : model.named_parameters()) {
      const Tensor at = arange(parameter.numel(), kFloat64).add(place);
      const double scale = parameter.dim() > 1 ? 0.08 : 0.02;
      const double middle = name.ends_with("LayerNorm.weight") ? 1 : 0;
      place += parameter.numel();
      parameter.copy_(mytorch::sin(at.mul(12.9898))
                          .mul(43758.5453)
                          .frac()
                          .mul(scale)
                          .add(middle)
                          .view(parameter.sizes()));
    }
    model.to(kGpu, precision == "bfloat16" ? kBFloat16 : kFloat32);
    model.eval();
    std::vector<int64_t> order(kBatch);
    std::iota(order.begin(), order.end(), 0);
    const auto length = [](int64_t sentence) { return sentence * 37 % 113 + 16; };
    if (parts > 1) {
      std::stable_sort(order.begin(), order.end(),
                       [&](int64_t a, int64_t b) { return length(a) < length(b); });
    }
    struct Part {
      Tensor ids, mask;
    };
    std::vector<Part> batches;
    for (int64_t first = 0; first < kBatch; first += kBatch / parts) {
      const std::vector<int64_t> rows(order.begin() + first,
                                      order.begin() + first + kBatch / parts);
      const int64_t longest = parts > 1 ? length(rows.back()) : kLength;
      const Tensor row = tensor(rows).unsqueeze(1), column = arange(longest);
      batches.push_back({row.mul(7919).add(column.mul(104729)).remainder(30000).add(100).to(kGpu),
                         column.lt(row.mul(37).remainder(113).add(16)).to(kGpu)});
    }
    const Tensor places = tensor(order).to(kGpu);
    Tensor embeddings;
    const double products = 6 * (4.0 * 384 * 384 + 2.0 * 384 * 1536);
    double tokens = 0;
    for (const Part& part : batches) tokens += static_cast<double>(part.ids.numel());
    run({parts > 1 ? "minilm4" : "minilm", precision, kBatch, 2 * products * tokens,
         [&] {
           std::vector<Tensor> found;
           for (const auto& [ids, mask] : batches) {
             const Tensor hidden = model(ids, {.attention_mask = mask}).last_hidden_state;
             found.push_back(nn::functional::normalize(models::mean_pooling(hidden, mask)));
           }
           const Tensor sorted = cat(found);
           embeddings = empty_like(sorted).index_copy_(0, places, sorted);
           return Tensor();
         }},
        options);
    if (!options.save.empty() && precision == "float32") {
      nn::save_safetensors(options.save, {{"embeddings", embeddings.to(kCPU)}});
    }
  }
}
void minilm_in_one(const Options& options) { minilm(options, 1); }
void minilm_sorted(const Options& options) { minilm(options, 4); }

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    const auto value = [&] {
      if (++i >= argc) throw std::invalid_argument(std::string(word) + " needs a value");
      return std::string(argv[i]);
    };
    if (word == "--precision") {
      options.precision = value();
    } else if (word == "--seconds") {
      options.seconds = std::stod(value());
    } else if (word == "--save") {
      options.save = value();
    } else if (word == "--graph") {
      options.graph = true;
    } else if (word == "--compiled") {
      options.compiled = true;
    } else if (word == "--no-eager") {
      options.eager = false;
    } else if (word == "--profile") {
      options.profile = true;
    } else if (word == "--measured") {
      options.measured = true;
    } else if (word.starts_with("-")) {
      throw std::invalid_argument("unknown option " + std::string(word));
    } else {
      options.cases.emplace_back(word);
    }
  }
  return options;
}

}  // namespace

int main(int argc, char** argv) try {
  const Options options = parse(argc, argv);
  load_default_backends();
  const std::pair<const char*, void (*)(const Options&)> cases[] = {{"gpt2", gpt2},
                                                                    {"bert", bert},
                                                                    {"encoder", encoder},
                                                                    {"llama", llama},
                                                                    {"resnet50", resnet50},
                                                                    {"minilm", minilm_in_one},
                                                                    {"minilm4", minilm_sorted}};
  for (const std::string& name : options.cases) {
    if (std::none_of(std::begin(cases), std::end(cases),
                     [&](const auto& known) { return name == known.first; })) {
      throw std::invalid_argument("there is no case " + name);
    }
  }
  for (const auto& [name, function] : cases) {
    if (options.wants(name)) function(options);
  }
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "bench_models: %s\n", error.what());
  return 1;
}
