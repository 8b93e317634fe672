#include "mytorch/nn/training/logs.h"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/nn/data/expect_error.h"
#include "tests/nn/data/temp_directory.h"

namespace mytorch::nn {
namespace {

using mytorch::testing::expect_error;
using mytorch::testing::read_file;
using mytorch::testing::TempDirectory;
using mytorch::testing::write_file;

TEST(CsvLog, WritesExactNumbersAndReadsThemBack) {
  const TempDirectory directory;
  const std::string path = directory.file("new/log.csv");
  CsvLog log(path);
  log.log(1, {{"loss", 0.1}, {"lr", 1e-30}});
  log.log(2, {{"loss", 1.0 / 3}, {"lr", 2}});
  EXPECT_EQ(read_file(path), "step,loss,lr\n1,0.1,1e-30\n2,0.3333333333333333,2\n");
  const auto columns = read_csv_log(path);
  EXPECT_EQ(columns.at("step"), (std::vector<double>{1, 2}));
  EXPECT_EQ(columns.at("loss"), (std::vector<double>{0.1, 1.0 / 3}));
  expect_error(ErrorCode::kValue, {"[CsvLog]", "step,lr", "step,loss,lr"}, [&] {
    log.log(3, {{"lr", 1}});
  });
  expect_error(ErrorCode::kValue, {"[CsvLog]", "'a,b'"}, [&] { log.log(3, {{"a,b", 1}}); });
  expect_error(ErrorCode::kValue, {"two columns", "'lr'"}, [&] {
    log.log(3, {{"lr", 1}, {"lr", 1}});
  });
  expect_error(ErrorCode::kValue, {"two columns", "'step'"}, [&] { log.log(3, {{"step", 1}}); });
}

TEST(CsvLog, ContinuesFromTheStepOfTheCheckpoint) {
  const TempDirectory directory;
  const std::string path = directory.file("log.csv");
  {
    CsvLog log(path);
    for (int step = 0; step < 5; ++step) log.log(step, {{"loss", step}});
  }
  write_file(path, read_file(path) + "5,0.12");  // a line that a crash cut short
  CsvLog(path, 3).log(3, {{"loss", 33}});
  EXPECT_EQ(read_file(path), "step,loss\n0,0\n1,1\n2,2\n3,33\n");
  CsvLog(path).log(0, {{"other", 1}});
  EXPECT_EQ(read_file(path), "step,other\n0,1\n");
  write_file(path, "no log\n");
  expect_error(ErrorCode::kIo, {path, "no log"}, [&] { CsvLog(path, 1); });
}

TEST(CsvLog, RefusesDamagedFiles) {
  const TempDirectory directory;
  const std::string path = directory.file("log.csv");
  write_file(path, "");
  expect_error(ErrorCode::kIo, {path, "'step'"}, [&] { read_csv_log(path); });
  write_file(path, "step,loss\n1,2\n3\n");
  expect_error(ErrorCode::kIo, {path, "line 3"}, [&] { read_csv_log(path); });
  write_file(path, "step,loss\n1,x\n");
  expect_error(ErrorCode::kIo, {path, "line 2"}, [&] { read_csv_log(path); });
  write_file(path, "step,loss,loss\n1,2,3\n");
  expect_error(ErrorCode::kIo, {path, "two columns", "'loss'"}, [&] { read_csv_log(path); });
  expect_error(ErrorCode::kIo, {"/dev/null/x"}, [] { CsvLog("/dev/null/x/log.csv"); });
}

TEST(JsonLinesLog, WritesOneObjectPerEntry) {
  const TempDirectory directory;
  const std::string path = directory.file("log.jsonl");
  JsonLinesLog(path).log(7, {{"loss", 0.25}, {"a \"b\"\n", 0.0 / 0.0}});
  JsonLinesLog(path).log(8, {{"\xff", 1}});
  EXPECT_EQ(
      read_file(path),
      "{\"step\":7,\"loss\":0.25,\"a \\\"b\\\"\\n\":null}\n{\"step\":8,\"\xef\xbf\xbd\":1}\n");
}

// A decoder of its own for TensorBoard's format.
uint32_t crc32c(const std::string& bytes) {
  uint32_t crc = ~0u;
  for (const char byte : bytes) {
    crc ^= static_cast<uint8_t>(byte);
    for (int bit = 0; bit < 8; ++bit) crc = (crc & 1) != 0 ? (crc >> 1) ^ 0x82f63b78u : crc >> 1;
  }
  return ~crc;
}

uint32_t masked(const std::string& bytes) {
  const uint32_t crc = crc32c(bytes);
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

template <class T>
T fixed(const std::string& bytes, size_t at) {
  T value;
  std::memcpy(&value, bytes.substr(at, sizeof(T)).data(), sizeof(T));
  return value;
}

// Returns the payloads of the records, whose checksums must be right.
std::vector<std::string> records(const std::string& file) {
  std::vector<std::string> all;
  for (size_t at = 0; at < file.size();) {
    const auto length = static_cast<size_t>(fixed<uint64_t>(file, at));
    EXPECT_EQ(fixed<uint32_t>(file, at + 8), masked(file.substr(at, 8)));
    all.push_back(file.substr(at + 12, length));
    EXPECT_EQ(fixed<uint32_t>(file, at + 12 + length), masked(all.back()));
    at += 12 + length + 4;
  }
  return all;
}

TEST(TensorBoardLog, WritesFramedEvents) {
  // Castagnoli's check value.
  ASSERT_EQ(crc32c("123456789"), 0xe3069283u);
  const TempDirectory directory;
  {
    TensorBoardLog log(directory.file("run"));
    log.log(300, {{"loss", 0.5}, {"lr", 2}});
    TensorBoardLog another(directory.file("run"));  // a file of its own
  }
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(directory.file("run"))) {
    const std::string path = entry.path().string();
    EXPECT_NE(path.find("/events.out.tfevents."), std::string::npos);
    const auto all = records(read_file(path));
    ++files;
    ASSERT_GE(all.size(), 1u);
    EXPECT_EQ(all[0].substr(9), std::string("\x10\x00\x1a\x0d", 4) + "brain.Event:2");
    if (all.size() == 1) continue;
    // Field 1, the time; field 2, the step 300; field 5, the summary of two values.
    EXPECT_EQ(all[1][0], '\x09');
    EXPECT_GT(fixed<double>(all[1], 1), 1e9);
    EXPECT_EQ(all[1].substr(9), std::string("\x10\xac\x02\x2a\x18", 5) +
                                    std::string("\x0a\x0b\x0a\x04loss\x15\x00\x00\x00\x3f", 13) +
                                    std::string("\x0a\x09\x0a\x02lr\x15\x00\x00\x00\x40", 11));
  }
  EXPECT_EQ(files, 2);
}

}  // namespace
}  // namespace mytorch::nn
