// CIFAR-10 and CIFAR-100, in their binary version.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "mytorch/nn/data/dataset.h"
#include "mytorch/nn/data/mnist.h"

namespace mytorch::nn::data {

// Color images of 32 x 32 pixels. An example is a float32 image (3, 32, 32) with values in [0, 1]
// and a 0-dim int64 label; a batch is (n, 3, 32, 32) and (n). Pixels are stored as bytes and
// converted when a batch is gathered.
class CIFAR : public Dataset {
 public:
  int64_t size() const final { return labels_.size(0); }
  Example get(int64_t index) const final;
  Batch get_batch(IntList indices) const final;

  const Tensor& images() const { return images_; }  // uint8 (n, 3, 32, 32), as in the file
  const Tensor& labels() const { return labels_; }  // int64 (n)

 protected:
  // The labels that precede each image in a file.
  struct Layout {
    const char* name;
    int label_bytes;
    int classes;         // of the last label
    int coarse_classes;  // of the first of two labels
  };
  CIFAR() = default;
  void read(const std::string& directory, const std::vector<std::string>& files,
            const Layout& layout);

  Tensor images_;
  Tensor labels_;
  Tensor coarse_labels_;
};

// Ten classes.
class CIFAR10 final : public CIFAR {
 public:
  // Reads data_batch_1.bin to data_batch_5.bin for kTrain, test_batch.bin for kTest; plain or
  // gzipped (with or without ".gz"). Throws Error(kIo), naming the file and the record, if a file
  // does not consist of whole records, or a label is out of range.
  explicit CIFAR10(const std::string& directory, Split split = Split::kTrain);
};

// A hundred classes in twenty superclasses.
class CIFAR100 final : public CIFAR {
 public:
  // Reads train.bin or test.bin, under the same conditions.
  explicit CIFAR100(const std::string& directory, Split split = Split::kTrain);
  const Tensor& coarse_labels() const { return coarse_labels_; }  // int64 (n), superclasses
};

}  // namespace mytorch::nn::data
