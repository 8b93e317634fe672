// Transforms that change the values of pixels.
#include <algorithm>
#include <array>
#include <cmath>

#include "core/types/errors.h"
#include "mytorch/nn/data/transforms.h"
#include "nn/common/host_tensor.h"
#include "nn/data/image_view.h"
#include "nn/data/split_mix.h"
#include "nn/data/unit_float.h"

namespace mytorch::nn::data::transforms {
namespace {

void check_factor(const char* what, double factor, double low, double high) {
  if (!(factor >= low && factor <= high)) {
    fail(ErrorCode::kValue, "[", what, "] factor ", factor, " is out of range: give ", low, " to ",
         high);
  }
}

ImageView view_color_image(const char* what, const Tensor& image) {
  ImageView view = view_image(what, image);
  if (view.channels != 1 && view.channels != 3) {
    fail(ErrorCode::kShape, "[", what, "] an image of ", view.channels,
         " channels has no colors: give 1 or 3 channels");
  }
  return view;
}

// Converts to the image's type; drops the fraction of a byte, as torchvision does. NaN becomes 0.
template <class T>
T clamped(float value) {
  return static_cast<T>(std::min(std::max(0.0f, value), kWhite<T>));
}

template <class T>
float luminance(T red, T green, T blue) {
  const float gray = 0.2989f * static_cast<float>(red) + 0.587f * static_cast<float>(green) +
                     0.114f * static_cast<float>(blue);
  return static_cast<float>(static_cast<T>(gray));
}

// Computes the luminances of the pixels [begin, begin + n).
template <class T>
void luminances(const ImageView& image, int64_t begin, int64_t n, float* __restrict to) {
  const T* __restrict red = image.tensor.const_data<T>() + begin;
  if (image.channels == 1) {
    for (int64_t i = 0; i < n; ++i) to[i] = static_cast<float>(red[i]);
    return;
  }
  const T* __restrict green = red + image.plane();
  const T* __restrict blue = green + image.plane();
  for (int64_t i = 0; i < n; ++i) to[i] = luminance(red[i], green[i], blue[i]);
}

// The pixels of a piece stay in the cache, and loops over a channel are contiguous.
constexpr int64_t kPiece = 1024;

// Computes factor * image + (1 - factor) * other, where other(begin, n, to) gives a number for each
// pixel.
template <class T, class Other>
void blend(const ImageView& image, Tensor& out, float factor, Other other) {
  float added[kPiece];
  const T* source = image.tensor.const_data<T>();
  T* result = fresh_data<T>(out);
  for (int64_t begin = 0; begin < image.plane(); begin += kPiece) {
    const int64_t n = std::min(kPiece, image.plane() - begin);
    other(begin, n, added);
    for (int64_t i = 0; i < n; ++i) added[i] *= 1 - factor;
    for (int64_t c = 0; c < image.channels; ++c) {
      const T* __restrict from = source + c * image.plane() + begin;
      T* __restrict to = result + c * image.plane() + begin;
      for (int64_t i = 0; i < n; ++i) {
        to[i] = clamped<T>(factor * static_cast<float>(from[i]) + added[i]);
      }
    }
  }
}

// The same with one number for all pixels.
template <class T>
void blend(const ImageView& image, Tensor& out, float factor, float other) {
  blend<T>(image, out, factor,
           [other](int64_t, int64_t n, float* to) { std::fill_n(to, n, other); });
}

// Turns the hue of a color with components in [0, 1].
std::array<float, 3> turned(float r, float g, float b, float turn) {
  const float most = std::max({r, g, b}), least = std::min({r, g, b});
  const float range = most - least;
  if (range == 0) return {r, g, b};
  const float saturation = range / most;
  const float rc = (most - r) / range, gc = (most - g) / range, bc = (most - b) / range;
  float hue = most == r ? bc - gc : most == g ? 2 + rc - bc : 4 + gc - rc;
  hue = hue / 6 + turn;  // from -1 to 2
  if (hue < 0) hue += 1;
  if (hue >= 1) hue -= 1;
  const int sector = static_cast<int>(hue * 6);
  const float fraction = hue * 6 - static_cast<float>(sector);
  const auto unit = [](float x) { return std::min(std::max(x, 0.0f), 1.0f); };
  const float p = unit(most * (1 - saturation));
  const float q = unit(most * (1 - saturation * fraction));
  const float t = unit(most * (1 - saturation * (1 - fraction)));
  switch (sector % 6) {
    case 0:
      return {most, t, p};
    case 1:
      return {q, most, p};
    case 2:
      return {p, most, t};
    case 3:
      return {p, q, most};
    case 4:
      return {t, p, most};
    default:
      return {most, p, q};
  }
}

template <class T>
float to_unit(T value) {
  if constexpr (std::is_same_v<T, uint8_t>) return unit_float(value);
  return value;
}

// Spreads [0, 1] evenly over the bytes, as torchvision does.
template <class T>
T from_unit(float value) {
  if constexpr (std::is_same_v<T, uint8_t>) return clamped<uint8_t>(value * 255.999f);
  return value;
}

}  // namespace

Tensor ToTensor::operator()(const Tensor& image) const {
  if ((image.dim() != 2 && image.dim() != 3) || image.numel() == 0) {
    fail(ErrorCode::kShape, "[ToTensor] a tensor ", shape_str(image.sizes()),
         " is no image: give (height, width, channels) or (height, width)");
  }
  if (image.dtype() != kUInt8 || !image.device().is_cpu()) {
    fail(ErrorCode::kType, "[ToTensor] the image is ", dtype_name(image.dtype()), " on ",
         image.device().str(), ": give uint8 in host memory");
  }
  const Tensor from = image.contiguous();
  const int64_t channels = image.dim() == 3 ? image.size(2) : 1;
  const int64_t plane = image.size(0) * image.size(1);
  Tensor out = fresh_host_tensor({channels, image.size(0), image.size(1)}, kFloat32);
  const uint8_t* bytes = from.const_data<uint8_t>();
  float* to = fresh_data<float>(out);
  for (int64_t c = 0; c < channels; ++c) {
    for (int64_t i = 0; i < plane; ++i) *to++ = unit_float(bytes[i * channels + c]);
  }
  return out;
}

ConvertImageDtype::ConvertImageDtype(ScalarType dtype) : dtype_(dtype) {
  if (dtype != kUInt8 && dtype != kFloat32) {
    fail(ErrorCode::kType, "[ConvertImageDtype] an image is uint8 or float32, not ",
         dtype_name(dtype), ": give one of them");
  }
}

Tensor ConvertImageDtype::operator()(const Tensor& image) const {
  const ImageView view = view_image("ConvertImageDtype", image);
  if (view.tensor.dtype() == dtype_) return view.tensor;
  Tensor out = fresh_host_tensor(view.tensor.sizes(), dtype_);
  const int64_t n = view.tensor.numel();
  if (dtype_ == kFloat32) {
    to_unit_floats(view.tensor.const_data<uint8_t>(), fresh_data<float>(out), n);
  } else {
    const float* from = view.tensor.const_data<float>();
    uint8_t* to = fresh_data<uint8_t>(out);
    for (int64_t i = 0; i < n; ++i) to[i] = from_unit<uint8_t>(from[i]);
  }
  return out;
}

Normalize::Normalize(std::vector<double> mean, std::vector<double> std)
    : mean_(mean.begin(), mean.end()), std_(std.begin(), std.end()) {
  if (mean.empty() || mean.size() != std.size()) {
    fail(ErrorCode::kValue, "[Normalize] there are ", mean.size(), " means and ", std.size(),
         " standard deviations: give as many of one as of the other, one for each channel");
  }
  for (float value : std_) {
    if (!(value > 0)) {
      fail(ErrorCode::kValue, "[Normalize] the standard deviation ", value,
           " is not positive: give positive ones");
    }
  }
}

Tensor Normalize::operator()(const Tensor& image) const {
  const ImageView view = view_image("Normalize", image);
  if (view.tensor.dtype() != kFloat32) {
    fail(ErrorCode::kType,
         "[Normalize] the image is uint8: convert it to float32 by ConvertImageDtype first");
  }
  if (mean_.size() != 1 && static_cast<int64_t>(mean_.size()) != view.channels) {
    fail(ErrorCode::kShape, "[Normalize] there are ", mean_.size(), " means for an image of ",
         view.channels, " channels: give one, or one for each channel");
  }
  Tensor out = image_like(view, view.height, view.width);
  const float* __restrict from = view.tensor.const_data<float>();
  float* __restrict to = fresh_data<float>(out);
  for (int64_t c = 0; c < view.channels; ++c) {
    const size_t which = mean_.size() == 1 ? 0 : static_cast<size_t>(c);
    const float mean = mean_[which], std = std_[which];
    for (int64_t i = 0; i < view.plane(); ++i) to[i] = (from[i] - mean) / std;
    from += view.plane();
    to += view.plane();
  }
  return out;
}

Tensor adjust_brightness(const Tensor& image, double factor) {
  check_factor("adjust_brightness", factor, 0, 1e6);
  const ImageView view = view_color_image("adjust_brightness", image);
  Tensor out = image_like(view, view.height, view.width);
  with_element(view, [&](auto element) {
    using T = decltype(element);
    blend<T>(view, out, static_cast<float>(factor), 0.0f);
  });
  return out;
}

Tensor adjust_contrast(const Tensor& image, double factor) {
  check_factor("adjust_contrast", factor, 0, 1e6);
  const ImageView view = view_color_image("adjust_contrast", image);
  Tensor out = image_like(view, view.height, view.width);
  with_element(view, [&](auto element) {
    using T = decltype(element);
    double sum = 0;
    float gray[kPiece];
    for (int64_t begin = 0; begin < view.plane(); begin += kPiece) {
      const int64_t n = std::min(kPiece, view.plane() - begin);
      luminances<T>(view, begin, n, gray);
      for (int64_t i = 0; i < n; ++i) sum += static_cast<double>(gray[i]);
    }
    blend<T>(view, out, static_cast<float>(factor),
             static_cast<float>(sum / static_cast<double>(view.plane())));
  });
  return out;
}

Tensor adjust_saturation(const Tensor& image, double factor) {
  check_factor("adjust_saturation", factor, 0, 1e6);
  const ImageView view = view_color_image("adjust_saturation", image);
  if (view.channels == 1) return view.tensor;
  Tensor out = image_like(view, view.height, view.width);
  with_element(view, [&](auto element) {
    using T = decltype(element);
    blend<T>(view, out, static_cast<float>(factor),
             [&](int64_t begin, int64_t n, float* to) { luminances<T>(view, begin, n, to); });
  });
  return out;
}

Tensor adjust_hue(const Tensor& image, double factor) {
  check_factor("adjust_hue", factor, -0.5, 0.5);
  const ImageView view = view_color_image("adjust_hue", image);
  if (view.channels == 1) return view.tensor;
  Tensor out = image_like(view, view.height, view.width);
  with_element(view, [&](auto element) {
    using T = decltype(element);
    const T* from = view.tensor.const_data<T>();
    T* to = fresh_data<T>(out);
    const int64_t n = view.plane();
    for (int64_t i = 0; i < n; ++i) {
      const auto color = turned(to_unit(from[i]), to_unit(from[n + i]), to_unit(from[2 * n + i]),
                                static_cast<float>(factor));
      for (int64_t c = 0; c < 3; ++c) to[c * n + i] = from_unit<T>(color[static_cast<size_t>(c)]);
    }
  });
  return out;
}

ColorJitter::ColorJitter(ColorJitterOptions options) : options_(options) {
  const auto check = [](const char* name, double value, double most) {
    if (!(value >= 0 && value <= most)) {
      fail(ErrorCode::kValue, "[ColorJitter] ", name, " ", value, " is out of range: give 0 to ",
           most);
    }
  };
  check("brightness", options.brightness, 1e6);
  check("contrast", options.contrast, 1e6);
  check("saturation", options.saturation, 1e6);
  check("hue", options.hue, 0.5);
}

Tensor ColorJitter::operator()(const Tensor& image) const {
  SplitMix64 random = drawn_from(default_generator());
  using Adjust = Tensor (*)(const Tensor&, double);
  struct Step {
    Adjust adjust;
    double amount;
    double factor;
  };
  std::vector<Step> steps{{adjust_brightness, options_.brightness, 0},
                          {adjust_contrast, options_.contrast, 0},
                          {adjust_saturation, options_.saturation, 0},
                          {adjust_hue, options_.hue, 0}};
  for (Step& step : steps) {
    const double middle = step.adjust == adjust_hue ? 0 : 1;
    const double low = step.adjust == adjust_hue ? -step.amount : std::max(0.0, 1 - step.amount);
    step.factor = random.uniform(low, middle + step.amount);
  }
  shuffle(steps, random);
  Tensor result = view_color_image("ColorJitter", image).tensor;
  for (const Step& step : steps) {
    if (step.amount > 0) result = step.adjust(result, step.factor);
  }
  return result;
}

namespace {

Tensor gray(const ImageView& view, int64_t channels) {
  Tensor out = fresh_host_tensor({channels, view.height, view.width}, view.tensor.dtype());
  with_element(view, [&](auto element) {
    using T = decltype(element);
    T* to = fresh_data<T>(out);
    float values[kPiece];
    for (int64_t begin = 0; begin < view.plane(); begin += kPiece) {
      const int64_t n = std::min(kPiece, view.plane() - begin);
      luminances<T>(view, begin, n, values);
      for (int64_t i = 0; i < n; ++i) to[begin + i] = static_cast<T>(values[i]);
    }
    for (int64_t c = 1; c < channels; ++c) std::copy_n(to, view.plane(), to + c * view.plane());
  });
  return out;
}

}  // namespace

Grayscale::Grayscale(int64_t num_output_channels) : channels_(num_output_channels) {
  if (num_output_channels != 1 && num_output_channels != 3) {
    fail(ErrorCode::kValue, "[Grayscale] num_output_channels is ", num_output_channels,
         ": give 1 or 3");
  }
}

Tensor Grayscale::operator()(const Tensor& image) const {
  return gray(view_color_image("Grayscale", image), channels_);
}

RandomGrayscale::RandomGrayscale(double p) : p_(checked_probability("RandomGrayscale", p)) {}

Tensor RandomGrayscale::operator()(const Tensor& image) const {
  const ImageView view = view_color_image("RandomGrayscale", image);
  return drawn_from(default_generator()).uniform() < p_ ? gray(view, view.channels) : view.tensor;
}

}  // namespace mytorch::nn::data::transforms
