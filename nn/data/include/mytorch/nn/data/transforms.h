// Transforms of images, for `map` and for datasets.
//
// An image is a tensor (channels, height, width) in host memory: uint8 with values 0 to 255, or
// float32 with values 0 to 1. Results are new tensors of the same type, without gradients, unless a
// transform says otherwise. Formulas, names and defaults are torchvision's. Invalid options throw
// Error(kValue); tensors that are no such images throw Error(kShape, kType or kDevice).
//
// Random transforms draw from default_generator(). While a DataLoader loads an example, that is the
// example's own generator, so batches consist of the same bits for any number of workers:
//
//   using namespace mytorch::nn::data;
//   auto train = map(ImageFolder("train"),
//                    transforms::Compose{transforms::RandomResizedCrop(224),
//                                        transforms::RandomHorizontalFlip(),
//                                        transforms::ConvertImageDtype(),
//                                        transforms::Normalize({0.485, 0.456, 0.406},
//                                                              {0.229, 0.224, 0.225})});
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <utility>
#include <vector>

#include "mytorch/dtype.h"
#include "mytorch/list.h"
#include "mytorch/nn/options.h"
#include "mytorch/std_function.h"
#include "mytorch/tensor.h"

namespace mytorch::nn::data::transforms {

using Transform = std::function<Tensor(const Tensor&)>;

// Applies several transforms in succession.
class Compose {
 public:
  Compose(std::initializer_list<Transform> transforms);
  explicit Compose(std::vector<Transform> transforms);
  Tensor operator()(const Tensor& image) const;

 private:
  std::vector<Transform> transforms_;
};

// Apply the transforms in succession with probability p, and one of the transforms.
class RandomApply {
 public:
  RandomApply(std::initializer_list<Transform> transforms, double p = 0.5);
  explicit RandomApply(std::vector<Transform> transforms, double p = 0.5);
  Tensor operator()(const Tensor& image) const;

 private:
  std::vector<Transform> transforms_;
  double p_;
};
class RandomChoice {
 public:
  RandomChoice(std::initializer_list<Transform> transforms);
  explicit RandomChoice(std::vector<Transform> transforms);
  Tensor operator()(const Tensor& image) const;

 private:
  std::vector<Transform> transforms_;
};

// ---- types and values ----

// Converts uint8 (height, width, channels) or (height, width), the layout of most image libraries,
// to float32 (channels, height, width) with values in [0, 1].
struct ToTensor {
  Tensor operator()(const Tensor& image) const;
};

// Converts between uint8 and float32, whose range is [0, 1]. Values outside are clamped.
class ConvertImageDtype {
 public:
  explicit ConvertImageDtype(ScalarType dtype = kFloat32);
  Tensor operator()(const Tensor& image) const;

 private:
  ScalarType dtype_;
};

// Computes (x - mean[c]) / std[c] for each channel of a float32 image. One number serves all
// channels.
class Normalize {
 public:
  Normalize(std::vector<double> mean, std::vector<double> std);
  Tensor operator()(const Tensor& image) const;

 private:
  std::vector<float> mean_;
  std::vector<float> std_;
};

// ---- geometry ----

// Resizes by linear interpolation with antialiasing.
class Resize {
 public:
  explicit Resize(int64_t shorter_side);  // keeps the ratio of the sides
  Resize(int64_t height, int64_t width);
  Tensor operator()(const Tensor& image) const;

 private:
  int64_t height_;
  int64_t width_;  // 0: height_ is the shorter side
};

// Cuts out the middle. Smaller images are padded with zeros.
class CenterCrop {
 public:
  explicit CenterCrop(Sizes<2> size);
  Tensor operator()(const Tensor& image) const;

 private:
  Sizes<2> size_;
};

struct RandomCropOptions {
  int64_t padding = 0;  // on each side, before cropping
  double fill = 0;      // value of the padding
};

// Cuts out a part at a random place. Throws Error(kShape) if the padded image is smaller.
class RandomCrop {
 public:
  explicit RandomCrop(Sizes<2> size, RandomCropOptions options = {});
  Tensor operator()(const Tensor& image) const;

