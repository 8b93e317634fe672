#include <cuda_runtime.h>

#include "bench/cuda/launch.h"

namespace {

struct Parameters {
  int64_t words[12];
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

}  // namespace

void launch_nothing() { nothing<<<1, 128, 0, stream()>>>(Parameters{}); }
void wait_for_nothing() { cudaStreamSynchronize(stream()); }
