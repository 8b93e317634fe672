#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <set>
#include <string>
#include <thread>
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

std::string bytes_of(const Tensor& tensor) {
  EXPECT_TRUE(tensor.is_contiguous());
  return {static_cast<const char*>(tensor.raw_data()),
          static_cast<size_t>(tensor.numel() * tensor.element_size())};
}

// Returns a tensor of these bytes.
Tensor from_bytes(const std::string& bytes, IntList sizes, ScalarType dtype) {
  Tensor result =
      Tensor::adopt(new_tensor(sizes.data(), static_cast<int>(sizes.size()), dtype, kCPU, 0));
  EXPECT_EQ(bytes.size(), static_cast<size_t>(result.numel() * result.element_size()));
  if (!bytes.empty()) std::memcpy(result.raw_mutable_data(), bytes.data(), bytes.size());
  return result;
}

void expect_same(const TensorMap& found, const TensorMap& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (const auto& [name, tensor] : expected) {
    ASSERT_TRUE(found.count(name)) << name;
    const Tensor& other = found.at(name);
    EXPECT_EQ(other.dtype(), tensor.dtype()) << name;
    EXPECT_EQ(other.sizes().vec(), tensor.sizes().vec()) << name;
    EXPECT_EQ(bytes_of(other), bytes_of(tensor)) << name;
  }
}

// Of every type.
TensorMap some_of_every_type() {
  TensorMap tensors;
  std::string bytes;
  for (int i = 0; i < 96; ++i) bytes += static_cast<char>(i * 37 + 200);
  for (int i = 1; i < kNumScalarTypes; ++i) {
    const auto dtype = static_cast<ScalarType>(i);
    tensors[dtype_name(dtype)] =
        from_bytes(bytes.substr(0, 6 * element_size(dtype)), {3, 2}, dtype);
  }
  tensors["bool"] = from_bytes({0, 1, 1, 0}, {2, 2}, kBool);
  return tensors;
}

class SafetensorsTest : public ::testing::Test {
 protected:
  std::string path() const { return directory_.file("model.safetensors"); }
  TempDirectory directory_;
};

TEST_F(SafetensorsTest, KeepsEveryTypeBitByBit) {
  const TensorMap tensors = some_of_every_type();
  save_safetensors(path(), tensors);
  expect_same(load_safetensors(path()), tensors);
}

TEST_F(SafetensorsTest, KeepsSpecialValues) {
  const float nan_with_payload = std::nanf("0x1234");
  const std::vector<float> values{nan_with_payload, -0.0f, INFINITY, -INFINITY,
                                  std::numeric_limits<float>::denorm_min()};
  const TensorMap tensors{{"x", tensor(values)}};
  save_safetensors(path(), tensors);
  expect_same(load_safetensors(path()), tensors);
}

TEST_F(SafetensorsTest, KeepsEmptyAndScalarTensors) {
  const TensorMap tensors{{"scalar", from_bytes("abcd", {}, kFloat32)},
                          {"empty", from_bytes("", {0}, kInt64)},
                          {"empty too", from_bytes("", {2, 0, 3}, kBool)},
                          {"many dims", from_bytes("x", std::vector<int64_t>(64, 1), kUInt8)}};
  save_safetensors(path(), tensors);
  expect_same(load_safetensors(path()), tensors);
  save_safetensors(path(), {});
  EXPECT_TRUE(load_safetensors(path()).empty());
}

TEST_F(SafetensorsTest, KeepsNamesAndMetadata) {
  TensorMap tensors;
  for (const std::string& name :
       {std::string(""), std::string("a \"quoted\" \\ name"), std::string("größe λ 😀"),
        std::string("new\nline"), std::string("nul\0inside", 10), std::string(1000, 'n')}) {
    tensors[name] = tensor({1.0});
  }
  const Metadata metadata{{"format", "pt"}, {"", "\"\\\n"}, {"__metadata__", "ü"}};
  save_safetensors(path(), tensors, metadata);
  expect_same(load_safetensors(path()), tensors);
  EXPECT_EQ(SafetensorsFile(path()).metadata(), metadata);
}

