// nll_loss, which reads one score per target. Sums are added in fixed chunks, in order.
#include <array>
#include <cstring>
#include <string_view>

#include "backends/cpu-openmp/common/index_range.h"
#include "backends/cpu-openmp/common/row_major.h"
#include "backends/cpu-openmp/loss/losses.h"
#include "backends/cpu-openmp/registry.h"
#include "mytorch/abi_ops/nll_loss_backward.h"
#include "mytorch/abi_ops/nll_loss_forward.h"
#include "mytorch/backend.h"

namespace mytorch::cpu {
namespace {

using sdk::TensorView;

constexpr int64_t kChunk = 4096;

// The loop over targets and their scores without the class dimension.
struct Scores {
  int class_dim;
  int64_t classes, class_stride;
  sdk::StridedLoop<3> loop;  // targets, scores, and a third tensor of the targets' shape

  Scores(const TensorView& scores, const TensorView& target, const TensorView& third)
      : class_dim(scores.ndim() == 1 ? 0 : 1),
        classes(scores.size(class_dim)),
        class_stride(scores.stride(class_dim)),
        loop(make(scores, target, third, class_dim)) {}

  static sdk::StridedLoop<3> make(const TensorView& scores, const TensorView& target,
                                  const TensorView& third, int class_dim) {
    sdk::check_ndim(static_cast<size_t>(scores.ndim()));
    int64_t strides[sdk::kMaxDims];
    int64_t none[sdk::kMaxDims] = {};
    int kept = 0;
    for (int d = 0; d < scores.ndim(); ++d) {
      if (d != class_dim) strides[kept++] = scores.stride(d);
    }
    const bool same = third && third.ndim() == target.ndim();
    return sdk::StridedLoop<3>(
        target.shape(), {target.get()->dl.strides, strides, same ? third.get()->dl.strides : none},
        sdk::Order::kRowMajor);
  }

  // Calls f(class, offset of the score, offset in the third tensor) for each target in [begin, end)
  // that is not ignored, and ignored(offset in the third tensor) for each that is.
  template <class F, class G>
  void for_each(const TensorView& target, int64_t ignore_index, int64_t begin, int64_t end, F&& f,
                G&& ignored) const {
    const int64_t* data = target.data<const int64_t>();
    loop.for_each_run(begin, end, [&](const std::array<int64_t, 3>& at, int64_t n) {
      for (int64_t i = 0; i < n; ++i) {
        const int64_t t = data[at[0] + i * loop.inner_stride(0)];
        const int64_t third = at[2] + i * loop.inner_stride(2);
        if (t == ignore_index) {
          ignored(third);
          continue;
        }
        if (!in_range(t, classes)) fail_index("nll_loss", t, class_dim, classes);
        f(t, at[1] + i * loop.inner_stride(1) + t * class_stride, third);
      }
    });
  }
};

void forward(mt_ctx& ctx, const mt_args_nll_loss_forward& args) {
  const TensorView self = args.self;
  const TensorView target = args.target;
  const TensorView output = args.output;
  if (!target.is<int64_t>() || !output) throw sdk::Declined{};
  const std::string_view reduction = args.reduction;
  const bool none = reduction == "none";
  const Scores scores(self, target, none ? output : TensorView());
  sdk::visit_floating(self.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    using W = sdk::Widened<T>;
    const W* weight = parameter<W>(ctx, args.weight, scores.classes);
    const T* data = self.data<const T>();
    const int64_t numel = target.numel();
    const int64_t chunks = (numel + kChunk - 1) / kChunk;
    double* sums = sdk::scratch<double>(ctx, 2 * chunks);
    T* out = output.data<T>();
    sdk::parallel_for(ctx, 0, chunks, 1, [&](int64_t first, int64_t last) {
      for (int64_t c = first; c < last; ++c) {
        double sum = 0, weights = 0;
        scores.for_each(
            target, args.ignore_index, c * kChunk, std::min((c + 1) * kChunk, numel),
            [&](int64_t t, int64_t at, int64_t place) {
              const W w = weight == nullptr ? W(1) : weight[t];
              const W term = -static_cast<W>(data[at]) * w;
              sum += static_cast<double>(term);
              weights += static_cast<double>(w);
              if (none) out[place] = sdk::convert<T>(term);
            },
            [&](int64_t place) {
              if (none) out[place] = sdk::convert<T>(W(0));
            });
        sums[2 * c] = sum;
        sums[2 * c + 1] = weights;
      }
    });
    reduce_losses<W>(sums, chunks, reduction, out, args.total_weight);
  });
}

void backward(mt_ctx& ctx, const mt_args_nll_loss_backward& args) {
  const TensorView grad = args.grad_output;
  const TensorView target = args.target;
  const TensorView out = args.out;
  if (!target.is<int64_t>() || !sdk::same_dtype(grad.dtype(), out.dtype()) ||
      !sdk::is_floating(out.dtype())) {
    throw sdk::Declined{};
  }
  const std::string_view reduction = args.reduction;
  const bool none = reduction == "none";
  const Scores scores(out, target, none ? grad : TensorView());
  sdk::visit_floating(out.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    using W = sdk::Widened<T>;
    const W* weight = parameter<W>(ctx, args.weight, scores.classes);
    const T* g = grad.data<const T>();
    T* to = out.data<T>();
    const auto zeros = sdk::make_loop<1>(out.shape(), {out});
    sdk::parallel_for(ctx, 0, zeros.numel(), 32768, [&](int64_t begin, int64_t end) noexcept {
      zeros.for_each_run(begin, end, [&](const std::array<int64_t, 1>& at, int64_t n) {
        for (int64_t i = 0; i < n; ++i) to[at[0] + i * zeros.inner_stride(0)] = T{};
      });
    });
    const W total = reduction == "mean" ? sdk::scalar_value<W>(args.total_weight) : W(1);
    sdk::parallel_for(ctx, 0, target.numel(), kChunk, [&](int64_t begin, int64_t end) {
      scores.for_each(
          target, args.ignore_index, begin, end,
          [&](int64_t t, int64_t at, int64_t place) {
            const W share = -static_cast<W>(g[none ? place : 0]) / total;
            to[at] = sdk::convert<T>(weight == nullptr ? share : weight[t] * share);
          },
          [](int64_t) {});
    });
  });
}

}  // namespace

void register_nll_loss(KernelEntries& kernels) {
  kernels.push_back(sdk::kernel<&forward>("targets", MT_TAKES_STRIDED));
  kernels.push_back(sdk::kernel<&backward>("targets", MT_TAKES_STRIDED));
}

}  // namespace mytorch::cpu
