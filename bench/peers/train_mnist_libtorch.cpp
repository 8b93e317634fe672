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
#include <stdexcept>
#include <string>

#include "bench/mnist_trial.h"
#include "blas_library.h"
#include "mnist_files.h"

namespace {

using bench::Epoch;
using bench::Options;

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
  const bench::Stopwatch watch;
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
  Epoch epoch = watch.stop(static_cast<double>(n));
  epoch.loss = loss_sum / static_cast<double>(n);
  epoch.accuracy = test_accuracy(model, test);
  return epoch;
}

void run(const Options& options) {
  at::set_num_threads(options.threads);
  torch::manual_seed(options.seed);
  const Dataset train = load(options.data, "train", options.model);
  const Dataset test = load(options.data, "t10k", options.model);
  torch::nn::Sequential model = make_model(options.model);
  torch::optim::SGD sgd(model->parameters(),
                        torch::optim::SGDOptions(options.lr).momentum(options.momentum()));
  bench::run_epochs(
      options,
      "\"framework\": \"libtorch " TORCH_VERSION "\", \"blas\": \"" + blas_library() + "\"",
      [&] { return train_epoch(model, sgd, train, test, options); });
}

}  // namespace

int main(int argc, char** argv) { return bench::run_trial(argc, argv, false, run); }
