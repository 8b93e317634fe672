// Prints the best instruction set of this processor, of those that cpu-openmp is compiled for.
#include <cstdio>

#include "hwy/targets.h"

int main() {
  const auto sets = hwy::SupportedTargets();
  std::printf("%s", (sets & HWY_AVX3) != 0 ? "AVX3" : (sets & HWY_AVX2) != 0 ? "AVX2" : "SCALAR");
}
