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

template <int kRank>
void forward(mt_ctx& ctx, const mt_args_convolution& args) {
  const bool transposed = args.transposed != 0;
  const TensorView input = transposed ? args.out : args.input;
  const TensorView output = transposed ? args.input : args.out;
  convolve(ctx, {sdk::convolution_geometry(input, args.weight, output, args),
                 transposed ? Direction::kBackwardInput : Direction::kForward, input, args.weight,
                 output, args.bias, kRank});
}

template <int kRank>
void backward_input(mt_ctx& ctx, const mt_args_convolution_backward_input& args) {
  const bool transposed = args.transposed != 0;
  const TensorView input = transposed ? args.grad_output : args.out;
  const TensorView output = transposed ? args.out : args.grad_output;
  convolve(ctx, {sdk::convolution_geometry(input, args.weight, output, args),
                 transposed ? Direction::kForward : Direction::kBackwardInput, input, args.weight,
                 output, nullptr, kRank});
}

template <int kRank>
void backward_weight(mt_ctx& ctx, const mt_args_convolution_backward_weight& args) {
  const bool transposed = args.transposed != 0;
  const TensorView input = transposed ? args.grad_output : args.input;
  const TensorView output = transposed ? args.input : args.grad_output;
  convolve(ctx, {sdk::convolution_geometry(input, args.out, output, args),
                 Direction::kBackwardWeight, input, args.out, output, nullptr, kRank});
}

template <int kRank>
void register_rank(KernelEntries& kernels, const char* name) {
  constexpr uint32_t kTakes = MT_TAKES_STRIDED;
  kernels.push_back(sdk::kernel<&forward<kRank>>(name, kTakes, -kRank));
  kernels.push_back(sdk::kernel<&backward_input<kRank>>(name, kTakes, -kRank));
  kernels.push_back(sdk::kernel<&backward_weight<kRank>>(name, kTakes, -kRank));
}

}  // namespace

void register_convolution(KernelEntries& kernels) {
  register_rank<0>(kernels, "cudnn");
  register_rank<1>(kernels, "cudnn_2");
  register_rank<2>(kernels, "cudnn_3");
  register_rank<3>(kernels, "cudnn_4");
}

}  // namespace mytorch::cuda
