// The memory of a tensor, which views of it share: what libtorch's Tensor::storage() gives.
#pragma once

#include <cstddef>
#include <utility>

#include "mytorch/tensor.h"

namespace mytorch {

// Keeps the memory alive.
class TensorStorage {
 public:
  explicit TensorStorage(Tensor tensor) : tensor_(std::move(tensor)) {}

  // Return the first byte, which is not that of a view's first element. The mutable form marks the
  // memory as escaped, as Tensor::data does.
  const void* data() const { return storage().data; }
  void* mutable_data() const {
    tensor_.raw_mutable_data();
    return storage().data;
  }
  size_t nbytes() const { return storage().bytes; }
  Device device() const { return storage().device; }
  bool is_alias_of(const TensorStorage& other) const { return &storage() == &other.storage(); }

 private:
  const Storage& storage() const { return *tensor_.impl()->storage; }
  Tensor tensor_;
};

inline TensorStorage Tensor::storage() const {
  checked();
  return TensorStorage(*this);
}

}  // namespace mytorch
