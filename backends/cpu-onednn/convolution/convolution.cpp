// Convolutions of 1, 2 and 3 spatial dimensions, transposed convolutions and their gradients.
#include "mytorch/abi_ops/convolution.h"

#include "backends/cpu-onednn/convolution/problem.h"
#include "backends/cpu-onednn/engine/run.h"
#include "backends/cpu-onednn/registry.h"
#include "mytorch/abi_ops/convolution_backward_input.h"
#include "mytorch/abi_ops/convolution_backward_weight.h"
#include "mytorch/backend.h"

namespace mytorch::onednn {
namespace {

using sdk::TensorView;

// The output of a convolution, which is also the gradient of the input of a transposed one.
void run_forward(mt_ctx& ctx, const Key& key, const Problem& p, const TensorView& bias) {
  run(ctx, key, {p.input, p.weight, p.output, bias}, [&] {
    const Desc b = bias ? describe_contiguous(bias.dtype(), shape_of(bias)) : Desc();
    const Layouts l(p);
    Plan plan(
        convolution(attributes(), l.wanted_input, l.wanted_weight, b, l.wanted_output, p.windows));
    plan.input(DNNL_ARG_SRC, l.input);
    plan.weights(DNNL_ARG_WEIGHTS, l.weight);
    plan.output(DNNL_ARG_DST, l.output);
    plan.input(DNNL_ARG_BIAS, b);
    return plan;
  });
}

// The gradient of the input of a convolution, which is also the output of a transposed one.
void run_backward_data(mt_ctx& ctx, const Key& key, const Problem& p) {
  run(ctx, key, {p.output, p.weight, p.input}, [&] {
    const Layouts l(p);
    Plan plan(convolution_backward_data(attributes(), l.wanted_input, l.wanted_weight,
                                        l.wanted_output, p.windows));
    plan.input(DNNL_ARG_DIFF_DST, l.output);
    plan.weights(DNNL_ARG_WEIGHTS, l.weight);
    plan.output(DNNL_ARG_DIFF_SRC, l.input);
    return plan;
  });
}

// Adds a bias to a row-major or channels-last result, because oneDNN's backward data primitive
// cannot.
void add_bias(mt_ctx& ctx, const TensorView& out, const TensorView& bias) {
  const int64_t channels = out.size(1), plane = out.numel() / (out.size(0) * channels);
  sdk::visit_floating(out.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    using W = sdk::Widened<T>;
    const bool last = !out.is_contiguous();  // channels-last
    T* const data = out.data<T>();
    const T* const b = bias.data<const T>();
    const int64_t rows = last ? out.size(0) * plane : out.size(0) * channels;
    const int64_t length = last ? channels : plane;
    sdk::parallel_for(ctx, 0, rows, 1 + 16384 / length, [&](int64_t begin, int64_t end) noexcept {
      for (int64_t row = begin; row < end; ++row) {
        T* const to = data + row * length;
        for (int64_t i = 0; i < length; ++i) {
          to[i] = T(static_cast<W>(to[i]) + static_cast<W>(b[last ? i : row % channels]));
        }
      }
    });
  });
}

void convolve_forward(mt_ctx& ctx, const mt_args_convolution& args) {
  const Problem p(args);
  const TensorView bias = args.bias;
  const Key key =
      Problem::key(MT_HASH_convolution, args, {args.input, args.weight, args.bias, args.out});
  if (args.transposed == 0) return run_forward(ctx, key, p, bias);
  run_backward_data(ctx, key, p);
  if (bias) add_bias(ctx, args.out, bias);
}

void backward_input(mt_ctx& ctx, const mt_args_convolution_backward_input& args) {
  const Problem p(args);
  const Key key = Problem::key(MT_HASH_convolution_backward_input, args,
                               {args.grad_output, args.weight, args.out});
  if (args.transposed != 0) return run_forward(ctx, key, p, nullptr);
  run_backward_data(ctx, key, p);
}

void backward_weight(mt_ctx& ctx, const mt_args_convolution_backward_weight& args) {
  const Problem p(args);
  const Key key = Problem::key(MT_HASH_convolution_backward_weight, args,
                               {args.grad_output, args.input, args.out});
  run(ctx, key, {p.input, p.output, p.weight}, [&] {
    const Layouts l(p);
    Plan plan(convolution_backward_weights(attributes(), l.wanted_input, l.wanted_weight,
                                           l.wanted_output, p.windows));
    plan.input(DNNL_ARG_SRC, l.input);
    plan.input(DNNL_ARG_DIFF_DST, l.output);
    plan.output(DNNL_ARG_DIFF_WEIGHTS, l.weight);
    return plan;
  });
}

// ---- support ----------------------------------------------------------------------------------

template <class Args>
const char* reason(const Args& args) {
  return Problem(args).reason();
}
template <>
const char* reason(const mt_args_convolution& args) {
  const Problem p(args);
  if (const char* why = p.reason()) return why;
  if (const char* why = args.transposed != 0 ? p.backward_data_reason() : nullptr) return why;
  const TensorView bias = args.bias, out = args.out;
  if (!bias) return nullptr;
  if (!sdk::same_dtype(bias.dtype(), out.dtype())) return "[dtype] the operands' types differ";
  if (!bias.is_contiguous()) return "the bias is not contiguous";
  if (args.transposed != 0 && !out.is_contiguous() && !is_channels_last(out)) {
    return "the result of a transposed convolution with bias is neither row-major nor "
           "channels-last";
  }
  return nullptr;
}

template <>
const char* reason(const mt_args_convolution_backward_input& args) {
  const Problem p(args);
  if (const char* why = p.reason()) return why;
  return args.transposed != 0 ? nullptr : p.backward_data_reason();
}

// Returns whether oneDNN, including its reorders, is faster than cpu-openmp: by 3 % to 3 times,
// measured with AVX2 and 2 threads. It is always faster for channels-last operands, which the host
// would convert for cpu-openmp. It is also faster for matrix products above some size, which need
// few or no reorders, and for windows of row-major operands with enough work and terms per sum,
// except for gradients of the weight, which sum over the batch and are mostly faster in cpu-openmp,
// and float32 results that cpu-openmp computes by tiles.
bool convolve_pays(const Problem& p, int64_t terms, bool tiles) {
  for (const TensorView& operand : {p.input, p.output}) {
    if (!operand.is_contiguous() && is_channels_last(operand)) return true;
  }
  const double work = p.work();
  if (p.pointwise()) return work >= 5e5;
  return work >= 1e7 && terms >= 64 && !(tiles && p.weight.is<float>());
}
bool output_pays(const sdk::Convolution& call) {
  const Problem p(call);
  return convolve_pays(p, p.terms_of_output(),
                       sdk::gains_by_tiles(call.geometry, call.geometry.output));
}
bool input_pays(const sdk::Convolution& call) {
  const Problem p(call);
  return convolve_pays(p, p.terms_of_input(),
                       sdk::gains_by_tiles(call.geometry, call.geometry.input));
}

bool convolve_forward_pays(const mt_args_convolution& args) {
  return args.transposed != 0 ? input_pays(sdk::Convolution(args))
                              : output_pays(sdk::Convolution(args));
}
bool backward_input_pays(const mt_args_convolution_backward_input& args) {
  return args.transposed != 0 ? output_pays(sdk::Convolution(args))
                              : input_pays(sdk::Convolution(args));
}
bool weight_pays(const mt_args_convolution_backward_weight& args) {
  return convolve_pays(Problem(args), 0, false);
}

}  // namespace

void register_convolution(KernelEntries& kernels) {
  add_halves<mt_args_convolution, &convolve_forward, &reason<mt_args_convolution>,
             &convolve_forward_pays>(kernels, MT_TAKES_STRIDED);
  add_halves<mt_args_convolution_backward_input, &backward_input,
             &reason<mt_args_convolution_backward_input>, &backward_input_pays>(kernels,
                                                                                MT_TAKES_STRIDED);
  add_halves<mt_args_convolution_backward_weight, &backward_weight,
             &reason<mt_args_convolution_backward_weight>, &weight_pays>(kernels, MT_TAKES_STRIDED);
}

}  // namespace mytorch::onednn
