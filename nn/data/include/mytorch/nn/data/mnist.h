// MNIST and datasets in the same format (Fashion-MNIST, KMNIST).
#pragma once

#include <cstdint>
#include <string>

#include "mytorch/nn/data/dataset.h"

namespace mytorch::nn::data {

enum class Split { kTrain, kTest };

// Grayscale images of ten classes, 28 x 28 pixels. An example is a float32 image (1, 28, 28) with
// values in [0, 1] and a 0-dim int64 label in [0, 9]; a batch is (n, 1, 28, 28) and (n). Pixels are
// stored as bytes and converted when a batch is gathered.
class MNIST final : public Dataset {
 public:
  // Reads the image and label files of `split` from `directory`: train-images-idx3-ubyte and
  // train-labels-idx1-ubyte for kTrain, t10k-... for kTest; plain or gzipped (with or without
  // ".gz"). Throws Error(kIo), naming the file, if a file does not match its header or the two
  // files do not match each other.
  explicit MNIST(const std::string& directory, Split split = Split::kTrain);
  int64_t size() const override;
  Example get(int64_t index) const override;
  Batch get_batch(IntList indices) const override;

  const Tensor& images() const { return images_; }  // uint8 (n, 28, 28), as in the file
  const Tensor& labels() const { return labels_; }  // int64 (n)

 private:
  Tensor images_;
  Tensor labels_;
};

// Returns a directory with MNIST files: the environment variable MYTORCH_DATA_DIR if set, else the
// directory of Debian's package dataset-fashion-mnist. Throws Error(kIo), naming the package to
// install, if it has no such files.
std::string default_data_dir();

}  // namespace mytorch::nn::data
