// Transforms of values that treat channels alike, and filters.
#include <algorithm>
#include <array>
#include <cmath>
#include <utility>
#include <vector>

#include "core/types/errors.h"
#include "mytorch/nn/data/transforms.h"
#include "nn/common/host_tensor.h"
#include "nn/data/image_view.h"
#include "nn/data/split_mix.h"

namespace mytorch::nn::data::transforms {
namespace {

// Returns an image whose values are function(value).
template <class F>
Tensor mapped(const ImageView& image, F function) {
  Tensor out = image_like(image, image.height, image.width);
  with_element(image, [&](auto element) {
    using T = decltype(element);
    const T* from = image.tensor.const_data<T>();
    std::transform(from, from + image.tensor.numel(), fresh_data<T>(out), function);
  });
  return out;
}

ImageView view_bytes(const char* what, const Tensor& image) {
  ImageView view = view_image(what, image);
  if (view.tensor.dtype() != kUInt8) {
    fail(ErrorCode::kType, "[", what,
         "] the image is float32: apply it to the bytes, before ConvertImageDtype");
  }
  return view;
}

// Inverts a value: exact for bytes.
template <class T>
T inverted(T value) {
  return static_cast<T>(kWhite<T> - static_cast<float>(value));
}

// Returns the lookup table that equalizes a channel, as torchvision and Pillow do.
std::array<uint8_t, 256> equalizing_table(const uint8_t* channel, int64_t n) {
  std::array<int64_t, 256> counts{};
  for (int64_t i = 0; i < n; ++i) ++counts[channel[i]];
  const auto last = std::find_if(counts.rbegin(), counts.rend(), [](int64_t c) { return c != 0; });
  const int64_t step = (n - *last) / 255;
  std::array<uint8_t, 256> table;
  int64_t below = 0;
  for (size_t value = 0; value < 256; ++value) {
    table[value] = step == 0 ? static_cast<uint8_t>(value)
                             : static_cast<uint8_t>(std::min<int64_t>(
                                   value == 0 ? 0 : (below + step / 2) / step, 255));
    below += counts[value];
  }
  return table;
}

// The weights of a normal distribution at -(n - 1) / 2, ..., (n - 1) / 2.
std::vector<float> normal_weights(int64_t n, double sigma) {
  std::vector<double> weights;
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) {
    const double x = (static_cast<double>(i) - static_cast<double>(n - 1) / 2) / sigma;
    weights.push_back(std::exp(-0.5 * x * x));
    sum += weights.back();
  }
  std::vector<float> normalized;
  for (const double weight : weights) normalized.push_back(static_cast<float>(weight / sum));
  return normalized;
}

// Mirrors an index at the first and the last of n pixels, which are not repeated.
int64_t mirrored(int64_t i, int64_t n) {
  if (i < 0) return -i;
  return i < n ? i : 2 * (n - 1) - i;
}

template <class T>
void blur_plane(const T* from, int64_t height, int64_t width, const std::vector<float>& rows,
                const std::vector<float>& columns, T* to) {
  const auto half_x = static_cast<int64_t>(columns.size() / 2);
  const auto half_y = static_cast<int64_t>(rows.size() / 2);
  std::vector<float> line(static_cast<size_t>(width + 2 * half_x));
  std::vector<float> blurred(static_cast<size_t>(height * width), 0.0f);
  for (int64_t y = 0; y < height; ++y) {
    for (size_t x = 0; x < line.size(); ++x) {
      const int64_t column = mirrored(static_cast<int64_t>(x) - half_x, width);
      line[x] = static_cast<float>(from[y * width + column]);
    }
    float* out = blurred.data() + y * width;
    for (size_t k = 0; k < columns.size(); ++k) {
      for (int64_t x = 0; x < width; ++x) out[x] += columns[k] * line[k + static_cast<size_t>(x)];
    }
  }
  std::vector<float> sum(static_cast<size_t>(width));
  for (int64_t y = 0; y < height; ++y) {
    std::fill(sum.begin(), sum.end(), 0.0f);
    for (size_t k = 0; k < rows.size(); ++k) {
      const int64_t row = mirrored(y + static_cast<int64_t>(k) - half_y, height);
      for (int64_t x = 0; x < width; ++x) {
        sum[static_cast<size_t>(x)] += rows[k] * blurred[static_cast<size_t>(row * width + x)];
      }
    }
    for (int64_t x = 0; x < width; ++x) {
      to[y * width + x] = nearest<T>(sum[static_cast<size_t>(x)]);
    }
  }
}

void check_sigma(const char* what, double sigma) {
  if (!(sigma > 0) || !std::isfinite(sigma)) {
    fail(ErrorCode::kValue, "[", what, "] sigma is ", sigma, ": give a positive number");
  }
}

void check_kernel(const char* what, Sizes<2> size) {
  for (size_t i = 0; i < 2; ++i) {
    if (size[i] < 1 || size[i] % 2 == 0) {
      fail(ErrorCode::kValue, "[", what, "] kernel_size ", size[i], ": give a positive odd number");
    }
  }
}

}  // namespace

Tensor invert(const Tensor& image) {
  return mapped(view_image("invert", image), [](auto value) { return inverted(value); });
}

Tensor solarize(const Tensor& image, double threshold) {
  return mapped(view_image("solarize", image), [threshold](auto value) {
    return static_cast<double>(value) >= threshold ? inverted(value) : value;
  });
}

