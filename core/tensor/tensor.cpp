#include "mytorch/tensor.h"

#include <algorithm>
#include <cstring>

#include "core/runtime/device_registry.h"
#include "core/types/errors.h"
#include "mytorch/thread_state.h"

namespace mytorch {

void Tensor::fail_undefined() {
  fail(ErrorCode::kValue,
       "[tensor] the Tensor is undefined: it was default-constructed, moved from, or represents an "
       "absent "
       "result (such as a gradient before backward()); check defined() first");
}

int64_t Tensor::size(int64_t dim) const {
  return checked()->abi.dl.shape[wrap_dim(dim, impl_->abi.dl.ndim, "size")];
}

int64_t Tensor::stride(int64_t dim) const {
  return checked()->abi.dl.strides[wrap_dim(dim, impl_->abi.dl.ndim, "stride")];
}

const void* Tensor::const_data_checked(ScalarType type) const {
  if (checked()->dtype != type) {
    fail(ErrorCode::kType, "[data] the tensor holds ", dtype_name(impl_->dtype), ", not ",
         dtype_name(type), ": convert it with to(", dtype_name(type), ")");
  }
  return impl_->abi.dl.data;
}

void* Tensor::data_checked(ScalarType type) const {
  const_data_checked(type);
  return raw_mutable_data();
}

void* Tensor::raw_mutable_data() const {
  checked()->storage->abi.flags |= MT_STORAGE_ESCAPED;
  return impl_->abi.dl.data;
}

indexing::TensorIndex::TensorIndex(const char* text) : kind_(kEllipsis) {
  if (std::strcmp(text, "...") != 0) {
    fail(ErrorCode::kValue, "[index] \"", text, "\" is no index: the only text is \"...\"");
  }
}

namespace {

template <class T>
Tensor from_values(const T* values, size_t n) {
  const int64_t size = static_cast<int64_t>(n);
  Tensor result = Tensor::adopt(new_tensor(&size, 1, scalar_type_of<T>(), kCPU, kCpuSlot));
  if (n != 0) std::memcpy(result.impl()->abi.dl.data, values, n * sizeof(T));
  return result;
}

template <class T>
void store(void* to, const double* from, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    if constexpr (std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>) {
      static_cast<T*>(to)[i] = T(static_cast<float>(from[i]));
    } else if constexpr (std::is_same_v<T, bool>) {
      static_cast<T*>(to)[i] = from[i] != 0;
    } else {
      static_cast<T*>(to)[i] = static_cast<T>(from[i]);
    }
  }
}

void store(ScalarType type, void* to, const double* from, int64_t n) {
  switch (type) {
    case kBool:
      return store<bool>(to, from, n);
    case kUInt8:
      return store<uint8_t>(to, from, n);
    case kInt8:
      return store<int8_t>(to, from, n);
    case kInt16:
      return store<int16_t>(to, from, n);
    case kInt32:
      return store<int32_t>(to, from, n);
    case kInt64:
      return store<int64_t>(to, from, n);
    case kFloat16:
      return store<Half>(to, from, n);
    case kBFloat16:
      return store<BFloat16>(to, from, n);
    case kFloat32:
      return store<float>(to, from, n);
    case kFloat64:
      return store<double>(to, from, n);
  }
}

Tensor from_doubles(const double* values, int64_t n, ScalarType dtype) {
  Tensor result = Tensor::adopt(new_tensor(&n, 1, dtype, kCPU, kCpuSlot));
  store(dtype, result.impl()->abi.dl.data, values, n);
  return result;
}

void run_release(void* context) {
  auto* release = static_cast<std::function<void()>*>(context);
  (*release)();
  delete release;
}

}  // namespace

Tensor tensor(std::initializer_list<double> values, ScalarType dtype) {
  return from_doubles(values.begin(), static_cast<int64_t>(values.size()), dtype);
}
Tensor tensor(const std::vector<float>& values) {
  return from_values(values.data(), values.size());
}
Tensor tensor(const std::vector<double>& values, ScalarType dtype) {
  return from_doubles(values.data(), static_cast<int64_t>(values.size()), dtype);
}
Tensor tensor(const std::vector<int64_t>& values) {
  return from_values(values.data(), values.size());
}

Tensor from_blob(void* data, IntList sizes, ScalarType dtype, Device device,
                 OptionalIntList strides, std::function<void()> release) {
  checked_device_slot(device);
  std::vector<int64_t> contiguous(sizes.size());
  contiguous_strides(sizes.data(), static_cast<int>(sizes.size()), contiguous.data());
  const IntList steps = strides.has_value() ? *strides : IntList(contiguous);
  if (steps.size() != sizes.size()) {
    fail(ErrorCode::kShape, "[from_blob] ", sizes.size(), " sizes but ", steps.size(),
         " strides: give one stride for each size");
  }
  int64_t last = 0;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] < 0 || steps[i] < 0) {
      fail(ErrorCode::kShape, "[from_blob] sizes ", shape_str(sizes), " and strides ",
           shape_str(steps), " must not be negative");
    }
    last += std::max<int64_t>(sizes[i] - 1, 0) * steps[i];
  }
  const uint64_t bytes = count(sizes) == 0 ? 0 : (last + 1) * mytorch::element_size(dtype);
  Storage* storage = release != nullptr
                         ? wrap_storage(device, data, bytes, run_release,
                                        new std::function<void()>(std::move(release)))
                         : wrap_storage(device, data, bytes, nullptr, nullptr);
  return Tensor::adopt(new_tensor_over(storage, sizes, steps, dtype, 0));
}

}  // namespace mytorch
