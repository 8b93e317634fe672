// The files of kernels, each of which defines register_NAME.
#pragma once

#include "mytorch/backend.h"
#include "mytorch/backend/registry.h"

#define MYTORCH_ONEDNN_FILES(FILE) \
  FILE(matrix)                     \
  FILE(linear)                     \
  FILE(convolution)                \
  FILE(batch_norm)                 \
  FILE(layer_norm)                 \
  FILE(pooling)                    \
  FILE(gelu)                       \
  FILE(copy)

namespace mytorch::onednn {

MYTORCH_KERNEL_FILES(MYTORCH_ONEDNN_FILES)

// Priorities before and after the kernels of cpu-openmp, whose priority is 0. Kernels are first for
// calls in which oneDNN was measured to be faster; otherwise a pin or a measured choice takes them.
inline constexpr int kFirst = 10;
inline constexpr int kLast = -10;

// Registers one function twice: as "onednn_large", the first choice for calls for which `pays`
// returns that oneDNN is faster, and as "onednn", the last choice for other calls. `reason` returns
// why neither supports a call.
template <auto reason, auto pays, bool kLarge, class Args>
const char* supports_half(const Args& args) {
  if (const char* why = reason(args)) return why;
  if (pays(args) == kLarge) return nullptr;
  return kLarge ? "cpu-openmp was measured to be faster" : "it is onednn_large's";
}
template <class Args, auto kernel, auto reason, auto pays>
void add_halves(KernelEntries& kernels, uint32_t flags) {
  kernels.push_back(
      sdk::kernel<kernel, &supports_half<reason, pays, true, Args>>("onednn_large", flags, kFirst));
  kernels.push_back(
      sdk::kernel<kernel, &supports_half<reason, pays, false, Args>>("onednn", flags, kLast));
}

}  // namespace mytorch::onednn
