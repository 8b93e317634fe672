#include "train.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "mytorch/mytorch.h"
#include "mytorch/nn/models/gpt2.h"
#include "vocabulary.h"

using mytorch::Device;
using mytorch::Error;
using mytorch::ErrorCode;
using mytorch::Tensor;
namespace nn = mytorch::nn;
namespace optim = mytorch::nn::optim;

namespace {

using Clock = std::chrono::steady_clock;

// The tokens of a text, of which the last tenth is for validation.
struct Data {
  Tensor training, validation;

  Data(const std::vector<int64_t>& tokens, int64_t context, Device device) {
    const auto count = static_cast<int64_t>(tokens.size());
    const int64_t last = std::max(count / 10, context + 1);
    if (count - last < context + 1) {
      throw Error(ErrorCode::kValue,
                  "the text has " + std::to_string(count) + " tokens, too few for --context " +
                      std::to_string(context) + ": give a longer text or a smaller context");
    }
    const Tensor all = mytorch::tensor(tokens).to(device);
    training = all.narrow(0, 0, count - last);
    validation = all.narrow(0, count - last, last);
  }
};

using Batch = std::pair<Tensor, Tensor>;  // tokens (batch, context), and those that follow each

// Draws windows of the text, with repetitions.
Batch random_batch(const Tensor& tokens, int64_t batch, int64_t context) {
  const Device device = tokens.device();
  const Tensor begin = mytorch::randint(tokens.size(0) - context, {batch, 1}, mytorch::kInt64);
  const Tensor places = (begin + mytorch::arange(context)).to(device);
  return {tokens.take(places), tokens.take(places + 1)};
}

// Returns the mean loss of windows that lie evenly in the text.
double validate(nn::models::GPT2LMHeadModel& model, const Tensor& tokens,
                const TrainOptions& options) {
  constexpr int64_t kMostWindows = 512;
  const mytorch::NoGradGuard no_grad;
  model.eval();
  nn::MeanMeter loss;
  const int64_t places = tokens.size(0) - options.context;
  const int64_t windows = std::min(kMostWindows, (places + options.context - 1) / options.context);
  for (int64_t first = 0; first < windows; first += options.batch) {
    std::vector<int64_t> begins;
    for (int64_t i = first; i < std::min(first + options.batch, windows); ++i) {
      begins.push_back(i * (places - 1) / std::max<int64_t>(windows - 1, 1));
    }
    const Tensor at = (mytorch::tensor(begins).unsqueeze(1) + mytorch::arange(options.context))
                          .to(tokens.device());
    loss.add(model.loss(tokens.take(at), tokens.take(at + 1)), static_cast<double>(begins.size()));
  }
  model.train();
  return loss.value();
}

// Weight decay is for matrices: norms and biases go without.
std::vector<Tensor> parameters_of(const nn::Module& model, bool matrices) {
  std::vector<Tensor> parameters;
  for (const Tensor& parameter : model.parameters()) {
    if ((parameter.dim() > 1) == matrices) parameters.push_back(parameter);
  }
  return parameters;
}

optim::LRCurve schedule_of(const TrainOptions& options) {
  const int64_t warmup = std::min(options.warmup, options.steps);
  const int64_t falling = std::max<int64_t>(options.steps - warmup, 1);
  const auto rising = std::max<int64_t>(warmup, 1);
  return optim::curves::sequence(
      {{optim::curves::linear(1.0 / static_cast<double>(rising), 1, rising), warmup},
       {optim::curves::cosine(falling, options.lr / 10), falling}});
}

void write_file(const std::string& path, const std::string& content) {
  std::ofstream file(path, std::ios::binary);
  file << content;
  file.flush();
  if (!file) throw Error(ErrorCode::kIo, "file " + path + " cannot be written");
}

}  // namespace

