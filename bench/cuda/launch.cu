#include <cuda.h>
#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>

#include "bench/cuda/launch.h"

namespace {

struct Parameters {
  int64_t words[5];
};

__global__ void nothing(Parameters p) {
  if (p.words[0] == 1) __trap();
}

cudaStream_t stream() {
  static cudaStream_t const made = [] {
    cudaStream_t s = nullptr;
    cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking);
    return s;
  }();
  return made;
}

void expect(bool fits) {
  if (fits) return;
  std::fprintf(stderr, "no bare launch: %s\n", cudaGetErrorString(cudaGetLastError()));
  std::exit(1);
}

struct Driver {
  decltype(&cuLaunchKernel) launch = nullptr;
  CUfunction function = nullptr;

  Driver() {
    void* found = nullptr;
    cudaDriverEntryPointQueryResult status = cudaDriverEntryPointSymbolNotFound;
#if CUDART_VERSION >= 12050
    cudaGetDriverEntryPointByVersion("cuLaunchKernel", &found, 12000, cudaEnableDefault, &status);
#else
    cudaGetDriverEntryPoint("cuLaunchKernel", &found, cudaEnableDefault, &status);
#endif
    expect(found != nullptr && status == cudaDriverEntryPointSuccess);
    launch = reinterpret_cast<decltype(launch)>(found);
    expect(cudaGetFuncBySymbol(&function, reinterpret_cast<const void*>(&nothing)) == cudaSuccess);
  }
};

}  // namespace

void launch_nothing() {
  static const Driver driver;
  Parameters parameters{};
  void* pointers[] = {&parameters};
  driver.launch(driver.function, 1, 1, 1, 128, 1, 1, 0, stream(), pointers, nullptr);
}
void launch_nothing_by_runtime() { nothing<<<1, 128, 0, stream()>>>(Parameters{}); }
void wait_for_nothing() { cudaStreamSynchronize(stream()); }
