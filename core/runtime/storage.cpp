#include "mytorch/storage.h"

#include <new>

#include "core/runtime/context.h"
#include "core/runtime/cpu_block.h"
#include "core/runtime/cpu_pool.h"
#include "core/runtime/device_registry.h"
#include "core/runtime/host_memory.h"
#include "core/types/errors.h"
#include "mytorch/thread_state.h"

namespace mytorch {
namespace {

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

[[noreturn]] void fail_out_of_memory(Device device, uint64_t bytes, const std::string& detail) {
  fail(ErrorCode::kOutOfMemory, "[allocate] ", device.str(), " cannot allocate ", bytes, " bytes",
       detail, ": use smaller tensors or batches, or free some");
}

}  // namespace

thread_local constinit uint64_t next_storage_id_ __attribute__((tls_model("initial-exec"))) = 0;

uint64_t first_storage_id_of_block() {
  static std::atomic<uint64_t> next_block{1};
  const uint64_t id = next_block.fetch_add(1, std::memory_order_relaxed) * kStorageIdBlock;
  next_storage_id_ = id + 1;
  return id;
}

void destroy_cpu_block(Storage* storage) { cpu_pool::release(storage, storage->size_class); }

void fail_cpu_memory(Device device, uint64_t bytes) {
  fail_out_of_memory(device, bytes,
                     absl::StrCat(" (", cpu_pool::stats().large_in_use, " in use, ",
                                  available_host_memory(), " available)"));
}

Storage* allocate_storage(Device device, int device_slot, uint64_t bytes) {
  if (device_slot == kCpuSlot) return allocate_cpu_block(device, 0, bytes).storage;
  const DeviceType& type = device_type(device_slot);
  mt_ctx* ctx = context(device_slot, {device.type, device.index});
  void* data = type.ops->allocate(type.self, device.index, bytes, ctx->stream);
  if (data == nullptr && bytes != 0) {
    const std::string why = take_host_error();
    fail_out_of_memory(device, bytes, why.empty() ? "" : absl::StrCat(" (", why, ")"));
  }
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
  storage->abi.flags = MT_STORAGE_ESCAPED;  // the caller may write to it without our knowledge
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
