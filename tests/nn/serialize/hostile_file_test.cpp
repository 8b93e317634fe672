// Malicious and damaged files.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "mytorch/nn/serialize.h"
#include "tests/nn/data/expect_error.h"
#include "tests/nn/data/temp_directory.h"

namespace mytorch::nn {
namespace {

using mytorch::testing::expect_error;
using mytorch::testing::read_file;
using mytorch::testing::TempDirectory;
using mytorch::testing::write_file;

std::string with_length(uint64_t length, const std::string& rest) {
  std::string prefix(8, '\0');
  std::memcpy(prefix.data(), &length, 8);
  return prefix + rest;
}

std::string file_of(const std::string& header, size_t data_bytes) {
  return with_length(header.size(), header + std::string(data_bytes, '\1'));
}

// Returns a header with one tensor "x" that has these fields.
std::string tensor_of(const std::string& fields) { return "{\"x\":{" + fields + "}}"; }
std::string tensor_of(const std::string& dtype, const std::string& shape,
                      const std::string& offsets) {
  return tensor_of("\"dtype\":" + dtype + ",\"shape\":" + shape + ",\"data_offsets\":" + offsets);
}

class HostileFileTest : public ::testing::Test {
 protected:
  std::string path() const { return directory_.file("model"); }
  void expect_refused(const std::string& bytes, std::initializer_list<std::string> parts) {
    write_file(path(), bytes);
    expect_error(ErrorCode::kIo, {path()}, [&] { load_safetensors(path()); });
    expect_error(ErrorCode::kIo, parts, [&] { load_safetensors(path()); });
  }
  void expect_taken(const std::string& bytes) {
    write_file(path(), bytes);
    EXPECT_NO_THROW(load_safetensors(path()));
  }
  TempDirectory directory_;
};

TEST_F(HostileFileTest, RefusesMissingFilesDirectoriesAndPipes) {
  expect_error(ErrorCode::kIo, {path(), "No such file"}, [&] { load_safetensors(path()); });
  expect_error(ErrorCode::kIo, {directory_.path(), "has neither model.safetensors nor"},
               [&] { load_safetensors(directory_.path()); });
  expect_error(ErrorCode::kIo, {directory_.path(), "regular file"},
               [&] { SafetensorsFile file(directory_.path()); });
  ASSERT_EQ(mkfifo(path().c_str(), 0600), 0);
  expect_error(ErrorCode::kIo, {path(), "regular file"}, [&] { load_safetensors(path()); });
  const std::string index = directory_.file("index.json");
  ASSERT_EQ(mkfifo(index.c_str(), 0600), 0);
  expect_error(ErrorCode::kIo, {index, "regular file"}, [&] { load_safetensors(index); });
}

TEST_F(HostileFileTest, RefusesHeaderLengthsThatDoNotFit) {
  expect_refused("", {"0 bytes"});
  expect_refused("1234567", {"7 bytes"});
  expect_refused(with_length(0, ""), {"'{'"});
  expect_refused(with_length(3, "{}"), {"3 bytes", "only 2"});
  expect_refused(with_length(UINT64_MAX, "{}"), {"18446744073709551615"});
  expect_refused(with_length(100'000'001, "{}"), {"100000001", "allows 100000000"});
  expect_taken(with_length(2, "{}"));
  // The length is correct but larger than allowed; the file is sparse.
  write_file(path(), with_length(100'000'001, "{}"));
  std::filesystem::resize_file(path(), 8 + 100'000'001);
  expect_error(ErrorCode::kIo, {"allows 100000000"}, [&] { load_safetensors(path()); });
}

TEST_F(HostileFileTest, RefusesHeadersThatAreNotJson) {
  for (const char* header : {"{", "{\"x\"", "{\"x\":}", "{}}", "{} {}", "{'x':1}", "{,}",
                             "{}/*comment*/", "{\"x\":\"\xff\"}", "{\"\xc3\x28\":{}}",
                             "{\"\xed\xa0\x80\":{}}", "{\"\\ud800\":{}}", "{\"\n\":{}}"}) {
    expect_refused(file_of(header, 0), {"not JSON"});
  }
  expect_refused(file_of(std::string("{}\0\0", 4), 0), {"not JSON", "zero"});
  for (const char* header : {"", " {}", "[]", "1", "\"x\"", "null", "\xef\xbb\xbf{}"}) {
    expect_refused(file_of(header, 0), {"'{'"});
  }
  expect_taken(file_of("{}  ", 0));
}

TEST_F(HostileFileTest, RefusesJsonOfAnotherStructure) {
  expect_refused(file_of("{\"x\":1}", 0), {"'x'", "a number where an object"});
  expect_refused(file_of("{\"x\":-1}", 0), {"'x'", "a number where an object"});
  expect_refused(file_of("{\"x\":1.5}", 0), {"'x'", "a number where an object"});
  expect_refused(file_of("{\"x\":null}", 0), {"'x'", "null"});
  expect_refused(file_of("{\"x\":true}", 0), {"'x'", "a boolean"});
  expect_refused(file_of("{\"x\":[]}", 0), {"'x'", "an array"});
  expect_refused(file_of("{\"x\":\"y\"}", 0), {"'x'", "a string"});
  expect_refused(file_of("{\"x\":{}}", 0), {"'x'", "no dtype"});
  expect_refused(file_of(tensor_of("\"dtype\":\"F32\""), 0), {"'x'", "no shape"});
  expect_refused(file_of(tensor_of("\"dtype\":\"F32\",\"shape\":[0]"), 0),
                 {"'x'", "no data_offsets"});
  expect_refused(file_of(tensor_of("\"other\":1"), 0), {"'x'", "'other'"});
  expect_refused(file_of(tensor_of("\"dtype\":{}"), 0), {"'x'", "an object as dtype"});
  expect_refused(file_of(tensor_of("\"shape\":\"F32\""), 0), {"'x'", "a string as shape"});
  expect_refused(file_of(tensor_of("\"dtype\":[]"), 0), {"'x'", "an array as dtype"});
  expect_refused(file_of(tensor_of("\"shape\":[[1]]"), 0), {"'x'", "shape has an array"});
  expect_refused(file_of(tensor_of("\"shape\":[\"1\"]"), 0), {"'x'", "shape has a string"});
  expect_refused(file_of(tensor_of("\"shape\":[null]"), 0), {"'x'", "shape has null"});
  expect_refused(file_of(tensor_of("\"data_offsets\":[{}]"), 0), {"data_offsets has an object"});
  const std::string deep(1'000'000, '[');
  expect_refused(file_of("{\"x\":" + deep, 0), {"an array"});
}

TEST_F(HostileFileTest, MetadataOfOtherTypes) {
  expect_refused(file_of("{\"__metadata__\":1}", 0), {"__metadata__", "a number"});
  expect_refused(file_of("{\"__metadata__\":{\"k\":1}}", 0), {"'k'", "a number"});
  expect_refused(file_of("{\"__metadata__\":{\"k\":{}}}", 0), {"'k'", "an object"});
  expect_refused(file_of("{\"__metadata__\":{\"k\":null}}", 0), {"'k'", "null"});
  expect_taken(file_of("{\"__metadata__\":{}}", 0));
  expect_taken(file_of("{\"__metadata__\":null}", 0));
}

TEST_F(HostileFileTest, RefusesDuplicateKeys) {
  const std::string x = "\"x\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}";
  expect_refused(file_of("{" + x + "," + x + "}", 1), {"'x'", "twice"});
  // The same name, once written with an escape sequence.
  std::string escaped = x;
  escaped.replace(1, 1, "\\u0078");
  expect_refused(file_of("{" + x + "," + escaped + "}", 1), {"'x'", "twice"});
  expect_refused(file_of("{\"__metadata__\":{},\"__metadata__\":{}}", 0), {"metadata twice"});
  expect_refused(file_of("{\"__metadata__\":null,\"__metadata__\":{}}", 0), {"metadata twice"});
  expect_refused(file_of("{\"__metadata__\":{\"k\":\"1\",\"k\":\"2\"}}", 0), {"'k' twice"});
  for (const char* field : {"\"dtype\":\"U8\"", "\"shape\":[1]", "\"data_offsets\":[0,1]"}) {
    const std::string twice = std::string(field) + "," + field;
    expect_refused(file_of(tensor_of(twice), 1), {"'x'", "twice"});
  }
}

TEST_F(HostileFileTest, RefusesUnknownDtypes) {
  for (const char* dtype : {"\"F8_E4M3\"", "\"U64\"", "\"f32\"", "\"\"", "\"F32 \""}) {
    expect_refused(file_of(tensor_of(dtype, "[1]", "[0,4]"), 4), {"'x'", "dtype"});
  }
}

TEST_F(HostileFileTest, RefusesInvalidShapes) {
  expect_refused(file_of(tensor_of("\"U8\"", "[-1]", "[0,1]"), 1), {"'x'", "negative", "-1"});
  expect_refused(file_of(tensor_of("\"U8\"", "[1.0]", "[0,1]"), 1), {"'x'", "1.0"});
  expect_refused(file_of(tensor_of("\"U8\"", "[1e2]", "[0,100]"), 100), {"'x'", "1e2"});
  expect_refused(file_of(tensor_of("\"U8\"", "[9223372036854775808]", "[0,1]"), 1),
                 {"'x'", "9223372036854775808"});
  expect_refused(file_of(tensor_of("\"U8\"", "[99999999999999999999]", "[0,1]"), 1),
                 {"'x'", "99999999999999999999"});
  expect_refused(file_of(tensor_of("\"U8\"", "[2]", "[0,1]"), 1), {"'x'", "(2,)", "needs 2 bytes"});
  expect_refused(file_of(tensor_of("\"F32\"", "[]", "[0,1]"), 1), {"'x'", "needs 4 bytes"});
  // 2^32 x 2^32 elements, and 2^62 elements of four bytes, overflow to 0 bytes.
  expect_refused(file_of(tensor_of("\"U8\"", "[4294967296,4294967296]", "[0,0]"), 0),
                 {"'x'", "larger than any memory"});
  expect_refused(file_of(tensor_of("\"F32\"", "[4611686018427387904]", "[0,0]"), 0),
                 {"'x'", "larger than any memory"});
  // No elements, but strides that overflow.
  expect_refused(file_of(tensor_of("\"U8\"", "[0,4294967296,4294967296]", "[0,0]"), 0),
                 {"'x'", "larger than any memory"});
  std::string dims = "[1";
  for (int i = 1; i < 64; ++i) dims += ",1";
  expect_taken(file_of(tensor_of("\"U8\"", dims + "]", "[0,1]"), 1));
  expect_refused(file_of(tensor_of("\"U8\"", dims + ",1]", "[0,1]"), 1), {"'x'", "more than 64"});
}

TEST_F(HostileFileTest, RefusesOffsetsThatDoNotCoverTheData) {
  const auto one = [](const std::string& offsets) { return tensor_of("\"U8\"", "[4]", offsets); };
  expect_taken(file_of(one("[0,4]"), 4));
  expect_refused(file_of(one("[0,4]"), 3), {"'x'", "past the 3 bytes"});
  expect_refused(file_of(one("[0,4]"), 5), {"1 bytes after"});
  expect_refused(file_of(one("[1,5]"), 5), {"'x'", "from 0 on belong to no tensor"});
  expect_refused(file_of(one("[4,0]"), 4), {"'x'", "backwards"});
  expect_refused(file_of(one("[0]"), 4), {"'x'", "not two"});
  expect_refused(file_of(one("[]"), 4), {"'x'", "not two"});
  expect_refused(file_of(one("[0,4,4]"), 4), {"'x'", "more than 2"});
  expect_refused(file_of(one("[-4,0]"), 4), {"'x'", "negative"});
  expect_refused(file_of(one("[0,18446744073709551615]"), 4), {"'x'", "too large"});
  expect_refused(file_of(one("[9223372036854775803,9223372036854775807]"), 4), {"'x'", "past"});
  const auto two = [](const std::string& a, const std::string& b) {
    return "{\"x\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":" + a +
           "},\"y\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":" + b + "}}";
  };
  expect_taken(file_of(two("[0,4]", "[4,8]"), 8));
  expect_taken(file_of(two("[4,8]", "[0,4]"), 8));
  expect_refused(file_of(two("[0,4]", "[0,4]"), 4), {"inside those of another"});
  expect_refused(file_of(two("[0,4]", "[3,7]"), 7), {"'y'", "inside those of another"});
  expect_refused(file_of(two("[0,4]", "[5,9]"), 9), {"'y'", "belong to no tensor"});
  expect_refused(file_of("{}", 1), {"1 bytes after"});
}

