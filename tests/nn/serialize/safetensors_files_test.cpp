// Several files and their index.
#include "mytorch/nn/safetensors_files.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "mytorch/mytorch.h"
#include "tests/nn/data/expect_error.h"
#include "tests/nn/data/temp_directory.h"

namespace mytorch::nn {
namespace {

using mytorch::testing::expect_error;
using mytorch::testing::read_file;
using mytorch::testing::TempDirectory;
using mytorch::testing::write_file;

constexpr const char* kIndex = "model.safetensors.index.json";

class SafetensorsFilesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    save_safetensors(
        directory_.file("a.safetensors"),
        {{"x", mytorch::arange(6).to(kFloat32).reshape({2, 3})}, {"none", mytorch::zeros({0, 3})}});
    save_safetensors(directory_.file("b.safetensors"),
                     {{"y", mytorch::arange(4) > 1}, {"z", mytorch::full({}, 3.0, kFloat64)}});
    save_safetensors_index(directory_.file(kIndex),
                           {{"x", "a.safetensors"},
                            {"none", "a.safetensors"},
                            {"y", "b.safetensors"},
                            {"z", "b.safetensors"}},
                           36);
  }
  TempDirectory directory_;
};

TEST_F(SafetensorsFilesTest, ReadsAFolderAnIndexOrAFile) {
  for (const std::string& path : {directory_.path(), directory_.file(kIndex)}) {
    const SafetensorsFiles files(path);
    EXPECT_EQ(files.path(), path);
    EXPECT_EQ(files.names(), (std::vector<std::string>{"none", "x", "y", "z"}));
    EXPECT_TRUE(files.contains("x") && !files.contains("w"));
    EXPECT_EQ(files.entry("x").shape, (std::vector<int64_t>{2, 3}));
    EXPECT_EQ(files.load("x")[1][2].item<float>(), 5);
    EXPECT_EQ(files.load("z").item<double>(), 3);
    const TensorMap all = load_safetensors(path);
    EXPECT_EQ(all.size(), 4u);
    EXPECT_EQ(all.at("y").to_vector<bool>(), (std::vector<bool>{false, false, true, true}));
  }
  const SafetensorsFiles one(directory_.file("b.safetensors"));
  EXPECT_EQ(one.names(), (std::vector<std::string>{"y", "z"}));
  // A folder's single file comes first, as transformers takes it.
  save_safetensors(directory_.file("model.safetensors"), {{"w", mytorch::ones({1})}});
  EXPECT_EQ(SafetensorsFiles(directory_.path()).names(), std::vector<std::string>{"w"});
  Linear net(3, 2, /*bias=*/false);
  save_safetensors_index(directory_.file("net.json"), {{"weight", "c.safetensors"}}, 24);
  save_safetensors(directory_.file("c.safetensors"), {{"weight", mytorch::ones({2, 3})}});
  net.load(directory_.file("net.json"));
  EXPECT_EQ(net.weight.sum().item<double>(), 6);
}

TEST_F(SafetensorsFilesTest, ReadsRanges) {
  const SafetensorsFiles files(directory_.path());
  EXPECT_EQ(files.read("x", 2, 3).to_vector<float>(), (std::vector<float>{2, 3, 4}));
  EXPECT_EQ(files.read("x", 6, 0).numel(), 0);
  EXPECT_EQ(files.read("none", 0, 0).numel(), 0);
  EXPECT_EQ(files.read("y", 1, 2).to_vector<bool>(), (std::vector<bool>{false, true}));
  EXPECT_EQ(files.read("z", 0, 1).item<double>(), 3);
  for (const auto& [first, count] :
       std::vector<std::pair<int64_t, int64_t>>{{-1, 2}, {0, -1}, {5, 2}, {7, 0}, {1, INT64_MAX}}) {
    expect_error(ErrorCode::kValue, {"'x' has 6 elements"},
                 [&, f = first, n = count] { files.read("x", f, n); });
  }
  expect_error(ErrorCode::kValue, {"has no tensor 'w'"}, [&] { files.read("w", 0, 1); });
  // A bool that is neither, in the range or not.
  std::string bytes = read_file(directory_.file("b.safetensors"));
  bytes.back() = 2;
  write_file(directory_.file("b.safetensors"), bytes);
  const SafetensorsFiles damaged(directory_.path());
  EXPECT_EQ(damaged.read("y", 0, 3).numel(), 3);
  expect_error(ErrorCode::kIo, {"'y': element 3 of a BOOL tensor"},
               [&] { damaged.read("y", 2, 2); });
}

TEST_F(SafetensorsFilesTest, TheIndexIsTheOneOfHuggingFace) {
  const auto index = nlohmann::json::parse(read_file(directory_.file(kIndex)));
  EXPECT_EQ(index, nlohmann::json::parse(R"({"metadata": {"total_size": 36}, "weight_map": {
      "none": "a.safetensors", "x": "a.safetensors", "y": "b.safetensors",
      "z": "b.safetensors"}})"));
}

TEST_F(SafetensorsFilesTest, RefusesFalseIndices) {
  const std::string path = directory_.file(kIndex);
  const auto refuses = [&](const std::string& text, const char* part) {
    write_file(path, text);
    expect_error(ErrorCode::kValue, {path, part}, [&] { SafetensorsFiles files(path); });
  };
  for (const char* text :
       {"", "{", "[]", "7", "{}", R"({"weight_map": []})", R"({"weight_map"})"}) {
    refuses(text, "has no weight_map");
  }
  refuses(R"({"weight_map": {"a": )" + std::string(100000, '['), "has no weight_map");
  for (const char* file : {R"("../a.safetensors")", R"("/etc/passwd")", R"("..")", R"("")", "3",
                           "null", R"({"b": "a.safetensors"})"}) {
    refuses(R"({"weight_map": {"a": )" + std::string(file) + "}}", "of tensor 'a' is not in");
  }
  write_file(path, R"({"weight_map": {"w": "a.safetensors", "v": "none.safetensors"}})");
  const SafetensorsFiles files(path);
  expect_error(ErrorCode::kIo, {"a.safetensors lacks tensor 'w'", path}, [&] { files.load("w"); });
  expect_error(ErrorCode::kIo, {"none.safetensors: cannot be opened"}, [&] { files.load("v"); });
  expect_error(ErrorCode::kIo, {"cannot be read"},
               [&] { SafetensorsFiles none(directory_.file("none.json")); });
  std::filesystem::create_directory(directory_.file("empty"));
  expect_error(ErrorCode::kIo, {"has neither model.safetensors nor model.safetensors.index.json"},
               [&] { SafetensorsFiles none(directory_.file("empty")); });
}

}  // namespace
}  // namespace mytorch::nn
