// Layer and root-mean-square normalization, also of the sum of two operands. A row is read from
// memory once; its mean, variance and result are computed while it is in the L1 and the next row is
// prefetched. The same holds for both sums of a gradient and for its contribution to the gradients
// of the parameters. These are summed over a fixed number of parts of the rows, and then over the
// parts in order.
#include <algorithm>
#include <cmath>
#include <optional>

#include "backends/cpu-openmp/common/lines.h"
#include "backends/cpu-openmp/common/row_major.h"
#include "backends/cpu-openmp/common/stream.h"
#include "backends/cpu-openmp/normalization/rows.h"
#include "backends/cpu-openmp/registry.h"
#include "mytorch/abi_ops/native_add_layer_norm.h"
#include "mytorch/abi_ops/native_add_layer_norm_backward.h"
#include "mytorch/abi_ops/native_add_rms_norm.h"
#include "mytorch/abi_ops/native_add_rms_norm_backward.h"
#include "mytorch/abi_ops/native_layer_norm.h"
#include "mytorch/abi_ops/native_layer_norm_backward.h"
#include "mytorch/abi_ops/native_rms_norm.h"
#include "mytorch/abi_ops/native_rms_norm_backward.h"
#include "mytorch/backend.h"

namespace mytorch::cpu {
namespace {

using sdk::product;
using sdk::TensorView;
using sdk::wanted;

// The maximum size in bytes of a row that is prefetched one row ahead.
constexpr int64_t kShortBytes = 8192;

// Returns the row after `row` if it should be prefetched, else NULL.
template <class W>
const W* after(const RowMajor<W>& x, int64_t row, int64_t end, int64_t n) {
  const bool ahead = x.direct() && row + 1 < end && n * int64_t{sizeof(W)} <= kShortBytes;
  return ahead ? x.read((row + 1) * n, n, nullptr) : nullptr;
}

// Returns whether rows of n elements are written with non-temporal stores.
template <class W>
bool stores_non_temporal(const RowMajor<W>& out, int64_t rows, int64_t n) {
  const int64_t bytes = n * int64_t{sizeof(W)};
  return out.direct() && rows * bytes >= kStreamBytes &&
         whole_lines(out.write(0, nullptr), bytes, bytes);
}

// The operands of a normalization of rows of n elements. It subtracts the mean if `centered`.
struct Normalization {
  const mt_tensor *input, *weight, *bias;
  int64_t n;
  double eps;
  const mt_tensor *out, *mean, *rstd;  // or NULL
  bool centered;
  // The rows that are normalized are the sums of both, which are also written; or NULL.
  const mt_tensor *residual = nullptr, *sum = nullptr;
};

// Adds rows of two operands into a third.
template <class W>
class Sums {
 public:
  Sums(const Normalization& call, bool non_temporal)
      : x_(call.input), residual_(call.residual), sum_(call.sum), non_temporal_(non_temporal) {}

  // Returns the sum, rounded to the type of the operands. `memory` has space for 2 * n elements, of
  // which the result may use the first n. Sets the rows that
  // `context` prefetches.
  const W* row(const RowKernels<W>& kernels, int64_t row, int64_t end, int64_t n, W* memory,
               RowContext<W>* context) const {
    const int64_t first = row * n;
    const W* x = x_.read(first, n, memory);
    const W* other = residual_.read(first, n, memory + n);
    context->next = after(x_, row, end, n);
    context->next_other = after(residual_, row, end, n);
    if (non_temporal_) {
      // The sum is read again, so it does not leave the cache before it is normalized.
      kernels.add(x, other, n, memory);
      stream_copy(sum_.write(first, nullptr), memory, n * int64_t{sizeof(W)});
      return memory;
    }
    W* to = sum_.write(first, memory);
    kernels.add(x, other, n, to);
    sum_.finish(first, n, memory);
    return sum_.read(first, n, memory);
  }