TEST_F(HostileFileTest, BoolsOtherThanZeroAndOne) {
  const std::string header = tensor_of("\"BOOL\"", "[3]", "[0,3]");
  expect_taken(with_length(header.size(), header + std::string{0, 1, 0}));
  expect_refused(with_length(header.size(), header + std::string{0, 1, 2}),
                 {"'x'", "element 2", "is 2"});
}

TEST_F(HostileFileTest, FilesThatShrinkWhileOpen) {
  write_file(path(), file_of(tensor_of("\"U8\"", "[4]", "[0,4]"), 4));
  const SafetensorsFile file(path());
  std::filesystem::resize_file(path(), std::filesystem::file_size(path()) - 1);
  expect_error(ErrorCode::kIo, {path(), "shorter"}, [&] { file.load("x"); });
}

TEST_F(HostileFileTest, NamesAreEscapedInMessages) {
  const std::string long_name(10000, 'n');
  write_file(path(), file_of("{\"" + long_name + "\":1}", 0));
  try {
    load_safetensors(path());
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_LT(std::strlen(error.what()), 500u);
  }
  expect_refused(file_of("{\"a\\u001b[31m\":1}", 0), {"a\\x1b[31m"});
}

// A small model with several dtypes, for the two tests below.
std::string small_file(const std::string& path) {
  const TensorMap tensors{{"weight", tensor({1.5, -2.5, 3.5, 4.5})},
                          {"bias", tensor({0.5}, kFloat64)},
                          {"mask", tensor({1, 0, 1}, kBool)},
                          {"none", tensor(std::vector<int64_t>{})}};
  save_safetensors(path, tensors, {{"format", "pt"}});
  return read_file(path);
}

