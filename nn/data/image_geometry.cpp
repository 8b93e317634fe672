// Transforms that move pixels.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "core/types/errors.h"
#include "mytorch/nn/data/transforms.h"
#include "nn/common/host_tensor.h"
#include "nn/data/image_view.h"
#include "nn/data/split_mix.h"

namespace mytorch::nn::data {
namespace {

constexpr int64_t kMostSide = int64_t{1} << 24;

// For each output pixel, the input pixels that it is a weighted mean of.
struct Taps {
  struct Run {
    int64_t begin;
    int64_t count;
    size_t weights;  // index of the first weight
  };
  std::vector<Run> runs;
  std::vector<float> weights;
};

// The triangle filter of the output's pixel distance, and of at least the input's.
Taps taps_of(int64_t in, int64_t out) {
  const double scale = static_cast<double>(in) / static_cast<double>(out);
  const double reach = std::max(scale, 1.0);
  Taps taps;
  taps.runs.reserve(static_cast<size_t>(out));
  for (int64_t i = 0; i < out; ++i) {
    const double center = scale * (static_cast<double>(i) + 0.5);
    const int64_t begin =
        std::max<int64_t>(static_cast<int64_t>(std::floor(center - reach + 0.5)), 0);
    const int64_t end =
        std::min<int64_t>(static_cast<int64_t>(std::floor(center + reach + 0.5)), in);
    taps.runs.push_back({begin, end - begin, taps.weights.size()});
    double sum = 0;
    for (int64_t j = begin; j < end; ++j) {
      const double distance = (static_cast<double>(j) - center + 0.5) / reach;
      const double weight = std::max(0.0, 1 - std::abs(distance));
      taps.weights.push_back(static_cast<float>(weight));
      sum += weight;
    }
    for (size_t w = taps.runs.back().weights; w < taps.weights.size(); ++w) {
      taps.weights[w] = static_cast<float>(taps.weights[w] / sum);
    }
  }
  return taps;
}

template <class T>
void resize_row(const T* __restrict from, const Taps& taps, float* __restrict to) {
  for (size_t x = 0; x < taps.runs.size(); ++x) {
    const Taps::Run& run = taps.runs[x];
    const float* weights = taps.weights.data() + run.weights;
    float sum = 0;
    for (int64_t j = 0; j < run.count; ++j) {
      sum += weights[j] * static_cast<float>(from[run.begin + j]);
    }
    to[x] = sum;
  }
}

// Adds up the rows of a run, each `stride` elements after the one before.
template <class T>
void sum_rows(const T* from, int64_t stride, const Taps& rows, const Taps::Run& run,
              std::vector<float>& sum) {
  std::fill(sum.begin(), sum.end(), 0.0f);
  float* __restrict to = sum.data();
  for (int64_t j = 0; j < run.count; ++j) {
    const float weight = rows.weights[run.weights + static_cast<size_t>(j)];
    const T* __restrict row = from + (run.begin + j) * stride;
    for (size_t x = 0; x < sum.size(); ++x) to[x] += weight * static_cast<float>(row[x]);
  }
}

template <class T>
void round_row(const float* __restrict from, size_t n, T* __restrict to) {
  for (size_t x = 0; x < n; ++x) to[x] = nearest<T>(from[x]);
}

// The loop over columns is the slower one, since the compiler vectorizes only that over rows: it
// runs over the fewer rows, those of the output or of the input.
template <class T>
void resize_plane(const T* from, int64_t stride, Region region, const Taps& rows,
                  const Taps& columns, T* to) {
  const size_t width = columns.runs.size();
  if (static_cast<int64_t>(rows.runs.size()) < region.height) {
    std::vector<float> sum(static_cast<size_t>(region.width)), narrow(width);
    for (const Taps::Run& run : rows.runs) {
      sum_rows(from, stride, rows, run, sum);
      resize_row(sum.data(), columns, narrow.data());
      round_row(narrow.data(), width, to);
      to += width;
    }
    return;
  }
  std::vector<float> narrow(static_cast<size_t>(region.height) * width), sum(width);
  for (int64_t y = 0; y < region.height; ++y) {
    resize_row(from + y * stride, columns, narrow.data() + static_cast<size_t>(y) * width);
  }
  for (const Taps::Run& run : rows.runs) {
    sum_rows(narrow.data(), static_cast<int64_t>(width), rows, run, sum);
    round_row(sum.data(), width, to);
    to += width;
  }
}

void check_side(const char* what, const char* name, int64_t value) {
  if (value < 1 || value > kMostSide) {
    fail(ErrorCode::kValue, "[", what, "] ", name, " ", value, " is out of range: give 1 to ",
         kMostSide);
  }
}

void check_size2(const char* what, Sizes<2> size) {
  check_side(what, "height", size[0]);
  check_side(what, "width", size[1]);
}

// Draws a rectangle of random area and ratio that fits; returns false if ten attempts fail.
bool draw_region(SplitMix64& random, const ImageView& image, double min_scale, double max_scale,
                 double min_ratio, double max_ratio, Region* region) {
  for (int attempt = 0; attempt < 10; ++attempt) {
    const double area = static_cast<double>(image.plane()) * random.uniform(min_scale, max_scale);
    const double ratio = std::exp(random.uniform(std::log(min_ratio), std::log(max_ratio)));
    const double width = std::round(std::sqrt(area * ratio));
    const double height = std::round(std::sqrt(area / ratio));
    if (width < 1 || height < 1 || width > static_cast<double>(image.width) ||
        height > static_cast<double>(image.height)) {
      continue;
    }
    region->height = static_cast<int64_t>(height);
    region->width = static_cast<int64_t>(width);
    region->top = static_cast<int64_t>(
        random.below(static_cast<uint64_t>(image.height - region->height + 1)));
    region->left =
        static_cast<int64_t>(random.below(static_cast<uint64_t>(image.width - region->width + 1)));
    return true;
  }
  return false;
}

Tensor flip(const ImageView& image, bool vertically) {
  Tensor out = image_like(image, image.height, image.width);
  with_element(image, [&](auto element) {
    using T = decltype(element);
    const T* from = image.tensor.const_data<T>();
    T* to = fresh_data<T>(out);
    for (int64_t y = 0; y < image.channels * image.height; ++y, to += image.width) {
      if (vertically) {
        const int64_t channel = y / image.height, row = y % image.height;
        const T* mirrored = from + ((channel + 1) * image.height - 1 - row) * image.width;
        std::copy(mirrored, mirrored + image.width, to);
      } else {
        const T* row = from + y * image.width;
        std::reverse_copy(row, row + image.width, to);
      }
    }
  });
  return out;
}

}  // namespace

double checked_probability(const char* what, double p) {
  if (!(p >= 0 && p <= 1)) {
    fail(ErrorCode::kValue, "[", what, "] probability ", p, " is out of range: give 0 to 1");
  }
  return p;
}

void check_interval(const char* what, const char* name, double low, double high, double least) {
  if (!(low >= least && low <= high) || !std::isfinite(high)) {
    fail(ErrorCode::kValue, "[", what, "] ", name, " from ", low, " to ", high,
         ": give a finite interval above ", least);
  }
}

ImageView view_image(const char* what, const Tensor& image) {
  if (image.dim() != 3 || image.numel() == 0) {
    fail(ErrorCode::kShape, "[", what, "] a tensor ", shape_str(image.sizes()),
         " is no image: give (channels, height, width)");
  }
  if (image.dtype() != kUInt8 && image.dtype() != kFloat32) {
    fail(ErrorCode::kType, "[", what, "] an image is uint8 or float32, not ",
         dtype_name(image.dtype()), ": convert it");
  }
  if (!image.device().is_cpu()) {
    fail(ErrorCode::kDevice, "[", what, "] the image is on ", image.device().str(),
         ": transform it before moving it there");
  }
  const Tensor plain = image.detach();
  return {plain.is_contiguous() ? plain : plain.contiguous(), image.size(0), image.size(1),
          image.size(2)};
}

Tensor image_like(const ImageView& image, int64_t height, int64_t width) {
  return fresh_host_tensor({image.channels, height, width}, image.tensor.dtype());
}

Tensor resize_region(const ImageView& image, Region region, int64_t height, int64_t width) {
  Tensor out = image_like(image, height, width);
  const Taps rows = taps_of(region.height, height);
  const Taps columns = taps_of(region.width, width);
  with_element(image, [&](auto element) {
    using T = decltype(element);
    const T* from = image.tensor.const_data<T>() + region.top * image.width + region.left;
    for (int64_t c = 0; c < image.channels; ++c) {
      resize_plane(from + c * image.plane(), image.width, region, rows, columns,
                   fresh_data<T>(out) + c * height * width);
    }
  });
  return out;
}

Tensor crop_region(const ImageView& image, Region region, double fill) {
  Tensor out = image_like(image, region.height, region.width);
  const int64_t begin = std::clamp<int64_t>(-region.left, 0, region.width);
  const int64_t end = std::clamp<int64_t>(image.width - region.left, begin, region.width);
  with_element(image, [&](auto element) {
    using T = decltype(element);
    const T value = nearest<T>(static_cast<float>(fill));
    T* to = fresh_data<T>(out);
    for (int64_t c = 0; c < image.channels; ++c) {
      for (int64_t y = region.top; y < region.top + region.height; ++y, to += region.width) {
        if (y < 0 || y >= image.height) {
          std::fill_n(to, region.width, value);
          continue;
        }
        const T* row = image.tensor.const_data<T>() + (c * image.height + y) * image.width;
        std::fill_n(to, begin, value);
        std::copy(row + region.left + begin, row + region.left + end, to + begin);
        std::fill_n(to + end, region.width - end, value);
      }
    }
  });
  return out;
}

namespace transforms {

Compose::Compose(std::initializer_list<Transform> transforms) : transforms_(transforms) {}
Compose::Compose(std::vector<Transform> transforms) : transforms_(std::move(transforms)) {}
Tensor Compose::operator()(const Tensor& image) const {
  Tensor result = image;
  for (const Transform& transform : transforms_) result = transform(result);
  return result;
}

RandomApply::RandomApply(std::initializer_list<Transform> transforms, double p)
    : RandomApply(std::vector<Transform>(transforms), p) {}
RandomApply::RandomApply(std::vector<Transform> transforms, double p)
    : transforms_(std::move(transforms)), p_(checked_probability("RandomApply", p)) {}

Tensor RandomApply::operator()(const Tensor& image) const {
  if (drawn_from(default_generator()).uniform() >= p_) return image;
  Tensor result = image;
  for (const Transform& transform : transforms_) result = transform(result);
  return result;
}

RandomChoice::RandomChoice(std::initializer_list<Transform> transforms)
    : RandomChoice(std::vector<Transform>(transforms)) {}
RandomChoice::RandomChoice(std::vector<Transform> transforms) : transforms_(std::move(transforms)) {
  if (transforms_.empty()) {
    fail(ErrorCode::kValue, "[RandomChoice] there are no transforms: give at least one");
  }
}

Tensor RandomChoice::operator()(const Tensor& image) const {
  return transforms_[drawn_from(default_generator()).below(transforms_.size())](image);
}

Resize::Resize(int64_t shorter_side) : height_(shorter_side), width_(0) {
  check_side("Resize", "shorter_side", shorter_side);
}

Resize::Resize(int64_t height, int64_t width) : height_(height), width_(width) {
  check_size2("Resize", Sizes<2>(height, width));
}

Tensor Resize::operator()(const Tensor& image) const {
  const ImageView view = view_image("Resize", image);
  int64_t height = height_, width = width_;
  if (width == 0) {
    const int64_t shorter = std::min(view.height, view.width);
    const int64_t longer = std::max(view.height, view.width);
    const int64_t resized = height_ * longer / shorter;
    check_side("Resize", "longer side", resized);
    height = view.height <= view.width ? height_ : resized;
    width = view.height <= view.width ? resized : height_;
  }
  return resize_region(view, {0, 0, view.height, view.width}, height, width);
}

CenterCrop::CenterCrop(Sizes<2> size) : size_(size) { check_size2("CenterCrop", size); }

Tensor CenterCrop::operator()(const Tensor& image) const {
  const ImageView view = view_image("CenterCrop", image);
  // Rounds half to even, as Python's round.
  const auto half = [](int64_t difference) {
    return static_cast<int64_t>(std::nearbyint(static_cast<double>(difference) / 2));
  };
  return crop_region(
      view, {half(view.height - size_[0]), half(view.width - size_[1]), size_[0], size_[1]}, 0);
}

RandomCrop::RandomCrop(Sizes<2> size, RandomCropOptions options) : size_(size), options_(options) {
  check_size2("RandomCrop", size);
  if (options.padding < 0 || options.padding > kMostSide) {
    fail(ErrorCode::kValue, "[RandomCrop] padding ", options.padding,
         " is out of range: give 0 to ", kMostSide);
  }
}

Tensor RandomCrop::operator()(const Tensor& image) const {
  const ImageView view = view_image("RandomCrop", image);
  const int64_t height = view.height + 2 * options_.padding;
  const int64_t width = view.width + 2 * options_.padding;
  if (height < size_[0] || width < size_[1]) {
    fail(ErrorCode::kShape, "[RandomCrop] a part of ", size_[0], " x ", size_[1],
         " does not fit into an image of ", height, " x ", width,
         " pixels with its padding: resize it or give more padding");
  }
  SplitMix64 random = drawn_from(default_generator());
  const auto top = static_cast<int64_t>(random.below(static_cast<uint64_t>(height - size_[0] + 1)));
  const auto left = static_cast<int64_t>(random.below(static_cast<uint64_t>(width - size_[1] + 1)));
  return crop_region(view, {top - options_.padding, left - options_.padding, size_[0], size_[1]},
                     options_.fill);
}

RandomResizedCrop::RandomResizedCrop(Sizes<2> size, RandomResizedCropOptions options)
    : size_(size), options_(options) {
  check_size2("RandomResizedCrop", size);
  check_interval("RandomResizedCrop", "scale", options.min_scale, options.max_scale, 0);
  check_interval("RandomResizedCrop", "ratio", options.min_ratio, options.max_ratio, 1e-9);
}

Tensor RandomResizedCrop::operator()(const Tensor& image) const {
  const ImageView view = view_image("RandomResizedCrop", image);
  SplitMix64 random = drawn_from(default_generator());
  Region region{};
  if (!draw_region(random, view, options_.min_scale, options_.max_scale, options_.min_ratio,
                   options_.max_ratio, &region)) {
    // The largest part in the middle whose ratio is allowed.
    const double ratio =
        std::clamp(static_cast<double>(view.width) / static_cast<double>(view.height),
                   options_.min_ratio, options_.max_ratio);
    region.height =
        std::clamp<int64_t>(std::llround(static_cast<double>(view.width) / ratio), 1, view.height);
    region.width = std::clamp<int64_t>(std::llround(static_cast<double>(region.height) * ratio), 1,
                                       view.width);
    region.top = (view.height - region.height) / 2;
    region.left = (view.width - region.width) / 2;
  }
  return resize_region(view, region, size_[0], size_[1]);
}

RandomHorizontalFlip::RandomHorizontalFlip(double p)
    : p_(checked_probability("RandomHorizontalFlip", p)) {}

Tensor RandomHorizontalFlip::operator()(const Tensor& image) const {
  const ImageView view = view_image("RandomHorizontalFlip", image);
  return drawn_from(default_generator()).uniform() < p_ ? flip(view, false) : view.tensor;
}

RandomVerticalFlip::RandomVerticalFlip(double p)
    : p_(checked_probability("RandomVerticalFlip", p)) {}

Tensor RandomVerticalFlip::operator()(const Tensor& image) const {
  const ImageView view = view_image("RandomVerticalFlip", image);
  return drawn_from(default_generator()).uniform() < p_ ? flip(view, true) : view.tensor;
}

RandomErasing::RandomErasing(RandomErasingOptions options) : options_(options) {
  checked_probability("RandomErasing", options.p);
  check_interval("RandomErasing", "scale", options.min_scale, options.max_scale, 0);
  check_interval("RandomErasing", "ratio", options.min_ratio, options.max_ratio, 1e-9);
}

Tensor RandomErasing::operator()(const Tensor& image) const {
  const ImageView view = view_image("RandomErasing", image);
  SplitMix64 random = drawn_from(default_generator());
  Region region{};
  if (random.uniform() >= options_.p ||
      !draw_region(random, view, options_.min_scale, options_.max_scale, options_.min_ratio,
                   options_.max_ratio, &region)) {
    return view.tensor;
  }
  Tensor out = crop_region(view, {0, 0, view.height, view.width}, 0);
  with_element(view, [&](auto element) {
    using T = decltype(element);
    const T value = nearest<T>(static_cast<float>(options_.value));
    for (int64_t c = 0; c < view.channels; ++c) {
      for (int64_t y = region.top; y < region.top + region.height; ++y) {
        std::fill_n(fresh_data<T>(out) + (c * view.height + y) * view.width + region.left,
                    region.width, value);
      }
    }
  });
  return out;
}

}  // namespace transforms
}  // namespace mytorch::nn::data