 private:
  Sizes<2> size_;
  RandomCropOptions options_;
};

struct RandomResizedCropOptions {
  double min_scale = 0.08;  // of the part's area, relative to the image's
  double max_scale = 1;
  double min_ratio = 3.0 / 4;  // of the part's width to its height
  double max_ratio = 4.0 / 3;
};

// Cuts out a part of random size and shape, and resizes it.
class RandomResizedCrop {
 public:
  explicit RandomResizedCrop(Sizes<2> size, RandomResizedCropOptions options = {});
  Tensor operator()(const Tensor& image) const;

 private:
  Sizes<2> size_;
  RandomResizedCropOptions options_;
};

// Mirror the image with probability p.
class RandomHorizontalFlip {
 public:
  explicit RandomHorizontalFlip(double p = 0.5);
  Tensor operator()(const Tensor& image) const;

 private:
  double p_;
};
class RandomVerticalFlip {
 public:
  explicit RandomVerticalFlip(double p = 0.5);
  Tensor operator()(const Tensor& image) const;

 private:
  double p_;
};

// The values between pixels: that of the nearest one, or linear interpolation.
enum class Interpolation { kNearest, kBilinear };
Interpolation from_name(Str name, Interpolation type);  // "nearest" or "bilinear"

struct WarpOptions {
  OneOf<Interpolation> interpolation = Interpolation::kBilinear;
  double fill = 0;  // value outside of the image
};
struct Point {
  double x = 0;  // pixels from the left
  double y = 0;  // pixels from the top
};
struct AffineOptions {
  double angle = 0;   // degrees, clockwise
  Point translate{};  // pixels
  double scale = 1;
  Point shear{};                  // degrees
  std::optional<Point> center{};  // the point that stays before the translation; else the middle
  OneOf<Interpolation> interpolation = Interpolation::kBilinear;
  double fill = 0;
};

// Move the pixels of an image, whose size stays.
Tensor rotate(const Tensor& image, double degrees, WarpOptions options = {});  // counterclockwise
Tensor affine(const Tensor& image, AffineOptions options);  // shears, scales, rotates, translates
// Moves the four corners `from`, and all else accordingly, to `to`. Throws Error(kValue) if three
// of the points lie on a line.
Tensor perspective(const Tensor& image, const std::array<Point, 4>& from,
                   const std::array<Point, 4>& to, WarpOptions options = {});

// Rotates counterclockwise by an angle from [-degrees, degrees], or from [min_degrees,
// max_degrees].
class RandomRotation {
 public:
  explicit RandomRotation(double degrees, WarpOptions options = {})
      : RandomRotation(-degrees, degrees, options) {}
  RandomRotation(double degrees, double fill)
      : RandomRotation(degrees, WarpOptions{.fill = fill}) {}
  RandomRotation(double min_degrees, double max_degrees, WarpOptions options);
  RandomRotation(double min_degrees, double max_degrees, double fill)
      : RandomRotation(min_degrees, max_degrees, WarpOptions{.fill = fill}) {}
  Tensor operator()(const Tensor& image) const;

 private:
  double min_degrees_;
  double max_degrees_;
  WarpOptions options_;
};

struct RandomAffineOptions {
  Point translate{};  // at most, relative to width and height
  double min_scale = 1;
  double max_scale = 1;
  Point shear{};  // at most, in degrees
  OneOf<Interpolation> interpolation = Interpolation::kBilinear;
  double fill = 0;
};

// Rotates by an angle from [-degrees, degrees], translates, scales and shears.
class RandomAffine {
 public:
  explicit RandomAffine(double degrees, RandomAffineOptions options = {});
  Tensor operator()(const Tensor& image) const;

