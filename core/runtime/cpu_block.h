// A single block of host memory for all parts of a new tensor.
#pragma once

#include <new>

#include "core/runtime/cpu_pool.h"
#include "mytorch/storage.h"

namespace mytorch {

// Storage ids are reserved in blocks, so that creating a tensor writes no shared cache line.
inline constexpr uint64_t kStorageIdBlock = uint64_t{1} << 16;
// A multiple of kStorageIdBlock if the thread's block is used up.
extern thread_local constinit uint64_t next_storage_id_ __attribute__((tls_model("initial-exec")));
uint64_t first_storage_id_of_block();
inline uint64_t next_storage_id() {
  const uint64_t id = next_storage_id_;
  if (id % kStorageIdBlock == 0) [[unlikely]]
    return first_storage_id_of_block();
  next_storage_id_ = id + 1;
  return id;
}

void destroy_cpu_block(Storage* storage);
[[noreturn]] void fail_cpu_memory(Device device, uint64_t bytes);

struct CpuBlock {
  Storage* storage;
  void* data;
};

// Allocates one block for a Storage, `between` bytes directly after it for the caller (the tensor's
// header), and `bytes` of data, aligned to 64 bytes. The whole block is freed when the last
// reference to the storage is released. Throws Error(kOutOfMemory).
inline CpuBlock allocate_cpu_block(Device device, size_t between, uint64_t bytes) {
  constexpr size_t kLine = 64;
  const size_t front = (sizeof(Storage) + between + kLine - 1) / kLine * kLine;
  uint16_t size_class = 0;
  void* block = cpu_pool::allocate(front + bytes, &size_class);
  if (block == nullptr) [[unlikely]]
    fail_cpu_memory(device, bytes);
  void* const data = static_cast<char*>(block) + front;
  auto* storage = new (block) Storage;
  storage->abi.id = next_storage_id();
  storage->size_class = size_class;
  storage->device = device;
  storage->data = data;
  storage->bytes = bytes;
  storage->destroy = destroy_cpu_block;
  return {storage, data};
}

}  // namespace mytorch
