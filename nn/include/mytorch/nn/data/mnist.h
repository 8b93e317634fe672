// MNIST, and the data sets that come in its format (Fashion-MNIST, KMNIST).
#pragma once

#include <cstdint>
#include <string>

#include "mytorch/nn/data/dataset.h"

namespace mytorch::nn::data {

enum class Split { kTrain, kTest };

// Images of ten classes, 28 x 28 pixels of gray. An example is a float32 image (1, 28, 28) with
// values in [0, 1] and a 0-dim int64 label in [0, 9]; a batch is (n, 1, 28, 28) and (n). The bytes
// of the files are kept, and become floats when a batch is gathered.
class MNIST final : public Dataset {
 public:
  // Reads the two files of `split` in `directory`, for kTrain train-images-idx3-ubyte and
  // train-labels-idx1-ubyte, for kTest t10k-..., plain or gzipped (with or without ".gz").
  // Throws Error(kIo), naming the file, unless they are exactly what their headers say, and agree.
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

// A directory with files for MNIST: the one that the environment variable MYTORCH_DATA_DIR names if
// it is set, else that of Debian's package dataset-fashion-mnist. Throws Error(kIo) that says what
// to install when there are none.
std::string default_data_dir();

}  // namespace mytorch::nn::data
