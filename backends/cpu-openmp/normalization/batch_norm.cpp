// Batch normalization: a work item is a channel, whose planes are read again while they are in the
// L2. Declines inputs with short planes, such as (N, C): they decompose into operators that are
// vectorized along the channels.
#include <algorithm>
#include <cmath>

#include "backends/cpu-openmp/common/lines.h"
#include "backends/cpu-openmp/common/row_major.h"
#include "backends/cpu-openmp/normalization/rows.h"
#include "backends/cpu-openmp/registry.h"
#include "mytorch/abi_ops/batch_norm_training.h"
#include "mytorch/abi_ops/batch_norm_training_backward.h"
#include "mytorch/backend.h"

namespace mytorch::cpu {
namespace {

using sdk::TensorView;
using sdk::wanted;

constexpr int64_t kShort = 8;

struct Planes {
  int64_t batch, channels, size;

  explicit Planes(const TensorView& input)
      : batch(input.size(0)), channels(input.size(1)), size(1) {
    for (int d = 2; d < input.ndim(); ++d) size *= input.size(d);
    if (size < kShort || batch == 0 || channels == 0) throw sdk::Declined{};
  }
  int64_t first(int64_t n, int64_t channel) const { return (n * channels + channel) * size; }
  int64_t grain() const { return 1 + 8192 / (batch * size); }
};

void forward(mt_ctx& ctx, const mt_args_batch_norm_training& args) {
  const TensorView input = args.input;
  const Planes planes(input);
  sdk::visit_floating(input.dtype(), [&](auto tag) {
    using W = sdk::Widened<typename decltype(tag)::type>;
    const RowKernels<W>& rows = row_kernels<W>();
    const W* weight = parameter<W>(ctx, args.weight, planes.channels);
    const W* bias = parameter<W>(ctx, args.bias, planes.channels);
    const RowMajor<W> x(input);
    const RowMajor<W> out(args.out != nullptr ? args.out : args.input);
    const RowMajor<W> means(args.mean != nullptr ? args.mean : args.input);
    const RowMajor<W> vars(args.var != nullptr ? args.var : args.input);
    const int64_t n = planes.size;
    const W count = static_cast<W>(planes.batch * n);
    parallel_with_scratch<W>(
        ctx, planes.channels, planes.grain(), 2 * n, [&](W* part, int64_t begin, int64_t end) {
          for (int64_t c = begin; c < end; ++c) {
            // Squares relative to the mean of one plane, as in LayerNorm() of rows.cpp. The sums of
            // planes are added in double.
            W plane_sum, plane_squares;
            rows.moments(x.read(planes.first(0, c), n, part), n, W(0), &plane_sum, &plane_squares);
            const W center = center_of(plane_sum, n);
            double sum = 0, squares = 0;
            for (int64_t i = 0; i < planes.batch; ++i) {
              rows.moments(x.read(planes.first(i, c), n, part), n, center, &plane_sum,
                           &plane_squares);
              sum += static_cast<double>(plane_sum);
              squares += static_cast<double>(plane_squares);
            }
            const double off = sum / static_cast<double>(count);
            W mean = static_cast<W>(static_cast<double>(center) + off);
            W var = static_cast<W>(std::max(squares / static_cast<double>(count) - off * off, 0.0));
            if (args.mean != nullptr) means.put(c, 1, &mean);
            if (args.var != nullptr) vars.put(c, 1, &var);
            if (args.out == nullptr) continue;
            W scale = W(1) / std::sqrt(var + static_cast<W>(args.eps));
            if (weight != nullptr) scale *= weight[c];
            const W shift = bias == nullptr ? W(0) : bias[c];
            for (int64_t i = 0; i < planes.batch; ++i) {
              const int64_t at = planes.first(i, c);
              rows.scale(x.read(at, n, part), n, mean, scale, shift, out.write(at, part + n));
              out.finish(at, n, part + n);
            }
          }
        });
  });
}

void backward(mt_ctx& ctx, const mt_args_batch_norm_training_backward& args) {
  const TensorView input = args.input;
  const Planes planes(input);
  const bool want_x = wanted(args.output_mask, 0, args.grad_input) != nullptr;
  const bool want_weight = wanted(args.output_mask, 1, args.grad_weight) != nullptr;
  const bool want_bias = wanted(args.output_mask, 2, args.grad_bias) != nullptr;
  sdk::visit_floating(input.dtype(), [&](auto tag) {
    using W = sdk::Widened<typename decltype(tag)::type>;
    const RowKernels<W>& rows = row_kernels<W>();
    const W* weight = parameter<W>(ctx, args.weight, planes.channels);
    const W* means = parameter<W>(ctx, args.mean, planes.channels);
    const W* vars = parameter<W>(ctx, args.var, planes.channels);
    const RowMajor<W> x(input);
    const RowMajor<W> grad(args.grad_out);
    const RowMajor<W> out(want_x ? args.grad_input : args.input);
    const RowMajor<W> weights(want_weight ? args.grad_weight : args.input);
    const RowMajor<W> biases(want_bias ? args.grad_bias : args.input);
    const int64_t n = planes.size;
    const W count = static_cast<W>(planes.batch * n);
    parallel_with_scratch<W>(
        ctx, planes.channels, planes.grain(), 3 * n, [&](W* part, int64_t begin, int64_t end) {
          for (int64_t c = begin; c < end; ++c) {
            const W mean = means[c];
            const W rstd = W(1) / std::sqrt(vars[c] + static_cast<W>(args.eps));
            double total = 0, along_total = 0;
            for (int64_t i = 0; i < planes.batch; ++i) {
              const int64_t at = planes.first(i, c);
              W sum, along;
              rows.sums(grad.read(at, n, part), x.read(at, n, part + n), n, mean, &sum, &along);
              total += static_cast<double>(sum);
              along_total += static_cast<double>(along);
            }
            W weight_sum = static_cast<W>(along_total) * rstd;
            W bias_sum = static_cast<W>(total);
            if (want_weight) weights.put(c, 1, &weight_sum);
            if (want_bias) biases.put(c, 1, &bias_sum);
            if (!want_x) continue;
            const W a = weight == nullptr ? rstd : rstd * weight[c];
            const W b = -a * rstd * (weight_sum / count);
            const W shift = -a * (bias_sum / count);
            for (int64_t i = 0; i < planes.batch; ++i) {
              const int64_t at = planes.first(i, c);
              rows.combine(grad.read(at, n, part), x.read(at, n, part + n), n, mean, a, b, shift,
                           out.write(at, part + 2 * n));
              out.finish(at, n, part + 2 * n);
            }
          }
        });
  });
}

}  // namespace

void register_batch_norm(KernelEntries& kernels) {
  kernels.push_back(sdk::kernel<&forward>("channels", MT_TAKES_STRIDED));
  kernels.push_back(sdk::kernel<&backward>("channels", MT_TAKES_STRIDED));
}

}  // namespace mytorch::cpu