TEST_F(SafetensorsTest, WritesExactlyTheFormat) {
  save_safetensors(path(),
                   {{"b", from_bytes("12345678", {2}, kFloat32)},
                    {"a", from_bytes("\1", {}, kBool)},
                    {"c", from_bytes("ABCDEFGH", {1, 1}, kInt64)}},
                   {{"k", "v"}});
  const std::string header = R"({"__metadata__":{"k":"v"},)"
                             R"("a":{"dtype":"BOOL","shape":[],"data_offsets":[16,17]},)"
                             R"("b":{"dtype":"F32","shape":[2],"data_offsets":[8,16]},)"
                             R"("c":{"dtype":"I64","shape":[1,1],"data_offsets":[0,8]}})";
  const std::string padded = header + std::string((8 - header.size() % 8) % 8, ' ');
  EXPECT_EQ(read_file(path()), std::string(1, static_cast<char>(padded.size())) +
                                   std::string(7, '\0') + padded + "ABCDEFGH12345678\1");
}

// Files of other writers: no metadata, entries in any order, and data that begins at any byte.
TEST_F(SafetensorsTest, ReadsDataAtAnyByteInAnyOrder) {
  const std::string header = R"({"b":{"dtype":"F32","shape":[2],"data_offsets":[1,9]},)"
                             R"("__metadata__":null,)"
                             R"("empty":{"dtype":"F32","shape":[0,3],"data_offsets":[9,9]},)"
                             R"("c":{"dtype":"I64","shape":[1,1],"data_offsets":[9,17]},)"
                             R"("a":{"dtype":"U8","shape":[],"data_offsets":[0,1]}})";
  const TensorMap expected{{"a", from_bytes("x", {}, kUInt8)},
                           {"b", from_bytes("12345678", {2}, kFloat32)},
                           {"c", from_bytes("ABCDEFGH", {1, 1}, kInt64)},
                           {"empty", from_bytes("", {0, 3}, kFloat32)}};
  for (size_t spaces = 0; spaces < 8; ++spaces) {
    const std::string padded = header + std::string(spaces, ' ');
    std::string prefix(8, '\0');
    const uint64_t length = padded.size();
    std::memcpy(prefix.data(), &length, sizeof(length));
    write_file(path(), prefix + padded + "x12345678ABCDEFGH");
    const TensorMap loaded = load_safetensors(path());
    expect_same(loaded, expected);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(loaded.at("b").raw_data()) % 64, 0u);
    EXPECT_TRUE(SafetensorsFile(path()).metadata().empty());
  }
}

TEST_F(SafetensorsTest, WritesTensorsThatAreNotContiguous) {
  const Tensor base = tensor({0.0, 1, 2, 3, 4, 5});
  const TensorMap tensors{{"transposed", Tensor::adopt(new_view(base.impl(), {3, 2}, {1, 3}, 0))},
                          {"expanded", Tensor::adopt(new_view(base.impl(), {2, 3}, {0, 1}, 3))},
                          {"part", Tensor::adopt(new_view(base.impl(), {2}, {1}, 4))}};
  save_safetensors(path(), tensors);
  const auto values = [](const std::vector<float>& list, IntList sizes) {
    return from_bytes({reinterpret_cast<const char*>(list.data()), list.size() * 4}, sizes,
                      kFloat32);
  };
  expect_same(load_safetensors(path()), {{"transposed", values({0, 3, 1, 4, 2, 5}, {3, 2})},
                                         {"expanded", values({3, 4, 5, 3, 4, 5}, {2, 3})},
                                         {"part", values({4, 5}, {2})}});
}

TEST_F(SafetensorsTest, LoadsIntoOrdinaryMemory) {
  const Tensor x = tensor({1.0, 2, 3});
  save_safetensors(path(), {{"a", x}, {"b", x}});
  const TensorMap loaded = load_safetensors(path());
  // Not escaped, so that kernels may cache data derived from loaded weights.
  EXPECT_EQ(loaded.at("a").impl()->storage->abi.flags & MT_STORAGE_ESCAPED, 0u);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(loaded.at("a").raw_data()) % 64, 0u);
  loaded.at("a").data<float>()[0] = 7;
  EXPECT_EQ(loaded.at("b").const_data<float>()[0], 1);
}

