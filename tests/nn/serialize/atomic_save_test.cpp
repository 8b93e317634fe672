// Saving leaves either the new file or the old one, and nothing else.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "mytorch/nn/serialize.h"
#include "tests/nn/data/expect_error.h"
#include "tests/nn/data/file_size_limit.h"
#include "tests/nn/data/temp_directory.h"

namespace mytorch::nn {
namespace {

using mytorch::testing::expect_error;
using mytorch::testing::FileSizeLimit;
using mytorch::testing::read_file;
using mytorch::testing::TempDirectory;
using mytorch::testing::write_file;

namespace fs = std::filesystem;

class AtomicSaveTest : public ::testing::Test {
 protected:
  std::string path() const { return directory_.file("model"); }
  TempDirectory directory_;
  const TensorMap tensors_{{"x", tensor(std::vector<float>(1000, 1.0f))}};
};

TEST_F(AtomicSaveTest, ReplacesAnOlderFile) {
  write_file(path(), "old");
  save_safetensors(path(), tensors_);
  EXPECT_EQ(load_safetensors(path()).at("x").numel(), 1000);
  EXPECT_EQ(directory_.names(), std::vector<std::string>{"model"});
}

TEST_F(AtomicSaveTest, KeepsTheOlderFileIfWritingFails) {
  save_safetensors(directory_.file("whole"), tensors_);
  const rlim_t size = fs::file_size(directory_.file("whole"));
  fs::remove(directory_.file("whole"));
  write_file(path(), "old");
  for (rlim_t limit : {rlim_t{0}, rlim_t{4}, rlim_t{50}, size / 2, size - 1}) {
    FileSizeLimit full(limit);
    expect_error(ErrorCode::kIo, {path(), "cannot be written", "unchanged"},
                 [&] { save_safetensors(path(), tensors_); });
    EXPECT_EQ(read_file(path()), "old") << limit;
    EXPECT_EQ(directory_.names().size(), 1u) << limit;
  }
  FileSizeLimit enough(size);
  save_safetensors(path(), tensors_);
}

TEST_F(AtomicSaveTest, LeavesNoFileIfWritingFails) {
  FileSizeLimit full(100);
  EXPECT_THROW(save_safetensors(path(), tensors_), Error);
  EXPECT_TRUE(directory_.names().empty());
}

TEST_F(AtomicSaveTest, MissingDirectoryIsAnError) {
  const std::string nowhere = directory_.file("nowhere") + "/model";
  expect_error(ErrorCode::kIo, {nowhere, "No such file or directory"},
               [&] { save_safetensors(nowhere, tensors_); });
  expect_error(ErrorCode::kIo, {}, [&] { save_safetensors("", tensors_); });
}

TEST_F(AtomicSaveTest, RejectsDirectoriesAndDevices) {
  fs::create_directory(path());
  expect_error(ErrorCode::kIo, {path(), "not a file"}, [&] { save_safetensors(path(), tensors_); });
  EXPECT_TRUE(fs::is_directory(path()));
  expect_error(ErrorCode::kIo, {"/dev/null"}, [&] { save_safetensors("/dev/null", tensors_); });
  EXPECT_TRUE(fs::is_character_file("/dev/null"));
  EXPECT_EQ(directory_.names().size(), 1u);
}

TEST_F(AtomicSaveTest, WritesThroughSymbolicLinks) {
  fs::create_directory(directory_.file("other"));
  const std::string real = directory_.file("other") + "/real";
  write_file(real, "old");
  fs::create_symlink(real, path());
  save_safetensors(path(), tensors_);
  EXPECT_TRUE(fs::is_symlink(path()));
  EXPECT_EQ(load_safetensors(real).size(), 1u);
}

TEST_F(AtomicSaveTest, KeepsPermissionsAndHonoursTheMask) {
  write_file(path(), "old");
  ASSERT_EQ(chmod(path().c_str(), 0640), 0);
  save_safetensors(path(), tensors_);
  EXPECT_EQ(fs::status(path()).permissions(), fs::perms{0640});
  const mode_t mask = umask(022);
  save_safetensors(directory_.file("new"), tensors_);
  umask(mask);
  EXPECT_EQ(fs::status(directory_.file("new")).permissions(), fs::perms{0644});
}

TEST_F(AtomicSaveTest, AcceptsTheLongestNames) {
  const std::string longest = directory_.file(std::string(255, 'n'));
  save_safetensors(longest, tensors_);
  EXPECT_EQ(load_safetensors(longest).size(), 1u);
}

TEST_F(AtomicSaveTest, ConcurrentSavesAreAtomic) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      const TensorMap mine{{"x", tensor(std::vector<float>(1000, static_cast<float>(t)))}};
      for (int i = 0; i < 20; ++i) save_safetensors(path(), mine);
    });
  }
  for (std::thread& thread : threads) thread.join();
  const Tensor x = load_safetensors(path()).at("x");
  for (int i = 0; i < 1000; ++i) {
    ASSERT_EQ(x.const_data<float>()[i], x.const_data<float>()[0]);
  }
  EXPECT_EQ(directory_.names().size(), 1u);
}

}  // namespace
}  // namespace mytorch::nn
