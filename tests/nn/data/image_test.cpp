// Image files, image folders, CIFAR and text files, valid and hostile.
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "mytorch/nn/data/cifar.h"
#include "mytorch/nn/data/collate.h"
#include "mytorch/nn/data/image_folder.h"
#include "mytorch/nn/data/text_lines.h"
#include "tests/nn/data/expect_error.h"
#include "tests/nn/data/idx_bytes.h"
#include "tests/nn/data/image_bytes.h"
#include "tests/nn/data/temp_directory.h"
#include "tests/nn/values.h"

namespace mytorch::nn::data {
namespace {

using mytorch::testing::expect_error;
using mytorch::testing::expect_values;
using mytorch::testing::from_hex;
using mytorch::testing::gzip;
using mytorch::testing::kJpeg;
using mytorch::testing::kPng;
using mytorch::testing::ppm;
using mytorch::testing::TempDirectory;
using mytorch::testing::values;
using mytorch::testing::write_file;

class ImageFileTest : public ::testing::Test {
 protected:
  std::string written(const std::string& bytes) {
    write_file(path_, bytes);
    return path_;
  }
  // Returns whether mytorch reads this format.
  bool reads(const std::string& bytes) {
    try {
      read_image(written(bytes));
    } catch (const Error& error) {
      return error.code() != ErrorCode::kUnsupported;
    }
    return true;
  }
  TempDirectory directory_;
  std::string path_ = directory_.file("image");
};

TEST_F(ImageFileTest, ReadsPpm) {
  const Tensor image = read_image(written(ppm(2, 1)));
  EXPECT_EQ(image.sizes(), (IntList{3, 1, 2}));
  EXPECT_EQ(image.dtype(), kUInt8);
  expect_values(image, {0, 3, 1, 4, 2, 5});
}

TEST_F(ImageFileTest, ReadsPgmAsThreeEqualChannels) {
  const Tensor image = read_image(written("P5 1 2 255\n" + std::string("\x07\xff")));
  expect_values(image, {7, 255, 7, 255, 7, 255});
}

TEST_F(ImageFileTest, ReadsPngAndIgnoresAlpha) {
  const std::string png = from_hex(kPng);
  if (!reads(png)) GTEST_SKIP() << "built without libpng";
  const Tensor image = read_image(path_);
  EXPECT_EQ(image.sizes(), (IntList{3, 2, 3}));
  expect_values(image,
                {0, 10, 20, 1, 11, 21, 100, 101, 102, 100, 101, 102, 200, 200, 200, 201, 201, 201});
}

TEST_F(ImageFileTest, ReadsJpeg) {
  const std::string jpeg = from_hex(kJpeg);
  if (!reads(jpeg)) GTEST_SKIP() << "built without libjpeg";
  const Tensor image = read_image(path_);
  ASSERT_EQ(image.sizes(), (IntList{3, 8, 16}));
  const std::vector<double> found = values(image);
  const double expected[3][2] = {{200, 10}, {100, 100}, {30, 240}};
  for (size_t i = 0; i < found.size(); ++i) {
    EXPECT_NEAR(found[i], expected[i / 128][i % 16 / 8], 4) << i;
  }
}

TEST_F(ImageFileTest, RefusesOtherAndDamagedFiles) {
  const auto expect_refused = [&](ErrorCode code, const std::string& bytes,
                                  const std::string& part) {
    expect_error(code, {"[read_image] file " + path_, part}, [&] { read_image(written(bytes)); });
  };
  expect_refused(ErrorCode::kUnsupported, "GIF89a", "neither JPEG");
  expect_refused(ErrorCode::kUnsupported, "", "neither JPEG");
  expect_refused(ErrorCode::kIo, "P6", "no width");
  expect_refused(ErrorCode::kIo, "P6 2 # no end", "no height");
  expect_refused(ErrorCode::kIo, "P6 2 2 65535\n", "maximum value 65535");
  expect_refused(ErrorCode::kIo, "P6 99999 99999 255\n", "99999 x 99999 pixels");
  expect_refused(ErrorCode::kIo, "P6 99999999999999999999 1 255\n", "too large width");
  expect_refused(ErrorCode::kIo, "P6 10000 10000 255\n", "cut short");
  expect_refused(ErrorCode::kIo, "P6 2 2 255\nabcdefghijk", "11 of the 12 bytes");
  expect_error(ErrorCode::kIo, {"no such", "cannot be opened"}, [] { read_image("/no such"); });
  const std::string png = from_hex(kPng);
  if (reads(png)) {
    std::string huge = png;
    huge[16] = 0x7f;  // the width
    expect_refused(ErrorCode::kIo, huge, "PNG");
    expect_refused(ErrorCode::kIo, png.substr(0, 50), "PNG");
  }
  const std::string jpeg = from_hex(kJpeg);
  if (reads(jpeg)) {
    expect_refused(ErrorCode::kIo, jpeg.substr(0, 30), "JPEG header");
    expect_refused(ErrorCode::kIo, jpeg.substr(0, jpeg.size() - 4), "row");
    std::string huge = jpeg;
    const size_t frame = jpeg.find("\xff\xc0");
    ASSERT_NE(frame, std::string::npos);
    huge.replace(frame + 5, 4, "\x3f\xff\x3f\xff");
    expect_refused(ErrorCode::kIo, huge, "16383 x 16383 pixels");
  }
}

TEST(ImageFolder, TakesClassesFromTheFoldersNames) {
  const TempDirectory directory;
  for (const char* name : {"dog", "cat/more"}) {
    std::filesystem::create_directories(directory.file(name));
  }
  write_file(directory.file("cat/b.PPM"), ppm(2, 1));
  write_file(directory.file("cat/more/a.ppm"), ppm(1, 1));
  write_file(directory.file("cat/notes.txt"), "no image");
  write_file(directory.file("dog/a.ppm"), ppm(3, 1));
  const ImageFolder images(directory.path());
  EXPECT_EQ(images.classes(), (std::vector<std::string>{"cat", "dog"}));
  ASSERT_EQ(images.size(), 3);
  EXPECT_EQ(images.files()[0].first, directory.file("cat/b.PPM"));
  EXPECT_EQ(images.get(0).data.sizes(), (IntList{3, 1, 2}));
  expect_values(images.get(1).target, {0});
  expect_values(images.get(2).target, {1});
  expect_error(ErrorCode::kValue, {"[ImageFolder]", "3"}, [&] { images.get(3); });
}

TEST(ImageFolder, NamesTheFolderThatIsMissingOrEmpty) {
  const TempDirectory directory;
  expect_error(ErrorCode::kIo, {"[ImageFolder]", "no folders"},
               [&] { ImageFolder(directory.path()); });
  std::filesystem::create_directories(directory.file("empty"));
  expect_error(ErrorCode::kIo, {"[ImageFolder]", "/empty", "no image"},
               [&] { ImageFolder(directory.path()); });
  expect_error(ErrorCode::kIo, {"[ImageFolder]", "cannot be listed"},
               [] { ImageFolder("/no/such/folder"); });
}

std::string cifar_records(int n, std::initializer_list<char> labels) {
  std::string bytes;
  for (int i = 0; i < n; ++i) {
    bytes.append(labels);
    bytes.append(3072, static_cast<char>(i + 1));
  }
  return bytes;
}

TEST(Cifar, ReadsBothDatasets) {
  const TempDirectory directory;
  for (int i = 1; i <= 5; ++i) {
    const std::string bytes = cifar_records(i, {static_cast<char>(i)});
    const std::string path = directory.file("data_batch_" + std::to_string(i) + ".bin");
    if (i == 3) {
      write_file(path + ".gz", gzip(bytes));
    } else {
      write_file(path, bytes);
    }
  }
  const CIFAR10 train(directory.path());
  ASSERT_EQ(train.size(), 15);
  const Batch batch = train.get_batch({14, 0});
  EXPECT_EQ(batch.data.sizes(), (IntList{2, 3, 32, 32}));
  expect_values(batch.target, {5, 1});
  EXPECT_EQ(values(batch.data)[0], static_cast<double>(5.0f / 255));
  EXPECT_EQ(values(batch.data)[3072], static_cast<double>(1.0f / 255));
  EXPECT_EQ(values(train.get(14).data)[7], static_cast<double>(5.0f / 255));
  write_file(directory.file("test.bin"), cifar_records(2, {19, 99}));
  const CIFAR100 test(directory.path(), Split::kTest);
  expect_values(test.labels(), {99, 99});
  expect_values(test.coarse_labels(), {19, 19});
}

TEST(Cifar, RefusesDamagedFiles) {
  const TempDirectory directory;
  const auto read = [&] { CIFAR10(directory.path(), Split::kTest); };
  expect_error(ErrorCode::kIo, {"[CIFAR10]", "no file test_batch.bin"}, read);
  write_file(directory.file("test_batch.bin"), cifar_records(3, {1}) + "x");
  expect_error(ErrorCode::kIo, {"[CIFAR10]", "test_batch.bin", "record 3"}, read);
  write_file(directory.file("test_batch.bin"), cifar_records(1, {9}) + cifar_records(1, {10}));
  expect_error(ErrorCode::kIo, {"test_batch.bin", "label 10 in record 1"}, read);
}

TEST(TextLines, YieldsTheLinesOfAFile) {
  const TempDirectory directory;
  const std::string path = directory.file("text");
  const auto lines = [&](const std::string& text) {
    write_file(path, text);
    const TextLines dataset(path);
    std::vector<std::string> all;
    for (int64_t i = 0; i < dataset.size(); ++i) all.emplace_back(dataset.line(i));
    return all;
  };
  using Lines = std::vector<std::string>;
  EXPECT_EQ(lines(""), Lines());
  EXPECT_EQ(lines("a\n\nbc"), (Lines{"a", "", "bc"}));
  EXPECT_EQ(lines("a\r\nb\n"), (Lines{"a", "b"}));
  EXPECT_EQ(lines(gzip("x\ny\n")), (Lines{"x", "y"}));
  write_file(path, "ab\nc\n");
  const Batch batch = pad_examples()({TextLines(path).get(0), TextLines(path).get(1)});
  expect_values(batch.data, {'a', 'b', 'c', 0});
  const TextLines lengths(path, [](std::string_view line) {
    return tensor(std::vector<int64_t>{static_cast<int64_t>(line.size())});
  });
  expect_values(lengths.get_batch({0, 1}).data, {2, 1});
  expect_error(ErrorCode::kValue, {"[TextLines]"}, [&] { lengths.line(2); });
}

}  // namespace
}  // namespace mytorch::nn::data
