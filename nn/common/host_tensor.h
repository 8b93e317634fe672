// New host tensors to be filled directly.
#pragma once

#include "core/runtime/device_registry.h"
#include "mytorch/tensor.h"

namespace mytorch::nn {

// Uninitialized and contiguous.
inline Tensor fresh_host_tensor(IntList sizes, ScalarType dtype) {
  return Tensor::adopt(
      new_tensor(sizes.data(), static_cast<int>(sizes.size()), dtype, kCPU, kCpuSlot));
}

// Returns a pointer to fill the tensor. Unlike raw_mutable_data(), it does not mark the storage as
// escaped, which would permanently disable caching of its contents (such as packed weights): this
// pointer is gone before anyone else sees the tensor.
template <class T = void>
T* fresh_data(const Tensor& tensor) {
  return static_cast<T*>(tensor.impl()->abi.dl.data);
}

}  // namespace mytorch::nn
