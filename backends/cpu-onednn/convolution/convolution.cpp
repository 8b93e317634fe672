// Convolutions of 1, 2 and 3 spatial dimensions, their transposes and their gradients.
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

Problem problem(const mt_args_convolution& args) {
  if (args.transposed != 0) return {args, args.out, args.weight, args.input};
  return {args, args.input, args.weight, args.out};
}
Problem problem(const mt_args_convolution_backward_input& args) {
  if (args.transposed != 0) return {args, args.grad_output, args.weight, args.out};
  return {args, args.out, args.weight, args.grad_output};
}
Problem problem(const mt_args_convolution_backward_weight& args) {
  if (args.transposed != 0) return {args, args.grad_output, args.out, args.input};
  return {args, args.input, args.out, args.grad_output};
}

// small of big
void make_small(mt_ctx& ctx, const Key& key, const Problem& p, const TensorView& bias) {
  run(ctx, key, {p.big, p.weight, p.small, bias}, [&] {
    const Desc b = bias ? describe_contiguous(bias.dtype(), shape_of(bias)) : Desc();
    const Layouts l(p);
    Plan plan(
        convolution(attributes(), l.wanted_big, l.wanted_weight, b, l.wanted_small, p.windows));
    plan.input(DNNL_ARG_SRC, l.big);
    plan.weights(DNNL_ARG_WEIGHTS, l.weight);
    plan.output(DNNL_ARG_DST, l.small);
    plan.input(DNNL_ARG_BIAS, b);
    return plan;
  });
}

// big of small
void make_big(mt_ctx& ctx, const Key& key, const Problem& p) {
  run(ctx, key, {p.small, p.weight, p.big}, [&] {
    const Layouts l(p);
    Plan plan(convolution_backward_data(attributes(), l.wanted_big, l.wanted_weight, l.wanted_small,
                                        p.windows));
    plan.input(DNNL_ARG_DIFF_DST, l.small);
    plan.weights(DNNL_ARG_WEIGHTS, l.weight);
    plan.output(DNNL_ARG_DIFF_SRC, l.big);
    return plan;
  });
}

// Adds a bias to a contiguous result, which the primitive that made it cannot do.
void add_bias(mt_ctx& ctx, const TensorView& out, const TensorView& bias) {
  const int64_t channels = out.size(1), plane = out.numel() / (out.size(0) * channels);
  sdk::visit_floating(out.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    using W = sdk::Widened<T>;
    const bool last = !out.is_contiguous();  // channels-last then
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

void forward(mt_ctx& ctx, const mt_args_convolution& args) {
  const Problem p = problem(args);
  const TensorView bias = args.bias;
  const Key key =
      Problem::key(MT_HASH_convolution, args, {args.input, args.weight, args.bias, args.out});
  if (args.transposed == 0) return make_small(ctx, key, p, bias);
  make_big(ctx, key, p);
  if (bias) add_bias(ctx, args.out, bias);
}

void backward_input(mt_ctx& ctx, const mt_args_convolution_backward_input& args) {
  const Problem p = problem(args);
  const Key key = Problem::key(MT_HASH_convolution_backward_input, args,
                               {args.grad_output, args.weight, args.out});
  if (args.transposed != 0) return make_small(ctx, key, p, nullptr);
  make_big(ctx, key, p);
}

void backward_weight(mt_ctx& ctx, const mt_args_convolution_backward_weight& args) {
  const Problem p = problem(args);
  const Key key = Problem::key(MT_HASH_convolution_backward_weight, args,
                               {args.grad_output, args.input, args.out});
  run(ctx, key, {p.big, p.small, p.weight}, [&] {
    const Layouts l(p);
    Plan plan(convolution_backward_weights(attributes(), l.wanted_big, l.wanted_weight,
                                           l.wanted_small, p.windows));
    plan.input(DNNL_ARG_SRC, l.big);
    plan.input(DNNL_ARG_DIFF_DST, l.small);
    plan.output(DNNL_ARG_DIFF_WEIGHTS, l.weight);
    return plan;
  });
}

// ---- who takes what ---------------------------------------------------------------------------

template <class Args>
const char* reason(const Args& args) {
  return problem(args).reason();
}
template <>
const char* reason(const mt_args_convolution& args) {
  if (const char* why = problem(args).reason()) return why;
  const TensorView bias = args.bias, out = args.out;
  if (!bias) return nullptr;
  if (!sdk::same_dtype(bias.dtype(), out.dtype())) return "[dtype] the operands' types differ";
  if (!bias.is_contiguous()) return "the bias is not contiguous";
  if (args.transposed != 0 && !out.is_contiguous() && !is_channels_last(out)) {
    return "the result of a transposed convolution with bias is in an order of its own";
  }
  return nullptr;
}

// Where oneDNN with its reorders is faster than cpu-openmp, by 3 % to 3 times, with AVX2 and 2
// threads. Channels-last operands always are: cpu-openmp would be given row-major copies of them.
// Products soon are, since nothing or less is reordered there; of row-major images with windows
// those with enough to do, and enough terms to a sum. Of such, sums over images and windows are
// faster in cpu-openmp: that is most gradients of weights.
bool pays(const Problem& p, int64_t terms, bool sums_over_images) {
  for (const TensorView& image : {p.big, p.small}) {
    if (!image.is_contiguous() && is_channels_last(image)) return true;
  }
  const double work = p.work();
  if (p.pointwise()) return work >= 5e5;
  return !sums_over_images && work >= 1e7 && terms >= 64;
}

bool forward_pays(const mt_args_convolution& args) {
  const Problem p = problem(args);
  return pays(p, args.transposed != 0 ? p.terms_of_big() : p.terms_of_small(), false);
}
bool input_pays(const mt_args_convolution_backward_input& args) {
  const Problem p = problem(args);
  return pays(p, args.transposed != 0 ? p.terms_of_small() : p.terms_of_big(), false);
}
bool weight_pays(const mt_args_convolution_backward_weight& args) {
  return pays(problem(args), 0, true);
}

}  // namespace

void register_convolution(KernelEntries& kernels) {
  add_halves<mt_args_convolution, &forward, &reason<mt_args_convolution>, &forward_pays>(
      kernels, MT_TAKES_STRIDED);
  add_halves<mt_args_convolution_backward_input, &backward_input,
             &reason<mt_args_convolution_backward_input>, &input_pays>(kernels, MT_TAKES_STRIDED);
  add_halves<mt_args_convolution_backward_weight, &backward_weight,
             &reason<mt_args_convolution_backward_weight>, &weight_pays>(kernels, MT_TAKES_STRIDED);
}

}  // namespace mytorch::onednn
