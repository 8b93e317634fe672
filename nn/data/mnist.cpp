#include "mytorch/nn/data/mnist.h"

#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <vector>

#include "core/types/errors.h"
#include "nn/common/host_tensor.h"
#include "nn/data/gather.h"
#include "nn/data/idx_file.h"
#include "nn/data/unit_float.h"

namespace mytorch::nn::data {
namespace {

constexpr int64_t kSide = 28;
constexpr int64_t kPixels = kSide * kSide;
constexpr uint8_t kClasses = 10;
constexpr const char* kDebianDirectory = "/usr/share/datasets/fashion-mnist";
constexpr const char* kDataVariable = "MYTORCH_DATA_DIR";

bool exists(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

// Returns the path of a file in a directory: for "train" and "images-idx3",
// train-images-idx3-ubyte, as published, or train-images.idx3-ubyte, as in some archives. Empty if
// there is neither.
std::string find_file(const std::string& directory, Split split, const char* kind, int ndim) {
  const char* prefix = split == Split::kTrain ? "train" : "t10k";
  for (const char* separator : {"-", "."}) {
    for (const char* ending : {"", ".gz"}) {
      const std::string name =
          absl::StrCat(prefix, "-", kind, separator, "idx", ndim, "-ubyte", ending);
      std::string path = (std::filesystem::path(directory) / name).string();
      if (exists(path)) return path;
    }
  }
  return "";
}

std::string need_file(const std::string& directory, Split split, const char* kind, int ndim) {
  std::string path = find_file(directory, split, kind, ndim);
  if (!path.empty()) return path;
  fail(ErrorCode::kIo, "[MNIST] directory ", directory,
       exists(directory) ? " has no file " : " does not exist; it should have a file ",
       split == Split::kTrain ? "train-" : "t10k-", kind, "-idx", ndim,
       "-ubyte[.gz]: name a directory with the four files of MNIST, as Debian's package "
       "dataset-fashion-mnist installs in ",
       kDebianDirectory);
}

Tensor checked_labels(const Tensor& bytes, const std::string& path) {
  Tensor labels = fresh_host_tensor(bytes.sizes(), kInt64);
  const uint8_t* from = bytes.const_data<uint8_t>();
  int64_t* to = fresh_data<int64_t>(labels);
  for (int64_t i = 0; i < bytes.numel(); ++i) {
    if (from[i] >= kClasses) {
      fail(ErrorCode::kIo, "[MNIST] file ", path, " has label ", from[i], " for example ", i,
           ", but labels go from 0 to 9: download it again");
    }
    to[i] = from[i];
  }
  return labels;
}

}  // namespace

MNIST::MNIST(const std::string& directory, Split split) {
  const std::string images_path = need_file(directory, split, "images", 3);
  const std::string labels_path = need_file(directory, split, "labels", 1);
  images_ = read_idx(images_path, 3);
  if (images_.size(1) != kSide || images_.size(2) != kSide) {
    fail(ErrorCode::kIo, "[MNIST] file ", images_path, " has images of ", images_.size(1), " x ",
         images_.size(2), " pixels, and not of 28 x 28: give the images of MNIST");
  }
  labels_ = checked_labels(read_idx(labels_path, 1), labels_path);
  if (images_.size(0) != labels_.size(0)) {
    fail(ErrorCode::kIo, "[MNIST] file ", images_path, " has ", images_.size(0), " images but ",
         labels_path, " has ", labels_.size(0), " labels: take both from the same data set");
  }
}

int64_t MNIST::size() const { return labels_.size(0); }

Example MNIST::get(int64_t index) const {
  check_index("MNIST", index, size());
  Example example{fresh_host_tensor({1, kSide, kSide}, kFloat32), fresh_host_tensor({}, kInt64)};
  to_unit_floats(images_.const_data<uint8_t>() + index * kPixels, fresh_data<float>(example.data),
                 kPixels);
  *fresh_data<int64_t>(example.target) = labels_.const_data<int64_t>()[index];
  return example;
}

Batch MNIST::get_batch(IntList indices) const {
  check_indices("MNIST", indices, size());
  const int64_t n = static_cast<int64_t>(indices.size());
  Batch batch{fresh_host_tensor({n, 1, kSide, kSide}, kFloat32), fresh_host_tensor({n}, kInt64)};
  const uint8_t* images = images_.const_data<uint8_t>();
  const int64_t* labels = labels_.const_data<int64_t>();
  float* to = fresh_data<float>(batch.data);
  int64_t* target = fresh_data<int64_t>(batch.target);
  for (int64_t i = 0; i < n; ++i) {
    prefetch_row(images, kPixels, indices, static_cast<size_t>(i));
    to_unit_floats(images + indices[i] * kPixels, to + i * kPixels, kPixels);
    target[i] = labels[indices[i]];
  }
  return batch;
}

std::string default_data_dir() {
  const char* chosen = std::getenv(kDataVariable);
  const bool set = chosen != nullptr && *chosen != '\0';
  std::string directory = set ? chosen : kDebianDirectory;
  if (!find_file(directory, Split::kTrain, "images", 3).empty()) return directory;
  fail(ErrorCode::kIo, "[default_data_dir] no train-images-idx3-ubyte[.gz] in ", directory,
       set ? absl::StrCat(", which ", kDataVariable, " names") : "",
       ": install Debian's package dataset-fashion-mnist",
       set ? absl::StrCat(" and unset ", kDataVariable, ", or let it name")
           : absl::StrCat(", or let ", kDataVariable, " name"),
       " a directory with the four files of MNIST");
}

}  // namespace mytorch::nn::data
