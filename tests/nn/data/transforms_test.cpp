// Transforms against the values of PyTorch 2 for the same formulas.
#include "mytorch/nn/data/transforms.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "mytorch/generator.h"
#include "mytorch/nn/data/combine.h"
#include "mytorch/nn/data/data_loader.h"
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

// Image (1, height, width) of the numbers from 1.
Tensor counted(int64_t height, int64_t width) {
  std::vector<double> list;
  for (int i = 0; i < height * width; ++i) list.push_back(i + 1);
  return filled({1, height, width}, list, kUInt8);
}

TEST(Resize, EqualsPyTorchWithAntialiasing) {
  expect_values(Resize(3, 4)(as_float(gray_image())),
                {0.2682139, 0.6329636, 0.6477087, 0.5454448, 0.6558356, 0.5615338, 0.6001917,
                 0.3197012, 0.7046018, 0.2868347, 0.5756862, 0.5404829});
  expect_values(
      Resize(6, 9)(as_float(gray_image())),
      {0,         0.1254902, 0.3102396, 0.5429195, 0.8235294, 0.390414,  0.5629631, 0.6718954,
       0.4156863, 0.0882353, 0.5156863, 0.7180828, 0.7174292, 0.7647059, 0.683878,  0.790414,
       0.6660129, 0.2098039, 0.3098039, 0.682353,  0.7091504, 0.5793755, 0.8228758, 0.6779957,
       0.5810458, 0.3925925, 0.1045752, 0.6725489, 0.8228758, 0.590414,  0.2943356, 0.6039217,
       0.5251272, 0.4942628, 0.3718953, 0.1405229, 0.9254902, 0.8535948, 0.4734206, 0.1132898,
       0.3588235, 0.4762527, 0.6416123, 0.6039215, 0.3176471, 0.7372549, 0.4653594, 0.1864924,
       0.1786493, 0.7764706, 0.6605664, 0.5925926, 0.572549,  0.5882353});
  expect_values(Resize(3, 4)(gray_image()),
                {68, 161, 165, 139, 167, 143, 153, 82, 180, 73, 147, 138});
}

TEST(Resize, KeepsTheRatioForOneNumber) {
  EXPECT_EQ(Resize(10)(gray_image()).sizes(), (IntList{1, 10, 14}));
  EXPECT_EQ(Resize(10)(gray_image().transpose(1, 2)).sizes(), (IntList{1, 14, 10}));
}

TEST(Adjust, EqualsTorchvision) {
  expect_values(adjust_brightness(color_image(2, 2), 1.7),
                {0, 102, 227, 255, 115, 255, 98, 255, 176, 34, 255, 255});
  expect_values(adjust_contrast(color_image(2, 2), 0.4),
                {71, 95, 125, 160, 98, 145, 94, 152, 113, 79, 154, 131});
  expect_values(adjust_contrast(as_float(color_image(2, 2)), 1.8),
                {0, 0.04736751, 0.5697205, 1, 0.1038381, 0.9226615, 0.03324986, 1, 0.3579557, 0, 1,
                 0.6826617});
  expect_values(adjust_saturation(color_image(2, 2), 1.6),
                {0, 19, 156, 234, 78, 217, 34, 202, 135, 0, 255, 118});
  expect_values(adjust_hue(color_image(2, 2), 0.3),
                {104, 20, 206, 150, 0, 93, 104, 222, 89, 184, 58, 188});
  expect_values(adjust_hue(as_float(color_image(2, 2)), -0.45),
                {0.4078431, 0.7215686, 0.3356859, 0.59451, 0.2635294, 0.07843135, 0.8078431,
                 0.5882353, 0, 0.6854903, 0.227451, 0.8705882},
                2e-6);
}

TEST(Adjust, TreatsLargeImagesAsSmallOnes) {
  std::vector<double> list(3 * 3000);
  for (size_t i = 0; i < list.size(); ++i) list[i] = static_cast<double>(i * 7 % 256);
  const Tensor wide = filled({3, 1, 3000}, list, kUInt8);
  const Tensor adjusted = adjust_saturation(wide, 1.6);
  for (int64_t x : {0, 1023, 1024, 2999}) {
    EXPECT_EQ(values(adjusted.narrow(2, x, 1)),
              values(adjust_saturation(wide.narrow(2, x, 1), 1.6)));
  }
}

