// Which BLAS a program really runs on. libtorch takes its matrix products from whatever
// `libblas.so.3` the system offers, and that choice alone moves `mm` tenfold: a figure without this
// name beside it says nothing.
#pragma once

#include <dlfcn.h>

#include <cstdlib>
#include <string>

// The resolved path of the library that `sgemm_` is bound to; "none" where no BLAS is loaded.
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
