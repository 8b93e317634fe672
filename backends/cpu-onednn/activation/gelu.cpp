// The gradient of gelu, the only activation that is faster here than in cpu-openmp and correct for
// every number. docs/choice.md has the measurements and the errors of the others.
#include <cstring>

#include "backends/cpu-onednn/engine/operand.h"
#include "backends/cpu-onednn/engine/run.h"
#include "backends/cpu-onednn/registry.h"
#include "mytorch/abi_ops/gelu_grad.h"
#include "mytorch/backend.h"

namespace mytorch::onednn {
namespace {

using sdk::TensorView;

const char* gelu_grad_supports(const mt_args_gelu_grad& args) {
  // oneDNN's approximation is NaN beyond 1e13.
  if (std::strcmp(args.approximate, "none") != 0) return "it is the approximate gelu's";
  if (const char* why = float_type_reason(args.header.compute)) return why;
  return size_reason(args.out);
}

// The operands are contiguous and have one shape, so they are vectors here.
void gelu_grad(mt_ctx& ctx, const mt_args_gelu_grad& args) {
  const int64_t n = TensorView(args.out).numel();
  Key key(MT_HASH_gelu_grad);
  key.number(n);
  run(ctx, key, {args.grad, args.self, args.out}, [&] {
    const Desc data = describe_contiguous(sdk::dtype_of<float>, {n});
    Plan plan(activation_backward(attributes(), dnnl::algorithm::eltwise_gelu_erf, data));
    plan.input(DNNL_ARG_DIFF_DST, data);
    plan.input(DNNL_ARG_SRC, data);
    plan.output(DNNL_ARG_DIFF_SRC, data);
    return plan;
  });
}

}  // namespace

void register_gelu(KernelEntries& kernels) {
  kernels.push_back(sdk::kernel<&gelu_grad, &gelu_grad_supports>("onednn", 0, kLast));
}

}  // namespace mytorch::onednn