TEST(ToTensor, ConvertsInterleavedBytes) {
  const Tensor image = filled({1, 2, 3}, {0, 51, 102, 153, 204, 255}, kUInt8);
  const Tensor converted = ToTensor()(image);
  EXPECT_EQ(converted.sizes(), (IntList{3, 1, 2}));
  expect_values(converted, {0, 0.6, 0.2, 0.8, 0.4, 1});
  EXPECT_EQ(ToTensor()(image[0]).sizes(), (IntList{1, 2, 3}));
}

TEST(ConvertImageDtype, IsUndoneByItsInverse) {
  std::vector<double> all;
  for (int i = 0; i < 256; ++i) all.push_back(i);
  const Tensor bytes = filled({1, 16, 16}, all, kUInt8);
  expect_values(ConvertImageDtype(kUInt8)(as_float(bytes)), all);
  expect_values(ConvertImageDtype(kUInt8)(filled({1, 1, 3}, {-1, 2, 0.0 / 0.0})), {0, 255, 0});
}

TEST(Normalize, SubtractsTheMeanOfEachChannel) {
  const Tensor image = filled({2, 1, 2}, {1, 2, 3, 4});
  expect_values(Normalize({1, 2}, {2, 4})(image), {0, 0.5, 0.25, 0.5});
  expect_values(Normalize({1}, {2})(image), {0, 0.5, 1, 1.5});
}

TEST(CenterCrop, CutsAndPads) {
  expect_values(CenterCrop(Sizes<2>(1, 2))(counted(3, 4)), {6, 7});
  expect_values(CenterCrop(Sizes<2>(3, 1))(counted(1, 3)), {0, 2, 0});
}

TEST(RandomCrop, CutsEveryPartOfThePaddedImage) {
  manual_seed(1);
  std::set<std::vector<double>> seen;
  const RandomCrop crop(Sizes<2>(1, 2), {.padding = 1, .fill = 9});
  for (int i = 0; i < 300; ++i) seen.insert(values(crop(counted(1, 2))));
  EXPECT_EQ(seen, (std::set<std::vector<double>>{{9, 9}, {9, 1}, {1, 2}, {2, 9}}));
}

TEST(RandomFlip, MirrorsWithItsProbability) {
  expect_values(RandomHorizontalFlip(1)(counted(2, 3)), {3, 2, 1, 6, 5, 4});
  expect_values(RandomVerticalFlip(1)(counted(2, 3)), {4, 5, 6, 1, 2, 3});
  expect_values(RandomHorizontalFlip(0)(counted(1, 3)), {1, 2, 3});
  manual_seed(3);
  int mirrored = 0;
  for (int i = 0; i < 1000; ++i) {
    mirrored += values(RandomHorizontalFlip(0.3)(counted(1, 2)))[0] == 2 ? 1 : 0;
  }
  EXPECT_NEAR(mirrored, 300, 60);
}

TEST(RandomRotation, TurnsCounterclockwise) {
  const Tensor image = counted(3, 3);
  expect_values(RandomRotation(90, 90, 0)(image), {3, 6, 9, 2, 5, 8, 1, 4, 7});
  expect_values(RandomRotation(180, 180, 0)(image), {9, 8, 7, 6, 5, 4, 3, 2, 1});
  expect_values(RandomRotation(0)(image), {1, 2, 3, 4, 5, 6, 7, 8, 9});
  EXPECT_EQ(values(RandomRotation(45, 45, 77)(counted(9, 9)))[0], 77);
}

TEST(RandomResizedCrop, OfEverythingIsAResize) {
  const RandomResizedCropOptions whole{
      .min_scale = 1, .max_scale = 1, .min_ratio = 1.4, .max_ratio = 1.4};
  EXPECT_EQ(values(RandomResizedCrop(Sizes<2>(3, 4), whole)(gray_image())),
            values(Resize(3, 4)(gray_image())));
  manual_seed(4);
  std::set<std::vector<double>> seen;
  for (int i = 0; i < 50; ++i) {
    const Tensor part = RandomResizedCrop(2)(gray_image());
    ASSERT_EQ(part.sizes(), (IntList{1, 2, 2}));
    seen.insert(values(part));
  }
  EXPECT_GT(seen.size(), 20u);
  // No part of this ratio fits: the largest that is allowed, in the middle.
  EXPECT_EQ(RandomResizedCrop(2)(counted(1, 100)).sizes(), (IntList{1, 2, 2}));
}