void train(const TrainOptions& options) {
  if (options.threads > 0) mytorch::set_num_threads(options.threads);
  mytorch::manual_seed(options.seed);
  mytorch::load_default_backends();
  const Device device(options.device);
  const std::string text = read_text(options.text);
  const auto vocabulary = make_vocabulary(options.tokens, text);
  const Data data(vocabulary->encode(text), options.context, device);

  nn::models::GPT2Config config;
  config.vocab_size = vocabulary->size();
  config.n_positions = options.context;
  config.n_embd = options.width;
  config.n_layer = options.layers;
  config.n_head = options.heads;
  config.resid_pdrop = config.embd_pdrop = config.attn_pdrop = options.dropout;
  nn::models::GPT2LMHeadModel model(config);
  model.to(device);
  std::printf("%lld parameters, %lld tokens of %lld kinds\n",
              static_cast<long long>(model.num_parameters()),
              static_cast<long long>(data.training.size(0)),
              static_cast<long long>(config.vocab_size));

  optim::AdamW adam(parameters_of(model, true),
                    {.lr = options.lr, .betas = {0.9, 0.99}, .weight_decay = options.weight_decay});
  adam.add_group(parameters_of(model, false),
                 {.lr = options.lr, .betas = {0.9, 0.99}, .weight_decay = 0});
  optim::LRScheduler schedule(adam, schedule_of(options));
  nn::GradScaler scaler({.enabled = options.autocast == "float16"});

  nn::Checkpoint checkpoint(options.run);
  checkpoint.add("model", model)
      .add("optimizer", adam)
      .add("schedule", schedule)
      .add("scaler", scaler)
      .add("generator", mytorch::default_generator());
  int64_t step = 0;
  if (const auto found = checkpoint.load_latest()) {
    step = found->step;
    std::printf("resumed at step %lld\n", static_cast<long long>(step));
  }
  std::filesystem::create_directories(options.run);
  write_file(options.run + "/vocabulary", vocabulary->saved());
  nn::CsvLog log(options.run + "/log.csv", step == 0 ? 0 : step + 1);
  const int64_t tokens_per_step = options.batch * options.context;
  nn::ProgressBar bar((options.steps - step) * tokens_per_step);
  nn::MeanMeter loss;  // since the last line, as are the next two
  Clock::time_point start = Clock::now();
  int64_t steps = 0;
  double last_loss = std::nan("");
  while (step < options.steps) {
    const auto [x, y] = random_batch(data.training, options.batch, options.context);
    Tensor batch_loss;
    {
      std::optional<mytorch::AutocastGuard> autocast;
      if (!options.autocast.empty()) {
        autocast.emplace(device,
                         options.autocast == "float16" ? mytorch::kFloat16 : mytorch::kBFloat16);
      }
      batch_loss = model.loss(x, y);
    }
    adam.zero_grad();
    scaler.scale(batch_loss).backward();
    scaler.unscale_(adam);
    if (options.clip > 0) optim::clip_grad_norm_(adam.parameters(), options.clip);
    scaler.step(adam);
    scaler.update();
    schedule.step();
    loss.add(batch_loss);
    ++step;
    ++steps;
    bar.advance(tokens_per_step, {{"loss", last_loss}});

    const bool last = step == options.steps;
    const bool validates = last || (options.eval_every > 0 && step % options.eval_every == 0);
    if (!validates && step % options.log_every != 0) continue;
    last_loss = loss.value();  // waits for the device
    const std::chrono::duration<double> seconds = Clock::now() - start;
    const double validation = validates ? validate(model, data.validation, options) : 0;
    if (bar.shown()) std::fputs("\r\033[K", stderr);
    std::printf("step %lld/%lld loss %.4f", static_cast<long long>(step),
                static_cast<long long>(options.steps), last_loss);
    if (validates) std::printf(" validation %.4f", validation);
    std::printf(" tokens/s %.0f\n", static_cast<double>(steps * tokens_per_step) / seconds.count());
    std::fflush(stdout);
    if (validates) {
      log.log(step, {{"loss", last_loss}, {"validation", validation}});
      checkpoint.save(step);
    }
    loss.reset();
    steps = 0;
    start = Clock::now();
  }
  bar.close();
  model.save_pretrained(options.run);
}
