#include "mytorch/nn/data/mnist.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <vector>

#include "tests/nn/data/expect_error.h"
#include "tests/nn/data/idx_bytes.h"
#include "tests/nn/data/temp_directory.h"

namespace mytorch::nn::data {
namespace {

using mytorch::testing::expect_error;
using mytorch::testing::gzip;
using mytorch::testing::idx_header;
using mytorch::testing::idx_images;
using mytorch::testing::idx_labels;
using mytorch::testing::TempDirectory;
using mytorch::testing::write_file;

constexpr const char* kImages = "train-images-idx3-ubyte";
constexpr const char* kLabels = "train-labels-idx1-ubyte";

class MnistTest : public ::testing::Test {
 protected:
  void write(const std::string& name, const std::string& bytes) {
    write_file(directory_.file(name), bytes);
  }
  void write_pair(uint32_t n) {
    write(kImages, idx_images(n));
    write(kLabels, idx_labels(n));
  }
  MNIST load(Split split = Split::kTrain) const { return MNIST(directory_.path(), split); }
  // Expects these bytes, as the images of 2 labels, to be rejected with this text and the file's
  // name.
  void expect_images_refused(const std::string& bytes, const std::string& reason) {
    write(kImages, bytes);
    write(kLabels, idx_labels(2));
    expect_error(ErrorCode::kIo, {directory_.file(kImages), reason}, [&] { load(); });
  }

