#include "mytorch/device_memory.h"

#include "core/runtime/context.h"
#include "core/runtime/device_registry.h"
#include "core/types/checked.h"

namespace mytorch {
namespace {

// Returns the type of a device. Throws Error(kUnsupported) unless it provides the function that
// `has` tests for.
template <class Has>
const DeviceType& type_with(const char* what, Device device, Has&& has) {
  const DeviceType& type = device_type(checked_device_slot(device));
  if (type.ops == nullptr || !has(*type.ops)) {
    fail(ErrorCode::kUnsupported, "[", what, "] ", device.str(), " does not support this");
  }
  return type;
}

void check(int status, const char* what, Device device) {
  if (status == MT_OK) return;
  fail(static_cast<ErrorCode>(status), "[", what, "] ", device.str(), ": ", take_host_error());
}

}  // namespace

MemoryStats memory_stats(Device device) {
  const DeviceType& type = type_with(
      "memory_stats", device, [](const mt_device_ops& ops) { return ops.memory_stats != nullptr; });
  mt_memory_stats s{};
  s.size = sizeof(s);
  check(type.ops->memory_stats(type.self, device.index, &s), "memory_stats", device);
  return {s.allocated, s.allocated_peak, s.reserved, s.reserved_peak, s.largest_free,
          s.blocks,    s.segments,       s.retries,  s.failures};
}

std::string memory_summary(Device device) {
  const DeviceType& type = type_with("memory_summary", device, [](const mt_device_ops& ops) {
    return ops.memory_summary != nullptr;
  });
  std::string text(4096, '\0');
  for (;;) {
    const int64_t length =
        type.ops->memory_summary(type.self, device.index, text.data(), text.size());
    if (length < 0) {
      fail(ErrorCode::kInternal, "[memory_summary] ", device.str(), ": ", take_host_error());
    }
    const bool whole = static_cast<size_t>(length) < text.size();
    text.resize(static_cast<size_t>(length) + (whole ? 0 : 1));
    if (whole) return text;
  }
}

void empty_cache(Device device) {
  const DeviceType& type = type_with(
      "empty_cache", device, [](const mt_device_ops& ops) { return ops.empty_cache != nullptr; });
  check(type.ops->empty_cache(type.self, device.index), "empty_cache", device);
}

void reset_peak_memory(Device device) {
  const DeviceType& type = type_with("reset_peak_memory", device, [](const mt_device_ops& ops) {
    return ops.reset_peaks != nullptr;
  });
  check(type.ops->reset_peaks(type.self, device.index), "reset_peak_memory", device);
}

void synchronize(Device device) {
  const int slot = checked_device_slot(device);
  const DeviceType& type = device_type(slot);
  if (type.ops == nullptr || type.ops->synchronize == nullptr) return;  // synchronous device
  const mt_ctx* ctx = context(slot, {device.type, device.index});
  check(type.ops->synchronize(type.self, device.index, ctx->stream), "synchronize", device);
}

namespace {

struct PinnedBlock {
  const DeviceType* type;
  void* data;
  size_t bytes;
};

void release_pinned(void* context) {
  const auto* block = static_cast<const PinnedBlock*>(context);
  block->type->ops->release_pinned(block->type->self, block->data, block->bytes);
  delete block;
}

}  // namespace

Tensor empty_pinned(IntList sizes, ScalarType dtype, Device device) {
  const DeviceType& type = type_with("empty_pinned", device, [](const mt_device_ops& ops) {
    return ops.allocate_pinned != nullptr && ops.release_pinned != nullptr;
  });
  for (const int64_t size : sizes) {
    if (size < 0) {
      fail(ErrorCode::kShape, "[empty_pinned] shape ", shape_str(sizes), " has a negative size");
    }
  }
  const auto bytes =
      static_cast<size_t>(checked_product(sizes, "empty_pinned") * element_size(dtype));
  void* data = type.ops->allocate_pinned(type.self, bytes);
  if (data == nullptr && bytes != 0) {
    fail(ErrorCode::kOutOfMemory, "[empty_pinned] cannot pin ", bytes,
         " bytes of host memory: ", take_host_error());
  }
  Storage* storage =
      wrap_storage(kCPU, data, bytes, release_pinned, new PinnedBlock{&type, data, bytes});
  std::vector<int64_t> strides(sizes.size());
  contiguous_strides(sizes.data(), static_cast<int>(sizes.size()), strides.data());
  return Tensor::adopt(new_tensor_over(storage, sizes, {strides.data(), strides.size()}, dtype, 0));
}

}  // namespace mytorch
