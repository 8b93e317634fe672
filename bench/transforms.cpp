// The transforms of an image of 375 x 500 pixels, one thread. bench/peers/transforms_torch.py has
// the same cases for torchvision; scripts/bench-transforms prints both side by side.
#include <benchmark/benchmark.h>

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <string>

#include "mytorch/mytorch.h"

namespace {

using mytorch::Tensor;
namespace data = mytorch::nn::data;
namespace tf = mytorch::nn::data::transforms;
using Function = std::function<Tensor(const Tensor&)>;

void measure(const char* name, const Function& function, const Tensor& image) {
  benchmark::RegisterBenchmark(name, [function, image](benchmark::State& state) {
    for (auto _ : state) benchmark::DoNotOptimize(function(image));
  })->Unit(benchmark::kMicrosecond);
}

}  // namespace

// transforms JPEG [OPTIONS OF THE BENCHMARK LIBRARY]
int main(int argc, char** argv) try {
  if (argc < 2) throw std::invalid_argument("give a JPEG file");
  const std::string path = argv[1];
  const Tensor image = data::read_image(path);
  const Tensor small = tf::Resize(224, 224)(image);
  const Tensor unit = tf::ConvertImageDtype()(small);

  measure(
      "read_jpeg", [path](const Tensor&) { return data::read_image(path); }, image);
  measure("resize", tf::Resize(256), image);
  measure("resize_up", tf::Resize(512), image);
  measure("random_resized_crop", tf::RandomResizedCrop(224), image);
  measure("center_crop", tf::CenterCrop(224), image);
  measure("horizontal_flip", tf::RandomHorizontalFlip(1), small);
  measure("to_float", tf::ConvertImageDtype(), small);
  measure("normalize", tf::Normalize({0.485, 0.456, 0.406}, {0.229, 0.224, 0.225}), unit);
  measure("random_erasing", tf::RandomErasing({.p = 1}), unit);
  measure(
      "rotate", [](const Tensor& x) { return tf::rotate(x, 10); }, small);
  measure(
      "affine_nearest",
      [](const Tensor& x) {
        return tf::affine(x, {.angle = 10, .scale = 1.1, .interpolation = "nearest"});
      },
      small);
  measure(
      "brightness", [](const Tensor& x) { return tf::adjust_brightness(x, 1.2); }, small);
  measure(
      "contrast", [](const Tensor& x) { return tf::adjust_contrast(x, 1.2); }, small);
  measure(
      "saturation", [](const Tensor& x) { return tf::adjust_saturation(x, 1.2); }, small);
  measure(
      "hue", [](const Tensor& x) { return tf::adjust_hue(x, 0.1); }, small);
  measure("grayscale", tf::Grayscale(3), small);
  measure(
      "gaussian_blur", [](const Tensor& x) { return tf::gaussian_blur(x, 5, 1.5); }, small);
  measure(
      "sharpness", [](const Tensor& x) { return tf::adjust_sharpness(x, 1.5); }, small);
  measure("autocontrast", tf::autocontrast, small);
  measure("equalize", tf::equalize, small);
  measure(
      "solarize", [](const Tensor& x) { return tf::solarize(x, 128); }, small);
  measure(
      "posterize", [](const Tensor& x) { return tf::posterize(x, 4); }, small);
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
} catch (const std::exception& error) {
  std::fprintf(stderr, "transforms: %s\n", error.what());
  return 1;
}
