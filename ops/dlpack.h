// DLPack's structs, and imports of memory that others describe by them.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "mytorch/abi.h"
#include "mytorch/tensor.h"

namespace mytorch::dlpack {

// The layouts of dlpack.h, which DLPack keeps. mt_dltensor is its DLTensor.
struct Unversioned {
  mt_dltensor dl_tensor;
  void* manager_ctx;
  void (*deleter)(Unversioned* self);
};
struct Versioned {
  uint32_t major, minor;
  void* manager_ctx;
  void (*deleter)(Versioned* self);
  uint64_t flags;
  mt_dltensor dl_tensor;
};

// Calls the deleter of a producer, which may have none.
template <class Managed>
void release(Managed* managed) {
  if (managed->deleter != nullptr) managed->deleter(managed);
}

// Returns a tensor over the memory that `from` describes and `owner` keeps; or a copy, as
// from_dlpack makes it.
Tensor tensor_over(const mt_dltensor& from, std::shared_ptr<void> owner, bool read_only,
                   std::optional<bool> copy);

}  // namespace mytorch::dlpack
