// Tensors over the caller's memory.
#include <algorithm>
#include <limits>
#include <utility>

#include "core/runtime/device_registry.h"
#include "core/types/checked.h"
#include "core/types/dims.h"
#include "core/types/errors.h"
#include "mytorch/tensor.h"

namespace mytorch::detail {
namespace {

// The caller's deleter and the memory that it takes.
struct Release {
  Deleter deleter;
  void* data;
};

void run_release(void* context) {
  auto* const release = static_cast<Release*>(context);
  release->deleter(release->data);
  delete release;
}

ScalarType element_type(std::optional<ScalarType> memory, const TensorOptions& options) {
  if (!memory.has_value()) return options.dtype();
  if (options.dtype_opt().value_or(*memory) == *memory) return *memory;
  fail(ErrorCode::kType, "[from_blob] the memory holds ", dtype_name(*memory),
       ", but the options say ", dtype_name(options.dtype()),
       ": leave the dtype out and convert with to(), or pass the memory as void*");
}

// Returns the number of bytes from the first element to past the last.
uint64_t bytes_of(IntList sizes, IntList strides, ScalarType dtype) {
  if (strides.size() != sizes.size()) {
    fail(ErrorCode::kShape, "[from_blob] ", sizes.size(), " sizes but ", strides.size(),
         " strides: give one stride for each size");
  }
  Wide last = 0;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] < 0 || strides[i] < 0) {
      fail(ErrorCode::kShape, "[from_blob] sizes ", shape_str(sizes), " and strides ",
           shape_str(strides), " must not be negative");
    }
    last += Wide{std::max<int64_t>(sizes[i] - 1, 0)} * strides[i];
    if (last > std::numeric_limits<int64_t>::max() / 16) {
      fail(ErrorCode::kShape, "[from_blob] sizes ", shape_str(sizes), " and strides ",
           shape_str(strides), " reach beyond any memory");
    }
  }
  const int64_t elements = checked_product(sizes, "from_blob");
  return elements == 0 ? 0 : static_cast<uint64_t>(last + 1) * element_size(dtype);
}

}  // namespace

Tensor wrap_memory(const void* data, bool read_only, std::optional<ScalarType> type, IntList sizes,
                   OptionalIntList strides, Deleter deleter, const TensorOptions& options) {
  const ScalarType dtype = element_type(type, options);
  checked_device_slot(options.device());
  Dims contiguous(sizes.size());
  contiguous_strides(sizes.data(), static_cast<int>(sizes.size()), contiguous.data());
  const IntList steps = strides.has_value() ? *strides : as_list(contiguous);
  const uint64_t bytes = bytes_of(sizes, steps, dtype);
  if (data == nullptr && bytes != 0) {
    fail(ErrorCode::kValue, "[from_blob] the memory is a null pointer, but sizes ",
         shape_str(sizes), " have elements");
  }
  // Kernels compute addresses from that of the first element, also where there is none.
  alignas(64) static char nothing[64];
  void* const memory = const_cast<void*>(data);
  const bool released = deleter != nullptr;
  Storage* const storage =
      wrap_storage(options.device(), memory != nullptr ? memory : nothing, bytes,
                   released ? run_release : nullptr,
                   released ? new Release{std::move(deleter), memory} : nullptr);
  Tensor result = Tensor::adopt(new_tensor_over(storage, sizes, steps, dtype, 0));
  result.impl()->read_only = read_only;
  // The memory is the caller's, pinned or not.
  if (options.requires_grad()) result.requires_grad_();
  return result;
}

}  // namespace mytorch::detail
