#include "mytorch/dlpack.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/runtime/context.h"
#include "core/runtime/device_registry.h"
#include "core/tensor/batched.h"
#include "core/tensor/capture_layer.h"
#include "core/types/checked.h"
#include "core/types/dims.h"
#include "core/types/errors.h"
#include "mytorch/ops/clone.h"
#include "mytorch/ops/contiguous.h"
#include "mytorch/ops/flip.h"
#include "mytorch/ops/squeeze.h"
#include "mytorch/ops/to.h"
#include "mytorch/ops/view.h"
#include "mytorch/tensor_impl.h"
#include "mytorch/tensor_values.h"
#include "ops/dlpack.h"

namespace mytorch {
namespace dlpack {
namespace {

constexpr uint32_t kMajor = 1, kMinor = 0;
constexpr uint64_t kReadOnly = 1, kCopied = 2;
constexpr int32_t kCudaHost = 3, kCudaManaged = 13;  // device types

// ---- export ----

template <class Managed>
struct Holder {
  Managed managed{};
  Tensor tensor;
  std::vector<int64_t> dims;  // sizes, then strides, which the tensor may change (set_data)
};

template <class Managed>
Managed* held(const Tensor& tensor, void* data) {
  auto holder = std::make_unique<Holder<Managed>>();
  const TensorImpl& impl = *tensor.impl();
  const auto ndim = static_cast<size_t>(impl.abi.dl.ndim);
  holder->tensor = tensor.detach();  // of the memory, which set_data takes from the tensor
  holder->dims.resize(2 * ndim);
  int64_t* const sizes = holder->dims.data();
  int64_t* const strides = sizes + ndim;
  std::copy(impl.sizes().begin(), impl.sizes().end(), sizes);
  // Some consumers read strides that mean nothing.
  contiguous_strides(sizes, impl.abi.dl.ndim, strides);
  for (size_t d = 0; d < ndim; ++d) {
    if (impl.numel > 0 && sizes[d] > 1) strides[d] = impl.strides()[d];
  }
  holder->managed.dl_tensor = {.data = data,
                               .device = impl.abi.dl.device,
                               .ndim = impl.abi.dl.ndim,
                               .dtype = impl.abi.dl.dtype,
                               .shape = sizes,
                               .strides = strides,
                               .byte_offset = 0};
  holder->managed.manager_ctx = holder.get();
  holder->managed.deleter = [](Managed* self) {
    delete static_cast<Holder<Managed>*>(self->manager_ctx);
  };
  return &holder.release()->managed;
}

// Has a stream of the tensor's device wait for this thread's; if it is null, the host.
void let_wait(const Tensor& tensor, void* stream) {
  const TensorImpl& impl = *tensor.impl();
  if (impl.device().is_cpu()) return;
  const DeviceType& type = device_type(impl.device_slot);
  if (type.ops->create_stream == nullptr) return;  // its work is done when it returns
  const int32_t index = impl.device().index;
  void* const own = context(impl.device_slot, impl.abi.dl.device)->stream;
  if (stream == own) return;
  int status = MT_OK;
  if (stream == nullptr) {
    status = type.ops->synchronize(type.self, index, own);
  } else {
    void* const event = type.ops->record_event(type.self, index, own);
    status = type.ops->wait_event(type.self, index, stream, event);
    type.ops->destroy_event(type.self, event);
  }
  if (status != MT_OK) {
    fail(ErrorCode::kDevice, "[to_dlpack] the stream cannot wait for ", tensor.device().str(), ": ",
         take_host_error());
  }
}

struct Exported {
  Tensor tensor;
  void* data;
  bool read_only, copied;
};

Exported exported(const Tensor& given, const DlpackOptions& options) {
  const char* const op = "to_dlpack";
  const Device from = given.device();  // throws if it is undefined
  check_not_batched(given, op);
  if (given.requires_grad()) {
    fail(ErrorCode::kValue, "[", op,
         "] the tensor requires a gradient, of which its consumer would know nothing: export "
         "x.detach()");
  }
  const Device to = options.device.value_or(from);
  if (to != from && options.copy == false) {
    fail(ErrorCode::kValue, "[", op, "] the tensor is on ", from.str(), ", and cannot be used on ",
         to.str(), " without a copy: leave `copy` out");
  }
  Exported result{given, nullptr, false, to != from || options.copy.value_or(false)};
  if (result.copied) {
    result.tensor = to != from ? mytorch::to(given, to, given.dtype()) : mytorch::clone(given);
  }
  const TensorImpl& impl = *result.tensor.impl();
  result.read_only = impl.read_only;
  if (result.read_only) check_host_access(result.tensor, op);
  result.data = impl.read_only ? impl.abi.dl.data : result.tensor.raw_mutable_data();
  if (to.type >= MT_DEVICE_DYNAMIC) {
    fail(ErrorCode::kDevice, "[", op, "] DLPack has no code for devices like ", to.str(),
         ": export a copy on the CPU, {.device = kCPU}");
  }
  if (options.stream.has_value()) let_wait(result.tensor, *options.stream);
  return result;
}

// ---- import ----

const char* device_name(int32_t type) {
  switch (type) {
    case 4:
      return "OpenCL";
    case 7:
      return "Vulkan";
    case 8:
      return "Metal";
    case 10:
      return "ROCm";
    case 14:
      return "oneAPI";
    case 15:
      return "WebGPU";
    default:
      return "another";
  }
}

Device device_of(const mt_dltensor& from) {
  Device device{from.device.type, from.device.index};
  if (device.type == kCudaHost || device.is_cpu()) return kCPU;
  if (device.type == kCudaManaged) device.type = MT_DEVICE_CUDA;
  const int count = device_count(device.type);
  if (count == 0 && device.type != MT_DEVICE_CUDA) {
    fail(ErrorCode::kDevice, "[from_dlpack] the elements are on ", device_name(device.type),
         " device (DLPack's type ", device.type,
         "), which no loaded backend serves: copy them to the CPU first");
  }
  if (device.index < 0 || device.index >= count) {
    fail(ErrorCode::kDevice, "[from_dlpack] the elements are on ", device.str(), ", and there are ",
         count, " such devices");
  }
  return device;
}

ScalarType type_of(mt_dtype dtype) {
  if (dtype.lanes == 1) {
    for (int i = 0; i < kNumScalarTypes; ++i) {
      if (same_dtype(detail::kDtypes[i].abi, dtype)) return static_cast<ScalarType>(i);
    }
  }
  static constexpr const char* kNames[] = {"int",    "uint",    "float", "opaque",
                                           "bfloat", "complex", "bool"};
  const std::string name =
      dtype.code < std::size(kNames)
          ? absl::StrCat(kNames[dtype.code], int{dtype.bits})
          : absl::StrCat(int{dtype.bits}, " bits with DLPack's code ", int{dtype.code});
  fail(ErrorCode::kType, "[from_dlpack] the elements are ", name,
       dtype.lanes == 1 ? "" : absl::StrCat(" in vectors of ", int{dtype.lanes}),
       ", which tensors cannot have: convert them first");
}

// The array that a producer describes, with strides that are not negative.
struct Layout {
  char* data = nullptr;
  Dims sizes, strides;
  std::vector<int64_t> reversed;  // dimensions whose strides were negative
};

Layout layout_of(const mt_dltensor& from, ScalarType dtype) {
  if (from.ndim < 0 || from.ndim > MT_MAX_DIMS || (from.ndim > 0 && from.shape == nullptr)) {
    fail(ErrorCode::kShape, "[from_dlpack] an array of ", from.ndim, " dimensions",
         from.shape == nullptr ? " without sizes" : "", ": there may be ", int{MT_MAX_DIMS});
  }
  const auto ndim = static_cast<size_t>(from.ndim);
  Layout layout;
  if (ndim > 0) layout.sizes.assign(from.shape, from.shape + ndim);
  for (const int64_t size : layout.sizes) {
    if (size < 0) {
      fail(ErrorCode::kShape, "[from_dlpack] sizes ", shape_str(as_list(layout.sizes)),
           " must not be negative");
    }
  }
  const int64_t elements = checked_product(as_list(layout.sizes), "from_dlpack");
  layout.strides.resize(ndim);
  contiguous_strides(layout.sizes.data(), from.ndim, layout.strides.data());
  if (elements == 0) return layout;
  if (from.data == nullptr) {
    fail(ErrorCode::kValue, "[from_dlpack] the memory is a null pointer, but sizes ",
         shape_str(as_list(layout.sizes)), " have elements");
  }
  layout.data = static_cast<char*>(from.data) + from.byte_offset;
  Wide reach = 0;
  for (size_t d = 0; d < ndim && from.strides != nullptr; ++d) {
    const int64_t last = layout.sizes[d] - 1;
    if (last == 0) continue;
    const Wide bytes = Wide{from.strides[d]} * last * element_size(dtype);
    reach += bytes < 0 ? -bytes : bytes;
    if (reach > kMaxExtent) {
      fail(ErrorCode::kShape, "[from_dlpack] sizes ", shape_str(as_list(layout.sizes)),
           " and strides ", shape_str({from.strides, ndim}), " reach beyond any memory");
    }
    layout.strides[d] = std::abs(from.strides[d]);
    if (bytes >= 0) continue;
    layout.data += static_cast<int64_t>(bytes);
    layout.reversed.push_back(static_cast<int64_t>(d));
  }
  return layout;
}

bool is_aligned(const void* data, ScalarType dtype) {
  const int64_t size = is_complex(dtype) ? element_size(dtype) / 2 : element_size(dtype);
  return reinterpret_cast<uintptr_t>(data) % static_cast<uintptr_t>(size) == 0;
}

// Returns a copy of elements whose memory is not aligned for their type: the copy of their bytes.
Tensor aligned_copy(const Layout& layout, ScalarType dtype, detail::Deleter deleter,
                    const TensorOptions& options) {
  const int64_t bytes = element_size(dtype);
  Dims sizes = layout.sizes, strides = layout.strides;
  for (int64_t& stride : strides) stride *= bytes;
  sizes.push_back(bytes);
  strides.push_back(1);
  const Tensor elements = detail::wrap_memory(layout.data, true, kUInt8, as_list(sizes),
                                              as_list(strides), std::move(deleter), options);
  const Tensor copied = mytorch::contiguous(mytorch::clone(elements));
  return mytorch::squeeze(mytorch::view(copied, dtype), -1).detach();
}

template <class Managed>
std::shared_ptr<Managed> owned(Managed* managed) {
  return {managed, release<Managed>};
}

}  // namespace

Tensor tensor_over(const mt_dltensor& from, std::shared_ptr<void> owner, bool read_only,
                   std::optional<bool> copy) {
  const ScalarType dtype = type_of(from.dtype);
  const Device device = device_of(from);
  const Layout layout = layout_of(from, dtype);
  const bool aligned = is_aligned(layout.data, dtype);
  if (copy == false && (!aligned || !layout.reversed.empty())) {
    fail(ErrorCode::kValue, "[from_dlpack] the elements ",
         aligned ? "have negative strides" : "are not aligned",
         ", so that they cannot be used without a copy: leave `copy` out, or copy them first");
  }
  const auto options = TensorOptions().device(device);
  const auto release = [owner = std::move(owner), device](void*) {
    if (device.is_cpu()) return;
    const int slot = device_slot(device.type);
    const DeviceType& type = device_type(slot);
    if (type.ops->create_stream == nullptr) return;
    // The producer may use the memory again at once.
    void* const stream = context(slot, {device.type, device.index})->stream;
    type.ops->synchronize(type.self, device.index, stream);
  };
  Tensor result = aligned
                      ? detail::wrap_memory(layout.data, read_only, dtype, as_list(layout.sizes),
                                            as_list(layout.strides), release, options)
                      : aligned_copy(layout, dtype, release, options);
  if (!layout.reversed.empty()) return mytorch::flip(result, layout.reversed);
  return aligned && copy == true ? mytorch::clone(result) : result;
}

}  // namespace dlpack

DLManagedTensorVersioned* to_dlpack(const Tensor& tensor, const DlpackOptions& options) {
  const dlpack::Exported given = dlpack::exported(tensor, options);
  auto* const managed = dlpack::held<dlpack::Versioned>(given.tensor, given.data);
  managed->major = dlpack::kMajor;
  managed->minor = dlpack::kMinor;
  managed->flags = (given.read_only ? dlpack::kReadOnly : 0) | (given.copied ? dlpack::kCopied : 0);
  return reinterpret_cast<DLManagedTensorVersioned*>(managed);
}

DLManagedTensor* to_dlpack_unversioned(const Tensor& tensor, const DlpackOptions& options) {
  const dlpack::Exported given = dlpack::exported(tensor, options);
  if (given.read_only) {
    fail(ErrorCode::kValue,
         "[to_dlpack_unversioned] the tensor is over `const` memory, which a consumer older than "
         "DLPack 1.0 might write: ask for a copy, {.copy = true}");
  }
  return reinterpret_cast<DLManagedTensor*>(
      dlpack::held<dlpack::Unversioned>(given.tensor, given.data));
}

Tensor from_dlpack(DLManagedTensorVersioned* managed, std::optional<bool> copy) {
  auto owner = dlpack::owned(reinterpret_cast<dlpack::Versioned*>(managed));
  if (owner->major != dlpack::kMajor) {
    fail(ErrorCode::kUnsupported, "[from_dlpack] the producer uses version ", owner->major, ".",
         owner->minor, " of DLPack, and this consumer 1: ask for max_version 1");
  }
  const bool read_only = (owner->flags & dlpack::kReadOnly) != 0;
  const mt_dltensor& from = owner->dl_tensor;
  return dlpack::tensor_over(from, std::move(owner), read_only, copy);
}

Tensor from_dlpack(DLManagedTensor* managed, std::optional<bool> copy) {
  auto owner = dlpack::owned(reinterpret_cast<dlpack::Unversioned*>(managed));
  const mt_dltensor& from = owner->dl_tensor;
  return dlpack::tensor_over(from, std::move(owner), /*read_only=*/false, copy);
}

}  // namespace mytorch
