// Operands as oneDNN describes them.
#pragma once

#include <cstdint>

#include "backends/cpu-onednn/dnnl.h"
#include "mytorch/backend.h"
#include "mytorch/backend/layout.h"

namespace mytorch::onednn {

// Of the types that product_type_reason lets through.
dnnl::memory::data_type data_type(mt_dtype dtype);

// Whether the elements lie side by side, in some order of the dimensions.
bool is_packed(const sdk::TensorView& tensor);
using sdk::is_channels_last;

// As the tensor lies in memory. Row-major and channels-last tensors get the strides that oneDNN's
// own formats have, also in dimensions of size 1, so that descriptors compare equal.
Desc describe(const sdk::TensorView& tensor);
// The same elements seen in another shape; strides in elements.
Desc describe(mt_dtype dtype, const Dims& shape, const Dims& strides);
// Contiguous and row-major.
Desc describe_contiguous(mt_dtype dtype, const Dims& shape);
// In whichever layout the primitive prefers.
Desc describe_any(mt_dtype dtype, const Dims& shape);

Dims shape_of(const sdk::TensorView& tensor);
Dims row_major_strides(const Dims& shape);

// The implementation that oneDNN has for everything, one element at a time.
bool is_reference(const Description& description);

// oneDNN's generated code counts elements in 32 bits.
inline constexpr int64_t kMostElements = INT32_MAX;
// Why no kernel takes a call with this operand; NULL for no reason.
inline const char* size_reason(const sdk::TensorView& tensor) {
  const int64_t n = tensor.numel();
  if (n == 0) return "an operand has no elements";
  return n > kMostElements ? "an operand has 2^31 elements or more" : nullptr;
}

}  // namespace mytorch::onednn
