// The BLAS that a program actually runs on. libtorch takes its matrix products from the system's
// `libblas.so.3`, and this choice alone changes the time of `mm` tenfold, so every measurement
// names its BLAS.
#pragma once

#include <dlfcn.h>

#include <cstdlib>
#include <string>

// Returns the resolved path of the library that `sgemm_` is bound to, or "none" if no BLAS is
// loaded.
inline std::string blas_library() {
  void* sgemm = dlsym(RTLD_DEFAULT, "sgemm_");
  Dl_info info;
  if (sgemm == nullptr || dladdr(sgemm, &info) == 0) return "none";
  char* resolved = realpath(info.dli_fname, nullptr);
  if (resolved == nullptr) return info.dli_fname;
  std::string path(resolved);
  std::free(resolved);
  return path;
}
