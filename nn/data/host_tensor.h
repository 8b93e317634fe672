// Fresh tensors in host memory, to be filled by hand.
#pragma once

#include "core/runtime/device_registry.h"
#include "mytorch/tensor.h"

namespace mytorch::nn {

// Uninitialized and contiguous.
inline Tensor fresh_host_tensor(IntList sizes, ScalarType dtype) {
  return Tensor::adopt(
      new_tensor(sizes.data(), static_cast<int>(sizes.size()), dtype, kCPU, kCpuSlot));
}

// Where to fill it. Not raw_mutable_data(): that marks the storage as escaped for good, after which
// kernels cache nothing about it (packed weights, say), while this pointer is gone before anyone
// else sees the tensor.
template <class T = void>
T* fresh_data(const Tensor& tensor) {
  return static_cast<T*>(tensor.impl()->abi.dl.data);
}

}  // namespace mytorch::nn