Tensor posterize(const Tensor& image, int64_t bits) {
  if (bits < 0 || bits > 8) {
    fail(ErrorCode::kValue, "[posterize] bits is ", bits, ": give 0 to 8");
  }
  const auto mask = static_cast<unsigned>(0xff00 >> bits) & 0xff;
  return mapped(view_bytes("posterize", image), [mask](auto value) {
    return static_cast<decltype(value)>(static_cast<unsigned>(value) & mask);
  });
}

Tensor autocontrast(const Tensor& image) {
  const ImageView view = view_image("autocontrast", image);
  Tensor out = image_like(view, view.height, view.width);
  with_element(view, [&](auto element) {
    using T = decltype(element);
    for (int64_t c = 0; c < view.channels; ++c) {
      const T* from = view.tensor.const_data<T>() + c * view.plane();
      T* to = fresh_data<T>(out) + c * view.plane();
      const auto [least, most] = std::minmax_element(from, from + view.plane());
      auto low = static_cast<float>(*least);
      float scale = kWhite<T> * (1 / (static_cast<float>(*most) - low));  // as torchvision rounds
      if (!std::isfinite(scale)) {                                        // one value
        low = 0;
        scale = 1;
      }
      for (int64_t i = 0; i < view.plane(); ++i) {
        const float value = (static_cast<float>(from[i]) - low) * scale;
        to[i] = static_cast<T>(std::min(std::max(value, 0.0f), kWhite<T>));
      }
    }
  });
  return out;
}

Tensor equalize(const Tensor& image) {
  const ImageView view = view_bytes("equalize", image);
  Tensor out = image_like(view, view.height, view.width);
  for (int64_t c = 0; c < view.channels; ++c) {
    const uint8_t* from = view.tensor.const_data<uint8_t>() + c * view.plane();
    const auto table = equalizing_table(from, view.plane());
    std::transform(from, from + view.plane(), fresh_data<uint8_t>(out) + c * view.plane(),
                   [&](uint8_t value) { return table[value]; });
  }
  return out;
}

Tensor adjust_sharpness(const Tensor& image, double factor) {
  if (!(factor >= 0 && factor <= 1e6)) {
    fail(ErrorCode::kValue, "[adjust_sharpness] factor ", factor,
         " is out of range: give 0 to 1000000");
  }
  const ImageView view = view_image("adjust_sharpness", image);
  if (view.height <= 2 || view.width <= 2) return view.tensor;
  Tensor out = image_like(view, view.height, view.width);
  with_element(view, [&](auto element) {
    using T = decltype(element);
    const int64_t width = view.width;
    const auto ratio = static_cast<float>(factor);
    for (int64_t c = 0; c < view.channels; ++c) {
      const T* plane = view.tensor.const_data<T>() + c * view.plane();
      T* to = fresh_data<T>(out) + c * view.plane();
      std::copy_n(plane, view.plane(), to);
      for (int64_t y = 1; y + 1 < view.height; ++y) {
        for (int64_t x = 1; x + 1 < width; ++x) {
          const T* at = plane + y * width + x;
          float sum = 4 * static_cast<float>(*at);
          for (int64_t row = -1; row <= 1; ++row) {
            for (int64_t column = -1; column <= 1; ++column) {
              sum += static_cast<float>(at[row * width + column]);
            }
          }
          const auto smooth = static_cast<float>(nearest<T>(sum / 13));
          const float value = ratio * static_cast<float>(*at) + (1 - ratio) * smooth;
          to[y * width + x] = static_cast<T>(std::min(std::max(value, 0.0f), kWhite<T>));
        }
      }
    }
  });
  return out;
}

Tensor gaussian_blur(const Tensor& image, Sizes<2> kernel_size, double sigma) {
  check_kernel("gaussian_blur", kernel_size);
  check_sigma("gaussian_blur", sigma);
  const ImageView view = view_image("gaussian_blur", image);
  if (kernel_size[0] / 2 >= view.height || kernel_size[1] / 2 >= view.width) {
    fail(ErrorCode::kShape, "[gaussian_blur] a kernel of ", kernel_size[0], " x ", kernel_size[1],
         " is too large for an image of ", view.height, " x ", view.width,
         " pixels: give a smaller kernel_size");
  }
  const std::vector<float> rows = normal_weights(kernel_size[0], sigma);
  const std::vector<float> columns = normal_weights(kernel_size[1], sigma);
  Tensor out = image_like(view, view.height, view.width);
  with_element(view, [&](auto element) {
    using T = decltype(element);
    for (int64_t c = 0; c < view.channels; ++c) {
      blur_plane(view.tensor.const_data<T>() + c * view.plane(), view.height, view.width, rows,
                 columns, fresh_data<T>(out) + c * view.plane());
    }
  });
  return out;
}

GaussianBlur::GaussianBlur(Sizes<2> kernel_size, double min_sigma, double max_sigma)
    : kernel_size_(kernel_size), min_sigma_(min_sigma), max_sigma_(max_sigma) {
  check_kernel("GaussianBlur", kernel_size);
  check_sigma("GaussianBlur", min_sigma);
  check_interval("GaussianBlur", "sigma", min_sigma, max_sigma, 0);
}

Tensor GaussianBlur::operator()(const Tensor& image) const {
  SplitMix64 random = drawn_from(default_generator());
  return gaussian_blur(image, kernel_size_, random.uniform(min_sigma_, max_sigma_));
}

}  // namespace mytorch::nn::data::transforms