 private:
  double degrees_;
  RandomAffineOptions options_;
};

struct RandomPerspectiveOptions {
  double distortion_scale = 0.5;  // the part of half a side that a corner moves by, at most
  double p = 0.5;
  OneOf<Interpolation> interpolation = Interpolation::kBilinear;
  double fill = 0;
};

// Moves the corners of the image inwards with probability p.
class RandomPerspective {
 public:
  explicit RandomPerspective(RandomPerspectiveOptions options = {});
  Tensor operator()(const Tensor& image) const;

 private:
  RandomPerspectiveOptions options_;
};

// ---- colors ----

// The adjustments of ColorJitter. Images have 1 or 3 channels, and `factor` 1 (hue: 0) changes
// nothing.
Tensor adjust_brightness(const Tensor& image, double factor);
Tensor adjust_contrast(const Tensor& image, double factor);
Tensor adjust_saturation(const Tensor& image, double factor);
Tensor adjust_hue(const Tensor& image, double factor);  // turns of the color circle, [-0.5, 0.5]

// Factors are from [1 - x, 1 + x], at least 0; that of hue is from [-hue, hue].
struct ColorJitterOptions {
  double brightness = 0;
  double contrast = 0;
  double saturation = 0;
  double hue = 0;  // at most 0.5
};

// Changes brightness, contrast, saturation and hue at random, in random order.
class ColorJitter {
 public:
  explicit ColorJitter(ColorJitterOptions options);
  Tensor operator()(const Tensor& image) const;

 private:
  ColorJitterOptions options_;
};

// Inverts the values: 255 - x, or 1 - x.
Tensor invert(const Tensor& image);
// Inverts the values that are not below the threshold.
Tensor solarize(const Tensor& image, double threshold);
// Keeps the highest bits, 0 to 8, of each byte. Images are uint8.
Tensor posterize(const Tensor& image, int64_t bits);
// Stretches the values of each channel to the whole range.
Tensor autocontrast(const Tensor& image);
// Spreads the bytes of each channel so that all are about equally frequent. Images are uint8.
Tensor equalize(const Tensor& image);

// Computes luminances, which 3 channels of the result repeat. A single channel stays.
class Grayscale {
 public:
  explicit Grayscale(int64_t num_output_channels = 1);  // or 3
  Tensor operator()(const Tensor& image) const;

 private:
  int64_t channels_;
};

// Replaces each channel by luminances with probability p.
class RandomGrayscale {
 public:
  explicit RandomGrayscale(double p = 0.1);
  Tensor operator()(const Tensor& image) const;

 private:
  double p_;
};

// ---- filters ----

// Blends the image with a smoothed copy: factor 0 gives that copy, 1 the image, 2 a sharper one.
Tensor adjust_sharpness(const Tensor& image, double factor);
// Convolves with a normal distribution of standard deviation `sigma` in pixels, mirroring the image
// at its borders. The kernel's sides are odd; each half must be shorter than the image's side, or
// Error(kShape) is thrown.
Tensor gaussian_blur(const Tensor& image, Sizes<2> kernel_size, double sigma);

// Blurs with a standard deviation from [min_sigma, max_sigma].
class GaussianBlur {
 public:
  explicit GaussianBlur(Sizes<2> kernel_size, double min_sigma = 0.1, double max_sigma = 2);
  Tensor operator()(const Tensor& image) const;

 private:
  Sizes<2> kernel_size_;
  double min_sigma_;
  double max_sigma_;
};

struct RandomErasingOptions {
  double p = 0.5;
  double min_scale = 0.02;  // of the rectangle's area, relative to the image's
  double max_scale = 0.33;
  double min_ratio = 0.3;  // of the rectangle's width to its height
  double max_ratio = 3.3;
  double value = 0;
};

// Overwrites a random rectangle with probability p (Zhong et al., AAAI 2020).
class RandomErasing {
 public:
  explicit RandomErasing(RandomErasingOptions options = {});
  Tensor operator()(const Tensor& image) const;

 private:
  RandomErasingOptions options_;
};

}  // namespace mytorch::nn::data::transforms
