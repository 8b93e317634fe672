// Seeded mutations of valid files: the readers reject them with Error(kIo) or read consistent data.
#include <gtest/gtest.h>

#include <string>

#include "mytorch/nn/data/mnist.h"
#include "tests/nn/data/idx_bytes.h"
#include "tests/nn/data/mutate.h"
#include "tests/nn/data/temp_directory.h"

namespace mytorch::nn::data {
namespace {

using mytorch::testing::gzip;
using mytorch::testing::idx_images;
using mytorch::testing::idx_labels;
using mytorch::testing::Mutator;
using mytorch::testing::TempDirectory;
using mytorch::testing::write_file;

class IdxFuzzTest : public ::testing::TestWithParam<bool> {};

TEST_P(IdxFuzzTest, MutatedFilesAreRejectedOrReadCompletely) {
  const TempDirectory directory;
  const std::string images_path = directory.file("train-images-idx3-ubyte");
  const std::string labels_path = directory.file("train-labels-idx1-ubyte");
  auto packed = [](const std::string& bytes) { return GetParam() ? gzip(bytes) : bytes; };
  const std::string images = packed(idx_images(3));
  const std::string labels = packed(idx_labels(3));
  Mutator mutator(GetParam() ? 1 : 2);
  int read = 0;
  int refused = 0;
  for (int i = 0; i < 4000; ++i) {
    write_file(images_path, i % 2 == 0 ? mutator.mutate(images, 16) : images);
    write_file(labels_path, i % 2 == 1 ? mutator.mutate(labels, 8) : labels);
    try {
      const MNIST mnist(directory.path(), Split::kTrain);
      // The result is consistent, whatever its values.
      ASSERT_EQ(mnist.images().numel(), mnist.size() * 784);
      for (int64_t k = 0; k < mnist.size(); ++k) {
        ASSERT_LT(mnist.labels().const_data<int64_t>()[k], 10);
        ASSERT_EQ(mnist.get(k).data.numel(), 784);
      }
      ++read;
    } catch (const Error& error) {
      ASSERT_EQ(error.code(), ErrorCode::kIo) << error.what();
      ASSERT_NE(std::string(error.what()).find(directory.path()), std::string::npos);
      ++refused;
    }
  }
  EXPECT_GT(refused, 1000);
  EXPECT_GT(read, 0);
}

INSTANTIATE_TEST_SUITE_P(PlainAndGzipped, IdxFuzzTest, ::testing::Values(false, true));

}  // namespace
}  // namespace mytorch::nn::data
