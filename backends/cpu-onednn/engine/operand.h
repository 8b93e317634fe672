// Descriptors of operands.
#pragma once

#include <cstdint>

#include "backends/cpu-onednn/engine/dnnl.h"
#include "mytorch/backend.h"
#include "mytorch/backend/layout.h"

namespace mytorch::onednn {

// Returns oneDNN's type. Supports the types that product_type_reason accepts.
dnnl::memory::data_type data_type(mt_dtype dtype);

// Returns whether the tensor is contiguous in some permutation of its dimensions.
bool is_packed(const sdk::TensorView& tensor);
using sdk::is_channels_last;

// Returns the layout of a tensor in memory. Row-major and channels-last tensors get the strides of
// oneDNN's formats, also in dimensions of size 1, so that equal layouts have equal descriptors.
Desc describe(const sdk::TensorView& tensor);
// Returns a layout with the given strides, in elements.
Desc describe(mt_dtype dtype, const Dims& shape, const Dims& strides);
// Returns a contiguous layout.
Desc describe_contiguous(mt_dtype dtype, const Dims& shape);
// Returns a layout that the primitive may choose.
Desc describe_any(mt_dtype dtype, const Dims& shape);

Dims shape_of(const sdk::TensorView& tensor);
Dims row_major_strides(const Dims& shape);

// Returns whether this is oneDNN's reference implementation, which computes one element at a time.
bool is_reference(const Description& description);

// oneDNN's generated code counts elements in 32 bits.
inline constexpr int64_t kMostElements = INT32_MAX;
// Returns the reason why no kernel supports an operand of this size; NULL if kernels do.
inline const char* size_reason(const sdk::TensorView& tensor) {
  const int64_t n = tensor.numel();
  if (n == 0) return "an operand has no elements";
  return n > kMostElements ? "an operand has 2^31 elements or more" : nullptr;
}

}  // namespace mytorch::onednn