TEST(RandomErasing, OverwritesOneRectangle) {
  manual_seed(5);
  for (int i = 0; i < 50; ++i) {
    const auto erased = values(RandomErasing({.p = 1, .value = 200})(counted(10, 10)));
    int count = 0;
    for (size_t k = 0; k < erased.size(); ++k) {
      if (erased[k] == 200) ++count;
      ASSERT_TRUE(erased[k] == 200 || erased[k] == static_cast<double>(k) + 1);
    }
    EXPECT_GE(count, 1);
    EXPECT_LE(count, 45);
  }
  expect_values(RandomErasing({.p = 0})(counted(1, 2)), {1, 2});
}

TEST(ColorJitter, IsReproducedByTheSeed) {
  const ColorJitter jitter({.brightness = 0.4, .contrast = 0.4, .saturation = 0.4, .hue = 0.2});
  manual_seed(6);
  const auto first = values(jitter(color_image(2, 2)));
  const auto second = values(jitter(color_image(2, 2)));
  manual_seed(6);
  EXPECT_EQ(values(jitter(color_image(2, 2))), first);
  EXPECT_NE(first, second);
  EXPECT_EQ(values(ColorJitter({})(color_image(2, 2))), values(color_image(2, 2)));
}

TEST(Transforms, OfALoaderDoNotDependOnTheWorkers) {
  const auto dataset = std::make_shared<MapDataset>(map(
      TensorDataset(filled({1, 3, 2, 2}, values(color_image(2, 2)), kUInt8).expand({20, 3, 2, 2})),
      Compose{RandomCrop(2, {.padding = 1}), RandomHorizontalFlip(),
              ColorJitter({.brightness = 0.5}), RandomRotation(30), RandomErasing(),
              ConvertImageDtype(), Normalize({0.5}, {0.5})}));
  const auto run = [&](int workers) {
    std::vector<double> all;
    DataLoader loader(dataset, {.batch_size = 3, .seed = 9, .num_workers = workers});
    for (const Batch& batch : loader) {
      const auto found = values(batch.data);
      all.insert(all.end(), found.begin(), found.end());
    }
    return all;
  };
  const auto alone = run(0);
  EXPECT_EQ(run(3), alone);
  EXPECT_NE(std::vector(alone.begin(), alone.begin() + 12),
            std::vector(alone.begin() + 12, alone.begin() + 24));
}

TEST(Transforms, RefuseWhatIsNoImage) {
  const Tensor image = counted(2, 2);
  expect_error(ErrorCode::kShape, {"[Resize]", "(2, 2)", "(channels, height, width)"},
               [&] { Resize(2)(image[0]); });
  expect_error(ErrorCode::kType, {"[Resize]", "int64"}, [&] { Resize(2)(image.to(kInt64)); });
  expect_error(ErrorCode::kType, {"[Normalize]", "ConvertImageDtype"},
               [&] { Normalize({0}, {1})(image); });
  expect_error(ErrorCode::kShape, {"[Normalize]", "2 means"}, [&] {
    Normalize({0, 0}, {1, 1})(as_float(image));
  });
  expect_error(ErrorCode::kShape, {"[adjust_hue]", "2 channels"}, [] {
    adjust_hue(filled({2, 1, 1}, {1, 2}), 0.1);
  });
  expect_error(ErrorCode::kShape, {"[RandomCrop]", "3 x 3", "2 x 2"},
               [&] { RandomCrop(3)(image); });
  expect_error(ErrorCode::kType, {"[ToTensor]", "float32"}, [&] { ToTensor()(as_float(image)); });
}

TEST(Transforms, RefuseInvalidOptions) {
  const auto expect_refused = [](auto make) { expect_error(ErrorCode::kValue, {"["}, make); };
  expect_refused([] { Resize(0); });
  expect_refused([] { Resize(1, INT64_MAX); });
  expect_refused([] { CenterCrop(-1); });
  expect_refused([] { RandomCrop(1, {.padding = -1}); });
  expect_refused([] { RandomHorizontalFlip(1.5); });
  expect_refused([] { RandomVerticalFlip(0.0 / 0.0); });
  expect_refused([] { RandomResizedCrop(1, {.min_scale = 2, .max_scale = 1}); });
  expect_refused([] { RandomResizedCrop(1, {.min_ratio = 0}); });
  expect_refused([] { RandomErasing({.p = -1}); });
  expect_refused([] { RandomRotation(1.0 / 0.0); });
  expect_refused([] { ColorJitter({.hue = 0.6}); });
  expect_refused([] { Normalize({1, 2}, {1}); });
  expect_refused([] { Normalize({1}, {0}); });
  expect_refused([] { adjust_contrast(color_image(2, 2), -1); });
}

}  // namespace
}  // namespace mytorch::nn::data::transforms
