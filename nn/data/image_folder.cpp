#include "mytorch/nn/data/image_folder.h"

#include <algorithm>
#include <filesystem>
#include <iterator>

#include "absl/strings/ascii.h"
#include "core/types/errors.h"
#include "nn/common/host_tensor.h"
#include "nn/data/gather.h"

namespace mytorch::nn::data {
namespace {

namespace fs = std::filesystem;

bool is_image(const fs::path& path) {
  static constexpr const char* kEndings[] = {".jpg", ".jpeg", ".png", ".ppm", ".pgm"};
  const std::string ending = absl::AsciiStrToLower(path.extension().string());
  return std::find(std::begin(kEndings), std::end(kEndings), ending) != std::end(kEndings);
}

std::vector<std::string> class_names(const std::string& directory) {
  std::vector<std::string> names;
  for (const fs::directory_entry& entry : fs::directory_iterator(directory)) {
    if (entry.is_directory()) names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  if (names.empty()) {
    fail(ErrorCode::kIo, "[ImageFolder] directory ", directory,
         " has no folders: make a folder of images for each class");
  }
  return names;
}

}  // namespace

ImageFolder::ImageFolder(const std::string& directory) try : classes_(class_names(directory)) {
  for (size_t i = 0; i < classes_.size(); ++i) {
    const fs::path folder = fs::path(directory) / classes_[i];
    std::vector<std::string> paths;
    for (const auto& entry : fs::recursive_directory_iterator(folder)) {
      if (entry.is_regular_file() && is_image(entry.path())) paths.push_back(entry.path().string());
    }
    if (paths.empty()) {
      fail(ErrorCode::kIo, "[ImageFolder] folder ", folder.string(),
           " has no image (.jpg, .jpeg, .png, .ppm, .pgm): add some or remove it");
    }
    std::sort(paths.begin(), paths.end());
    for (std::string& path : paths) files_.emplace_back(std::move(path), static_cast<int64_t>(i));
  }
} catch (const fs::filesystem_error& error) {
  fail(ErrorCode::kIo, "[ImageFolder] directory ", directory,
       " cannot be listed: ", error.code().message(),
       ": give one that has a folder of images for each class");
}

Example ImageFolder::get(int64_t index) const {
  check_index("ImageFolder", index, size());
  const auto& [path, label] = files_[static_cast<size_t>(index)];
  Example example{read_image(path), fresh_host_tensor({}, kInt64)};
  *fresh_data<int64_t>(example.target) = label;
  return example;
}

}  // namespace mytorch::nn::data
