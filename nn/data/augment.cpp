#include "mytorch/nn/data/augment.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <numbers>
#include <utility>

#include "core/types/errors.h"
#include "mytorch/grad_mode.h"
#include "mytorch/ops/clone.h"
#include "mytorch/ops/copy_.h"
#include "mytorch/ops/narrow.h"
#include "mytorch/ops/one_hot.h"
#include "mytorch/ops/roll.h"
#include "nn/data/image_view.h"
#include "nn/data/option_name.h"
#include "nn/data/split_mix.h"

namespace mytorch::nn::data::transforms {
namespace {

enum class Op {
  kIdentity,
  kShearX,
  kShearY,
  kTranslateX,
  kTranslateY,
  kRotate,
  kBrightness,
  kColor,
  kContrast,
  kSharpness,
  kPosterize,
  kSolarize,
  kAutoContrast,
  kEqualize,
  kInvert,
};

// The transforms of RandAugment and TrivialAugmentWide.
constexpr Op kAll[] = {Op::kIdentity,     Op::kShearX,    Op::kShearY,     Op::kTranslateX,
                       Op::kTranslateY,   Op::kRotate,    Op::kBrightness, Op::kColor,
                       Op::kContrast,     Op::kSharpness, Op::kPosterize,  Op::kSolarize,
                       Op::kAutoContrast, Op::kEqualize};

bool has_sign(Op op) { return op >= Op::kShearX && op <= Op::kSharpness; }

// The largest magnitudes of a policy.
struct Range {
  double shear;
  double translate_x;  // pixels
  double translate_y;
  double degrees;
  double factor;  // of colors and sharpness
  double dropped_bits;
};

// Returns the magnitude at `part` of the range, from 0 to 1.
double magnitude_of(Op op, double part, const Range& range) {
  switch (op) {
    case Op::kShearX:
    case Op::kShearY:
      return part * range.shear;
    case Op::kTranslateX:
      return part * range.translate_x;
    case Op::kTranslateY:
      return part * range.translate_y;
    case Op::kRotate:
      return part * range.degrees;
    case Op::kBrightness:
    case Op::kColor:
    case Op::kContrast:
    case Op::kSharpness:
      return part * range.factor;
    case Op::kPosterize:
      return 8 - std::nearbyint(part * range.dropped_bits);
    case Op::kSolarize:
      return 255 * (1 - part);
    default:
      return 0;
  }
}

Tensor apply(Op op, const Tensor& image, double magnitude, AutoAugmentOptions options) {
  AffineOptions move{.interpolation = options.interpolation, .fill = options.fill};
  const double degrees = std::atan(magnitude) * 180 / std::numbers::pi;
  switch (op) {
    case Op::kIdentity:
      return image;
    case Op::kShearX:
      move.center = Point{0, 0};
      move.shear.x = degrees;
      return affine(image, move);
    case Op::kShearY:
      move.center = Point{0, 0};
      move.shear.y = degrees;
      return affine(image, move);
    case Op::kTranslateX:
      move.translate.x = std::trunc(magnitude);
      return affine(image, move);
    case Op::kTranslateY:
      move.translate.y = std::trunc(magnitude);
      return affine(image, move);
    case Op::kRotate:
      return rotate(image, magnitude, {options.interpolation, options.fill});
    case Op::kBrightness:
      return adjust_brightness(image, 1 + magnitude);
    case Op::kColor:
      return adjust_saturation(image, 1 + magnitude);
    case Op::kContrast:
      return adjust_contrast(image, 1 + magnitude);
    case Op::kSharpness:
      return adjust_sharpness(image, 1 + magnitude);
    case Op::kPosterize:
      return posterize(image, static_cast<int64_t>(magnitude));
    case Op::kSolarize:
      return solarize(image, magnitude);
    case Op::kAutoContrast:
      return autocontrast(image);
    case Op::kEqualize:
      return equalize(image);
    case Op::kInvert:
      return invert(image);
  }
  return image;
}

struct Step {
  Op op;
  double p;
  int level;  // of the magnitude, 0 to 9
};
using Policy = Step[25][2];

// The learned policies, as the paper gives them.
// clang-format off
constexpr Policy kPolicies[] = {
    {
        {{Op::kPosterize, 0.4, 8}, {Op::kRotate, 0.6, 9}},
        {{Op::kSolarize, 0.6, 5}, {Op::kAutoContrast, 0.6, 0}},
        {{Op::kEqualize, 0.8, 0}, {Op::kEqualize, 0.6, 0}},
        {{Op::kPosterize, 0.6, 7}, {Op::kPosterize, 0.6, 6}},
        {{Op::kEqualize, 0.4, 0}, {Op::kSolarize, 0.2, 4}},
        {{Op::kEqualize, 0.4, 0}, {Op::kRotate, 0.8, 8}},
        {{Op::kSolarize, 0.6, 3}, {Op::kEqualize, 0.6, 0}},
        {{Op::kPosterize, 0.8, 5}, {Op::kEqualize, 1, 0}},
        {{Op::kRotate, 0.2, 3}, {Op::kSolarize, 0.6, 8}},
        {{Op::kEqualize, 0.6, 0}, {Op::kPosterize, 0.4, 6}},
        {{Op::kRotate, 0.8, 8}, {Op::kColor, 0.4, 0}},
        {{Op::kRotate, 0.4, 9}, {Op::kEqualize, 0.6, 0}},
        {{Op::kEqualize, 0, 0}, {Op::kEqualize, 0.8, 0}},
        {{Op::kInvert, 0.6, 0}, {Op::kEqualize, 1, 0}},
        {{Op::kColor, 0.6, 4}, {Op::kContrast, 1, 8}},
        {{Op::kRotate, 0.8, 8}, {Op::kColor, 1, 2}},
        {{Op::kColor, 0.8, 8}, {Op::kSolarize, 0.8, 7}},
        {{Op::kSharpness, 0.4, 7}, {Op::kInvert, 0.6, 0}},
        {{Op::kShearX, 0.6, 5}, {Op::kEqualize, 1, 0}},
        {{Op::kColor, 0.4, 0}, {Op::kEqualize, 0.6, 0}},
        {{Op::kEqualize, 0.4, 0}, {Op::kSolarize, 0.2, 4}},
        {{Op::kSolarize, 0.6, 5}, {Op::kAutoContrast, 0.6, 0}},
        {{Op::kInvert, 0.6, 0}, {Op::kEqualize, 1, 0}},
        {{Op::kColor, 0.6, 4}, {Op::kContrast, 1, 8}},
        {{Op::kEqualize, 0.8, 0}, {Op::kEqualize, 0.6, 0}},
    },
    {
        {{Op::kInvert, 0.1, 0}, {Op::kContrast, 0.2, 6}},
        {{Op::kRotate, 0.7, 2}, {Op::kTranslateX, 0.3, 9}},
        {{Op::kSharpness, 0.8, 1}, {Op::kSharpness, 0.9, 3}},
        {{Op::kShearY, 0.5, 8}, {Op::kTranslateY, 0.7, 9}},
        {{Op::kAutoContrast, 0.5, 0}, {Op::kEqualize, 0.9, 0}},
        {{Op::kShearY, 0.2, 7}, {Op::kPosterize, 0.3, 7}},
        {{Op::kColor, 0.4, 3}, {Op::kBrightness, 0.6, 7}},
        {{Op::kSharpness, 0.3, 9}, {Op::kBrightness, 0.7, 9}},
        {{Op::kEqualize, 0.6, 0}, {Op::kEqualize, 0.5, 0}},
        {{Op::kContrast, 0.6, 7}, {Op::kSharpness, 0.6, 5}},
        {{Op::kColor, 0.7, 7}, {Op::kTranslateX, 0.5, 8}},
        {{Op::kEqualize, 0.3, 0}, {Op::kAutoContrast, 0.4, 0}},
        {{Op::kTranslateY, 0.4, 3}, {Op::kSharpness, 0.2, 6}},
        {{Op::kBrightness, 0.9, 6}, {Op::kColor, 0.2, 8}},
        {{Op::kSolarize, 0.5, 2}, {Op::kInvert, 0, 0}},
        {{Op::kEqualize, 0.2, 0}, {Op::kAutoContrast, 0.6, 0}},
        {{Op::kEqualize, 0.2, 0}, {Op::kEqualize, 0.6, 0}},
        {{Op::kColor, 0.9, 9}, {Op::kEqualize, 0.6, 0}},
        {{Op::kAutoContrast, 0.8, 0}, {Op::kSolarize, 0.2, 8}},
        {{Op::kBrightness, 0.1, 3}, {Op::kColor, 0.7, 0}},
        {{Op::kSolarize, 0.4, 5}, {Op::kAutoContrast, 0.9, 0}},
        {{Op::kTranslateY, 0.9, 9}, {Op::kTranslateY, 0.7, 9}},
        {{Op::kAutoContrast, 0.9, 0}, {Op::kSolarize, 0.8, 3}},
        {{Op::kEqualize, 0.8, 0}, {Op::kInvert, 0.1, 0}},
        {{Op::kTranslateY, 0.7, 9}, {Op::kAutoContrast, 0.9, 0}},
    },
    {
        {{Op::kShearX, 0.9, 4}, {Op::kInvert, 0.2, 0}},
        {{Op::kShearY, 0.9, 8}, {Op::kInvert, 0.7, 0}},
        {{Op::kEqualize, 0.6, 0}, {Op::kSolarize, 0.6, 6}},
        {{Op::kInvert, 0.9, 0}, {Op::kEqualize, 0.6, 0}},
        {{Op::kEqualize, 0.6, 0}, {Op::kRotate, 0.9, 3}},
        {{Op::kShearX, 0.9, 4}, {Op::kAutoContrast, 0.8, 0}},
        {{Op::kShearY, 0.9, 8}, {Op::kInvert, 0.4, 0}},
        {{Op::kShearY, 0.9, 5}, {Op::kSolarize, 0.2, 6}},
        {{Op::kInvert, 0.9, 0}, {Op::kAutoContrast, 0.8, 0}},
        {{Op::kEqualize, 0.6, 0}, {Op::kRotate, 0.9, 3}},
        {{Op::kShearX, 0.9, 4}, {Op::kSolarize, 0.3, 3}},
        {{Op::kShearY, 0.8, 8}, {Op::kInvert, 0.7, 0}},
        {{Op::kEqualize, 0.9, 0}, {Op::kTranslateY, 0.6, 6}},
        {{Op::kInvert, 0.9, 0}, {Op::kEqualize, 0.6, 0}},
        {{Op::kContrast, 0.3, 3}, {Op::kRotate, 0.8, 4}},
        {{Op::kInvert, 0.8, 0}, {Op::kTranslateY, 0, 2}},
        {{Op::kShearY, 0.7, 6}, {Op::kSolarize, 0.4, 8}},
        {{Op::kInvert, 0.6, 0}, {Op::kRotate, 0.8, 4}},
        {{Op::kShearY, 0.3, 7}, {Op::kTranslateX, 0.9, 3}},
        {{Op::kShearX, 0.1, 6}, {Op::kInvert, 0.6, 0}},
        {{Op::kSolarize, 0.7, 2}, {Op::kTranslateY, 0.6, 7}},
        {{Op::kShearY, 0.8, 4}, {Op::kInvert, 0.8, 0}},
        {{Op::kShearX, 0.7, 9}, {Op::kTranslateY, 0.8, 3}},
        {{Op::kShearY, 0.8, 5}, {Op::kAutoContrast, 0.7, 0}},
        {{Op::kShearX, 0.7, 2}, {Op::kInvert, 0.1, 0}},
    },
};
// clang-format on

ImageView view_bytes(const char* what, const Tensor& image) {
  ImageView view = view_image(what, image);
  if (view.tensor.dtype() != kUInt8) {
    fail(ErrorCode::kType, "[", what,
         "] the image is float32: apply it to the bytes, before ConvertImageDtype");
  }
  if (view.channels != 1 && view.channels != 3) {
    fail(ErrorCode::kShape, "[", what, "] an image of ", view.channels,
         " channels has no colors: give 1 or 3 channels");
  }
  return view;
}

Range range_of(const ImageView& view, double shear, double degrees) {
  constexpr double kTranslate = 150.0 / 331;
  return {shear,
          kTranslate * static_cast<double>(view.width),
          kTranslate * static_cast<double>(view.height),
          degrees,
          0.9,
          4};
}

void check_bins(const char* what, int64_t bins) {
  if (bins < 2) {
    fail(ErrorCode::kValue, "[", what, "] num_magnitude_bins is ", bins, ": give at least 2");
  }
}

// ---- mixtures ----

void check_mixture(const char* what, int64_t num_classes, double alpha) {
  if (num_classes < 1) {
    fail(ErrorCode::kValue, "[", what, "] num_classes is ", num_classes, ": give at least 1");
  }
  if (!(alpha > 0) || !std::isfinite(alpha)) {
    fail(ErrorCode::kValue, "[", what, "] alpha is ", alpha, ": give a positive number");
  }
}

double normal(SplitMix64& random) {
  const double radius = std::sqrt(-2 * std::log(1 - random.uniform()));
  return radius * std::cos(2 * std::numbers::pi * random.uniform());
}

// The logarithm of a number from Gamma(alpha) (Marsaglia and Tsang, ACM TOMS 26, 2000).
double log_gamma_number(SplitMix64& random, double alpha) {
  if (alpha < 1) {
    return log_gamma_number(random, alpha + 1) + std::log(1 - random.uniform()) / alpha;
  }
  const double d = alpha - 1.0 / 3, c = 1 / std::sqrt(9 * d);
  while (true) {
    const double x = normal(random), root = 1 + c * x;
    if (root <= 0) continue;
    const double v = root * root * root;
    if (std::log(1 - random.uniform()) < 0.5 * x * x + d - d * v + d * std::log(v)) {
      return std::log(d * v);
    }
  }
}

double beta_number(SplitMix64& random, double alpha) {
  const double a = log_gamma_number(random, alpha), b = log_gamma_number(random, alpha);
  return 1 / (1 + std::exp(b - a));
}

// Returns probabilities of the type of the data.
Tensor probabilities(const char* what, const Batch& batch, int64_t num_classes) {
  const Tensor& target = batch.target;
  if (!batch.data.defined() || !target.defined()) {
    fail(ErrorCode::kValue, "[", what, "] the batch has no target: give examples with labels");
  }
  const int64_t n = batch.data.dim() > 0 ? batch.data.size(0) : 0;
  if (target.dtype() == kInt64 && target.sizes() == IntList{n}) {
    return one_hot(target, num_classes).to(batch.data.dtype());
  }
  if (target.is_floating_point() && target.sizes() == IntList{n, num_classes}) {
    return target.to(batch.data.dtype());
  }
  fail(ErrorCode::kShape, "[", what, "] the target is ", dtype_name(target.dtype()), " ",
       shape_str(target.sizes()), ": give int64 labels (", n, ",) or probabilities (", n, ", ",
       num_classes, ")");
}

Tensor mixed(const Tensor& x, double lambda) { return x * lambda + roll(x, 1, 0) * (1 - lambda); }

}  // namespace

AutoAugmentPolicy from_name(Str name, AutoAugmentPolicy /*type*/) {
  constexpr std::array kNames = {"imagenet", "cifar10", "svhn"};
  return static_cast<AutoAugmentPolicy>(index_of_name("policy", name, kNames));
}

AutoAugment::AutoAugment(OneOf<AutoAugmentPolicy> policy, AutoAugmentOptions options)
    : policy_(policy), options_(options) {}

Tensor AutoAugment::operator()(const Tensor& image) const {
  const ImageView view = view_bytes("AutoAugment", image);
  SplitMix64 random = drawn_from(default_generator());
  const Policy& policy = kPolicies[static_cast<size_t>(policy_)];
  Tensor result = view.tensor;
  for (const Step& step : policy[random.below(std::size(policy))]) {
    const bool skipped = random.uniform() >= step.p;
    const bool negative = random.below(2) == 0;
    if (skipped) continue;
    const double magnitude = magnitude_of(step.op, step.level / 9.0, range_of(view, 0.3, 30));
    result =
        apply(step.op, result, negative && has_sign(step.op) ? -magnitude : magnitude, options_);
  }
  return result;
}

RandAugment::RandAugment(RandAugmentOptions options) : options_(options) {
  check_bins("RandAugment", options.num_magnitude_bins);
  if (options.num_ops < 0) {
    fail(ErrorCode::kValue, "[RandAugment] num_ops is ", options.num_ops, ": give at least 0");
  }
  if (options.magnitude < 0 || options.magnitude >= options.num_magnitude_bins) {
    fail(ErrorCode::kValue, "[RandAugment] magnitude is ", options.magnitude, ": give 0 to ",
         options.num_magnitude_bins - 1);
  }
}

Tensor RandAugment::operator()(const Tensor& image) const {
  const ImageView view = view_bytes("RandAugment", image);
  SplitMix64 random = drawn_from(default_generator());
  const double part = static_cast<double>(options_.magnitude) /
                      static_cast<double>(options_.num_magnitude_bins - 1);
  Tensor result = view.tensor;
  for (int64_t i = 0; i < options_.num_ops; ++i) {
    const Op op = kAll[random.below(std::size(kAll))];
    const double magnitude = magnitude_of(op, part, range_of(view, 0.3, 30));
    const bool negative = has_sign(op) && random.below(2) == 0;
    result = apply(op, result, negative ? -magnitude : magnitude,
                   {options_.interpolation, options_.fill});
  }
  return result;
}

TrivialAugmentWide::TrivialAugmentWide(TrivialAugmentWideOptions options) : options_(options) {
  check_bins("TrivialAugmentWide", options.num_magnitude_bins);
}

Tensor TrivialAugmentWide::operator()(const Tensor& image) const {
  const ImageView view = view_bytes("TrivialAugmentWide", image);
  SplitMix64 random = drawn_from(default_generator());
  const Op op = kAll[random.below(std::size(kAll))];
  const auto bins = static_cast<uint64_t>(options_.num_magnitude_bins);
  const double part = static_cast<double>(random.below(bins)) / static_cast<double>(bins - 1);
  const Range range{.shear = 0.99,
                    .translate_x = 32,
                    .translate_y = 32,
                    .degrees = 135,
                    .factor = 0.99,
                    .dropped_bits = 6};
  const double magnitude = magnitude_of(op, part, range);
  const bool negative = has_sign(op) && random.below(2) == 0;
  return apply(op, view.tensor, negative ? -magnitude : magnitude,
               {options_.interpolation, options_.fill});
}

MixUp::MixUp(int64_t num_classes, double alpha) : num_classes_(num_classes), alpha_(alpha) {
  check_mixture("MixUp", num_classes, alpha);
}

Batch MixUp::operator()(const Batch& batch) const {
  NoGradGuard no_grad;
  if (batch.data.defined() && !batch.data.is_floating_point()) {
    fail(ErrorCode::kType, "[MixUp] the data is ", dtype_name(batch.data.dtype()),
         ": convert it to a floating-point type first");
  }
  const Tensor target = probabilities("MixUp", batch, num_classes_);
  SplitMix64 random = drawn_from(default_generator());
  const double lambda = beta_number(random, alpha_);
  return {mixed(batch.data, lambda), mixed(target, lambda), batch.others};
}

CutMix::CutMix(int64_t num_classes, double alpha) : num_classes_(num_classes), alpha_(alpha) {
  check_mixture("CutMix", num_classes, alpha);
}

Batch CutMix::operator()(const Batch& batch) const {
  NoGradGuard no_grad;
  if (batch.data.defined() && (batch.data.dim() != 4 || !batch.data.is_floating_point())) {
    fail(ErrorCode::kShape, "[CutMix] the data is ", dtype_name(batch.data.dtype()), " ",
         shape_str(batch.data.sizes()), ": give images (N, C, H, W) of a floating-point type");
  }
  const Tensor target = probabilities("CutMix", batch, num_classes_);
  SplitMix64 random = drawn_from(default_generator());
  const double half = 0.5 * std::sqrt(1 - beta_number(random, alpha_));
  // Returns the part of a side that the rectangle covers.
  const auto interval = [&](int64_t side) {
    const auto middle = static_cast<int64_t>(random.below(static_cast<uint64_t>(side)));
    const auto reach = static_cast<int64_t>(half * static_cast<double>(side));
    return std::pair(std::max<int64_t>(middle - reach, 0), std::min(middle + reach, side));
  };
  const int64_t height = batch.data.size(2), width = batch.data.size(3);
  if (batch.data.numel() == 0) return {batch.data, target, batch.others};
  const auto [left, right] = interval(width);
  const auto [top, bottom] = interval(height);
  const auto part = [&, top = top, bottom = bottom, left = left, right = right](const Tensor& x) {
    return x.narrow(2, top, bottom - top).narrow(3, left, right - left);
  };
  const Tensor data = mytorch::clone(batch.data);
  part(data).copy_(part(roll(batch.data, 1, 0)));
  const double pasted =
      static_cast<double>((bottom - top) * (right - left)) / static_cast<double>(height * width);
  return {data, mixed(target, 1 - pasted), batch.others};
}

}  // namespace mytorch::nn::data::transforms
