#include "mytorch/storage.h"

#include <new>

#include "core/runtime/cpu_block.h"
#include "core/runtime/cpu_pool.h"
#include "core/runtime/device_registry.h"
#include "core/types/errors.h"
#include "mytorch/thread_state.h"

namespace mytorch {
namespace {

// Ids are taken in blocks, so that making a tensor touches no shared line.
uint64_t next_storage_id() {
  constexpr uint64_t kBlock = 1 << 16;
  static std::atomic<uint64_t> next_block{1};
  thread_local constinit uint64_t next = 0;
  if (next % kBlock == 0) next = next_block.fetch_add(1, std::memory_order_relaxed) * kBlock;
  return next++;
}

void destroy_on_device(Storage* storage) {
  const DeviceType& type = device_type(storage->device_slot);
  mt_ctx* ctx = context(storage->device_slot, {storage->device.type, storage->device.index});
  type.ops->release(type.self, storage->device.index, storage->data, storage->bytes, ctx->stream);
  delete storage;
}

struct WrappedStorage : Storage {
  void (*release)(void*) = nullptr;
  void* context = nullptr;
};

void destroy_wrapped(Storage* storage) {
  auto* wrapped = static_cast<WrappedStorage*>(storage);
  if (wrapped->release != nullptr) wrapped->release(wrapped->context);
  delete wrapped;
}

void destroy_cpu(Storage* storage) { cpu_pool::release(storage, storage->size_class); }

[[noreturn]] void fail_out_of_memory(Device device, uint64_t bytes, const std::string& detail) {
  fail(ErrorCode::kOutOfMemory, "[allocate] ", device.str(), " has no ", bytes, " bytes left",
       detail, ": use smaller tensors or batches, or free some");
}

}  // namespace

Storage* allocate_cpu_block(Device device, size_t between, uint64_t bytes) {
  constexpr size_t kLine = 64;
  const size_t front = (sizeof(Storage) + between + kLine - 1) / kLine * kLine;
  uint16_t size_class = 0;
  void* block = cpu_pool::allocate(front + bytes, &size_class);
  if (block == nullptr) [[unlikely]] {
    fail_out_of_memory(device, bytes,
                       absl::StrCat(" (", cpu_pool::stats().large_in_use, " in use)"));
  }
  auto* storage = new (block) Storage;
  storage->abi.id = next_storage_id();
  storage->size_class = size_class;
  storage->device = device;
  storage->data = static_cast<char*>(block) + front;
  storage->bytes = bytes;
  storage->destroy = destroy_cpu;
  return storage;
}

Storage* allocate_storage(Device device, int device_slot, uint64_t bytes) {
  if (device_slot == kCpuSlot) return allocate_cpu_block(device, 0, bytes);
  const DeviceType& type = device_type(device_slot);
  mt_ctx* ctx = context(device_slot, {device.type, device.index});
  void* data = type.ops->allocate(type.self, device.index, bytes, ctx->stream);
  if (data == nullptr && bytes != 0) fail_out_of_memory(device, bytes, "");
  auto* storage = new Storage;
  storage->abi.id = next_storage_id();
  storage->device_slot = static_cast<uint16_t>(device_slot);
  storage->device = device;
  storage->data = data;
  storage->bytes = bytes;
  storage->destroy = destroy_on_device;
  return storage;
}

Storage* wrap_storage(Device device, void* data, uint64_t bytes, void (*release)(void*),
                      void* context) {
  auto* storage = new WrappedStorage;
  storage->abi.id = next_storage_id();
  storage->abi.flags = MT_STORAGE_ESCAPED;  // the caller may write to it behind our back
  storage->device_slot = static_cast<uint16_t>(device_slot(device.type));
  storage->device = device;
  storage->data = data;
  storage->bytes = bytes;
  storage->destroy = destroy_wrapped;
  storage->release = release;
  storage->context = context;
  return storage;
}

}  // namespace mytorch