TEST_F(HostileFileTest, EveryTruncationIsRejected) {
  const std::string whole = small_file(path());
  for (size_t length = 0; length < whole.size(); ++length) {
    write_file(path(), whole.substr(0, length));
    expect_error(ErrorCode::kIo, {path()}, [&] { load_safetensors(path()); });
  }
}

TEST_F(HostileFileTest, EveryChangedByteIsRejectedOrHarmless) {
  const std::string whole = small_file(path());
  uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, whole.data(), 8);
  const size_t data_begin = 8 + header_bytes;
  int loaded = 0;
  int refused = 0;
  for (size_t at = 0; at < whole.size(); ++at) {
    for (char flip : {1, 2, 4, 8, 16, 32, 64, -128, -1, whole[at] ^ '"', whole[at] ^ '9'}) {
      if (flip == 0) continue;
      std::string changed = whole;
      changed[at] ^= flip;
      write_file(path(), changed);
      try {
        // Without a checksum, other names, values or dtypes of the same size may load. But the
        // tensors must still equal the file's data, byte for byte.
        const SafetensorsFile file(path());
        for (const auto& entry : file.entries()) {
          const Tensor tensor = file.load(entry.name);
          const auto bytes = static_cast<size_t>(tensor.numel() * tensor.element_size());
          ASSERT_EQ(bytes, static_cast<size_t>(entry.end - entry.begin));
          ASSERT_LE(data_begin + static_cast<size_t>(entry.end), changed.size());
          if (bytes == 0) continue;
          ASSERT_EQ(std::memcmp(tensor.raw_data(), &changed[data_begin + entry.begin], bytes), 0);
        }
        ++loaded;
      } catch (const Error& error) {
        ASSERT_EQ(error.code(), ErrorCode::kIo) << error.what();
        ASSERT_NE(std::string(error.what()).find(path()), std::string::npos) << error.what();
        ++refused;
      }
    }
  }
  EXPECT_GT(loaded, 0);
  EXPECT_GT(refused, loaded);
}

}  // namespace
}  // namespace mytorch::nn
