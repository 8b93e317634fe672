// Trains a small network on MNIST with libtorch and times each epoch. `bench/train_mnist` is the
// same program in mytorch; `scripts/bench-mnist` runs the two alternately and compares them.
//
//   train_mnist_libtorch --data DIR [--model mlp|cnn] [--epochs N] [--batch N] [--threads N]
//                        [--lr X] [--seed N] [--benchmark_format=console|json]
//
// The time of an epoch includes shuffling and gathering batches, but not reading the files or
// measuring the accuracy.

#include <torch/torch.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <exception>
#include <stdexcept>
#include <string>
#include <vector>

#include "blas_library.h"
#include "mnist_files.h"

namespace {

struct Options {
  std::string data;
  std::string model = "mlp";
  int64_t epochs = 1;
  int64_t batch = 64;
  int threads = 1;
  double lr = 0;  // 0: the default of the model
  uint64_t seed = 1;
  bool json = false;
};

struct Epoch {
  double loss;
  double accuracy;  // of the test images, in [0, 1]
  double wall_seconds;
  double cpu_seconds;
  double samples_per_second;
};

template <typename T>
T parse(const std::string& name, const std::string& text, T (*convert)(const char*, char**),
        T smallest) {
  char* end = nullptr;
  const T value = convert(text.c_str(), &end);
  if (text.empty() || *end != '\0' || !(value >= smallest)) {
    throw std::invalid_argument(name + ": bad value '" + text + "'");
  }
  return value;
}

Options parse_options(int argc, char** argv) {
  const auto integer = [](const char* s, char** end) { return std::strtol(s, end, 10); };
  Options options;
  for (int i = 1; i < argc; ++i) {
    std::string name = argv[i];
    std::string value;
    if (const size_t equals = name.find('='); equals != std::string::npos) {
      value = name.substr(equals + 1);
      name.resize(equals);
    } else if (i + 1 < argc) {
      value = argv[++i];
    } else {
      throw std::invalid_argument(name + ": needs a value");
    }
    if (name == "--data") {
      options.data = value;
    } else if (name == "--model" && (value == "mlp" || value == "cnn")) {
      options.model = value;
    } else if (name == "--epochs") {
      options.epochs = parse<long>(name, value, integer, 1);
    } else if (name == "--batch") {
      options.batch = parse<long>(name, value, integer, 1);
    } else if (name == "--threads") {
      options.threads = static_cast<int>(parse<long>(name, value, integer, 1));
    } else if (name == "--lr") {
      options.lr = parse<double>(name, value, std::strtod, 0);
    } else if (name == "--seed") {
      options.seed = static_cast<uint64_t>(parse<long>(name, value, integer, 0));
    } else if (name == "--benchmark_format" && (value == "console" || value == "json")) {
      options.json = value == "json";
    } else {
      throw std::invalid_argument(name + " " + value + ": not understood");
    }
  }
  if (options.data.empty()) throw std::invalid_argument("--data DIR is needed");
  if (options.lr == 0) options.lr = options.model == "mlp" ? 0.5 : 0.01;
  return options;
}

struct Dataset {
  at::Tensor images;   // float32 in [0, 1]: (n, 784) for the MLP, (n, 1, 28, 28) for the CNN
  at::Tensor labels;   // int64, (n)
  at::Tensor targets;  // the loss's target: one-hot float32 (n, 10) for the MLP, else the labels
};

Dataset load(const std::string& directory, const std::string& part, const std::string& model) {
  IdxArray images = read_idx(directory, part + "-images-idx3-ubyte");
  IdxArray labels = read_idx(directory, part + "-labels-idx1-ubyte");
  if (images.shape.size() != 3 || images.shape[1] != 28 || images.shape[2] != 28 ||
      labels.shape.size() != 1 || images.shape[0] != labels.shape[0] || images.shape[0] == 0) {
    throw std::runtime_error(directory + ": " + part + " is not MNIST");
  }
  const int64_t n = images.shape[0];
  Dataset set;
  set.images =
      torch::from_blob(images.data.data(), {n, 784}, torch::kUInt8).to(torch::kFloat) / 255;
  set.labels = torch::from_blob(labels.data.data(), {n}, torch::kUInt8).to(torch::kLong);
  if (set.labels.max().item<int64_t>() > 9) {
    throw std::runtime_error(directory + ": " + part + " has a label above 9");
  }
  if (model == "cnn") {
    set.images = set.images.view({n, 1, 28, 28});
    set.targets = set.labels;
  } else {
    set.targets = torch::one_hot(set.labels, 10).to(torch::kFloat);
  }
  return set;
}

torch::nn::Sequential make_model(const std::string& model) {
  using namespace torch::nn;
  if (model == "mlp") return Sequential(Linear(784, 32), ReLU(), Linear(32, 10));
  return Sequential(Conv2d(Conv2dOptions(1, 16, 3).padding(1)), ReLU(), MaxPool2d(2),
                    Conv2d(Conv2dOptions(16, 32, 3).padding(1)), ReLU(), MaxPool2d(2), Flatten(),
                    Linear(1568, 128), ReLU(), Linear(128, 10));
}

double test_accuracy(torch::nn::Sequential& model, const Dataset& test) {
  torch::NoGradGuard no_grad;
  constexpr int64_t kBatch = 1000;
  const int64_t n = test.labels.size(0);
  int64_t correct = 0;
  for (int64_t i = 0; i < n; i += kBatch) {
    const int64_t end = std::min(i + kBatch, n);
    const at::Tensor guess = model->forward(test.images.slice(0, i, end)).argmax(1);
    correct += guess.eq(test.labels.slice(0, i, end)).sum().item<int64_t>();
  }
  return static_cast<double>(correct) / static_cast<double>(n);
}

Epoch train_epoch(torch::nn::Sequential& model, torch::optim::SGD& sgd, const Dataset& train,
                  const Dataset& test, const Options& options) {
  const int64_t n = train.labels.size(0);
  double loss_sum = 0;
  const std::clock_t cpu_start = std::clock();
  const auto start = std::chrono::steady_clock::now();
  const at::Tensor order = torch::randperm(n);
  for (int64_t i = 0; i < n; i += options.batch) {
    const int64_t end = std::min(i + options.batch, n);
    const at::Tensor rows = order.slice(0, i, end);
    const at::Tensor x = train.images.index_select(0, rows);
    const at::Tensor y = train.targets.index_select(0, rows);
    model->zero_grad(/*set_to_none=*/true);  // cheaper than filling the gradients with zeros
    const at::Tensor output = model->forward(x);
    const at::Tensor loss = options.model == "mlp"
                                ? torch::mse_loss(output, y)
                                : torch::nn::functional::cross_entropy(output, y);
    loss.backward();
    sgd.step();
    loss_sum += loss.item<double>() * static_cast<double>(end - i);
  }
  const std::chrono::duration<double> wall = std::chrono::steady_clock::now() - start;
  Epoch epoch;
  epoch.wall_seconds = wall.count();
  epoch.cpu_seconds = static_cast<double>(std::clock() - cpu_start) / CLOCKS_PER_SEC;
  epoch.loss = loss_sum / static_cast<double>(n);
  epoch.samples_per_second = static_cast<double>(n) / epoch.wall_seconds;
  epoch.accuracy = test_accuracy(model, test);
  return epoch;
}

void print_line(const Epoch& epoch, int64_t index, int64_t count) {
  std::printf("epoch %ld/%ld loss %.4f accuracy %.2f%% time %.2fs samples/s %.0f\n",
              static_cast<long>(index + 1), static_cast<long>(count), epoch.loss,
              100 * epoch.accuracy, epoch.wall_seconds, epoch.samples_per_second);
  std::fflush(stdout);
}

// Writes a number as Google Benchmark does; Python's json module reads NaN and Infinity.
std::string json_number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value < 0 ? "-Infinity" : "Infinity";
  char text[32];
  std::snprintf(text, sizeof text, "%.6e", value);
  return text;
}

