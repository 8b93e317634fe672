// The registration functions of the files of kernels. Each appends the file's kernels; backend.cpp
// lists all of them.
#pragma once

#include <vector>

#include "mytorch/backend.h"

namespace mytorch::onednn {

using KernelEntries = std::vector<mt_kernel_entry>;

void register_matrix(KernelEntries& kernels);
void register_linear(KernelEntries& kernels);
void register_convolution(KernelEntries& kernels);
void register_batch_norm(KernelEntries& kernels);
void register_layer_norm(KernelEntries& kernels);
void register_pooling(KernelEntries& kernels);
void register_gelu(KernelEntries& kernels);
void register_copy(KernelEntries& kernels);

// Priorities before and after the kernels of cpu-openmp, whose priority is 0. Kernels are first for
// calls in which oneDNN was measured to be faster; otherwise a pin or a measured choice takes them.
inline constexpr int kFirst = 10;
inline constexpr int kLast = -10;

// Registers one function twice: as "onednn_large", the first choice for calls in which `pays` says
// that oneDNN is faster, and as "onednn", the last choice for other calls. `reason` says why
// neither supports a call.
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
