// Cross-entropy of class indices in one pass over the scores, and its gradient in another. Scores
// that are contiguous rows of float or double are read in place; others are copied to such rows, a
// few targets at a time. Sums are added in fixed chunks, in order.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <string_view>
#include <type_traits>

#include "backends/cpu-openmp/common/index_range.h"
#include "backends/cpu-openmp/common/lines.h"
#include "backends/cpu-openmp/common/row_major.h"
#include "backends/cpu-openmp/common/stream.h"
#include "backends/cpu-openmp/loss/losses.h"
#include "backends/cpu-openmp/normalization/rows.h"
#include "backends/cpu-openmp/normalization/softmax_rows.h"
#include "backends/cpu-openmp/registry.h"
#include "mytorch/abi_ops/cross_entropy_backward.h"
#include "mytorch/abi_ops/cross_entropy_forward.h"
#include "mytorch/backend.h"

namespace mytorch::cpu {
namespace {

using sdk::TensorView;

// The operands of the loop over targets: scores without the class dimension, class indices,
// logarithms of sums, the loss or gradient of each target, and the output. The offsets of the
// latter two are 0 if they have a single element or are absent.
enum Operand { kScores, kTarget, kLogSum, kEach, kOut, kOperands };

struct Targets {
  int class_dim;
  int64_t classes, class_stride;
  const int64_t* data;
  int64_t ignore_index;
  sdk::StridedLoop<kOperands> loop;

  Targets(const TensorView& scores, const TensorView& target, int64_t ignored,
          const TensorView& log_sum, const TensorView& each, const TensorView& out)
      : class_dim(scores.ndim() == 1 ? 0 : 1),
        classes(scores.size(class_dim)),
        class_stride(scores.stride(class_dim)),
        data(target.data<const int64_t>()),
        ignore_index(ignored),
        loop(make(scores, target, log_sum, each, out, class_dim)) {}

  static sdk::StridedLoop<kOperands> make(const TensorView& scores, const TensorView& target,
                                          const TensorView& log_sum, const TensorView& each,
                                          const TensorView& out, int class_dim) {
    sdk::check_ndim(static_cast<size_t>(scores.ndim()));
    int64_t none[sdk::kMaxDims] = {}, of_scores[sdk::kMaxDims], of_out[sdk::kMaxDims];
    const auto without_classes = [&](const TensorView& x, int64_t* strides) {
      for (int d = 0; d < x.ndim(); ++d) {
        if (d != class_dim) *strides++ = x.stride(d);
      }
      return strides;
    };
    without_classes(scores, of_scores);
    if (out) without_classes(out, of_out);
    return sdk::StridedLoop<kOperands>(
        target.shape(), {of_scores, target.get()->dl.strides, log_sum.get()->dl.strides,
                         each ? each.get()->dl.strides : none, out ? of_out : none});
  }

