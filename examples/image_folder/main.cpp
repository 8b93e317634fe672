// A residual network on folders of images: image_folder TRAIN_DIR TEST_DIR RUN_DIR [EPOCHS]
// Run it again to resume. RUN_DIR receives checkpoints, log.csv, loss.svg and weights.safetensors.
#include <cstdio>

#include "mytorch/mytorch.h"

using mytorch::Tensor;
namespace nn = mytorch::nn;
namespace data = mytorch::nn::data;
namespace tf = mytorch::nn::data::transforms;

struct Block : nn::Module {
  nn::Sequential body, shortcut;
  Block(int64_t in, int64_t out, int64_t stride)
      : body(nn::Conv2d(in, out, 3, {.stride = stride, .padding = 1}), nn::BatchNorm2d(out),
             nn::ReLU(), nn::Conv2d(out, out, 3, {.padding = 1}), nn::BatchNorm2d(out)) {
    if (stride != 1 || in != out) {
      shortcut = nn::Sequential(nn::Conv2d(in, out, 1, {.stride = stride}), nn::BatchNorm2d(out));
    }
    register_module("body", body);
    register_module("shortcut", shortcut);
  }
  Tensor forward(const Tensor& x) override { return mytorch::relu(body(x) + shortcut(x)); }
};

double accuracy(nn::Module& net, data::DataLoader& loader) {
  const mytorch::NoGradGuard no_grad;
  nn::AccuracyMeter meter;
  net.eval();
  for (const auto& [x, y] : loader) meter.add(net(x), y);
  net.train();
  return meter.value();
}

void run(std::string train_dir, std::string test_dir, std::string dir, int64_t epochs) {
  mytorch::manual_seed(0);
  const data::ImageFolder train(train_dir), test(test_dir);
  const tf::Compose finish{tf::ConvertImageDtype(), tf::Normalize({0.5}, {0.25})};
  data::DataLoader batches(
      data::map(train, tf::Compose{tf::RandomResizedCrop(32), tf::RandomHorizontalFlip(),
                                   tf::ColorJitter({.brightness = 0.2, .contrast = 0.2}), finish}),
      {.batch_size = 32, .shuffle = true, .num_workers = 2});
  data::DataLoader tests(data::map(test, tf::Compose{tf::Resize(32, 32), finish}),
                         {.batch_size = 100});
  nn::Sequential net(nn::Conv2d(3, 16, 3, {.padding = 1}), nn::BatchNorm2d(16), nn::ReLU(),
                     Block(16, 16, 1), Block(16, 32, 2), Block(32, 64, 2), nn::AdaptiveAvgPool2d(1),
                     nn::Flatten(), nn::Linear(64, static_cast<int64_t>(train.classes().size())));
  nn::optim::AdamW adam(net.parameters(), {.lr = 2e-3});
  nn::Checkpoint checkpoint(dir);
  checkpoint.add("model", net).add("optimizer", adam).add("loader", batches);
  const auto resumed = checkpoint.load_latest();
  nn::CsvLog log(dir + "/log.csv", resumed ? resumed->step : 0);
  for (auto epoch = static_cast<int64_t>(batches.epoch()); epoch < epochs; ++epoch) {
    nn::ProgressBar bar(batches.size());
    nn::MeanMeter loss;
    for (const auto& [x, y] : batches) {
      const Tensor batch_loss = mytorch::cross_entropy(net(x), y);
      adam.zero_grad();
      batch_loss.backward();
      adam.step();
      loss.add(batch_loss, static_cast<double>(y.size(0)));
      bar.advance();
    }
    log.log(epoch, {{"loss", loss.value()}, {"accuracy", accuracy(net, tests)}});
    checkpoint.save(epoch + 1);
  }
  const auto columns = nn::read_csv_log(dir + "/log.csv");
  nn::save_plot(dir + "/loss.svg", {{"loss", columns.at("step"), columns.at("loss")}});
  net.save(dir + "/weights.safetensors");
  std::printf("accuracy %.4f\n", accuracy(net, tests));
}

int main(int argc, char** argv) try {
  if (argc < 4) throw std::invalid_argument("give TRAIN_DIR TEST_DIR RUN_DIR [EPOCHS]");
  run(argv[1], argv[2], argv[3], argc > 4 ? std::stoi(argv[4]) : 20);
} catch (const std::exception& error) {
  std::fprintf(stderr, "image_folder: %s\n", error.what());
  return 1;
}
