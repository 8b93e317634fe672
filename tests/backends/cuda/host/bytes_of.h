// The memory of tensors, wherever they are.
#pragma once

#include <cstddef>
#include <string>

#include "mytorch/ops/contiguous.h"
#include "mytorch/ops/to.h"
#include "mytorch/tensor.h"

namespace mytorch::testing {

// Returns the bytes of a tensor's elements in row-major order.
inline std::string bytes_of(const Tensor& tensor) {
  const Tensor host = tensor.to(kCPU).contiguous();
  return {static_cast<const char*>(host.raw_data()),
          static_cast<size_t>(host.numel() * host.element_size())};
}

}  // namespace mytorch::testing
