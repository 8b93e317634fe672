// convolution and its gradients: cuDNN if it has an engine for the type and shape, else the direct
// kernel. Each operator is registered once for every proposal of the library, best guess first, so
// that measured choice (docs/choice.md) can find the fastest one for a shape.
#include "mytorch/abi_ops/convolution.h"

#include "backends/cuda/convolution/convolution.h"
#include "backends/cuda/registry.h"
#include "mytorch/abi_ops/convolution_backward_input.h"
#include "mytorch/abi_ops/convolution_backward_weight.h"
#include "mytorch/backend.h"

namespace mytorch::cuda {
namespace {

using sdk::TensorView;

void convolve(mt_ctx& ctx, const Convolution& call) {
  if (call.result().numel() == 0) return;
  if (convolve_cudnn(ctx, call)) return;
  if (call.rank > 0) throw sdk::Declined{};
  convolve_direct(ctx, call);
}

template <int kRank, class Args>
void convolution(mt_ctx& ctx, const Args& args) {
  convolve(ctx, Convolution(args, kRank));
}

template <int kRank>
void register_rank(KernelEntries& kernels, const char* name) {
  constexpr uint32_t kTakes = MT_TAKES_STRIDED;
  kernels.push_back(sdk::kernel<&convolution<kRank, mt_args_convolution>>(name, kTakes, -kRank));
  kernels.push_back(
      sdk::kernel<&convolution<kRank, mt_args_convolution_backward_input>>(name, kTakes, -kRank));
  kernels.push_back(
      sdk::kernel<&convolution<kRank, mt_args_convolution_backward_weight>>(name, kTakes, -kRank));
}

}  // namespace

void register_convolution(KernelEntries& kernels) {
  register_rank<0>(kernels, "cudnn");
  register_rank<1>(kernels, "cudnn_2");
  register_rank<2>(kernels, "cudnn_3");
  register_rank<3>(kernels, "cudnn_4");
}

}  // namespace mytorch::cuda
