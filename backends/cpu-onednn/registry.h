// Where kernel files hand in their kernels. A file of kernels defines one function, declared
// here and listed in backend.cpp; it appends what it has.
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

// Asked before the ordinary kernels of cpu-openmp, whose priority is 0, where oneDNN was measured
// to be faster; after them elsewhere, where a pin or a measured choice takes them.
inline constexpr int kFirst = 10;
inline constexpr int kLast = -10;

// Registers one function twice: "onednn_large", asked first, of the calls for which `pays` says
// that oneDNN is faster, and "onednn", asked last, of the others. `reason` says why neither takes a
// call.
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
