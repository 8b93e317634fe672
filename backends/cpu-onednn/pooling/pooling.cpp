// Average pooling. Max pooling is not supported, because oneDNN's indices are relative to the
// window, and the record's index is that of the first maximum in the plane.
#include "backends/cpu-onednn/engine/operand.h"
#include "backends/cpu-onednn/engine/run.h"
#include "backends/cpu-onednn/registry.h"
#include "mytorch/abi_ops/avg_pool2d.h"
#include "mytorch/abi_ops/avg_pool2d_backward.h"
#include "mytorch/backend.h"

namespace mytorch::onednn {
namespace {

using sdk::TensorView;

// The windows that pool planes of `large` to planes of `pooled`.
template <class Args>
Windows windows(const Args& args, const TensorView& large, const TensorView& pooled) {
  const sdk::PlaneWindows given = sdk::pooling_windows(args, large, pooled);
  Windows w;
  w.add(given.h, large.size(-2), pooled.size(-2));
  w.add(given.w, large.size(-1), pooled.size(-1));
  // Rows and columns outside of all windows are ignored.
  for (int64_t& after : w.after) after = std::max<int64_t>(after, 0);
  return w;
}

// Returns (N, C, H, W); a tensor without a batch is a batch of one.
Desc describe_planes(const TensorView& tensor) {
  if (tensor.ndim() == 4) return describe(tensor);
  Dims shape = shape_of(tensor);
  shape.insert(shape.begin(), 1);
  return describe_contiguous(tensor.dtype(), shape);
}

// `pooled` in the layout of `large`, in which oneDNN computes.
Desc like(const TensorView& large, const TensorView& pooled) {
  Desc desc = describe_planes(pooled);
  if (large.is_contiguous() == pooled.is_contiguous()) return desc;
  const Dims shape = {pooled.size(0), pooled.size(1), pooled.size(2), pooled.size(3)};
  if (large.is_contiguous()) return describe_contiguous(pooled.dtype(), shape);
  return describe(pooled.dtype(), shape,
                  {shape[1] * shape[2] * shape[3], 1, shape[1] * shape[3], shape[1]});
}

template <class Args>
const char* reason(const Args& args, const TensorView& large, const TensorView& pooled) {
  for (const TensorView& tensor : {large, pooled}) {
    if (const char* why = float_type_reason(tensor.dtype())) return why;
    if (const char* why = size_reason(tensor)) return why;
    if (!tensor.is_contiguous() && !(tensor.ndim() == 4 && is_channels_last(tensor))) {
      return "an operand is neither row-major nor channels-last";
    }
  }
  if (args.divisor_override.present != 0) return "divisor_override is not supported";
  const Windows w = windows(args, large, pooled);
  for (size_t d = 0; d < 2; ++d) {
    if (args.count_include_pad != 0 && w.after[d] > w.before[d]) {
      return "a window reaches beyond the padding, which oneDNN would count";
    }
    if (w.before[d] >= w.kernel[d] || w.after[d] >= w.kernel[d]) return "a window is all padding";
  }
  return nullptr;
}

template <class Args>
dnnl::algorithm algorithm(const Args& args) {
  return args.count_include_pad != 0 ? dnnl::algorithm::pooling_avg_include_padding
                                     : dnnl::algorithm::pooling_avg_exclude_padding;
}

template <class Args>
Key key(uint64_t kind, const Args& args, const mt_tensor* large, const mt_tensor* pooled) {
  Key key(kind, {large, pooled});
  key.numbers(args.kernel_size);
  key.numbers(args.stride);
  key.numbers(args.padding);
  key.number(args.count_include_pad);
  return key;
}

const char* pool_forward_supports(const mt_args_avg_pool2d& args) {
  return reason(args, args.self, args.out);
}

void pool_forward(mt_ctx& ctx, const mt_args_avg_pool2d& args) {
  const TensorView self = args.self, out = args.out;
  run(ctx, key(MT_HASH_avg_pool2d, args, args.self, args.out), {self, out}, [&] {
    const Desc from = describe_planes(self), to = describe_planes(out);
    Plan plan(
        pooling(attributes(), algorithm(args), from, like(self, out), windows(args, self, out)));
    plan.input(DNNL_ARG_SRC, from);
    plan.output(DNNL_ARG_DST, to);
    return plan;
  });
}

const char* pool_backward_supports(const mt_args_avg_pool2d_backward& args) {
  return reason(args, args.out, args.grad_output);
}

void pool_backward(mt_ctx& ctx, const mt_args_avg_pool2d_backward& args) {
  const TensorView grad = args.grad_output, out = args.out;
  run(ctx, key(MT_HASH_avg_pool2d_backward, args, args.out, args.grad_output), {grad, out}, [&] {
    const Desc from = describe_planes(grad), to = describe_planes(out);
    Plan plan(pooling_backward(attributes(), algorithm(args), to, like(out, grad),
                               windows(args, out, grad)));
    plan.input(DNNL_ARG_DIFF_DST, from);
    plan.output(DNNL_ARG_DIFF_SRC, to);
    return plan;
  });
}

// oneDNN is faster for large channels-last inputs, and for large windows, whose rows have so few
// results that vectors along them are mostly empty.
bool is_large(const TensorView& input) { return input.numel() >= 1 << 14; }

bool pool_forward_pays(const mt_args_avg_pool2d& args) {
  const TensorView self = args.self;
  if (!is_large(self)) return false;
  if (!self.is_contiguous()) return true;
  const Windows w = windows(args, self, args.out);
  return w.kernel[0] * w.kernel[1] >= 49;
}
bool pool_backward_pays(const mt_args_avg_pool2d_backward& args) {
  const TensorView out = args.out;
  return is_large(out) && !out.is_contiguous();
}

}  // namespace

void register_pooling(KernelEntries& kernels) {
  add_halves<mt_args_avg_pool2d, &pool_forward, &pool_forward_supports, &pool_forward_pays>(
      kernels, MT_TAKES_STRIDED);
  add_halves<mt_args_avg_pool2d_backward, &pool_backward, &pool_backward_supports,
             &pool_backward_pays>(kernels, MT_TAKES_STRIDED);
}

}  // namespace mytorch::onednn
