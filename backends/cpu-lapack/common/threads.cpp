#include "backends/cpu-lapack/common/threads.h"

#include <string>

extern "C" {
int openblas_get_parallel(void);  // 0: one thread, 1: its own threads, 2: OpenMP
char* openblas_get_config(void);
int openblas_get_num_threads(void);
void openblas_set_num_threads(int);
}

namespace mytorch::lapack {

bool runs_on_openmp() {
  static const bool runs = [] {
    const bool openmp = openblas_get_parallel() == 2;
    if (!openmp) openblas_set_num_threads(1);
    return openmp;
  }();
  return runs;
}

bool runs_on_host() {
  // A loop of a library's call reaches the functions that `arrives` counts as this one does.
  static const bool runs = runs_on_openmp() && sdk::openmp::arrives([] {
                             openblas_set_num_threads(openblas_get_num_threads());
                           });
  return runs;
}

std::mutex& many_threads() {
  static auto* const mutex = new std::mutex;  // never destroyed: kernels may run until the end
  return *mutex;
}

const char* describe_library() {
  static const std::string text = std::string("LAPACK over ") + openblas_get_config() +
                                  (runs_on_host()     ? ", on the host's threads"
                                   : runs_on_openmp() ? ", on libgomp's threads"
                                                      : ", one thread for each matrix");
  return text.c_str();
}

}  // namespace mytorch::lapack
