#include "train.h"

#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>

#include "mytorch/distributed.h"
#include "mytorch/nn/parallel/distributed_data_parallel.h"
#include "mytorch/nn/parallel/distributed_sampler.h"
#include "progress.h"

using mytorch::Device;
using mytorch::Error;
using mytorch::ErrorCode;
using mytorch::Tensor;
namespace nn = mytorch::nn;
namespace data = mytorch::nn::data;
namespace distributed = mytorch::distributed;

namespace {

struct Epoch {
  double loss;     // mean over the images
  double seconds;  // of training, without evaluation
  int64_t images;
};

Tensor on(Device device, const Tensor& tensor) {
  return device.is_cpu() ? tensor : tensor.to(device);
}

// The ranks that train together; this process alone, without them.
struct Ranks {
  distributed::Group group;
  std::unique_ptr<nn::DistributedDataParallel> parallel;

  int size() const { return group.defined() ? group.size() : 1; }
  bool first() const { return !group.defined() || group.rank() == 0; }
  // Returns the mean over the ranks.
  double mean(const Tensor& loss) const {
    if (!group.defined()) return loss.item<double>();
    return mytorch::all_reduce(loss.detach(), "avg", group).item<double>();
  }
};

Epoch train_epoch(Task& task, data::DataLoader& loader, Device device, const std::string& label,
                  const Ranks& ranks) {
  const int64_t total = loader.dataset().size();
  Progress progress(label, ranks.first() ? total : 0);
  task.network().train();
  const auto start = std::chrono::steady_clock::now();
  double loss_sum = 0;
  int64_t images = 0;
  for (const data::Batch& batch : loader) {
    if (ranks.parallel != nullptr) ranks.parallel->begin();
    const Tensor loss = task.loss(on(device, batch.data), on(device, batch.target));
    loss.backward();
    task.step();
    const double value = ranks.mean(loss);
    const int64_t size = batch.size() * ranks.size();
    loss_sum += value * static_cast<double>(size);
    images += size;
    if (ranks.first()) progress.update(images, value);
  }
  const std::chrono::duration<double> wall = std::chrono::steady_clock::now() - start;
  return {loss_sum / static_cast<double>(images), wall.count(), images};
}

// Returns the fraction of images whose largest score belongs to the correct class.
double accuracy(Task& task, const std::shared_ptr<const data::MNIST>& test, Device device) {
  mytorch::NoGradGuard no_grad;
  task.network().eval();
  int64_t correct = 0;
  data::DataLoader loader(test, {.batch_size = 1000});
  for (const data::Batch& batch : loader) {
    const Tensor guess = task.network()(on(device, batch.data)).argmax(1);
    correct += guess.eq(on(device, batch.target)).sum().item<int64_t>();
  }
  return static_cast<double>(correct) / static_cast<double>(test->size());
}

std::shared_ptr<const data::MNIST> load_images(const std::string& directory, data::Split split) {
  auto images = std::make_shared<const data::MNIST>(directory, split);
  if (images->size() == 0) {
    throw Error(ErrorCode::kIo,
                "[--data] there are no images " +
                    std::string(split == data::Split::kTrain ? "to train with" : "to test with") +
                    " in " + directory);
  }
  return images;
}

void save(Task& task, const Options& options) {
  nn::save_safetensors(options.save, task.network().state_dict(), {{"model", options.model}});
}

void load(Task& task, const Options& options) {
  const nn::SafetensorsFile file(options.load);
  const auto found = file.metadata().find("model");
  if (found != file.metadata().end() && found->second != options.model) {
    throw Error(ErrorCode::kValue, "[--load] " + options.load + " has the network " +
                                       found->second + ": add --model " + found->second);
  }
  task.network().load(options.load);
}

// Fails before hours of training if the file cannot be written.
void check_can_save(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (error && status.type() == fs::file_type::none) {
    throw Error(ErrorCode::kIo, "[--save] " + path + ": " + error.message());
  }
  if (fs::exists(status) && !fs::is_regular_file(status)) {
    throw Error(ErrorCode::kIo, "[--save] " + path + " is not a regular file: give another name");
  }
  if (!fs::exists(status) && fs::is_symlink(fs::symlink_status(path, error))) {
    throw Error(ErrorCode::kIo, "[--save] " + path + " is a dangling symbolic link");
  }
  fs::path parent = fs::path(path).parent_path();
  if (parent.empty()) parent = ".";
  if (!fs::is_directory(parent, error)) {
    throw Error(ErrorCode::kIo, "[--save] there is no directory " + parent.string());
  }
  // The only reliable test is to create a file.
  const fs::path probe = parent / (".mnist-" + std::to_string(::getpid()) + ".tmp");
  std::FILE* file = std::fopen(probe.c_str(), "wx");
  if (file == nullptr) {
    throw Error(ErrorCode::kIo, "[--save] " + path + ": cannot create a file in " +
                                    parent.string() + ": " + std::strerror(errno));
  }
  std::fclose(file);
  fs::remove(probe, error);
}

}  // namespace

void run(const Options& options) {
  if (options.threads > 0) mytorch::set_num_threads(options.threads);
  if (!options.save.empty()) check_can_save(options.save);
  mytorch::manual_seed(options.seed);
  mytorch::load_default_backends();
  Ranks ranks;
  if (options.distributed) ranks.group = distributed::init({.device = options.device});
  const Device device = ranks.group.defined() ? ranks.group.device() : Device(options.device);
  if (options.batch % ranks.size() != 0) {
    throw Error(ErrorCode::kValue, "[--batch] " + std::to_string(options.batch) +
                                       " images are not a multiple of the " +
                                       std::to_string(ranks.size()) + " ranks");
  }
  const std::string directory = options.data.empty() ? data::default_data_dir() : options.data;
  const auto test = load_images(directory, data::Split::kTest);
  const std::unique_ptr<Task> task = make_task(options.model, device);
  if (!options.load.empty()) load(*task, options);
  if (options.epochs == 0) {
    std::printf("accuracy %.2f%%\n", 100 * accuracy(*task, test, device));
    if (!options.save.empty()) save(*task, options);
    return;
  }

  if (ranks.group.defined()) {
    ranks.parallel = std::make_unique<nn::DistributedDataParallel>(
        task->network(), nn::DistributedDataParallelOptions{ranks.group});
  }
  const auto train = load_images(directory, data::Split::kTrain);
  // Rank r has the images r, r + size, ... of every batch of one process.
  const auto order = std::make_shared<data::RandomSampler>(train->size(), options.seed);
  const auto mine = std::make_shared<data::DistributedSampler>(
      order, ranks.size(), ranks.group.defined() ? ranks.group.rank() : 0);
  data::DataLoader loader(train, {.batch_size = options.batch / ranks.size(), .sampler = mine});
  task->begin(options.lr, options.epochs * loader.size());
  for (int64_t epoch = 1; epoch <= options.epochs; ++epoch) {
    const std::string label =
        "epoch " + std::to_string(epoch) + "/" + std::to_string(options.epochs);
    const Epoch result = train_epoch(*task, loader, device, label, ranks);
    if (!ranks.first()) continue;
    const double correct = accuracy(*task, test, device);
    std::printf("%s loss %.4f accuracy %.2f%% time %.2fs samples/s %.0f\n", label.c_str(),
                result.loss, 100 * correct, result.seconds,
                static_cast<double>(result.images) / result.seconds);
    std::fflush(stdout);
    if (!options.save.empty()) save(*task, options);
  }
}
