// The kernels of a backend that has them in many files, without static initializers (which a static
// library may drop). A file of kernels defines one function, which appends its entries:
//
//   void register_pooling(KernelEntries& kernels) {
//     kernels.push_back(sdk::kernel<&max_pool>("rows", MT_TAKES_STRIDED));
//   }
//
// The backend's registry.h lists these functions, once:
//
//   #define CHIP_FILES(FILE) FILE(pooling) FILE(matrix)
//   namespace mytorch::chip {
//   MYTORCH_KERNEL_FILES(CHIP_FILES)
//   }
//
// This declares them, KernelEntries, and all_kernels(), the kernels for fill_backend. A function
// that is missing from the list is never called.
#pragma once

#include <vector>

#include "mytorch/abi.h"

#define MYTORCH_DECLARE_FILE(name) void register_##name(KernelEntries& kernels);
#define MYTORCH_REGISTER_FILE(name) register_##name(*list);

#define MYTORCH_KERNEL_FILES(FILES)                   \
  using KernelEntries = std::vector<mt_kernel_entry>; \
  FILES(MYTORCH_DECLARE_FILE)                         \
  inline const KernelEntries& all_kernels() {         \
    static const KernelEntries* const entries = [] {  \
      auto* list = new KernelEntries;                 \
      FILES(MYTORCH_REGISTER_FILE)                    \
      return list;                                    \
    }();                                              \
    return *entries;                                  \
  }

// The former name, which 0.2 removes.
#define MYTORCH_KERNEL_FAMILIES(FILES) MYTORCH_KERNEL_FILES(FILES)
