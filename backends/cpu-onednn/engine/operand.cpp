#include "backends/cpu-onednn/engine/operand.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace mytorch::onednn {

using sdk::TensorView;

dnnl::memory::data_type data_type(mt_dtype dtype) {
  using Type = dnnl::memory::data_type;
  if (sdk::is_dtype<sdk::BFloat16>(dtype)) return Type::bf16;
  if (sdk::is_dtype<sdk::Half>(dtype)) return Type::f16;
  return Type::f32;
}

bool is_packed(const TensorView& tensor) {
  if (tensor.is_contiguous()) return true;
  // From the innermost dimension outwards, each stride is the product of the sizes before it.
  int64_t expected = 1;
  std::array<bool, sdk::kMaxDims> used{};
  for (int round = 0; round < tensor.ndim(); ++round) {
    int found = -1;
    for (int d = 0; d < tensor.ndim() && found < 0; ++d) {
      if (!used[static_cast<size_t>(d)] && (tensor.size(d) == 1 || tensor.stride(d) == expected)) {
        found = d;
      }
    }
    if (found < 0) return false;
    used[static_cast<size_t>(found)] = true;
    expected *= tensor.size(found);
  }
  return true;
}

Dims shape_of(const TensorView& tensor) { return {tensor.shape().begin(), tensor.shape().end()}; }

Dims row_major_strides(const Dims& shape) {
  Dims strides(shape.size());
  int64_t step = 1;
  for (size_t d = shape.size(); d-- > 0;) {
    strides[d] = step;
    step *= shape[d];
  }
  return strides;
}

Desc describe(mt_dtype dtype, const Dims& shape, const Dims& strides) {
  return {shape, data_type(dtype), strides};
}

Desc describe_contiguous(mt_dtype dtype, const Dims& shape) {
  return describe(dtype, shape, row_major_strides(shape));
}

Desc describe_any(mt_dtype dtype, const Dims& shape) {
  return {shape, data_type(dtype), dnnl::memory::format_tag::any};
}

Desc describe(const TensorView& tensor) {
  const Dims shape = shape_of(tensor);
  if (tensor.is_contiguous()) return describe_contiguous(tensor.dtype(), shape);
  if (!is_channels_last(tensor)) {
    return describe(tensor.dtype(), shape, {tensor.strides().begin(), tensor.strides().end()});
  }
  Dims strides(shape.size());
  strides[1] = 1;
  int64_t step = shape[1];
  for (size_t d = shape.size() - 1; d >= 2; --d) {
    strides[d] = step;
    step *= shape[d];
  }
  strides[0] = step;
  return describe(tensor.dtype(), shape, strides);
}

bool is_reference(const Description& description) {
  return std::strstr(description.impl_info_str(), "ref") != nullptr;
}

}  // namespace mytorch::onednn