// Other readers find pairs of float64.
TEST_F(SafetensorsTest, ComplexNumbersOfDoublesAreMarkedInTheMetadata) {
  const std::string bytes = "0123456789abcdefABCDEFGHIJKLMNOP";
  const TensorMap tensors = {{"b", from_bytes(bytes, {2}, kComplex128)},
                             {"", from_bytes(bytes.substr(0, 16), {}, kComplex128)},
                             {"a", from_bytes(bytes, {2, 2}, kFloat64)},
                             {"c", from_bytes("", {0, 3}, kComplex128)}};
  save_safetensors(path(), tensors, {{"k", "v"}});
  expect_same(load_safetensors(path()), tensors);
  EXPECT_EQ(SafetensorsFile(path()).metadata(), (Metadata{{"k", "v"}}));
  std::string file = read_file(path());
  EXPECT_NE(file.find(R"("b":{"dtype":"F64","shape":[2,2],)"), std::string::npos);
  // The mark of a tensor that is none.
  const size_t mark = file.find("mytorch.complex128:b");
  ASSERT_NE(mark, std::string::npos);
  for (const char* name : {"x", "k"}) {
    write_file(path(), file.replace(mark + 19, 1, name));
    expect_error(ErrorCode::kIo, {"complex128 by the metadata"}, [&] { load_safetensors(path()); });
  }
}

TEST_F(SafetensorsTest, SameTensorsGiveTheSameFile) {
  save_safetensors(path(), some_of_every_type(), {{"a", "b"}});
  save_safetensors(directory_.file("again"), some_of_every_type(), {{"a", "b"}});
  EXPECT_EQ(read_file(path()), read_file(directory_.file("again")));
}

TEST_F(SafetensorsTest, OpensFilesToReadTensorsOneByOne) {
  save_safetensors(path(), some_of_every_type());
  SafetensorsFile opened(path());
  const SafetensorsFile file = std::move(opened);
  ASSERT_EQ(file.entries().size(), some_of_every_type().size());
  EXPECT_EQ(file.entries()[0].name, "bfloat16");
  EXPECT_EQ(file.entries()[0].dtype, kBFloat16);
  EXPECT_EQ(file.entries()[0].shape, (std::vector<int64_t>{3, 2}));
  EXPECT_TRUE(file.contains("int8"));
  EXPECT_FALSE(file.contains("int9"));
  EXPECT_EQ(bytes_of(file.load("int8")), bytes_of(some_of_every_type().at("int8")));
  expect_error(ErrorCode::kValue, {path(), "int9"}, [&] { file.load("int9"); });
}

TEST_F(SafetensorsTest, IsReadFromSeveralThreads) {
  const TensorMap tensors = some_of_every_type();
  save_safetensors(path(), tensors);
  const SafetensorsFile file(path());
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (const auto& [name, tensor] : tensors) {
        EXPECT_EQ(bytes_of(file.load(name)), bytes_of(tensor));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_F(SafetensorsTest, RejectsToSaveWhatTheFormatCannotHold) {
  write_file(path(), "old");
  const Tensor x = tensor({1.0});
  expect_error(ErrorCode::kValue, {"undefined", "layer.weight"}, [&] {
    save_safetensors(path(), {{"layer.weight", Tensor()}});
  });
  expect_error(ErrorCode::kValue, {"__metadata__"}, [&] {
    save_safetensors(path(), {{"__metadata__", x}});
  });
  expect_error(ErrorCode::kValue, {"UTF-8", "\\xff"}, [&] {
    save_safetensors(path(), {{"\xff", x}});
  });
  expect_error(ErrorCode::kValue, {"UTF-8"}, [&] {
    save_safetensors(path(), {{"x", x}}, {{"k", "\xc3"}});
  });
  expect_error(ErrorCode::kValue, {"100000000"}, [&] {
    save_safetensors(path(), {{"x", x}}, {{"k", std::string(100'000'000, 'v')}});
  });
  EXPECT_EQ(read_file(path()), "old");
  EXPECT_EQ(directory_.names().size(), 1u);
}

}  // namespace
}  // namespace mytorch::nn
