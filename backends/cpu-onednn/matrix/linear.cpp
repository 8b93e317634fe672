// linear: one product of all rows of the input with the transposed weight; oneDNN adds the bias.
#include "mytorch/abi_ops/linear.h"

#include "backends/cpu-onednn/engine/run.h"
#include "backends/cpu-onednn/matrix/product.h"
#include "backends/cpu-onednn/registry.h"
#include "mytorch/backend.h"

namespace mytorch::onednn {
namespace {

using sdk::TensorView;

const char* linear_supports(const mt_args_linear& args) {
  const TensorView input = args.input, weight = args.weight, bias = args.bias, out = args.out;
  if (weight.ndim() != 2) return "the weight is a vector";
  if (const char* reason = matrix_reason(weight)) return reason;
  for (const TensorView& operand : {input, out}) {
    if (!sdk::same_dtype(operand.dtype(), weight.dtype()))
      return "[dtype] the operands' types differ";
    if (const char* reason = size_reason(operand)) return reason;
    if (!operand.is_contiguous()) return "the input or the result is not contiguous";
  }
  if (!bias) return nullptr;
  if (!sdk::same_dtype(bias.dtype(), weight.dtype())) return "[dtype] the operands' types differ";
  return bias.ndim() == 1 && bias.is_contiguous() ? nullptr : "the bias is not a contiguous vector";
}

void linear(mt_ctx& ctx, const mt_args_linear& args) {
  const TensorView input = args.input, weight = args.weight, bias = args.bias, out = args.out;
  const Key key(MT_HASH_linear, {args.input, args.weight, args.bias, args.out});
  run(ctx, key, {input, weight, out, bias}, [&] {
    const int64_t in = input.size(-1), rows = input.numel() / in, outs = weight.size(0);
    const Desc x = describe_contiguous(input.dtype(), {rows, in});
    const Desc w = describe_matrix(weight, true);
    const Desc b = bias ? describe_contiguous(bias.dtype(), {1, outs}) : Desc();
    const Desc y = describe_contiguous(out.dtype(), {rows, outs});
    Plan plan(matmul(attributes(), x, w, b, y));
    plan.input(DNNL_ARG_SRC, x);
    plan.input(DNNL_ARG_WEIGHTS, w);
    plan.output(DNNL_ARG_DST, y);
    plan.input(DNNL_ARG_BIAS, b);
    return plan;
  });
}

}  // namespace

void register_linear(KernelEntries& kernels) {
  kernels.push_back(
      sdk::kernel<&linear, &linear_supports>("onednn_matmul", MT_TAKES_STRIDED, kLast));
}

}  // namespace mytorch::onednn
