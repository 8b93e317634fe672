// Layer normalization of dense rows. The records speak of 1 / sqrt(variance + eps), oneDNN of the
// variance; each is made of the other, of one number to a row.
#include <cmath>

#include "backends/cpu-onednn/engine/operand.h"
#include "backends/cpu-onednn/engine/run.h"
#include "backends/cpu-onednn/registry.h"
#include "mytorch/abi_ops/native_layer_norm.h"
#include "mytorch/abi_ops/native_layer_norm_backward.h"
#include "mytorch/backend.h"

namespace mytorch::onednn {
namespace {

using dnnl::normalization_flags;
using sdk::TensorView;

struct Rows {
  int64_t count, length = 1;

  Rows(const TensorView& input, const mt_int_list& normalized) {
    for (int64_t i = 0; i < normalized.size; ++i) length *= normalized.data[i];
    count = length == 0 ? 0 : input.numel() / length;
  }
  Desc data() const { return describe_dense(sdk::dtype_of<float>, {count, length}); }
  Desc statistics() const { return describe_dense(sdk::dtype_of<float>, {count}); }
  Desc parameters() const { return describe_dense(sdk::dtype_of<float>, {length}); }
};

const char* reason(const TensorView& input, const TensorView& weight,
                   const mt_int_list& normalized) {
  if (const char* why = float_type_reason(input.dtype())) return why;
  if (const char* why = size_reason(input)) return why;
  if (weight && !weight.is<float>()) return "[dtype] the parameters are not float32";
  return Rows(input, normalized).length == 1 ? "rows of one element" : nullptr;
}

// Where a result goes that nobody wants.
float* or_scratch(mt_ctx& ctx, const mt_tensor* out, int64_t n) {
  return out != nullptr ? TensorView(out).data<float>() : sdk::scratch<float>(ctx, n);
}

const char* forward_supports(const mt_args_native_layer_norm& args) {
  if (args.bias != nullptr && !TensorView(args.bias).is<float>()) {
    return "[dtype] the parameters are not float32";
  }
  return reason(args.input, args.weight, args.normalized_shape);
}

Key key_of(uint64_t kind, const Rows& rows, double eps, int64_t which) {
  Key key(kind);
  for (const int64_t n : {rows.count, rows.length, which}) key.number(n);
  key.number(eps);
  return key;
}

void forward(mt_ctx& ctx, const mt_args_native_layer_norm& args) {
  const TensorView input = args.input, weight = args.weight, bias = args.bias;
  const Rows rows(input, args.normalized_shape);
  const float eps = static_cast<float>(args.eps);
  float* const variance = or_scratch(ctx, args.rstd, rows.count);
  const int64_t which = (weight ? 1 : 0) | (bias ? 2 : 0);
  run(ctx, key_of(MT_HASH_native_layer_norm, rows, args.eps, which),
      {input, or_scratch(ctx, args.out, input.numel()), or_scratch(ctx, args.mean, rows.count),
       variance, weight, bias},
      [&] {
        normalization_flags flags = normalization_flags::none;
        if (weight) flags |= normalization_flags::use_scale;
        if (bias) flags |= normalization_flags::use_shift;
        Plan plan(layer_norm(attributes(), rows.data(), rows.statistics(), eps, flags));
        plan.input(DNNL_ARG_SRC, rows.data());
        plan.output(DNNL_ARG_DST, rows.data());
        plan.output(DNNL_ARG_MEAN, rows.statistics());
        plan.output(DNNL_ARG_VARIANCE, rows.statistics());
        plan.input(DNNL_ARG_SCALE, weight ? rows.parameters() : Desc());
        plan.input(DNNL_ARG_SHIFT, bias ? rows.parameters() : Desc());
        return plan;
      });
  for (int64_t i = 0; i < rows.count; ++i) variance[i] = 1.0f / std::sqrt(variance[i] + eps);
}

bool wanted(const mt_int_list& mask, int64_t i, const mt_tensor* out) {
  return out != nullptr && (mask.size <= i || mask.data[i] != 0);
}

const char* backward_supports(const mt_args_native_layer_norm_backward& args) {
  if (!wanted(args.output_mask, 0, args.grad_input)) return "only parameters' gradients are wanted";
  if (args.weight == nullptr && wanted(args.output_mask, 1, args.grad_weight)) {
    return "the gradient of a weight that is absent is wanted";
  }
  for (const mt_tensor* operand : {args.grad_out, args.mean, args.rstd}) {
    if (const char* why = float_type_reason(operand->dl.dtype)) return why;
  }
  return reason(args.input, args.weight, args.normalized_shape);
}

void backward(mt_ctx& ctx, const mt_args_native_layer_norm_backward& args) {
  const TensorView input = args.input, weight = args.weight;
  const Rows rows(input, args.normalized_shape);
  const bool want_weight = wanted(args.output_mask, 1, args.grad_weight);
  const bool want_bias = wanted(args.output_mask, 2, args.grad_bias);
  const bool sums = want_weight || want_bias;
  // What `rstd` says of variance and eps together.
  float* const variance = sdk::scratch<float>(ctx, rows.count);
  const float* const rstd = TensorView(args.rstd).data<const float>();
  for (int64_t i = 0; i < rows.count; ++i) variance[i] = 1.0f / (rstd[i] * rstd[i]);
  const auto sum = [&](bool made, bool kept, const mt_tensor* out) -> float* {
    return made ? or_scratch(ctx, kept ? out : nullptr, rows.length) : nullptr;
  };
  const bool makes_weight = weight && sums;
  const int64_t which = (weight ? 1 : 0) | (sums ? 2 : 0) | (want_bias ? 4 : 0);
  run(ctx, key_of(MT_HASH_native_layer_norm_backward, rows, 0, which),
      {args.grad_out, input, args.mean, variance, weight, args.grad_input,
       sum(makes_weight, want_weight, args.grad_weight), sum(want_bias, true, args.grad_bias),
       sum(want_bias, false, nullptr)},
      [&] {
        normalization_flags flags = normalization_flags::none;
        if (weight) flags |= normalization_flags::use_scale;
        if (want_bias) flags |= normalization_flags::use_shift;
        Plan plan(layer_norm_backward(
            attributes(), sums ? dnnl::prop_kind::backward : dnnl::prop_kind::backward_data,
            rows.data(), rows.statistics(), 0, flags));
        plan.input(DNNL_ARG_DIFF_DST, rows.data());
        plan.input(DNNL_ARG_SRC, rows.data());
        plan.input(DNNL_ARG_MEAN, rows.statistics());
        plan.input(DNNL_ARG_VARIANCE, rows.statistics());
        plan.input(DNNL_ARG_SCALE, weight ? rows.parameters() : Desc());
        plan.output(DNNL_ARG_DIFF_SRC, rows.data());
        plan.output(DNNL_ARG_DIFF_SCALE, makes_weight ? rows.parameters() : Desc());
        plan.output(DNNL_ARG_DIFF_SHIFT, want_bias ? rows.parameters() : Desc());
        // Some versions want to be given the shift, which they have no use for.
        plan.input(DNNL_ARG_SHIFT, want_bias ? rows.parameters() : Desc());
        return plan;
      });
}

// Below, what surrounds oneDNN's kernel weighs more.
constexpr int64_t kLargeNumel = 1 << 15;

bool forward_pays(const mt_args_native_layer_norm& args) {
  return TensorView(args.input).numel() >= kLargeNumel;
}
bool backward_pays(const mt_args_native_layer_norm_backward& args) {
  return TensorView(args.input).numel() >= kLargeNumel;
}

}  // namespace

void register_layer_norm(Candidates& candidates) {
  add_halves<mt_args_native_layer_norm, &forward, &forward_supports, &forward_pays>(
      candidates, "native_layer_norm", MT_HASH_native_layer_norm, 0);
  add_halves<mt_args_native_layer_norm_backward, &backward, &backward_supports, &backward_pays>(
      candidates, "native_layer_norm_backward", MT_HASH_native_layer_norm_backward, 0);
}

}  // namespace mytorch::onednn