  TempDirectory directory_;
};

TEST_F(MnistTest, ReadsPlainAndGzippedFilesAlike) {
  write_pair(3);
  write("t10k-images-idx3-ubyte.gz", gzip(idx_images(3)));
  write("t10k-labels-idx1-ubyte.gz", gzip(idx_labels(3)));
  for (Split split : {Split::kTrain, Split::kTest}) {
    const MNIST mnist = load(split);
    ASSERT_EQ(mnist.size(), 3);
    EXPECT_EQ(mnist.images().sizes().vec(), (std::vector<int64_t>{3, 28, 28}));
    const uint8_t* pixels = mnist.images().const_data<uint8_t>();
    for (int p = 0; p < 3 * 784; ++p) ASSERT_EQ(pixels[p], (p / 784 * 31 + p % 784) % 256) << p;
    for (int i = 0; i < 3; ++i) EXPECT_EQ(mnist.labels().const_data<int64_t>()[i], i);
  }
}

TEST_F(MnistTest, ScalesEveryByteExactlyInBatchesAndExamples) {
  write_pair(12);
  const MNIST mnist = load();
  const Batch batch = mnist.get_batch({11, 0, 11});
  ASSERT_EQ(batch.data.sizes().vec(), (std::vector<int64_t>{3, 1, 28, 28}));
  ASSERT_EQ(batch.target.sizes().vec(), (std::vector<int64_t>{3}));
  EXPECT_EQ(batch.size(), 3);
  const int64_t indices[] = {11, 0, 11};
  for (int i = 0; i < 3; ++i) {
    const Example example = mnist.get(indices[i]);
    ASSERT_EQ(example.data.sizes().vec(), (std::vector<int64_t>{1, 28, 28}));
    ASSERT_EQ(example.target.dim(), 0);
    EXPECT_EQ(batch.target.const_data<int64_t>()[i], indices[i] % 10);
    EXPECT_EQ(*example.target.const_data<int64_t>(), indices[i] % 10);
    for (int p = 0; p < 784; ++p) {  // 784 pixels cover all 256 values
      const float expected = static_cast<float>((indices[i] * 31 + p) % 256) / 255.0f;
      ASSERT_EQ(batch.data.const_data<float>()[i * 784 + p], expected) << p;
      ASSERT_EQ(example.data.const_data<float>()[p], expected) << p;
    }
  }
}

TEST_F(MnistTest, FindsOtherNamesAndSeesGzipByContent) {
  write("train-images.idx3-ubyte", gzip(idx_images(2)));
  write("train-labels-idx1-ubyte.gz", idx_labels(2));
  EXPECT_EQ(load().size(), 2);
}

TEST_F(MnistTest, TakesGzipOfSeveralMembers) {
  const std::string images = idx_images(2);
  write(kImages, gzip(images.substr(0, 7)) + gzip("") + gzip(images.substr(7)) + gzip(""));
  write(kLabels, idx_labels(2));
  EXPECT_EQ(load().images().const_data<uint8_t>()[784 + 1], 32);
}

TEST_F(MnistTest, AcceptsEmptyFiles) {
  write_pair(0);
  EXPECT_EQ(load().size(), 0);
  expect_error(ErrorCode::kValue, {"[MNIST]", "0"}, [&] { load().get(0); });
}

TEST_F(MnistTest, RejectsIndicesOutsideOfTheData) {
  write_pair(3);
  const MNIST mnist = load();
  expect_error(ErrorCode::kValue, {"3", "out of range"}, [&] { mnist.get(3); });
  expect_error(ErrorCode::kValue, {"-1"}, [&] { mnist.get(-1); });
  expect_error(ErrorCode::kValue, {"-1"}, [&] { mnist.get_batch({0, -1}); });
  expect_error(ErrorCode::kValue, {"at least one"},
               [&] { mnist.get_batch(std::vector<int64_t>{}); });
}

TEST_F(MnistTest, SaysWhichFileIsMissingAndWhatToInstall) {
  write(kImages, idx_images(2));
  expect_error(ErrorCode::kIo,
               {directory_.path(), "train-labels-idx1-ubyte", "dataset-fashion-mnist"},
               [&] { load(); });
  expect_error(ErrorCode::kIo, {"does not exist"}, [&] { MNIST(directory_.file("nowhere")); });
}

TEST_F(MnistTest, RejectsPathsThatAreNotFiles) {
  std::filesystem::create_directory(directory_.file(kImages));
  write(kLabels, idx_labels(2));
  expect_error(ErrorCode::kIo, {kImages, "regular file"}, [&] { load(); });
  std::filesystem::remove(directory_.file(kImages));
  ASSERT_EQ(mkfifo(directory_.file(kImages).c_str(), 0600), 0);
  expect_error(ErrorCode::kIo, {kImages, "regular file"}, [&] { load(); });
}

TEST_F(MnistTest, RejectsOtherFormats) {
  expect_images_refused("", "cut short");
  expect_images_refused("<html>not found</html>", "0x3c68746d");
  expect_images_refused(idx_labels(2), "swapped");
  std::string floats = idx_images(2);
  floats[2] = '\x0d';
  expect_images_refused(floats, "0x00000d03");
  std::string wide = idx_images(2);
  wide[11] = 29;
  expect_images_refused(wide.substr(0, 16) + std::string(2 * 29 * 28, '\0'), "29 x 28");
}

TEST_F(MnistTest, RejectsSizesThatTheFileCannotHold) {
  const uint32_t most = 0xffffffff;
  expect_images_refused(idx_header({most, most, most}), "more than the file can hold");
  expect_images_refused(gzip(idx_header({most, most, most})), "more than the file can hold");
  // 2^32 x 2^32 bytes overflow to 0 in 64 bits.
  expect_images_refused(idx_header({0x80000000, 0x80000000, 4}), "more than the file can hold");
  expect_images_refused(gzip(idx_header({200000, 28, 28})), "more than the file can hold");
}

TEST_F(MnistTest, RejectsTrailingBytes) {
  expect_images_refused(idx_images(2) + '\0', "goes on after");
  expect_images_refused(gzip(idx_images(2) + '\0'), "goes on after");
  expect_images_refused(gzip(idx_images(2)) + gzip("x"), "goes on after");
  expect_images_refused(gzip(idx_images(2)) + "rubbish", "not gzip");
  expect_images_refused(gzip(idx_images(2)) + '\0', "cut short");
}

TEST_F(MnistTest, RejectsEveryTruncation) {
  write(kLabels, idx_labels(2));
  for (const std::string& whole : {idx_images(2), gzip(idx_images(2))}) {
    for (size_t length = 0; length < whole.size(); ++length) {
      write(kImages, whole.substr(0, length));
      EXPECT_THROW(load(), Error) << length;
    }
  }
}

TEST_F(MnistTest, NoticesEveryFlippedByteOfAGzippedFile) {
  write(kLabels, idx_labels(2));
  const std::string whole = gzip(idx_images(2));
  const std::string pixels = idx_images(2).substr(16);
  int refused = 0;
  for (size_t at = 0; at < whole.size(); ++at) {
    for (char flip : {'\x01', '\x80', '\xff'}) {
      std::string damaged = whole;
      damaged[at] ^= flip;
      write(kImages, damaged);
      try {
        const MNIST mnist = load();
        const uint8_t* found = mnist.images().const_data<uint8_t>();
        EXPECT_TRUE(std::equal(pixels.begin(), pixels.end(), reinterpret_cast<const char*>(found)))
            << at;
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::kIo) << error.what();
        ++refused;
      }
    }
  }
  // Only changes to the ten header bytes of gzip that do not affect the data may go unnoticed.
  EXPECT_GE(refused, static_cast<int>(whole.size() - 10) * 3);
}

TEST_F(MnistTest, RejectsFilesThatDoNotBelongTogether) {
  write(kImages, idx_images(3));
  write(kLabels, idx_labels(2));
  expect_error(ErrorCode::kIo, {kImages, kLabels, "3 images", "2 labels"}, [&] { load(); });
}

TEST_F(MnistTest, RejectsLabelsAboveNine) {
  write(kImages, idx_images(2));
  write(kLabels, idx_header({2}) + std::string{9, 10});
  expect_error(ErrorCode::kIo, {kLabels, "label 10", "example 1"}, [&] { load(); });
}

TEST_F(MnistTest, DefaultDirectoryComesFromTheEnvironment) {
  write_pair(1);
  setenv("MYTORCH_DATA_DIR", directory_.path().c_str(), 1);
  EXPECT_EQ(default_data_dir(), directory_.path());
  const std::string nowhere = directory_.file("nowhere");
  setenv("MYTORCH_DATA_DIR", nowhere.c_str(), 1);
  expect_error(ErrorCode::kIo, {nowhere, "MYTORCH_DATA_DIR", "dataset-fashion-mnist"},
               [] { default_data_dir(); });
  unsetenv("MYTORCH_DATA_DIR");
}

}  // namespace
}  // namespace mytorch::nn::data
