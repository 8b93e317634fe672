// softmax and log_softmax along any dimension. Lines that are contiguous rows of float or double
// are computed in place; others are copied to such rows, a few at a time.
#include "mytorch/abi_ops/softmax.h"

#include <algorithm>
#include <array>

#include "backends/cpu-openmp/common/lines.h"
#include "backends/cpu-openmp/common/stream.h"
#include "backends/cpu-openmp/normalization/rows.h"
#include "backends/cpu-openmp/normalization/softmax_rows.h"
#include "backends/cpu-openmp/registry.h"
#include "mytorch/abi_ops/log_softmax.h"
#include "mytorch/abi_ops/log_softmax_backward.h"
#include "mytorch/abi_ops/softmax_backward.h"
#include "mytorch/backend.h"

namespace mytorch::cpu {
namespace {

using sdk::TensorView;

// Functions that copy lines of an operand of any dtype to rows of the compute type, and back.
template <class W>
using Load = void (*)(const TensorView& from, int64_t at, int64_t step, int64_t next, int64_t size,
                      int64_t count, W* to, int64_t pitch);
template <class W>
Load<W> loader(mt_dtype dtype) {
  return sdk::visit_dtype(dtype, [](auto tag) -> Load<W> {
    using T = typename decltype(tag)::type;
    return [](const TensorView& from, int64_t at, int64_t step, int64_t next, int64_t size,
              int64_t count, W* to, int64_t pitch) {
      load_lines(from.data<const T>() + at, step, next, size, count, to, pitch);
    };
  });
}

template <class W>
using Store = void (*)(const W* from, int64_t pitch, const TensorView& to, int64_t at, int64_t step,
                       int64_t next, int64_t size, int64_t count);
template <class W>
Store<W> storer(mt_dtype dtype) {
  return sdk::visit_floating(dtype, [](auto tag) -> Store<W> {
    using T = typename decltype(tag)::type;
    return [](const W* from, int64_t pitch, const TensorView& to, int64_t at, int64_t step,
              int64_t next, int64_t size, int64_t count) {
      store_lines(from, pitch, to.data<T>() + at, step, next, size, count);
    };
  });
}

// Calls rows(kernels, inputs, to, count, n, non_temporal) for lines of `out` along `dim`, in W.
template <class W, size_t kInputs, class F>
void for_each_line(mt_ctx& ctx, const std::array<TensorView, kInputs>& inputs,
                   const TensorView& out, int64_t dim, const F& rows) {
  const SoftmaxKernels<W>& kernels = softmax_kernels<W>();
  constexpr int kOperands = static_cast<int>(kInputs) + 1;
  std::array<TensorView, kInputs + 1> operands;
  std::copy(inputs.begin(), inputs.end(), operands.begin());
  operands[kInputs] = out;
  const auto lines = sdk::make_lines<kOperands>(operands, dim);
  const int64_t n = lines.size[0];
  if (n == 0) return;
  const bool same = std::all_of(operands.begin(), operands.end(),
                                [](const TensorView& x) { return x.template is<W>(); });
  const bool contiguous = same && std::all_of(lines.step.begin(), lines.step.end(),
                                              [&](int64_t step) { return step == 1 || n == 1; });
  const int64_t grain = 1 + 8192 / n;
  if (contiguous) {
    constexpr int64_t kItem = static_cast<int64_t>(sizeof(W));
    const bool large = out.numel() * kItem >= kStreamBytes;
    sdk::parallel_for(ctx, 0, lines.count(), grain, [&](int64_t begin, int64_t end) noexcept {
      lines.loop.for_each_run(begin, end, [&](const auto& at, int64_t count) {
        std::array<Rows<const W>, kInputs> from;
        for (size_t k = 0; k < kInputs; ++k) {
          from[k] = {inputs[k].template data<const W>() + at[k],
                     lines.loop.inner_stride(static_cast<int>(k))};
        }
        const Rows<W> to = {out.data<W>() + at[kInputs],
                            lines.loop.inner_stride(static_cast<int>(kInputs))};
        rows(kernels, from, to, count, n,
             large && whole_lines(to.first, to.step * kItem, n * kItem));
      });
      if (large) stream_fence();
    });
    return;
  }
  std::array<Load<W>, kInputs> load;
  for (size_t k = 0; k < kInputs; ++k) load[k] = loader<W>(inputs[k].dtype());
  const Store<W> store = storer<W>(out.dtype());
  // Rows that are an odd number of cache lines apart do not compete for the same sets of the L1.
  const int64_t pitch = n + 16;
  parallel_with_scratch<W>(
      ctx, lines.count(), grain, kOperands * kLinesTogether * pitch,
      [&](W* part, int64_t begin, int64_t end) {
        W* to = part + static_cast<int64_t>(kInputs) * kLinesTogether * pitch;
        for_each_group(lines, begin, end, [&](const auto& at, int64_t count) {
          std::array<Rows<const W>, kInputs> from;
          for (size_t k = 0; k < kInputs; ++k) {
            W* staged = part + static_cast<int64_t>(k) * kLinesTogether * pitch;
            load[k](inputs[k], at[k], lines.step[k], lines.loop.inner_stride(static_cast<int>(k)),
                    n, count, staged, pitch);
            from[k] = {staged, pitch};
          }
          rows(kernels, from, Rows<W>{to, pitch}, count, n, false);
          store(to, pitch, out, at[kInputs], lines.step[kInputs],
                lines.loop.inner_stride(static_cast<int>(kInputs)), n, count);
        });
      });
}

constexpr auto kSoftmax = [](const auto& kernels, const auto& x, const auto&... rest) {
  kernels.softmax(x[0], rest...);
};
constexpr auto kLogSoftmax = [](const auto& kernels, const auto& x, const auto&... rest) {
  kernels.log_softmax(x[0], rest...);
};
constexpr auto kSoftmaxGradient = [](const auto& kernels, const auto& x, const auto&... rest) {
  kernels.softmax_gradient(x[0], x[1], rest...);
};
constexpr auto kLogSoftmaxGradient = [](const auto& kernels, const auto& x, const auto&... rest) {
  kernels.log_softmax_gradient(x[0], x[1], rest...);
};

template <size_t kInputs, class F>
void along(mt_ctx& ctx, const std::array<TensorView, kInputs>& inputs, const TensorView& out,
           int64_t dim, const F& rows) {
  if (out.is<double>()) {
    for_each_line<double>(ctx, inputs, out, dim, rows);
  } else {
    for_each_line<float>(ctx, inputs, out, dim, rows);
  }
}

// The input may have any dtype; it is converted to the compute type of the output.
void softmax(mt_ctx& ctx, const mt_args_softmax_int& args) {
  along<1>(ctx, {args.self}, args.out, args.dim, kSoftmax);
}
void log_softmax(mt_ctx& ctx, const mt_args_log_softmax_int& args) {
  along<1>(ctx, {args.self}, args.out, args.dim, kLogSoftmax);
}

template <class Args, class F>
void backward(mt_ctx& ctx, const Args& args, const F& rows) {
  const mt_dtype dtype = TensorView(args.out).dtype();
  if (!sdk::same_dtype(TensorView(args.grad_output).dtype(), dtype) ||
      !sdk::same_dtype(TensorView(args.output).dtype(), dtype)) {
    throw sdk::Declined{};
  }
  along<2>(ctx, {args.grad_output, args.output}, args.out, args.dim, rows);
}
void softmax_backward(mt_ctx& ctx, const mt_args_softmax_backward& args) {
  backward(ctx, args, kSoftmaxGradient);
}
void log_softmax_backward(mt_ctx& ctx, const mt_args_log_softmax_backward& args) {
  backward(ctx, args, kLogSoftmaxGradient);
}

}  // namespace

void register_softmax(KernelEntries& kernels) {
  constexpr uint32_t kTakes = MT_TAKES_STRIDED;
  kernels.push_back(sdk::kernel<&softmax>("rows", kTakes));
  kernels.push_back(sdk::kernel<&log_softmax>("rows", kTakes));
  kernels.push_back(sdk::kernel<&softmax_backward>("rows", kTakes));
  kernels.push_back(sdk::kernel<&log_softmax_backward>("rows", kTakes));
}

}  // namespace mytorch::cpu