 private:
  RowMajor<W> x_, residual_, sum_;
  bool non_temporal_;
};

void forward(mt_ctx& ctx, const Normalization& call) {
  const TensorView input = call.input;
  const int64_t n = call.n;
  if (n == 0 || input.numel() == 0) throw sdk::Declined{};
  const int64_t rows = input.numel() / n;
  sdk::visit_floating(input.dtype(), [&](auto tag) {
    using W = sdk::Widened<typename decltype(tag)::type>;
    const RowKernels<W>& kernels = row_kernels<W>();
    const W* weight = parameter<W>(ctx, call.weight, n);
    const W* bias = parameter<W>(ctx, call.bias, n);
    const RowMajor<W> x(input);
    const RowMajor<W> out(call.out != nullptr ? call.out : call.input);
    const RowMajor<W> means(call.mean != nullptr ? call.mean : call.input);
    const RowMajor<W> rstds(call.rstd != nullptr ? call.rstd : call.input);
    const bool non_temporal = call.out != nullptr && stores_non_temporal(out, rows, n);
    std::optional<Sums<W>> sums;
    if (call.sum != nullptr) {
      const RowMajor<W> to(call.sum);
      sums.emplace(call, stores_non_temporal(to, rows, n));
    }
    parallel_with_scratch<W>(
        ctx, rows, 1 + 8192 / n, 3 * n, [&](W* part, int64_t begin, int64_t end) {
          for (int64_t row = begin; row < end; ++row) {
            W mean, rstd;
            W* to = call.out != nullptr ? out.write(row * n, part + 2 * n) : nullptr;
            RowContext<W> context{nullptr, nullptr, non_temporal};
            const W* line;
            if (sums) {
              line = sums->row(kernels, row, end, n, part, &context);
            } else {
              line = x.read(row * n, n, part);
              context.next = after(x, row, end, n);
            }
            kernels.layer_norm(line, n, static_cast<W>(call.eps), weight, bias, to,
                               call.centered ? &mean : nullptr, &rstd, context);
            if (to != nullptr) out.finish(row * n, n, part + 2 * n);
            if (call.mean != nullptr) means.put(row, 1, &mean);
            if (call.rstd != nullptr) rstds.put(row, 1, &rstd);
          }
          if (non_temporal || sums) stream_fence();
        });
  });
}

void layer_norm(mt_ctx& ctx, const mt_args_native_layer_norm& args) {
  forward(ctx, {args.input, args.weight, args.bias, product(args.normalized_shape), args.eps,
                args.out, args.mean, args.rstd, true});
}
void rms_norm(mt_ctx& ctx, const mt_args_native_rms_norm& args) {
  forward(ctx, {args.input, args.weight, nullptr, product(args.normalized_shape), args.eps,
                args.out, nullptr, args.rstd, false});
}
void add_layer_norm(mt_ctx& ctx, const mt_args_native_add_layer_norm& args) {
  forward(ctx, {args.input, args.weight, args.bias, product(args.normalized_shape), args.eps,
                args.out, args.mean, args.rstd, true, args.residual, args.sum});
}
void add_rms_norm(mt_ctx& ctx, const mt_args_native_add_rms_norm& args) {
  forward(ctx, {args.input, args.weight, nullptr, product(args.normalized_shape), args.eps,
                args.out, nullptr, args.rstd, false, args.residual, args.sum});
}

// The operands of a gradient. Gradients that are NULL are not computed; `mean` is NULL if rows are
// not centered.
struct Gradients {
  const mt_tensor *grad, *input, *mean, *rstd, *weight;
  int64_t n;
  const mt_tensor *to_input, *to_weight, *to_bias;
  const mt_tensor* added = nullptr;  // to the gradient of the input; or NULL
};

void backward(mt_ctx& ctx, const Gradients& call) {
  const TensorView input = call.input;
  const int64_t n = call.n;
  if (n == 0 || input.numel() == 0) throw sdk::Declined{};
  const int64_t rows = input.numel() / n;
  const bool centered = call.mean != nullptr;
  const bool want_x = call.to_input != nullptr;
  sdk::visit_floating(input.dtype(), [&](auto tag) {
    using W = sdk::Widened<typename decltype(tag)::type>;
    const RowKernels<W>& kernels = row_kernels<W>();
    const W* weight = parameter<W>(ctx, call.weight, n);
    const W* means = parameter<W>(ctx, call.mean, rows);
    const W* rstds = parameter<W>(ctx, call.rstd, rows);
    const RowMajor<W> x(input);
    const RowMajor<W> grad(call.grad);
    const RowMajor<W> added(call.added != nullptr ? call.added : call.input);
    const RowMajor<W> out(want_x ? call.to_input : call.input);
    const bool sums = call.to_weight != nullptr || call.to_bias != nullptr;
    const int64_t each = (centered ? 2 : 1) * n;  // of the sums of a part: for the weight, the bias
    const int64_t parts = std::min<int64_t>(rows, sums ? 16 : 256);
    W* partial = sums ? sdk::scratch<W>(ctx, parts * each) : nullptr;
    const int64_t grain = 1 + 8192 * parts / input.numel();
    const bool non_temporal = want_x && stores_non_temporal(out, rows, n);
    parallel_with_scratch<W>(ctx, parts, grain, 4 * n, [&](W* memory, int64_t begin, int64_t end) {
      for (int64_t part = begin; part < end; ++part) {
        W* own = sums ? partial + part * each : nullptr;
        if (sums) std::fill(own, own + each, W{});
        const int64_t last = rows * (part + 1) / parts;
        for (int64_t row = rows * part / parts; row < last; ++row) {
          NormGradient<W> line{};
          line.x = x.read(row * n, n, memory);
          line.g = grad.read(row * n, n, memory + n);
          line.mean = centered ? means[row] : W(0);
          line.rstd = rstds[row];
          line.centered = centered;
          line.weight = weight;
          line.weight_sum = own;
          if (sums && centered) line.bias_sum = own + n;
          if (want_x) line.to = out.write(row * n, memory + 2 * n);
          if (want_x && call.added != nullptr) {
            line.added = added.read(row * n, n, memory + 3 * n);
          }
          kernels.norm_gradient(line, n,
                                {after(grad, row, last, n), after(x, row, last, n), non_temporal});
          if (want_x) out.finish(row * n, n, memory + 2 * n);
        }
      }
      if (non_temporal) stream_fence();
    });
    if (!sums) return;
    for (int64_t part = 1; part < parts; ++part) {
      for (int64_t i = 0; i < each; ++i) partial[i] += partial[part * each + i];
    }
    if (call.to_weight != nullptr) RowMajor<W>(call.to_weight).put(0, n, partial);
    if (call.to_bias != nullptr) RowMajor<W>(call.to_bias).put(0, n, partial + n);
  });
}

void layer_norm_backward(mt_ctx& ctx, const mt_args_native_layer_norm_backward& args) {
  backward(ctx, {args.grad_out, args.input, args.mean, args.rstd, args.weight,
                 product(args.normalized_shape), wanted(args.output_mask, 0, args.grad_input),
                 wanted(args.output_mask, 1, args.grad_weight),
                 wanted(args.output_mask, 2, args.grad_bias)});
}
void rms_norm_backward(mt_ctx& ctx, const mt_args_native_rms_norm_backward& args) {
  backward(ctx, {args.grad_out, args.input, nullptr, args.rstd, args.weight,
                 product(args.normalized_shape), wanted(args.output_mask, 0, args.grad_input),
                 wanted(args.output_mask, 1, args.grad_weight), nullptr});
}
void add_layer_norm_backward(mt_ctx& ctx, const mt_args_native_add_layer_norm_backward& args) {
  backward(ctx, {args.grad_out, args.sum, args.mean, args.rstd, args.weight,
                 product(args.normalized_shape), wanted(args.output_mask, 0, args.grad_input),
                 wanted(args.output_mask, 1, args.grad_weight),
                 wanted(args.output_mask, 2, args.grad_bias), args.grad_sum});
}
void add_rms_norm_backward(mt_ctx& ctx, const mt_args_native_add_rms_norm_backward& args) {
  backward(ctx, {args.grad_out, args.sum, nullptr, args.rstd, args.weight,
                 product(args.normalized_shape), wanted(args.output_mask, 0, args.grad_input),
                 wanted(args.output_mask, 1, args.grad_weight), nullptr, args.grad_sum});
}

}  // namespace

void register_layer_norm(KernelEntries& kernels) {
  constexpr uint32_t kTakes = MT_TAKES_STRIDED;
  kernels.push_back(sdk::kernel<&layer_norm>("rows", kTakes));
  kernels.push_back(sdk::kernel<&layer_norm_backward>("rows", kTakes));
  kernels.push_back(sdk::kernel<&rms_norm>("rows", kTakes));
  kernels.push_back(sdk::kernel<&rms_norm_backward>("rows", kTakes));
  kernels.push_back(sdk::kernel<&add_layer_norm>("rows", kTakes));
  kernels.push_back(sdk::kernel<&add_layer_norm_backward>("rows", kTakes));
  kernels.push_back(sdk::kernel<&add_rms_norm>("rows", kTakes));
  kernels.push_back(sdk::kernel<&add_rms_norm_backward>("rows", kTakes));
}

}  // namespace mytorch::cpu
