// Seeded mutations of a valid safetensors file: rejected with Error(kIo), or read consistently.
#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "mytorch/nn/serialize.h"
#include "tests/nn/data/mutate.h"
#include "tests/nn/data/temp_directory.h"

namespace mytorch::nn {
namespace {

using mytorch::testing::Mutator;
using mytorch::testing::read_file;
using mytorch::testing::TempDirectory;
using mytorch::testing::write_file;

TEST(SafetensorsFuzzTest, MutatedFilesAreRejectedOrReadFaithfully) {
  const TempDirectory directory;
  const std::string path = directory.file("model");
  save_safetensors(path,
                   {{"a.weight", tensor({1.5, -2.5, 3.5, 4.5}).view({2, 2})},
                    {"a.bias", tensor({0.5}, kFloat64)},
                    {"mask", tensor({1, 0, 1}, kBool)},
                    {"halves", tensor({1, 2, 3}, kBFloat16)},
                    {"none", tensor(std::vector<int64_t>{})}},
                   {{"format", "pt"}, {"model", "small"}});
  const std::string whole = read_file(path);
  uint64_t header = 0;
  std::memcpy(&header, whole.data(), 8);
  Mutator mutator(3);
  int read = 0;
  int refused = 0;
  for (int i = 0; i < 6000; ++i) {
    const std::string bytes = mutator.mutate(whole, 8 + header);
    write_file(path, bytes);
    try {
      const SafetensorsFile file(path);
      uint64_t length = 0;
      std::memcpy(&length, bytes.data(), 8);
      size_t total = 8 + length;
      for (const auto& entry : file.entries()) {
        const Tensor t = file.load(entry.name);
        const auto n = static_cast<size_t>(t.numel() * t.element_size());
        ASSERT_EQ(n, static_cast<size_t>(entry.end - entry.begin));
        if (n != 0) {
          ASSERT_EQ(std::memcmp(t.raw_data(), &bytes[8 + length + entry.begin], n), 0);
        }
        total += n;
      }
      ASSERT_EQ(total, bytes.size());  // every byte of the file has a meaning
      ++read;
    } catch (const Error& error) {
      ASSERT_EQ(error.code(), ErrorCode::kIo) << error.what();
      ASSERT_NE(std::string(error.what()).find(path), std::string::npos) << error.what();
      ASSERT_LT(std::strlen(error.what()), 2000u);
      ++refused;
    }
  }
  EXPECT_GT(refused, 3000);
  EXPECT_GT(read, 50);
}

}  // namespace
}  // namespace mytorch::nn
