#include "backends/cuda/memory/virtual_memory.h"

#include <cuda.h>

#include "backends/cuda/runtime/capture.h"
#include "backends/cuda/runtime/driver.h"
#include "backends/cuda/runtime/launch.h"

namespace mytorch::cuda {
namespace {

struct Driver {
  decltype(&cuMemAddressReserve) reserve;
  decltype(&cuMemAddressFree) free;
  decltype(&cuMemCreate) create;
  decltype(&cuMemRelease) release;
  decltype(&cuMemMap) map;
  decltype(&cuMemUnmap) unmap;
  decltype(&cuMemSetAccess) set_access;

  Driver() {
    find_driver_function("cuMemAddressReserve", &reserve);
    find_driver_function("cuMemAddressFree", &free);
    find_driver_function("cuMemCreate", &create);
    find_driver_function("cuMemRelease", &release);
    find_driver_function("cuMemMap", &map);
    find_driver_function("cuMemUnmap", &unmap);
    find_driver_function("cuMemSetAccess", &set_access);
  }
};

const Driver& driver() {
  static const Driver all;
  return all;
}

void check(CUresult status, const char* what) {
  if (status == CUDA_SUCCESS) return;
  throw sdk::Error(MT_ERROR_INTERNAL,
                   std::string(what) + ": error " + std::to_string(static_cast<int>(status)));
}

size_t address_space(int32_t device) {
  use_device(device);
  constexpr size_t kUnit = size_t{2} << 20;
  size_t free = 0, total = 0;
  CUDA(cudaMemGetInfo(&free, &total));
  return (total + kUnit - 1) / kUnit * kUnit;
}

CUmemAllocationProp properties_of(int32_t device) {
  CUmemAllocationProp wanted{};
  wanted.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  wanted.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  wanted.location.id = device;
  return wanted;
}

}  // namespace

void* reserve_addresses(int32_t device) {
  CUdeviceptr base = 0;
  const CUresult status = driver().reserve(&base, address_space(device), 0, 0, 0);
  if (status == CUDA_ERROR_OUT_OF_MEMORY) return nullptr;
  check(status, "cuMemAddressReserve");
  return reinterpret_cast<void*>(base);
}

void free_addresses(int32_t device, void* base) {
  driver().free(reinterpret_cast<CUdeviceptr>(base), address_space(device));
}

// As with cudaMalloc, every GPU with peer access to the device may read and write the memory.
bool map_memory(int32_t device, void* at, size_t bytes) {
  use_device(device);
  const CUmemAllocationProp wanted = properties_of(device);
  CUmemGenericAllocationHandle memory = 0;
  CUresult status = driver().create(&memory, bytes, &wanted, 0);
  if (status == CUDA_ERROR_OUT_OF_MEMORY) return false;
  check(status, "cuMemCreate");
  const auto address = reinterpret_cast<CUdeviceptr>(at);
  status = driver().map(address, bytes, 0, memory, 0);
  driver().release(memory);  // the mapping keeps the memory alive
  check(status, "cuMemMap");
  int count = 0;
  CUDA(cudaGetDeviceCount(&count));
  for (int other = 0; other < count; ++other) {
    int reaches = other == device;
    if (!reaches) CUDA(cudaDeviceCanAccessPeer(&reaches, other, device));
    if (reaches == 0) continue;
    CUmemAccessDesc access{};
    access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    access.location.id = other;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    check(driver().set_access(address, bytes, &access, 1), "cuMemSetAccess");
  }
  return true;
}

bool unmap_memory(int32_t device, void* at, size_t bytes) {
  if (internal::captures.load() != 0) return false;
  use_device(device);
  CUDA(cudaDeviceSynchronize());
  check(driver().unmap(reinterpret_cast<CUdeviceptr>(at), bytes), "cuMemUnmap");
  return true;
}

}  // namespace mytorch::cuda
