// Policies of augmentation, and mixtures of examples. Names, formulas and defaults are
// torchvision's.
#pragma once

#include <cstdint>
#include <vector>

#include "mytorch/nn/data/collate.h"
#include "mytorch/nn/data/dataset.h"
#include "mytorch/nn/data/transforms.h"
#include "mytorch/nn/options.h"
#include "mytorch/tensor.h"

namespace mytorch::nn::data::transforms {

// The transforms below take uint8 images with 1 or 3 channels. Place them before ConvertImageDtype.

struct AutoAugmentOptions {
  OneOf<Interpolation> interpolation = Interpolation::kNearest;
  double fill = 0;  // value outside of the image
};

enum class AutoAugmentPolicy { kImageNet, kCIFAR10, kSVHN };
AutoAugmentPolicy from_name(Str name, AutoAugmentPolicy type);  // "imagenet", "cifar10", "svhn"

// Applies one of 25 pairs of transforms that were learned for a data set (Cubuk et al., CVPR 2019).
class AutoAugment {
 public:
  explicit AutoAugment(OneOf<AutoAugmentPolicy> policy = AutoAugmentPolicy::kImageNet,
                       AutoAugmentOptions options = {});
  Tensor operator()(const Tensor& image) const;

 private:
  AutoAugmentPolicy policy_;
  AutoAugmentOptions options_;
};

struct RandAugmentOptions {
  int64_t num_ops = 2;
  int64_t magnitude = 9;  // below num_magnitude_bins
  int64_t num_magnitude_bins = 31;
  OneOf<Interpolation> interpolation = Interpolation::kNearest;
  double fill = 0;
};

// Applies `num_ops` of 14 transforms, all of the same magnitude (Cubuk et al., NeurIPS 2020).
class RandAugment {
 public:
  explicit RandAugment(RandAugmentOptions options = {});
  Tensor operator()(const Tensor& image) const;

 private:
  RandAugmentOptions options_;
};

struct TrivialAugmentWideOptions {
  int64_t num_magnitude_bins = 31;
  OneOf<Interpolation> interpolation = Interpolation::kNearest;
  double fill = 0;
};

// Applies one of 14 transforms, of random magnitude (Mueller and Hutter, ICCV 2021).
class TrivialAugmentWide {
 public:
  explicit TrivialAugmentWide(TrivialAugmentWideOptions options = {});
  Tensor operator()(const Tensor& image) const;

 private:
  TrivialAugmentWideOptions options_;
};

// Mixtures of the examples of a batch, each with the one before it. They take a batch, or are
// collate functions, which stack the examples first:
//
//   DataLoader loader(train, {.batch_size = 64, .collate = transforms::MixUp(10)});
//   for (const auto& [images, probabilities] : loader) cross_entropy(net(images), probabilities);
//
// data has a floating-point type. target is int64 (N) with values below num_classes, or has
// probabilities (N, num_classes); the result has probabilities. Throw Error(kType or kShape) for
// others. Results are new tensors.

// Computes lambda * x[i] + (1 - lambda) * x[i - 1], of data and targets, with one lambda from
// Beta(alpha, alpha) for the batch (Zhang et al., ICLR 2018).
class MixUp {
 public:
  explicit MixUp(int64_t num_classes, double alpha = 1);
  Batch operator()(const Batch& batch) const;
  Batch operator()(const std::vector<Example>& examples) const {
    return (*this)(stack_examples(examples));
  }

 private:
  int64_t num_classes_;
  double alpha_;
};

// Pastes a rectangle of x[i - 1] into images x[i]: (N, C, H, W). The targets are mixed in the ratio
// of the areas; that of the rectangle is 1 - lambda, before it is cut at the border (Yun et al.,
// ICCV 2019).
class CutMix {
 public:
  explicit CutMix(int64_t num_classes, double alpha = 1);
  Batch operator()(const Batch& batch) const;
  Batch operator()(const std::vector<Example>& examples) const {
    return (*this)(stack_examples(examples));
  }

 private:
  int64_t num_classes_;
  double alpha_;
};

}  // namespace mytorch::nn::data::transforms
