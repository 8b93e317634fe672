// convolution and its gradients: by cuDNN where it has the type and an engine, else as defined.
// Each is registered once for every proposal of the library, the best guess first, so that measured
// choice (docs/choice.md) can find the fastest for a shape.
#include "mytorch/abi_ops/convolution.h"

#include "backends/cuda/convolution/geometry.h"
#include "backends/cuda/registry.h"
#include "mytorch/abi_ops/convolution_backward_input.h"
#include "mytorch/abi_ops/convolution_backward_weight.h"
#include "mytorch/backend.h"

namespace mytorch::cuda {
namespace {

using sdk::TensorView;

void convolve(mt_ctx& ctx, const Convolution& call) {
  if (call.out().numel() == 0) return;
  if (convolve_cudnn(ctx, call)) return;
  if (call.rank > 0) throw sdk::Declined{};
  convolve_direct(ctx, call);
}

template <int kRank>
void forward(mt_ctx& ctx, const mt_args_convolution& args) {
  const bool transposed = args.transposed != 0;
  const TensorView big = transposed ? args.out : args.input;
  const TensorView small = transposed ? args.input : args.out;
  convolve(ctx,
           {geometry(big, args.weight, small, args), transposed ? Target::kBig : Target::kSmall,
            big, args.weight, small, args.bias, kRank});
}

template <int kRank>
void backward_input(mt_ctx& ctx, const mt_args_convolution_backward_input& args) {
  const bool transposed = args.transposed != 0;
  const TensorView big = transposed ? args.grad_output : args.out;
  const TensorView small = transposed ? args.out : args.grad_output;
  convolve(ctx,
           {geometry(big, args.weight, small, args), transposed ? Target::kSmall : Target::kBig,
            big, args.weight, small, nullptr, kRank});
}

template <int kRank>
void backward_weight(mt_ctx& ctx, const mt_args_convolution_backward_weight& args) {
  const bool transposed = args.transposed != 0;
  const TensorView big = transposed ? args.grad_output : args.input;
  const TensorView small = transposed ? args.input : args.grad_output;
  convolve(ctx, {geometry(big, args.out, small, args), Target::kWeight, big, args.out, small,
                 nullptr, kRank});
}

template <int kRank>
void register_rank(Candidates& candidates, const char* name) {
  constexpr uint32_t kTakes = MT_TAKES_STRIDED;
  candidates.push_back(
      sdk::kernel<&forward<kRank>>("convolution", MT_HASH_convolution, name, -kRank, kTakes));
  candidates.push_back(sdk::kernel<&backward_input<kRank>>(
      "convolution_backward_input", MT_HASH_convolution_backward_input, name, -kRank, kTakes));
  candidates.push_back(sdk::kernel<&backward_weight<kRank>>(
      "convolution_backward_weight", MT_HASH_convolution_backward_weight, name, -kRank, kTakes));
}

}  // namespace

void register_convolution(Candidates& candidates) {
  register_rank<0>(candidates, "cudnn");
  register_rank<1>(candidates, "cudnn_2");
  register_rank<2>(candidates, "cudnn_3");
  register_rank<3>(candidates, "cudnn_4");
}

}  // namespace mytorch::cuda
