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

#include <memory>
#include <string>

#include "bench/mnist_trial.h"
#include "mytorch/cuda.h"
#include "mytorch/mytorch.h"

namespace {

using bench::Epoch;
using bench::Options;
using mytorch::Tensor;
namespace nn = mytorch::nn;
namespace data = mytorch::nn::data;

constexpr const char* kContext = "\"framework\": \"mytorch " MYTORCH_VERSION_STRING "\"";

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
  const bench::Stopwatch watch;
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
  Epoch epoch = watch.stop(n);
  epoch.loss = loss_sum / n;
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

void train_on_device(nn::Sequential& model, nn::optim::SGD& sgd, const Options& options) {
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
  bench::run_epochs(options, kContext, [&] {
    loss_sum.fill_(0);
    mytorch::synchronize(device);
    const bench::Stopwatch watch;
    resident.shuffle();
    if (options.graph) {
      graph.replay();
    } else {
      for (int64_t i = 0; i < steps; ++i) step(i);
    }
    mytorch::synchronize(device);
    Epoch epoch = watch.stop(static_cast<double>(steps * options.batch));
    epoch.loss = loss_sum.item<double>() / static_cast<double>(steps);
    return epoch;
  });
}

void run(const Options& options) {
  mytorch::set_num_threads(options.threads);
  mytorch::manual_seed(options.seed);
  mytorch::load_default_backends();
  if (options.device != "cpu") {
    nn::Sequential model = make_model(options.model);
    model.to(options.device);
    nn::optim::SGD sgd(model.parameters(), {.lr = options.lr, .momentum = options.momentum()});
    return train_on_device(model, sgd, options);
  }
  data::DataLoader loader(data::MNIST(options.data, data::Split::kTrain),
                          {.batch_size = options.batch, .shuffle = true, .seed = options.seed});
  const auto test = std::make_shared<const data::MNIST>(options.data, data::Split::kTest);
  nn::Sequential model = make_model(options.model);
  nn::optim::SGD sgd(model.parameters(), {.lr = options.lr, .momentum = options.momentum()});
  bench::run_epochs(options, kContext,
                    [&] { return train_epoch(model, sgd, loader, test, options); });
}

}  // namespace

int main(int argc, char** argv) { return bench::run_trial(argc, argv, true, run); }
