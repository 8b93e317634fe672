// Warps, tones, filters and policies, against the values of torchvision.
#include "mytorch/nn/data/augment.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <vector>

#include "mytorch/generator.h"
#include "mytorch/nn/data/combine.h"
#include "mytorch/nn/data/data_loader.h"
#include "mytorch/nn/data/transforms.h"
#include "mytorch/ops/arange.h"
#include "mytorch/ops/equal.h"
#include "mytorch/ops/full.h"
#include "mytorch/ops/ones.h"
#include "mytorch/ops/zeros.h"
#include "tests/nn/data/expect_error.h"
#include "tests/nn/data/images.h"
#include "tests/nn/values.h"

namespace mytorch::nn::data::transforms {
namespace {

using mytorch::testing::as_float;
using mytorch::testing::color_image;
using mytorch::testing::expect_error;
using mytorch::testing::expect_values;
using mytorch::testing::filled;
using mytorch::testing::gray_image;
using mytorch::testing::values;

// Expects bytes that differ by one at most, in few places: torchvision computes in float32.
void expect_bytes(const Tensor& image, const std::vector<double>& expected) {
  const std::vector<double> found = values(image);
  ASSERT_EQ(found.size(), expected.size());
  int differing = 0;
  for (size_t i = 0; i < found.size(); ++i) {
    EXPECT_NEAR(found[i], expected[i], 1) << i;
    if (found[i] != expected[i]) ++differing;
  }
  EXPECT_LE(differing, 2);
}

TEST(Warp, RotationEqualsTorchvision) {
  expect_bytes(rotate(gray_image(), 30), {0,  38,  147, 104, 221, 74,  10,  27,  116, 187, 194, 148,
                                          71, 40,  65,  223, 149, 224, 129, 183, 133, 55,  190, 119,
                                          51, 118, 154, 92,  59,  222, 185, 5,   132, 46,  0});
  expect_values(
      rotate(gray_image(), 35, {.interpolation = "nearest"}),
      {0,   0,   210, 68, 236, 20, 0,  0,  118, 190, 202, 134, 66,  58, 48,  232, 200, 224,
       120, 206, 144, 30, 214, 80, 14, 56, 160, 0,   0,   114, 250, 2,  198, 0,   0});
  expect_values(
      rotate(as_float(gray_image()), 30),
      {0,        0.149895, 0.575136, 0.407471, 0.866071, 0.291161, 0.037375, 0.107632, 0.454563,
       0.73457,  0.759696, 0.57908,  0.278082, 0.155948, 0.255845, 0.876179, 0.584221, 0.878431,
       0.504869, 0.717476, 0.519751, 0.214856, 0.745237, 0.464922, 0.198726, 0.461709, 0.604311,
       0.359472, 0.230157, 0.869845, 0.724115, 0.020453, 0.517209, 0.178824, 0},
      3e-6);
}

TEST(Warp, AffineMapsEqualTorchvision) {
  const AffineOptions options{.angle = 20, .translate = {1, -1}, .scale = 1.2, .shear = {10, -5}};
  expect_bytes(
      affine(gray_image(), options),
      {143, 185, 197, 141, 187, 191, 142, 220, 241, 124, 87, 224, 173, 184, 109, 86,  12, 54,
       108, 128, 82,  6,   12,  62,  177, 139, 165, 143, 0,  0,   3,   66,  113, 149, 129});
  AffineOptions nearest = options;
  nearest.interpolation = "nearest";
  expect_values(
      affine(gray_image(), nearest),
      {252, 114, 214, 80, 190, 190, 202, 252, 250, 14,  80, 224, 134, 202, 84,  84,  14, 56,
       56,  134, 66,  0,  0,   2,   198, 160, 206, 206, 0,  0,   0,   0,   160, 144, 150});
  expect_values(
      affine(gray_image(),
             {.shear = {16.7, 0}, .center = Point{0, 0}, .interpolation = Interpolation::kNearest}),
      {0,  48, 118, 210, 68, 204, 106, 30,  232, 200, 190, 202, 236, 36,  214, 80,  224, 134,
       66, 20, 0,   250, 14, 56,  120, 206, 58,  0,   84,  2,   198, 160, 144, 150, 0});
  EXPECT_EQ(values(affine(gray_image(), {})), values(gray_image()));
}

TEST(Warp, PerspectiveEqualsTorchvision) {
  const std::array<Point, 4> from = {{{0, 0}, {6, 0}, {6, 4}, {0, 4}}};
  const std::array<Point, 4> to = {{{1, 0}, {5, 1}, {6, 3}, {0, 4}}};
  expect_bytes(perspective(gray_image(), from, to),
               {3,   4,   37, 31,  0,   0,   0,  35,  87,  216, 175, 199, 47, 0,  106, 196, 230, 69,
                118, 160, 0,  160, 223, 184, 54, 119, 157, 102, 153, 165, 89, 27, 40,  29,  0});
  expect_values(perspective(gray_image(), from, to, {.interpolation = "nearest"}),
                {0,  0,   48, 0,   0,   0,   0, 0,   114, 232, 200, 202, 36, 0, 252, 252, 250, 14,
                 56, 206, 0,  252, 252, 250, 2, 198, 160, 150, 188, 188, 84, 2, 0,   0,   0});
  EXPECT_EQ(values(perspective(gray_image(), from, from)), values(gray_image()));
  expect_error(ErrorCode::kValue, {"[perspective]", "on a line"}, [&] {
    perspective(gray_image(), from, {{{0, 0}, {1, 1}, {2, 2}, {0, 4}}});
  });
}

// torchvision's mask darkens the pixels at the border; these are means of the image and the fill.
TEST(Warp, TheSurroundingsHaveTheFill) {
  const Tensor image = full({1, 5, 7}, 0.25);
  const Tensor turned = rotate(image, 30, {.fill = 0.25});
  expect_values(turned, std::vector<double>(35, 0.25));
  EXPECT_NEAR(values(rotate(image, 30, {.fill = 1}))[0], 1, 1e-6);
  EXPECT_EQ(values(rotate(image, 30, {.interpolation = "nearest", .fill = 1}))[0], 1);
}

TEST(Filter, BlurAndSharpnessEqualTorchvision) {
  expect_bytes(
      gaussian_blur(gray_image(), 3, 0.8),
      {72,  112, 162, 174, 169, 163, 143, 110, 142, 172, 179, 174, 146, 115, 175, 171, 145, 149,
       152, 116, 84,  203, 160, 93,  106, 138, 131, 112, 192, 139, 74,  103, 146, 150, 138});
  expect_bytes(
      gaussian_blur(gray_image(), 5, 1.5),
      {129, 140, 154, 171, 158, 148, 137, 139, 146, 151, 164, 151, 145, 136, 146, 148, 142, 147,
       138, 135, 128, 158, 153, 134, 131, 127, 134, 130, 155, 149, 125, 120, 120, 129, 127});
  const std::vector<double> floats = values(gaussian_blur(as_float(gray_image()), 3, 0.8));
  EXPECT_NEAR(floats[0], 0.284188, 2e-6);
  EXPECT_NEAR(floats[34], 0.542518, 2e-6);
  expect_bytes(
      adjust_sharpness(gray_image(), 2),
      {0,   48, 118, 210, 68,  204, 106, 30,  255, 222, 212, 224, 255, 36,  114, 255, 23, 255,
       116, 29, 20,  252, 255, 0,   19,  102, 255, 58,  188, 84,  2,   198, 160, 144, 150});
  expect_bytes(
      adjust_sharpness(gray_image(), 0.3),
      {0,   48, 118, 210, 68,  204, 106, 30,  175, 184, 174, 186, 179, 36,  114, 184, 119, 181,
       146, 91, 20,  252, 193, 67,  81,  132, 163, 58,  188, 84,  2,   198, 160, 144, 150});
  EXPECT_NEAR(values(adjust_sharpness(as_float(gray_image()), 2))[9], 0.869985, 2e-6);
  expect_error(ErrorCode::kValue, {"[GaussianBlur]", "odd"}, [] { GaussianBlur(4); });
  expect_error(ErrorCode::kShape, {"[gaussian_blur]", "11 x 11", "5 x 7"},
               [] { gaussian_blur(gray_image(), 11, 1); });
}

TEST(Tone, ChangesEqualTorchvision) {
  expect_values(invert(filled({1, 1, 3}, {0, 100, 255}, kUInt8)), {255, 155, 0});
  expect_values(invert(filled({1, 1, 2}, {0, 0.25})), {1, 0.75});
  expect_values(posterize(filled({1, 1, 4}, {31, 32, 118, 255}, kUInt8), 3), {0, 32, 96, 224});
  expect_values(posterize(filled({1, 1, 2}, {31, 255}, kUInt8), 8), {31, 255});
  expect_values(solarize(filled({1, 1, 3}, {99, 100, 255}, kUInt8), 100), {99, 155, 0});
  expect_values(solarize(filled({1, 1, 2}, {0.3, 0.5}), 0.4), {0.3, 0.5});
  expect_values(autocontrast(filled({3, 1, 3}, {20, 44, 146, 7, 7, 7, 0, 100, 200}, kUInt8)),
                {0, 48, 255, 7, 7, 7, 0, 127, 255});
  expect_values(autocontrast(filled({1, 1, 3}, {0.25, 0.5, 0.75})), {0, 0.5, 1});
  const Tensor index = arange(2000);
  const Tensor big = ((index * index).remainder(97) + 40).to(kUInt8).view({1, 40, 50});
  const std::vector<double> equal = values(equalize(big));
  EXPECT_EQ(std::vector<double>(equal.begin(), equal.begin() + 10),
            (std::vector<double>{0, 3, 21, 38, 56, 79, 115, 144, 179, 227}));
  double sum = 0;
  for (const double value : equal) sum += value;
  EXPECT_EQ(sum, 277242);
  EXPECT_EQ(values(equalize(gray_image())), values(gray_image()));
  expect_values(Grayscale()(color_image(4, 5)), {12,  92,  185, 113, 129, 114, 158, 142, 93,  29,
                                                 205, 169, 146, 138, 143, 134, 167, 65,  126, 172});
  EXPECT_EQ(RandomGrayscale(1)(color_image(4, 5)).sizes(), (IntList{3, 4, 5}));
  for (const auto& of_bytes :
       {Transform(equalize), Transform([](const Tensor& image) { return posterize(image, 4); })}) {
    expect_error(ErrorCode::kType, {"before ConvertImageDtype"},
                 [&] { of_bytes(as_float(gray_image())); });
  }
}

TEST(RandomApply, AppliesAllOrNothing) {
  manual_seed(1);
  int applied = 0;
  for (int i = 0; i < 1000; ++i) {
    const double value =
        values(RandomApply({invert, Grayscale()}, 0.3)(filled({1, 1, 1}, {0}, kUInt8)))[0];
    applied += value == 255 ? 1 : 0;
  }
  EXPECT_NEAR(applied, 300, 60);
  std::set<double> seen;
  for (int i = 0; i < 50; ++i) {
    seen.insert(values(RandomChoice({invert, equalize})(filled({1, 1, 1}, {3}, kUInt8)))[0]);
  }
  EXPECT_EQ(seen, (std::set<double>{3, 252}));
  expect_error(ErrorCode::kValue, {"[RandomChoice]"}, [] { RandomChoice({}); });
}

TEST(RandomWarps, StayWithinTheirOptions) {
  manual_seed(2);
  const Tensor image = color_image(16, 20);
  EXPECT_EQ(values(RandomAffine(0)(image)), values(image));
  EXPECT_EQ(values(RandomPerspective({.p = 0})(image)), values(image));
  EXPECT_EQ(values(RandomPerspective({.distortion_scale = 0, .p = 1})(image)), values(image));
  std::set<std::vector<double>> seen;
  for (int i = 0; i < 20; ++i) {
    seen.insert(values(RandomPerspective({.p = 1})(image)));
    seen.insert(values(RandomAffine(10, {.translate = {0.2, 0.1}, .max_scale = 1.5})(image)));
  }
  EXPECT_GT(seen.size(), 38u);
  for (int i = 0; i < 100; ++i) {  // translated by at most 2 of 20 pixels
    const Tensor moved = RandomAffine(0, {.translate = {0.1, 0}})(image);
    EXPECT_TRUE(equal(moved.narrow(2, 2, 1), image.narrow(2, 0, 1)) ||
                equal(moved.narrow(2, 2, 1), image.narrow(2, 1, 1)) ||
                equal(moved.narrow(2, 2, 1), image.narrow(2, 2, 1)) ||
                equal(moved.narrow(2, 2, 1), image.narrow(2, 3, 1)) ||
                equal(moved.narrow(2, 2, 1), image.narrow(2, 4, 1)));
  }
  RandomPerspective({.p = 1})(color_image(1, 1));
  expect_error(ErrorCode::kValue, {"[RandomAffine]", "translate"}, [] {
    RandomAffine(0, {.translate = {2, 0}});
  });
  expect_error(ErrorCode::kValue, {"interpolation", "'nearest', 'bilinear'"},
               [] { RandomRotation(3, {.interpolation = "cubic"}); });
}

TEST(Policies, GiveManyDifferentImagesThatTheSeedReproduces) {
  const Tensor image = color_image(24, 24);
  const std::vector<Transform> policies = {AutoAugment(), AutoAugment("cifar10"),
                                           AutoAugment(AutoAugmentPolicy::kSVHN), RandAugment(),
                                           TrivialAugmentWide()};
  for (const Transform& policy : policies) {
    std::set<std::vector<double>> seen;
    manual_seed(7);
    const std::vector<double> first = values(policy(image));
    for (int i = 0; i < 200; ++i) {
      const Tensor augmented = policy(image);
      ASSERT_EQ(augmented.sizes(), image.sizes());
      ASSERT_EQ(augmented.dtype(), kUInt8);
      seen.insert(values(augmented));
    }
    EXPECT_GT(seen.size(), 20u);
    manual_seed(7);
    EXPECT_EQ(values(policy(image)), first);
    expect_error(ErrorCode::kType, {"before ConvertImageDtype"}, [&] { policy(as_float(image)); });
  }
  EXPECT_EQ(values(RandAugment({.num_ops = 0})(image)), values(image));
  expect_error(ErrorCode::kValue, {"magnitude is 31", "0 to 30"},
               [] { RandAugment({.magnitude = 31}); });
}

TEST(MixUp, MixesNeighborsAndTheirLabels) {
  manual_seed(3);
  const Batch batch(filled({3, 2}, {0, 0, 1, 1, 4, 4}), filled({3}, {0, 1, 2}, kInt64));
  double sum = 0, squares = 0;
  for (int i = 0; i < 2000; ++i) {
    const Batch mixture = MixUp(3, 0.4)(batch);
    const std::vector<double> p = values(mixture.target);
    const double lambda = p[0];
    ASSERT_TRUE(lambda >= 0 && lambda <= 1);
    if (i == 0) {
      expect_values(mixture.target,
                    {lambda, 0, 1 - lambda, 1 - lambda, lambda, 0, 0, 1 - lambda, lambda});
      const double first = 4 * (1 - lambda), last = 4 * lambda + 1 - lambda;
      expect_values(mixture.data, {first, first, lambda, lambda, last, last});
    }
    sum += lambda;
    squares += lambda * lambda;
  }
  const double mean = sum / 2000, variance = squares / 2000 - mean * mean;
  EXPECT_NEAR(mean, 0.5, 0.03);
  EXPECT_NEAR(variance, 1 / (4 * (2 * 0.4 + 1)), 0.01);
  expect_error(ErrorCode::kShape, {"[MixUp]", "int64 labels (3,)", "(3, 4)"}, [&] {
    MixUp(4)(Batch(batch.data, zeros({3, 1})));
  });
  expect_error(ErrorCode::kType, {"[MixUp]", "uint8"},
               [&] { MixUp(4)(Batch(batch.data.to(kUInt8), batch.target)); });
}

TEST(CutMix, PastesARectangle) {
  manual_seed(4);
  const Tensor images = zeros({2, 1, 8, 10});
  images.select(0, 1).fill_(1);
  const Batch batch(images, filled({2}, {0, 1}, kInt64));
  std::set<double> parts;
  for (int i = 0; i < 100; ++i) {
    const Batch mixture = CutMix(2)(batch);
    const double pasted = mixture.data.select(0, 0).mean().item<double>();
    expect_values(mixture.target, {1 - pasted, pasted, pasted, 1 - pasted});
    EXPECT_NEAR(mixture.data.select(0, 1).mean().item<double>(), 1 - pasted, 1e-6);
    parts.insert(pasted);
  }
  EXPECT_GT(parts.size(), 10u);
  EXPECT_EQ(values(images.select(0, 0)), std::vector<double>(80, 0));
  expect_error(ErrorCode::kShape, {"[CutMix]", "(N, C, H, W)"}, [&] {
    CutMix(2)(Batch(ones({2, 3}), batch.target));
  });
}

TEST(Mixtures, OfALoaderDoNotDependOnTheWorkers) {
  const TensorDataset dataset(arange(40).to(kFloat32).view({40, 1, 1, 1}), arange(40));
  const auto batches = [&](int workers) {
    DataLoader loader(dataset, {.batch_size = 8,
                                .shuffle = true,
                                .seed = 5,
                                .num_workers = workers,
                                .collate = MixUp(40)});
    std::vector<std::vector<double>> list;
    for (const Batch& batch : loader) {
      list.push_back(values(batch.data));
      list.push_back(values(batch.target));
    }
    return list;
  };
  EXPECT_EQ(batches(0), batches(3));
}

}  // namespace
}  // namespace mytorch::nn::data::transforms
