// Compilation of CUDA C++ to machine code with NVRTC. Needs no GPU.
#pragma once

#include <string>
#include <string_view>

namespace mytorch::cuda {

// The source text with which generated kernels begin: prelude.cuh, node_ops.cuh and operands.cuh as
// one, then complex.cuh or folds.cuh.
extern const std::string_view kPrelude;
extern const std::string_view kComplex;
extern const std::string_view kFolds;

// Compiles a text for a compute capability, 90 for 9.0. Returns a cubin, or PTX for devices newer
// than this NVRTC. Throws Error(MT_ERROR_INTERNAL) with NVRTC's log.
std::string compile(const std::string& text, int capability);
// Like compile(), with a cache on disk: the folder MYTORCH_CACHE, or $XDG_CACHE_HOME/mytorch, or
// ~/.cache/mytorch, and the kernels compiled ahead of time (tools/cuda_ahead) in
// lib/mytorch/cuda. A damaged entry is compiled again. If the folder cannot be written, nothing is
// cached.
std::string compile_cached(const std::string& text, int capability);
// Compiles an entry again that the driver rejected.
void forget(const std::string& text, int capability);
// Compiles a text into `folder`, unless it has a valid entry for it.
void compile_ahead(const std::string& text, int capability, const std::string& folder);

}  // namespace mytorch::cuda