// Writes Google Benchmark's JSON, so that one script reads all results of this folder. Google
// Benchmark itself would add the numbers of iterations and repetitions to the name.
void print_json(const std::vector<Epoch>& epochs, const Options& options) {
  const std::string name = options.model + "_epoch";
  std::printf("{\n  \"context\": {\"framework\": \"libtorch %s\", \"blas\": \"%s\", ",
              TORCH_VERSION, blas_library().c_str());
  std::printf("\"threads\": %d, \"batch\": %ld},\n  \"benchmarks\": [\n", options.threads,
              static_cast<long>(options.batch));
  for (size_t i = 0; i < epochs.size(); ++i) {
    const Epoch& epoch = epochs[i];
    std::printf("    {\"name\": \"%s\", \"run_name\": \"%s\", \"run_type\": \"iteration\", ",
                name.c_str(), name.c_str());
    std::printf("\"repetitions\": %zu, \"repetition_index\": %zu, \"threads\": 1, ", epochs.size(),
                i);
    std::printf("\"iterations\": 1, \"real_time\": %.6f, \"cpu_time\": %.6f, ",
                1e3 * epoch.wall_seconds, 1e3 * epoch.cpu_seconds);
    std::printf("\"time_unit\": \"ms\", \"items_per_second\": %.1f, ", epoch.samples_per_second);
    std::printf("\"loss\": %s, \"accuracy\": %.6f}%s\n", json_number(epoch.loss).c_str(),
                epoch.accuracy, i + 1 < epochs.size() ? "," : "");
  }
  std::printf("  ]\n}\n");
}

void run(const Options& options) {
  at::set_num_threads(options.threads);
  torch::manual_seed(options.seed);
  const Dataset train = load(options.data, "train", options.model);
  const Dataset test = load(options.data, "t10k", options.model);
  torch::nn::Sequential model = make_model(options.model);
  const double momentum = options.model == "cnn" ? 0.9 : 0;
  torch::optim::SGD sgd(model->parameters(),
                        torch::optim::SGDOptions(options.lr).momentum(momentum));
  std::vector<Epoch> epochs;
  for (int64_t i = 0; i < options.epochs; ++i) {
    epochs.push_back(train_epoch(model, sgd, train, test, options));
    if (!options.json) print_line(epochs.back(), i, options.epochs);
  }
  if (options.json) print_json(epochs, options);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    run(parse_options(argc, argv));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "train_mnist_libtorch: %s\n", error.what());
    return 1;
  }
  return 0;
}
