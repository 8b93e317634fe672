// Layer normalization of contiguous rows. The records use 1 / sqrt(variance + eps) and oneDNN uses
// the variance, so one number per row is converted.
#include <cmath>
#include <limits>

#include "backends/cpu-onednn/engine/operand.h"
#include "backends/cpu-onednn/engine/run.h"
#include "backends/cpu-onednn/normalization/normalization.h"
#include "backends/cpu-onednn/registry.h"
#include "mytorch/abi_ops/native_layer_norm.h"
#include "mytorch/abi_ops/native_layer_norm_backward.h"
#include "mytorch/backend.h"

namespace mytorch::onednn {
namespace {

using sdk::TensorView;

struct Rows {
  int64_t count, length;

  Rows(const TensorView& input, const mt_int_list& normalized) : length(sdk::product(normalized)) {
    count = length == 0 ? 0 : input.numel() / length;
  }
  Normalized layouts() const {
    const mt_dtype dtype = sdk::dtype_of<float>;
    return {describe_contiguous(dtype, {count, length}), describe_contiguous(dtype, {count}),
            describe_contiguous(dtype, {length})};
  }
  Key key(uint64_t kind, double eps, int64_t which) const {
    Key key(kind);
    for (const int64_t n : {count, length, which}) key.number(n);
    key.number(eps);
    return key;
  }
};

const char* reason(const TensorView& input, std::initializer_list<TensorView> parameters,
                   const mt_int_list& normalized) {
  if (const char* why = float_type_reason(input.dtype())) return why;
  if (const char* why = size_reason(input)) return why;
  for (const TensorView& parameter : parameters) {
    if (parameter && !parameter.is<float>()) return "[dtype] the parameters are not float32";
  }
  return Rows(input, normalized).length == 1 ? "rows of one element" : nullptr;
}

// Returns a mean of squares, or its inverse. Throws Declined if squares exceed the range of float32
// or vanish in it: cpu-openmp scales such rows.
float representable(float square) {
  constexpr float kLeast =
      std::numeric_limits<float>::min() / std::numeric_limits<float>::epsilon();
  if (!(square >= kLeast && square <= 1 / kLeast)) throw sdk::Declined{};
  return square;
}

const char* layer_norm_forward_supports(const mt_args_native_layer_norm& args) {
  return reason(args.input, {args.weight, args.bias}, args.normalized_shape);
}

void run_layer_norm_forward(mt_ctx& ctx, const mt_args_native_layer_norm& args) {
  const TensorView input = args.input, weight = args.weight, bias = args.bias;
  const Rows rows(input, args.normalized_shape);
  const float eps = static_cast<float>(args.eps);
  float* const variance = or_scratch(ctx, args.rstd, rows.count);
  const int64_t which = (weight ? 1 : 0) | (bias ? 2 : 0);
  run(ctx, rows.key(MT_HASH_native_layer_norm, args.eps, which),
      {input, or_scratch(ctx, args.out, input.numel()), or_scratch(ctx, args.mean, rows.count),
       variance, weight, bias},
      [&] {
        const Normalized n = rows.layouts();
        return normalize(n, n.data, weight, bias, /*given=*/false,
                         [&](dnnl::normalization_flags flags) {
                           return layer_norm(attributes(), n.data, n.statistics, eps, flags);
                         });
      });
  for (int64_t i = 0; i < rows.count; ++i) {
    variance[i] = 1.0f / std::sqrt(representable(variance[i] + eps));
  }
}

const char* layer_norm_backward_supports(const mt_args_native_layer_norm_backward& args) {
  if (const char* why = Gradients(args).reason()) return why;
  for (const mt_tensor* operand : {args.grad_out, args.mean, args.rstd}) {
    if (const char* why = float_type_reason(operand->dl.dtype)) return why;
  }
  return reason(args.input, {args.weight}, args.normalized_shape);
}

void run_layer_norm_backward(mt_ctx& ctx, const mt_args_native_layer_norm_backward& args) {
  const TensorView input = args.input;
  const Rows rows(input, args.normalized_shape);
  const Gradients gradients(args);
  // Computes variance + eps from `rstd`.
  float* const variance = sdk::scratch<float>(ctx, rows.count);
  const float* const rstd = TensorView(args.rstd).data<const float>();
  for (int64_t i = 0; i < rows.count; ++i) {
    variance[i] = 1.0f / representable(rstd[i] * rstd[i]);
  }
  run(ctx, rows.key(MT_HASH_native_layer_norm_backward, 0, gradients.which()),
      {args.grad_out, input, args.mean, variance, args.weight, args.grad_input,
       gradients.weight(ctx, args.grad_weight, rows.length),
       gradients.bias(ctx, args.grad_bias, rows.length), gradients.bias(ctx, nullptr, rows.length)},
      [&] {
        const Normalized n = rows.layouts();
        return gradients.plan(
            n, n.data, n.data, [&](dnnl::prop_kind kind, dnnl::normalization_flags flags) {
              return layer_norm_backward(attributes(), kind, n.data, n.statistics, 0, flags);
            });
      });
}

// For smaller inputs the overhead around oneDNN's kernel outweighs it.
template <class Args>
bool layer_norm_pays(const Args& args) {
  return TensorView(args.input).numel() >= 1 << 15;
}

}  // namespace

void register_layer_norm(KernelEntries& kernels) {
  add_halves<mt_args_native_layer_norm, &run_layer_norm_forward, &layer_norm_forward_supports,
             &layer_norm_pays<mt_args_native_layer_norm>>(kernels, 0);
  add_halves<mt_args_native_layer_norm_backward, &run_layer_norm_backward,
             &layer_norm_backward_supports, &layer_norm_pays<mt_args_native_layer_norm_backward>>(
      kernels, 0);
}

}  // namespace mytorch::onednn