  // The class of target i of a run; -1 if it is ignored.
  int64_t at(int64_t offset, int64_t i) const {
    const int64_t t = data[offset + i * loop.inner_stride(kTarget)];
    if (t == ignore_index) return -1;
    if (!in_range(t, classes)) fail_index("cross_entropy", t, class_dim, classes);
    return t;
  }
  // Calls f(offsets, n) for targets [begin, end), in groups of n.
  template <class F>
  void for_each(int64_t begin, int64_t end, F&& f) const {
    loop.for_each_run(begin, end, [&](std::array<int64_t, kOperands> offsets, int64_t n) {
      for (int64_t i = 0; i < n; i += kLinesTogether) {
        f(static_cast<const std::array<int64_t, kOperands>&>(offsets),
          std::min(kLinesTogether, n - i));
        for (int k = 0; k < kOperands; ++k) {
          offsets[static_cast<size_t>(k)] += kLinesTogether * loop.inner_stride(k);
        }
      }
    });
  }
  // The minimum number of targets for a thread.
  int64_t grain() const { return 1 + 8192 / std::max<int64_t>(classes, 1); }
  // Rows that are an odd number of cache lines apart do not compete for the same sets of the L1.
  int64_t pitch() const { return classes + 16; }
};

// Returns the score rows of a group of targets, in place or converted into `room`.
template <class W, class T>
Rows<const W> scores_of(const Targets& targets, const T* data, int64_t offset, int64_t count,
                        W* room) {
  if constexpr (std::is_same_v<T, W>) {
    if (targets.class_stride == 1 || targets.classes == 1) {
      return {data + offset, targets.loop.inner_stride(kScores)};
    }
  }
  load_lines(data + offset, targets.class_stride, targets.loop.inner_stride(kScores),
             targets.classes, count, room, targets.pitch());
  return {room, targets.pitch()};
}

template <class W>
W sum_of(const W* x, int64_t n) {
  W sums[8] = {};
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    for (int k = 0; k < 8; ++k) sums[k] += x[i + k];
  }
  for (; i < n; ++i) sums[0] += x[i];
  return ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
}

void check_operands(const TensorView& self, const TensorView& target, const TensorView& log_sum,
                    const mt_tensor* weight, double smoothing) {
  // The composite handles class weights with label smoothing.
  if (self.numel() == 0 || !target.is<int64_t>() || !log_sum ||
      (weight != nullptr && smoothing != 0)) {
    throw sdk::Declined{};
  }
}

void forward(mt_ctx& ctx, const mt_args_cross_entropy_forward& args) {
  const TensorView self = args.self, target = args.target, output = args.output;
  const TensorView log_sum = args.log_sum;
  check_operands(self, target, log_sum, args.weight, args.label_smoothing);
  if (!output || !sdk::same_dtype(output.dtype(), self.dtype())) throw sdk::Declined{};
  const std::string_view reduction = args.reduction;
  const bool none = reduction == "none";
  const Targets targets(self, target, args.ignore_index, log_sum, none ? output : TensorView(),
                        TensorView());
  sdk::visit_floating(self.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    using W = sdk::Widened<T>;
    const SoftmaxKernels<W>& kernels = softmax_kernels<W>();
    if (!log_sum.is<W>()) throw sdk::Declined{};
    const W* weight = parameter<W>(ctx, args.weight, targets.classes);
    const W smoothing = static_cast<W>(args.label_smoothing);
    const T* data = self.data<const T>();
    T* out = output.data<T>();
    const int64_t numel = target.numel(), chunk = targets.grain() * 2;
    const int64_t chunks = (numel + chunk - 1) / chunk;
    double* sums = sdk::scratch<double>(ctx, 2 * chunks);
    parallel_with_scratch<W>(
        ctx, chunks, 1, kLinesTogether * targets.pitch(),
        [&](W* room, int64_t first, int64_t last) {
          for (int64_t c = first; c < last; ++c) {
            double sum = 0, weights = 0;
            targets.for_each(
                c * chunk, std::min((c + 1) * chunk, numel), [&](const auto& at, int64_t count) {
                  const Rows<const W> rows = scores_of(targets, data, at[kScores], count, room);
                  W most[kLinesTogether], powers[kLinesTogether];
                  kernels.power_sums(rows, count, targets.classes, most, powers);
                  for (int64_t i = 0; i < count; ++i) {
                    const W* row = rows.first + i * rows.step;
                    const W rest = std::log(powers[i]);
                    log_sum.data<W>()[at[kLogSum] + i * targets.loop.inner_stride(kLogSum)] =
                        most[i] + rest;
                    W loss = 0;
                    if (const int64_t t = targets.at(at[kTarget], i); t >= 0) {
                      const W w = weight == nullptr ? W(1) : weight[t];
                      loss = w * (rest - (row[t] - most[i]));
                      if (smoothing != 0) {
                        const W every =
                            most[i] + rest -
                            sum_of(row, targets.classes) / static_cast<W>(targets.classes);
                        loss += smoothing * (every - loss);
                      }
                      weights += static_cast<double>(w);
                    }
                    sum += static_cast<double>(loss);
                    if (none) {
                      out[at[kEach] + i * targets.loop.inner_stride(kEach)] = sdk::convert<T>(loss);
                    }
                  }
                });
            sums[2 * c] = sum;
            sums[2 * c + 1] = weights;
          }
        });
    reduce_losses<W>(sums, chunks, reduction, out, args.total_weight);
  });
}

