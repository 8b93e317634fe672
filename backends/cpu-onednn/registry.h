// Where kernel files hand in their candidates. A file of kernels defines one function, declared
// here and listed in backend.cpp; it appends what it has.
#pragma once

#include <vector>

#include "mytorch/backend.h"

namespace mytorch::onednn {

using Candidates = std::vector<mt_candidate>;

void register_matrix(Candidates& candidates);
void register_linear(Candidates& candidates);
void register_convolution(Candidates& candidates);
void register_batch_norm(Candidates& candidates);
void register_layer_norm(Candidates& candidates);
void register_pooling(Candidates& candidates);
void register_gelu(Candidates& candidates);
void register_copy(Candidates& candidates);

// Asked before the ordinary kernels of cpu-openmp, whose priority is 0, where oneDNN was measured
// to be faster; after them elsewhere, where a pin or a measured choice takes them.
inline constexpr int kFirst = 10;
inline constexpr int kLast = -10;

// Two candidates with one kernel: "onednn_large", asked first, of the calls for which `pays` says
// that oneDNN is faster, and "onednn", asked last, of the others. `reason` says why neither takes a
// call.
template <auto reason, auto pays, bool kLarge, class Args>
const char* supports_half(const Args& args) {
  if (const char* why = reason(args)) return why;
  if (pays(args) == kLarge) return nullptr;
  return kLarge ? "cpu-openmp was measured to be faster" : "it is onednn_large's";
}
template <class Args, auto kernel, auto reason, auto pays>
void add_halves(Candidates& candidates, const char* op, uint64_t hash, uint32_t flags) {
  candidates.push_back(sdk::kernel<kernel, &supports_half<reason, pays, true, Args>>(
      op, hash, "onednn_large", kFirst, flags));
  candidates.push_back(sdk::kernel<kernel, &supports_half<reason, pays, false, Args>>(
      op, hash, "onednn", kLast, flags));
}

}  // namespace mytorch::onednn
