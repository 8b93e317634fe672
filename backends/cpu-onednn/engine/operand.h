// Descriptors of operands.
#pragma once

#include <cstdint>

#include "backends/cpu-onednn/engine/dnnl.h"
#include "mytorch/backend.h"
#include "mytorch/backend/layout.h"

namespace mytorch::onednn {

// oneDNN's type. Supports the types that product_type_reason accepts.
dnnl::memory::data_type data_type(mt_dtype dtype);

// Whether the tensor is contiguous in some permutation of its dimensions.
bool is_packed(const sdk::TensorView& tensor);
using sdk::is_channels_last;

// The layout of a tensor in memory. Row-major and channels-last tensors get the strides of oneDNN's
// formats, also in dimensions of size 1, so that descriptors compare equal.
Desc describe(const sdk::TensorView& tensor);
// A layout of any shape; strides are in elements.
Desc describe(mt_dtype dtype, const Dims& shape, const Dims& strides);
// A contiguous layout.
Desc describe_contiguous(mt_dtype dtype, const Dims& shape);
// The layout that the primitive prefers.
Desc describe_any(mt_dtype dtype, const Dims& shape);

Dims shape_of(const sdk::TensorView& tensor);
Dims row_major_strides(const Dims& shape);

// Whether this is oneDNN's reference implementation, which computes one element at a time.
bool is_reference(const Description& description);

// oneDNN's generated code counts elements in 32 bits.
inline constexpr int64_t kMostElements = INT32_MAX;
// The reason why no kernel supports an operand of this size; NULL if they do.
inline const char* size_reason(const sdk::TensorView& tensor) {
  const int64_t n = tensor.numel();
  if (n == 0) return "an operand has no elements";
  return n > kMostElements ? "an operand has 2^31 elements or more" : nullptr;
}

}  // namespace mytorch::onednn