void backward(mt_ctx& ctx, const mt_args_cross_entropy_backward& args) {
  const TensorView grad = args.grad_output, self = args.self, target = args.target, out = args.out;
  const TensorView log_sum = args.log_sum;
  check_operands(self, target, log_sum, args.weight, args.label_smoothing);
  const std::string_view reduction = args.reduction;
  const bool none = reduction == "none";
  const Targets targets(self, target, args.ignore_index, log_sum, none ? grad : TensorView(), out);
  sdk::visit_floating(out.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    using W = sdk::Widened<T>;
    const SoftmaxKernels<W>& kernels = softmax_kernels<W>();
    if (!self.is<T>() || !grad.is<T>() || !log_sum.is<W>()) throw sdk::Declined{};
    const W* weight = parameter<W>(ctx, args.weight, targets.classes);
    const W smoothing = static_cast<W>(args.label_smoothing);
    const W total = reduction == "mean" ? sdk::scalar_value<W>(args.total_weight) : W(1);
    const T* data = self.data<const T>();
    const T* g = grad.data<const T>();
    T* to = out.data<T>();
    const int64_t n = targets.classes, pitch = targets.pitch();
    const int64_t out_stride = out.stride(targets.class_dim);
    const int64_t out_step = targets.loop.inner_stride(kOut);
    const bool large = out.numel() * out.itemsize() >= kStreamBytes;
    parallel_with_scratch<W>(
        ctx, target.numel(), targets.grain(), 2 * kLinesTogether * pitch,
        [&](W* room, int64_t begin, int64_t end) {
          bool fence = false;
          targets.for_each(begin, end, [&](const auto& at, int64_t count) {
            const Rows<const W> rows = scores_of(targets, data, at[kScores], count, room);
            Rows<W> results{room + kLinesTogether * pitch, pitch};
            bool staged = true, non_temporal = false;
            if constexpr (std::is_same_v<T, W>) {
              if (out_stride == 1 || n == 1) {
                results = {to + at[kOut], out_step};
                staged = false;
                constexpr int64_t kItem = static_cast<int64_t>(sizeof(W));
                non_temporal = large && whole_lines(results.first, results.step * kItem, n * kItem);
                fence = fence || non_temporal;
              }
            }
            W shift[kLinesTogether], factor[kLinesTogether], own[kLinesTogether];
            W every[kLinesTogether];
            for (int64_t i = 0; i < count; ++i) {
              shift[i] = log_sum.data<W>()[at[kLogSum] + i * targets.loop.inner_stride(kLogSum)];
              const int64_t t = targets.at(at[kTarget], i);
              const W scale =
                  t < 0
                      ? W(0)
                      : static_cast<W>(g[at[kEach] + i * targets.loop.inner_stride(kEach)]) / total;
              own[i] = (W(1) - smoothing) * scale * (weight == nullptr || t < 0 ? W(1) : weight[t]);
              const W spread = smoothing == 0 ? W(0) : smoothing * scale;  // scale may be infinite
              factor[i] = own[i] + spread;
              every[i] = spread / static_cast<W>(n);
            }
            kernels.powers(rows, results, count, n, shift, factor, every, non_temporal);
            for (int64_t i = 0; i < count; ++i) {
              W* row = results.first + i * results.step;
              if (const int64_t t = targets.at(at[kTarget], i); t >= 0) {
                const W p = std::exp(rows.first[i * rows.step + t] - shift[i]);
                row[t] = p * factor[i] - every[i] - own[i];
              } else {
                std::fill(row, row + n, W(0));  // scores may be infinite
              }
            }
            if (staged) {
              store_lines(results.first, pitch, to + at[kOut], out_stride, out_step, n, count);
            }
          });
          if (fence) stream_fence();
        });
  });
}

}  // namespace

void register_cross_entropy(KernelEntries& kernels) {
  kernels.push_back(sdk::kernel<&forward>("rows", MT_TAKES_STRIDED));
  kernels.push_back(sdk::kernel<&backward>("rows", MT_TAKES_STRIDED));
}

}  // namespace mytorch::cpu
