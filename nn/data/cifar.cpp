#include "mytorch/nn/data/cifar.h"

#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "core/types/errors.h"
#include "nn/common/host_tensor.h"
#include "nn/common/whole_file.h"
#include "nn/data/gather.h"
#include "nn/data/unit_float.h"

namespace mytorch::nn::data {
namespace {

constexpr int64_t kCifarPixels = int64_t{3} * 32 * 32;

std::string cifar_path(const char* dataset, const std::string& directory, const std::string& name) {
  for (const char* ending : {"", ".gz"}) {
    std::string path = (std::filesystem::path(directory) / (name + ending)).string();
    std::error_code ignored;
    if (std::filesystem::exists(path, ignored)) return path;
  }
  fail(ErrorCode::kIo, "[", dataset, "] directory ", directory, " has no file ", name,
       "[.gz]: name the directory of the unpacked binary version");
}

int64_t checked_label(const std::string& path, int64_t record, uint8_t label, int classes) {
  if (label < classes) return label;
  fail(ErrorCode::kIo, "[data] file ", path, " has label ", label, " in record ", record,
       ", but labels go from 0 to ", classes - 1, ": use the original file");
}

}  // namespace

void CIFAR::read(const std::string& directory, const std::vector<std::string>& files,
                 const Layout& layout) {
  const size_t record = static_cast<size_t>(kCifarPixels + layout.label_bytes);
  std::vector<std::pair<std::string, std::string>> contents;  // path and bytes
  int64_t n = 0;
  for (const std::string& name : files) {
    const std::string path = cifar_path(layout.name, directory, name);
    std::string bytes = read_whole_file(path);
    if (bytes.size() % record != 0) {
      fail(ErrorCode::kIo, "[", layout.name, "] file ", path, " has ", bytes.size(),
           " bytes, which is not a multiple of the ", record, " bytes of a record: record ",
           bytes.size() / record, " is cut short; use the original file");
    }
    n += static_cast<int64_t>(bytes.size() / record);
    contents.emplace_back(path, std::move(bytes));
  }
  images_ = fresh_host_tensor({n, 3, 32, 32}, kUInt8);
  labels_ = fresh_host_tensor({n}, kInt64);
  if (layout.label_bytes == 2) coarse_labels_ = fresh_host_tensor({n}, kInt64);
  int64_t i = 0;
  for (const auto& [path, bytes] : contents) {
    const auto* from = reinterpret_cast<const uint8_t*>(bytes.data());
    for (size_t r = 0; r < bytes.size() / record; ++r, ++i, from += record) {
      const auto number = static_cast<int64_t>(r);
      fresh_data<int64_t>(labels_)[i] =
          checked_label(path, number, from[layout.label_bytes - 1], layout.classes);
      if (layout.label_bytes == 2) {
        fresh_data<int64_t>(coarse_labels_)[i] =
            checked_label(path, number, from[0], layout.coarse_classes);
      }
      std::memcpy(fresh_data<uint8_t>(images_) + i * kCifarPixels, from + layout.label_bytes,
                  kCifarPixels);
    }
  }
}

Example CIFAR::get(int64_t index) const {
  check_index("CIFAR", index, size());
  Example example{fresh_host_tensor({3, 32, 32}, kFloat32), fresh_host_tensor({}, kInt64)};
  to_unit_floats(images_.const_data<uint8_t>() + index * kCifarPixels,
                 fresh_data<float>(example.data), kCifarPixels);
  *fresh_data<int64_t>(example.target) = labels_.const_data<int64_t>()[index];
  return example;
}

Batch CIFAR::get_batch(IntList indices) const {
  check_indices("CIFAR", indices, size());
  const auto n = static_cast<int64_t>(indices.size());
  Batch batch{fresh_host_tensor({n, 3, 32, 32}, kFloat32), fresh_host_tensor({n}, kInt64)};
  const uint8_t* images = images_.const_data<uint8_t>();
  for (int64_t i = 0; i < n; ++i) {
    const int64_t index = indices[static_cast<size_t>(i)];
    prefetch_row(images, kCifarPixels, indices, static_cast<size_t>(i));
    to_unit_floats(images + index * kCifarPixels, fresh_data<float>(batch.data) + i * kCifarPixels,
                   kCifarPixels);
    fresh_data<int64_t>(batch.target)[i] = labels_.const_data<int64_t>()[index];
  }
  return batch;
}

CIFAR10::CIFAR10(const std::string& directory, Split split) {
  std::vector<std::string> files;
  if (split == Split::kTest) files.emplace_back("test_batch.bin");
  for (int i = 1; split == Split::kTrain && i <= 5; ++i) {
    files.push_back(absl::StrCat("data_batch_", i, ".bin"));
  }
  read(directory, files, {"CIFAR10", 1, 10, 0});
}

CIFAR100::CIFAR100(const std::string& directory, Split split) {
  read(directory, {split == Split::kTrain ? "train.bin" : "test.bin"}, {"CIFAR100", 2, 100, 20});
}

}  // namespace mytorch::nn::data
