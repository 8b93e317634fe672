#include "backends/cpu-lapack/common/processor.h"

#include <cstdlib>
#include <string_view>

// Of builds for several processors (DYNAMIC_ARCH).
extern "C" {
extern void* gotoblas __attribute__((weak));  // the kernels in use
void gotoblas_dynamic_init(void) __attribute__((weak));
char* openblas_get_corename(void) __attribute__((weak));
}

namespace mytorch::lapack {

void know_processor() {
#if defined(__x86_64__)
  constexpr const char* kChoice = "OPENBLAS_CORETYPE";
  if (&gotoblas == nullptr || gotoblas_dynamic_init == nullptr ||
      openblas_get_corename == nullptr || std::getenv(kChoice) != nullptr) {
    return;
  }
  if (std::string_view(openblas_get_corename()) != "Prescott") return;
  if (__builtin_cpu_supports("avx2") == 0 || __builtin_cpu_supports("fma") == 0) return;
  const bool wide =
      __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512dq") != 0 &&
      __builtin_cpu_supports("avx512bw") != 0 && __builtin_cpu_supports("avx512vl") != 0;
  setenv(kChoice, wide ? "SkylakeX" : "Haswell", 1);
  void* const before = gotoblas;
  gotoblas = nullptr;  // as gotoblas_dynamic_quit() does
  gotoblas_dynamic_init();
  if (gotoblas == nullptr) gotoblas = before;
  unsetenv(kChoice);
#endif
}

}  // namespace mytorch::lapack
