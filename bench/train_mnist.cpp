// Trains a small network on MNIST and times each epoch. `bench/peers/train_mnist_libtorch` is the
// same program in libtorch; `scripts/bench-mnist` runs the two alternately and compares them.
//
//   train_mnist --data DIR|random [--model mlp|cnn] [--epochs N] [--batch N] [--threads N] [--lr X]
//               [--seed N] [--device cpu|cuda] [--graph 0|1] [--benchmark_format=console|json]
//
// The time of an epoch includes shuffling and gathering batches, but not reading the files or
// measuring the accuracy. `random` uses 60000 images of random numbers. On a GPU, the images are in
// device memory, the last, smaller batch of an epoch is skipped, and with --graph 1 an epoch is
// captured once, after a few steps, and then replayed; `bench/peers/train_mnist_torch.py` does the
// same in PyTorch.

#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <exception>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "mytorch/cuda.h"
#include "mytorch/mytorch.h"

namespace {

using mytorch::Tensor;
namespace nn = mytorch::nn;
namespace data = mytorch::nn::data;

struct Options {
  std::string data;
  std::string model = "mlp";
  int64_t epochs = 1;
  int64_t batch = 64;
  int threads = 1;
  double lr = 0;  // 0: the default of the model
  uint64_t seed = 1;
  std::string device = "cpu";
  bool graph = false;
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
    } else if (name == "--device") {
      options.device = value;
    } else if (name == "--graph" && (value == "0" || value == "1")) {
      options.graph = value == "1";
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

nn::Sequential make_model(const std::string& model) {
  if (model == "mlp") {
    return nn::Sequential(nn::Flatten(), nn::Linear(784, 32), nn::ReLU(), nn::Linear(32, 10));
  }
  return nn::Sequential(nn::Conv2d(1, 16, 3, {.padding = 1}), nn::ReLU(), nn::MaxPool2d(2),
                        nn::Conv2d(16, 32, 3, {.padding = 1}), nn::ReLU(), nn::MaxPool2d(2),
                        nn::Flatten(), nn::Linear(1568, 128), nn::ReLU(), nn::Linear(128, 10));
}

double test_accuracy(nn::Sequential& model, const std::shared_ptr<const data::MNIST>& test) {
  const mytorch::NoGradGuard no_grad;
  int64_t correct = 0;
  data::DataLoader loader(test, {.batch_size = 1000});
  for (const data::Batch& batch : loader) {
    correct += model(batch.data).argmax(1).eq(batch.target).sum().item<int64_t>();
  }
  return static_cast<double>(correct) / static_cast<double>(test->size());
}

Epoch train_epoch(nn::Sequential& model, nn::optim::SGD& sgd, data::DataLoader& loader,
                  const std::shared_ptr<const data::MNIST>& test, const Options& options) {
  const auto n = static_cast<double>(loader.dataset().size());
  const Tensor one_hot = mytorch::eye(10);
  double loss_sum = 0;
  const std::clock_t cpu_start = std::clock();
  const auto start = std::chrono::steady_clock::now();
  for (const data::Batch& batch : loader) {
    sgd.zero_grad();
    const Tensor output = model(batch.data);
    const Tensor loss = options.model == "mlp"
                            ? mytorch::mse_loss(output, one_hot.index_select(0, batch.target))
                            : mytorch::cross_entropy(output, batch.target);
    loss.backward();
    sgd.step();
    loss_sum += loss.item<double>() * static_cast<double>(batch.size());
  }
  const std::chrono::duration<double> wall = std::chrono::steady_clock::now() - start;
  Epoch epoch;
  epoch.wall_seconds = wall.count();
  epoch.cpu_seconds = static_cast<double>(std::clock() - cpu_start) / CLOCKS_PER_SEC;
  epoch.loss = loss_sum / n;
  epoch.samples_per_second = n / epoch.wall_seconds;
  epoch.accuracy = test_accuracy(model, test);
  return epoch;
}

// ---- on a GPU

// The images and their targets, in the order of an epoch.
struct Resident {
  Tensor images, targets;
  Tensor shuffled_images, shuffled_targets;

  Resident(const Options& options, const mytorch::Device& device) {
    Tensor labels;
    if (options.data == "random") {
      images = mytorch::rand({60000, 1, 28, 28}, mytorch::kFloat32, device);
      labels = mytorch::randint(10, {60000}, mytorch::kInt64, device);
    } else {
      const data::MNIST train(options.data, data::Split::kTrain);
      data::DataLoader all(train, {.batch_size = train.size()});
      for (const data::Batch& batch : all) {
        images = batch.data.to(device);
        labels = batch.target.to(device);
      }
    }
    targets = options.model == "mlp"
                  ? mytorch::eye(10, 10, mytorch::kFloat32, device).index_select(0, labels)
                  : labels;
    shuffled_images = mytorch::empty_like(images);
    shuffled_targets = mytorch::empty_like(targets);
  }
  void shuffle() {
    const int64_t n = images.size(0);
    const Tensor order = mytorch::randperm(n, mytorch::kInt64, images.device());
    mytorch::index_select_out(shuffled_images, images, 0, order);
    mytorch::index_select_out(shuffled_targets, targets, 0, order);
  }
};

std::vector<Epoch> train_on_device(nn::Sequential& model, nn::optim::SGD& sgd,
                                   const Options& options) {
  const mytorch::Device device(options.device);
  Resident resident(options, device);
  const Tensor loss_sum = mytorch::zeros(mytorch::IntList(nullptr, 0), mytorch::kFloat32, device);
  const int64_t steps = resident.images.size(0) / options.batch;
  const auto step = [&](int64_t i) {
    const Tensor x = mytorch::narrow(resident.shuffled_images, 0, i * options.batch, options.batch);
    const Tensor y =
        mytorch::narrow(resident.shuffled_targets, 0, i * options.batch, options.batch);
    sgd.zero_grad();
    const Tensor output = model(x);
    const Tensor loss =
        options.model == "mlp" ? mytorch::mse_loss(output, y) : mytorch::cross_entropy(output, y);
    loss.backward();
    sgd.step();
    loss_sum.add_(loss.detach());
  };
  // The first steps compile, plan and allocate.
  resident.shuffle();
  for (int64_t i = 0; i < 3; ++i) step(i);
  mytorch::Graph graph(device);
  if (options.graph) {
    graph.capture([&] {
      for (int64_t i = 0; i < steps; ++i) step(i);
    });
  }
  std::vector<Epoch> epochs;
  for (int64_t e = 0; e < options.epochs; ++e) {
    loss_sum.fill_(0);
    mytorch::synchronize(device);
    const std::clock_t cpu_start = std::clock();
    const auto start = std::chrono::steady_clock::now();
    resident.shuffle();
    if (options.graph) {
      graph.replay();
    } else {
      for (int64_t i = 0; i < steps; ++i) step(i);
    }
    mytorch::synchronize(device);
    const std::chrono::duration<double> wall = std::chrono::steady_clock::now() - start;
    Epoch epoch;
    epoch.wall_seconds = wall.count();
    epoch.cpu_seconds = static_cast<double>(std::clock() - cpu_start) / CLOCKS_PER_SEC;
    epoch.loss = loss_sum.item<double>() / static_cast<double>(steps);
    epoch.samples_per_second = static_cast<double>(steps * options.batch) / epoch.wall_seconds;
    epoch.accuracy = 0;
    epochs.push_back(epoch);
  }
  return epochs;
}

void print_line(const Epoch& epoch, int64_t index, int64_t count) {
  std::printf("epoch %ld/%ld loss %.6f accuracy %.2f%% time %.4fs samples/s %.0f\n",
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

// Writes Google Benchmark's JSON, so that one script reads the results of both programs.
void print_json(const std::vector<Epoch>& epochs, const Options& options) {
  const std::string name = options.model + "_epoch";
  std::printf("{\n  \"context\": {\"framework\": \"mytorch %s\", ", MYTORCH_VERSION_STRING);
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
  mytorch::set_num_threads(options.threads);
  mytorch::manual_seed(options.seed);
  mytorch::load_default_backends();
  if (options.device != "cpu") {
    nn::Sequential model = make_model(options.model);
    model.to(options.device);
    nn::optim::SGD sgd(model.parameters(),
                       {.lr = options.lr, .momentum = options.model == "cnn" ? 0.9 : 0});
    const std::vector<Epoch> epochs = train_on_device(model, sgd, options);
    for (size_t i = 0; i < epochs.size() && !options.json; ++i) {
      print_line(epochs[i], static_cast<int64_t>(i), options.epochs);
    }
    if (options.json) print_json(epochs, options);
    return;
  }
  data::DataLoader loader(data::MNIST(options.data, data::Split::kTrain),
                          {.batch_size = options.batch, .shuffle = true, .seed = options.seed});
  const auto test = std::make_shared<const data::MNIST>(options.data, data::Split::kTest);
  nn::Sequential model = make_model(options.model);
  const double momentum = options.model == "cnn" ? 0.9 : 0;
  nn::optim::SGD sgd(model.parameters(), {.lr = options.lr, .momentum = momentum});
  std::vector<Epoch> epochs;
  for (int64_t i = 0; i < options.epochs; ++i) {
    epochs.push_back(train_epoch(model, sgd, loader, test, options));
    if (!options.json) print_line(epochs.back(), i, options.epochs);
  }
  if (options.json) print_json(epochs, options);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    run(parse_options(argc, argv));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "train_mnist: %s\n", error.what());
    return 1;
  }
  return 0;
}
