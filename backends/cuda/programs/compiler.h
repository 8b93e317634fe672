// From CUDA C++ to machine code, through NVRTC. Needs no GPU.
#pragma once

#include <string>
#include <string_view>

namespace mytorch::cuda {

// The text that generated kernels begin with.
extern const std::string_view kPrelude;
extern const std::string_view kFolds;

// The machine code of a text for a compute capability, 90 for 9.0 (PTX for devices newer than this
// NVRTC). Throws
// Error(MT_ERROR_INTERNAL) with NVRTC's words.
std::string compile(const std::string& text, int capability);
// The same, through the cache on disk: the folder that MYTORCH_CACHE names, or
// $XDG_CACHE_HOME/mytorch, or ~/.cache/mytorch, and what was compiled ahead of time
// (tool/ahead.cpp), which lies in mytorch/cuda beside mytorch/backends. A damaged entry is compiled
// again; where the folder cannot be written, everything is.
std::string compile_cached(const std::string& text, int capability);
// Takes an entry away that the driver refuses.
void forget(const std::string& text, int capability);
// Compiles into a folder, where there is no whole entry yet.
void compile_ahead(const std::string& text, int capability, const std::string& folder);

}  // namespace mytorch::cuda
