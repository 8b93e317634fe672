// In place of the library's kernels in a build without it: they decline and say why.
#if !__has_include(<cufft.h>)

#include "backends/cuda/registry.h"
#include "mytorch/abi_ops/_fft_c2c.h"
#include "mytorch/abi_ops/_fft_c2r.h"
#include "mytorch/abi_ops/_fft_r2c.h"
#include "mytorch/backend.h"

namespace mytorch::cuda {
namespace {

template <class Args>
void decline_transform(mt_ctx& /*ctx*/, const Args& /*args*/) {
  throw sdk::Declined{};
}
template <class Args>
const char* no_transform(const Args& /*args*/) {
  return "the backend was built without cuFFT";
}
template <class Args>
void push_declined(KernelEntries& kernels) {
  kernels.push_back(sdk::kernel<&decline_transform<Args>, &no_transform<Args>>(
      "cufft", MT_TAKES_STRIDED | MT_TAKES_COMPLEX));
}

}  // namespace

void register_fourier(KernelEntries& kernels) {
  push_declined<mt_args__fft_c2c>(kernels);
  push_declined<mt_args__fft_r2c>(kernels);
  push_declined<mt_args__fft_c2r>(kernels);
}

}  // namespace mytorch::cuda

#endif
