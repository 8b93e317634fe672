// Batch normalization by the statistics of the batch, of row-major and channels-last inputs.
#include "backends/cpu-onednn/engine/operand.h"
#include "backends/cpu-onednn/engine/run.h"
#include "backends/cpu-onednn/normalization/normalization.h"
#include "backends/cpu-onednn/registry.h"
#include "mytorch/abi_ops/batch_norm_training.h"
#include "mytorch/abi_ops/batch_norm_training_backward.h"
#include "mytorch/backend.h"

namespace mytorch::onednn {
namespace {

using sdk::TensorView;

// Returns the reason why operands of the input's shape are not supported. oneDNN computes in the
// layout of the input; operands in other layouts are reordered.
const char* data_reason(std::initializer_list<const mt_tensor*> operands) {
  for (const mt_tensor* operand : operands) {
    if (operand == nullptr) continue;
    const TensorView tensor = operand;
    if (tensor.ndim() < 2 || tensor.ndim() > 5) return "inputs have from 2 to 5 dimensions";
    if (const char* why = float_type_reason(tensor.dtype())) return why;
    if (const char* why = size_reason(tensor)) return why;
    if (!tensor.is_contiguous() && !is_channels_last(tensor)) {
      return "an operand is neither row-major nor channels-last";
    }
  }
  return nullptr;
}

const char* vector_reason(std::initializer_list<const mt_tensor*> vectors) {
  for (const mt_tensor* vector : vectors) {
    if (vector == nullptr) continue;
    if (const char* why = float_type_reason(vector->dl.dtype)) return why;
    if (!TensorView(vector).is_contiguous()) return "a parameter or statistic is not contiguous";
  }
  return nullptr;
}

Normalized channels_of(const TensorView& input) {
  const Desc channels = describe_contiguous(sdk::dtype_of<float>, {input.size(1)});
  return {describe(input), channels, channels};
}

const char* batch_norm_forward_supports(const mt_args_batch_norm_training& args) {
  if (const char* why = data_reason({args.input, args.out})) return why;
  return vector_reason({args.weight, args.bias, args.mean, args.var});
}

void run_batch_norm_forward(mt_ctx& ctx, const mt_args_batch_norm_training& args) {
  const TensorView input = args.input, weight = args.weight, bias = args.bias;
  Key key(MT_HASH_batch_norm_training, {args.input, args.weight, args.bias, args.out});
  key.number(args.eps);
  run(ctx, key,
      {input, or_scratch(ctx, args.out, input.numel()), or_scratch(ctx, args.mean, input.size(1)),
       or_scratch(ctx, args.var, input.size(1)), weight, bias},
      [&] {
        const Normalized n = channels_of(input);
        const Desc out = args.out != nullptr ? describe(args.out) : n.data;
        return normalize(n, out, weight, bias, [&](dnnl::normalization_flags flags) {
          return batch_norm(attributes(), n.data, static_cast<float>(args.eps), flags);
        });
      });
}

const char* batch_norm_backward_supports(const mt_args_batch_norm_training_backward& args) {
  if (const char* why = Gradients(args).reason()) return why;
  if (const char* why = data_reason({args.input, args.grad_out, args.grad_input})) return why;
  return vector_reason({args.weight, args.mean, args.var, args.grad_weight, args.grad_bias});
}

void run_batch_norm_backward(mt_ctx& ctx, const mt_args_batch_norm_training_backward& args) {
  const TensorView input = args.input;
  const Gradients gradients(args);
  const int64_t channels = input.size(1);
  Key key(MT_HASH_batch_norm_training_backward,
          {args.input, args.weight, args.grad_out, args.grad_input});
  key.number(gradients.which());
  key.number(args.eps);
  run(ctx, key,
      {args.grad_out, input, args.mean, args.var, args.weight, args.grad_input,
       gradients.weight(ctx, args.grad_weight, channels),
       gradients.bias(ctx, args.grad_bias, channels), gradients.bias(ctx, nullptr, channels)},
      [&] {
        const Normalized n = channels_of(input);
        return gradients.plan(n, describe(args.grad_out), describe(args.grad_input),
                              [&](dnnl::prop_kind kind, dnnl::normalization_flags flags) {
                                return batch_norm_backward(attributes(), kind, n.data,
                                                           static_cast<float>(args.eps), flags);
                              });
      });
}

// oneDNN is faster for channels-last inputs; cpu-openmp is ten times as fast for row-major ones.
template <class Args>
bool batch_norm_pays(const Args& args) {
  const TensorView input = args.input;
  return input.numel() >= 1 << 15 && !input.is_contiguous() && is_channels_last(input);
}

}  // namespace

void register_batch_norm(KernelEntries& kernels) {
  add_halves<mt_args_batch_norm_training, &run_batch_norm_forward, &batch_norm_forward_supports,
             &batch_norm_pays<mt_args_batch_norm_training>>(kernels, MT_TAKES_STRIDED);
  add_halves<mt_args_batch_norm_training_backward, &run_batch_norm_backward,
             &batch_norm_backward_supports, &batch_norm_pays<mt_args_batch_norm_training_backward>>(
      kernels, MT_TAKES_STRIDED);
}

}  // namespace mytorch::onednn
