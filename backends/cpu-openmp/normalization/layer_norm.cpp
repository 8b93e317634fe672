// Layer normalization: a row is read from memory once, and its mean, its spread around the mean and
// its result are computed while it is in the L1 and the next row on its way. So are both sums of a
// gradient and its share of the parameters' gradients; these are summed over a fixed number of
// parts of the rows, and the parts in order.
#include <algorithm>
#include <cmath>

#include "backends/cpu-openmp/copy/stream.h"
#include "backends/cpu-openmp/normalization/row_major.h"
#include "backends/cpu-openmp/normalization/rows.h"
#include "backends/cpu-openmp/registry.h"
#include "backends/cpu-openmp/scan/lines.h"
#include "mytorch/abi_ops/native_layer_norm.h"
#include "mytorch/abi_ops/native_layer_norm_backward.h"
#include "mytorch/backend.h"

namespace mytorch::cpu {
namespace {

using sdk::TensorView;

int64_t product(const mt_int_list& list) {
  int64_t n = 1;
  for (int64_t i = 0; i < list.size; ++i) n *= list.data[i];
  return n;
}

bool wanted(const mt_int_list& mask, int64_t i, const mt_tensor* out) {
  return out != nullptr && (mask.size <= i || mask.data[i] != 0);
}

// Rows of so many bytes are in the L1 when they are fetched one row ahead.
constexpr int64_t kShortBytes = 8192;

// What comes after row `row` of n elements, where it is to be fetched ahead.
template <class W>
const W* after(const RowMajor<W>& x, int64_t row, int64_t end, int64_t n) {
  const bool ahead = x.direct() && row + 1 < end && n * int64_t{sizeof(W)} <= kShortBytes;
  return ahead ? x.read((row + 1) * n, n, nullptr) : nullptr;
}

// Whether rows of n elements are stored past the caches.
template <class W>
bool goes_past(const RowMajor<W>& out, int64_t rows, int64_t n) {
  const int64_t bytes = n * int64_t{sizeof(W)};
  return out.direct() && rows * bytes >= kStreamBytes &&
         whole_lines(out.write(0, nullptr), bytes, bytes);
}

void forward(mt_ctx& ctx, const mt_args_native_layer_norm& args) {
  const TensorView input = args.input;
  const int64_t n = product(args.normalized_shape);
  if (n == 0 || input.numel() == 0) throw sdk::Declined{};
  const int64_t rows = input.numel() / n;
  sdk::visit_floating(input.dtype(), [&](auto tag) {
    using W = sdk::Widened<typename decltype(tag)::type>;
    const W* weight = parameter<W>(ctx, args.weight, n);
    const W* bias = parameter<W>(ctx, args.bias, n);
    const RowMajor<W> x(input);
    const RowMajor<W> out(args.out != nullptr ? args.out : args.input);
    const RowMajor<W> means(args.mean != nullptr ? args.mean : args.input);
    const RowMajor<W> rstds(args.rstd != nullptr ? args.rstd : args.input);
    const bool past = args.out != nullptr && goes_past(out, rows, n);
    parallel_with_scratch<W>(
        ctx, rows, 1 + 8192 / n, 2 * n, [&](W* part, int64_t begin, int64_t end) {
          for (int64_t row = begin; row < end; ++row) {
            W mean, rstd;
            W* to = args.out != nullptr ? out.write(row * n, part + n) : nullptr;
            layer_norm_row(x.read(row * n, n, part), n, static_cast<W>(args.eps), weight, bias, to,
                           &mean, &rstd, {after(x, row, end, n), nullptr, past});
            if (to != nullptr) out.finish(row * n, n, part + n);
            if (args.mean != nullptr) means.put(row, 1, &mean);
            if (args.rstd != nullptr) rstds.put(row, 1, &rstd);
          }
          if (past) stream_fence();
        });
  });
}

void backward(mt_ctx& ctx, const mt_args_native_layer_norm_backward& args) {
  const TensorView input = args.input;
  const int64_t n = product(args.normalized_shape);
  if (n == 0 || input.numel() == 0) throw sdk::Declined{};
  const int64_t rows = input.numel() / n;
  const bool want_x = wanted(args.output_mask, 0, args.grad_input);
  const bool want_weight = wanted(args.output_mask, 1, args.grad_weight);
  const bool want_bias = wanted(args.output_mask, 2, args.grad_bias);
  sdk::visit_floating(input.dtype(), [&](auto tag) {
    using W = sdk::Widened<typename decltype(tag)::type>;
    const W* weight = parameter<W>(ctx, args.weight, n);
    const W* means = parameter<W>(ctx, args.mean, rows);
    const W* rstds = parameter<W>(ctx, args.rstd, rows);
    const RowMajor<W> x(input);
    const RowMajor<W> grad(args.grad_out);
    const RowMajor<W> out(want_x ? args.grad_input : args.input);
    const bool sums = want_weight || want_bias;
    const int64_t parts = sums ? std::min<int64_t>(rows, 16) : std::min<int64_t>(rows, 256);
    W* partial = sums ? sdk::scratch<W>(ctx, 2 * parts * n) : nullptr;
    const int64_t grain = 1 + 8192 * parts / input.numel();
    const bool past = want_x && goes_past(out, rows, n);
    parallel_with_scratch<W>(ctx, parts, grain, 3 * n, [&](W* memory, int64_t begin, int64_t end) {
      for (int64_t part = begin; part < end; ++part) {
        W* own = sums ? partial + 2 * part * n : nullptr;
        if (sums) std::fill(own, own + 2 * n, W{});
        const int64_t last = rows * (part + 1) / parts;
        for (int64_t row = rows * part / parts; row < last; ++row) {
          LayerNormGradient<W> line{};
          line.x = x.read(row * n, n, memory);
          line.g = grad.read(row * n, n, memory + n);
          line.mean = means[row], line.rstd = rstds[row];
          line.weight = weight;
          if (sums) line.weight_sum = own, line.bias_sum = own + n;
          if (want_x) line.to = out.write(row * n, memory + 2 * n);
          layer_norm_gradient_row(line, n,
                                  {after(grad, row, last, n), after(x, row, last, n), past});
          if (want_x) out.finish(row * n, n, memory + 2 * n);
        }
      }
      if (past) stream_fence();
    });
    if (!sums) return;
    for (int64_t part = 1; part < parts; ++part) {
      for (int64_t i = 0; i < 2 * n; ++i) partial[i] += partial[2 * part * n + i];
    }
    if (want_weight) RowMajor<W>(args.grad_weight).put(0, n, partial);
    if (want_bias) RowMajor<W>(args.grad_bias).put(0, n, partial + n);
  });
}

}  // namespace

void register_layer_norm(Candidates& candidates) {
  candidates.push_back(sdk::kernel<&forward>("native_layer_norm", MT_HASH_native_layer_norm, "rows",
                                             0, MT_TAKES_STRIDED));
  candidates.push_back(sdk::kernel<&backward>("native_layer_norm_backward",
                                              MT_HASH_native_layer_norm_backward, "rows", 0,
                                              MT_TAKES_STRIDED));
}

}  // namespace mytorch::cpu
