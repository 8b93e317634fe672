// Batch normalization by the statistics of the batch, of row-major and of channels-last inputs.
#include "backends/cpu-onednn/engine/operand.h"
#include "backends/cpu-onednn/engine/run.h"
#include "backends/cpu-onednn/registry.h"
#include "mytorch/abi_ops/batch_norm_training.h"
#include "mytorch/abi_ops/batch_norm_training_backward.h"
#include "mytorch/backend.h"

namespace mytorch::onednn {
namespace {

using dnnl::normalization_flags;
using sdk::TensorView;

// The operands of the size of the input. oneDNN works on them in the input's layout, whatever
// theirs.
const char* data_reason(std::initializer_list<const mt_tensor*> operands) {
  for (const mt_tensor* operand : operands) {
    if (operand == nullptr) continue;
    const TensorView tensor = operand;
    if (tensor.ndim() < 2 || tensor.ndim() > 5) return "inputs have from 2 to 5 dimensions";
    if (const char* why = float_type_reason(tensor.dtype())) return why;
    if (const char* why = size_reason(tensor)) return why;
    if (!tensor.is_dense() && !is_channels_last(tensor)) {
      return "an operand is neither row-major nor channels-last";
    }
  }
  return nullptr;
}

const char* vector_reason(std::initializer_list<const mt_tensor*> vectors) {
  for (const mt_tensor* vector : vectors) {
    if (vector == nullptr) continue;
    if (const char* why = float_type_reason(vector->dl.dtype)) return why;
    if (!TensorView(vector).is_dense()) return "a parameter or statistic is not dense";
  }
  return nullptr;
}

Desc channels_of(const TensorView& input) {
  return describe_dense(sdk::dtype_of<float>, {input.size(1)});
}

// Where a result goes that nobody wants.
float* or_scratch(mt_ctx& ctx, const mt_tensor* out, int64_t n) {
  return out != nullptr ? TensorView(out).data<float>() : sdk::scratch<float>(ctx, n);
}

const char* forward_supports(const mt_args_batch_norm_training& args) {
  if (const char* why = data_reason({args.input, args.out})) return why;
  return vector_reason({args.weight, args.bias, args.mean, args.var});
}

void forward(mt_ctx& ctx, const mt_args_batch_norm_training& args) {
  const TensorView input = args.input, weight = args.weight, bias = args.bias;
  const float eps = static_cast<float>(args.eps);
  Key key(MT_HASH_batch_norm_training, {args.input, args.weight, args.bias, args.out});
  key.number(args.eps);
  run(ctx, key,
      {input, or_scratch(ctx, args.out, input.numel()), or_scratch(ctx, args.mean, input.size(1)),
       or_scratch(ctx, args.var, input.size(1)), weight, bias},
      [&] {
        normalization_flags flags = normalization_flags::none;
        if (weight) flags |= normalization_flags::use_scale;
        if (bias) flags |= normalization_flags::use_shift;
        const Desc data = describe(input), channels = channels_of(input);
        Plan plan(batch_norm(attributes(), data, eps, flags));
        plan.input(DNNL_ARG_SRC, data);
        plan.output(DNNL_ARG_DST, args.out != nullptr ? describe(args.out) : data);
        plan.output(DNNL_ARG_MEAN, channels);
        plan.output(DNNL_ARG_VARIANCE, channels);
        plan.input(DNNL_ARG_SCALE, weight ? channels : Desc());
        plan.input(DNNL_ARG_SHIFT, bias ? channels : Desc());
        return plan;
      });
}

bool wanted(const mt_int_list& mask, int64_t i, const mt_tensor* out) {
  return out != nullptr && (mask.size <= i || mask.data[i] != 0);
}

const char* backward_supports(const mt_args_batch_norm_training_backward& args) {
  if (!wanted(args.output_mask, 0, args.grad_input)) return "only parameters' gradients are wanted";
  if (args.weight == nullptr && wanted(args.output_mask, 1, args.grad_weight)) {
    return "the gradient of a weight that is absent is wanted";
  }
  if (const char* why = data_reason({args.input, args.grad_out, args.grad_input})) return why;
  return vector_reason({args.weight, args.mean, args.var, args.grad_weight, args.grad_bias});
}

void backward(mt_ctx& ctx, const mt_args_batch_norm_training_backward& args) {
  const TensorView input = args.input, weight = args.weight;
  const int64_t n = input.size(1);
  const bool want_weight = wanted(args.output_mask, 1, args.grad_weight);
  const bool want_bias = wanted(args.output_mask, 2, args.grad_bias);
  const bool sums = want_weight || want_bias;
  const bool makes_weight = weight && sums;
  const auto sum = [&](bool made, bool kept, const mt_tensor* out) -> float* {
    return made ? or_scratch(ctx, kept ? out : nullptr, n) : nullptr;
  };
  Key key(MT_HASH_batch_norm_training_backward,
          {args.input, args.weight, args.grad_out, args.grad_input});
  key.number(int64_t{sums} | int64_t{want_bias} << 1);
  key.number(args.eps);
  run(ctx, key,
      {args.grad_out, input, args.mean, args.var, weight, args.grad_input,
       sum(makes_weight, want_weight, args.grad_weight), sum(want_bias, true, args.grad_bias),
       sum(want_bias, false, nullptr)},
      [&] {
        normalization_flags flags = normalization_flags::none;
        if (weight) flags |= normalization_flags::use_scale;
        if (want_bias) flags |= normalization_flags::use_shift;
        const Desc data = describe(input), channels = channels_of(input);
        Plan plan(batch_norm_backward(
            attributes(), sums ? dnnl::prop_kind::backward : dnnl::prop_kind::backward_data, data,
            static_cast<float>(args.eps), flags));
        plan.input(DNNL_ARG_DIFF_DST, describe(args.grad_out));
        plan.input(DNNL_ARG_SRC, data);
        plan.input(DNNL_ARG_MEAN, channels);
        plan.input(DNNL_ARG_VARIANCE, channels);
        plan.input(DNNL_ARG_SCALE, weight ? channels : Desc());
        plan.output(DNNL_ARG_DIFF_SRC, describe(args.grad_input));
        plan.output(DNNL_ARG_DIFF_SCALE, makes_weight ? channels : Desc());
        plan.output(DNNL_ARG_DIFF_SHIFT, want_bias ? channels : Desc());
        // Some versions want to be given the shift, which they have no use for.
        plan.input(DNNL_ARG_SHIFT, want_bias ? channels : Desc());
        return plan;
      });
}

// Of channels-last inputs; row-major ones are ten times as fast in cpu-openmp.
template <class Args>
bool pays(const Args& args) {
  const TensorView input = args.input;
  return input.numel() >= 1 << 15 && !input.is_dense() && is_channels_last(input);
}

}  // namespace

void register_batch_norm(Candidates& candidates) {
  add_halves<mt_args_batch_norm_training, &forward, &forward_supports,
             &pays<mt_args_batch_norm_training>>(candidates, "batch_norm_training",
                                                 MT_HASH_batch_norm_training, MT_TAKES_STRIDED);
  add_halves<mt_args_batch_norm_training_backward, &backward, &backward_supports,
             &pays<mt_args_batch_norm_training_backward>>(
      candidates, "batch_norm_training_backward", MT_HASH_batch_norm_training_backward,
      MT_TAKES_STRIDED);
}

}  // namespace mytorch::onednn
