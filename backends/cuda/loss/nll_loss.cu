// nll_loss reads one score per target. Sums are computed in double, in a fixed number of parts that
// are added in order.
#include <cstdint>
#include <cub/block/block_reduce.cuh>
#include <string_view>

#include "backends/cuda/common/element.cuh"
#include "backends/cuda/common/move.h"
#include "backends/cuda/loss/targets.cuh"
#include "backends/cuda/registry.h"
#include "backends/cuda/runtime/faults.h"
#include "backends/cuda/runtime/launch.h"
#include "backends/cuda/runtime/sdk.h"
#include "mytorch/abi_ops/nll_loss_backward.h"
#include "mytorch/abi_ops/nll_loss_forward.h"

namespace mytorch::cuda {
namespace {

using sdk::TensorView;

constexpr int kNllThreads = 256;
constexpr int kParts = 256;

template <class T>
__global__ void __launch_bounds__(kNllThreads)
    sum_scores(Targets targets, const T* scores, T* terms, double2* parts, Faults faults) {
  using W = Wide<T>;
  using Reduce = cub::BlockReduce<double, kNllThreads>;
  __shared__ typename Reduce::TempStorage storage[2];
  double sum = 0, weights = 0;
  for (int64_t i = first_element(); i < targets.loop.numel; i += grid_step()) {
    int64_t at[3];
    targets.loop.offsets(i, at);
    const int64_t t = load_index(targets.target, at[0], targets.target_key);
    W term = 0;
    if (t != targets.ignore_index && faults.check(t)) {
      const W w = targets.weight_of<W>(t);
      term = -widen(scores[at[1] + t * targets.class_stride]) * w;
      sum += static_cast<double>(term);
      weights += static_cast<double>(w);
    }
    if (terms != nullptr) terms[at[2]] = convert<T>(term);
  }
  sum = Reduce(storage[0]).Sum(sum);
  weights = Reduce(storage[1]).Sum(weights);
  if (threadIdx.x == 0) parts[blockIdx.x] = make_double2(sum, weights);
}

// `loss` may be NULL: it has been written term by term, and there is no total.
template <class T>
__global__ void __launch_bounds__(kParts) finish_sums(const double2* parts, int count, bool mean,
                                                      T* loss, void* total, uint32_t total_key) {
  using Reduce = cub::BlockReduce<double, kParts>;
  __shared__ typename Reduce::TempStorage storage[2];
  const double2 own = threadIdx.x < count ? parts[threadIdx.x] : make_double2(0, 0);
  const double sum = Reduce(storage[0]).Sum(own.x);
  const double weights = Reduce(storage[1]).Sum(own.y);
  if (threadIdx.x != 0) return;
  if (loss != nullptr) {
    *loss = convert<T>(static_cast<Wide<T>>(mean ? sum / weights : sum));
  }
  if (total != nullptr) {
    store_any(total, 0, total_key, static_cast<Wide<T>>(loss == nullptr ? 0 : weights));
  }
}

template <class T>
__global__ void __launch_bounds__(kNllThreads)
    put_shares(Targets targets, const T* grad, Number one_grad, Number total, T* to,
               Faults faults) {
  using W = Wide<T>;
  for (int64_t i = first_element(); i < targets.loop.numel; i += grid_step()) {
    int64_t at[3];
    targets.loop.offsets(i, at);
    const int64_t t = load_index(targets.target, at[0], targets.target_key);
    if (t == targets.ignore_index || !faults.check(t)) continue;
    const W g = grad != nullptr ? static_cast<W>(widen(grad[at[2]])) : one_grad.get<W>();
    const W share = -g / total.get<W>();
    to[at[1] + t * targets.class_stride] = convert<T>(targets.weight_of<W>(t) * share);
  }
}

void nll_loss_forward(mt_ctx& ctx, const mt_args_nll_loss_forward& args) {
  static const uint32_t site = fault_site("nll_loss");
  const TensorView self = args.self, target = args.target, output = args.output;
  if (!output || !sdk::is_integral(target.dtype()) || target.is_host() ||
      !sdk::same_dtype(output.dtype(), self.dtype())) {
    throw sdk::Declined{};
  }
  const std::string_view reduction = args.reduction;
  const bool none = reduction == "none";
  const int class_dim = self.ndim() == 1 ? 0 : 1;
  const Targets targets(self, target, none ? output : TensorView(), args.weight, args.ignore_index);
  visit_floating(self.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    Grid grid;
    grid.threads = dim3(kNllThreads);
    const int64_t wanted = (targets.loop.numel + kNllThreads - 1) / kNllThreads;
    grid.blocks = dim3(static_cast<unsigned>(std::clamp<int64_t>(wanted, 1, kParts)));
    double2* parts = scratch<double2>(ctx, kParts);
    launch(ctx, "nll_loss_forward", sum_scores<T>, grid, targets, static_cast<const T*>(self.raw()),
           none ? output.data<T>() : nullptr, parts,
           faults_of(ctx, site, class_dim, self.size(class_dim)));
    const TensorView total = args.total_weight;
    Grid one;
    one.threads = dim3(kParts);
    one.blocks = dim3(1);
    launch(ctx, "nll_loss_forward", finish_sums<T>, one, static_cast<const double2*>(parts),
           static_cast<int>(grid.blocks.x), reduction == "mean", none ? nullptr : output.data<T>(),
           total ? total.raw() : nullptr, total ? sdk::dtype_key(total.dtype()) : 0u);
  });
}

void nll_loss_backward(mt_ctx& ctx, const mt_args_nll_loss_backward& args) {
  static const uint32_t site = fault_site("nll_loss");
  const TensorView grad = args.grad_output, target = args.target, out = args.out;
  if (!sdk::is_integral(target.dtype()) || target.is_host() || !sdk::is_floating(out.dtype())) {
    throw sdk::Declined{};
  }
  const std::string_view reduction = args.reduction;
  const bool none = reduction == "none";
  if (none && (!sdk::same_dtype(grad.dtype(), out.dtype()) || grad.is_host())) {
    throw sdk::Declined{};
  }
  const int class_dim = out.ndim() == 1 ? 0 : 1;
  const Targets targets(out, target, none ? grad : TensorView(), args.weight, args.ignore_index);
  clear(ctx, out);
  if (targets.loop.numel == 0) return;
  visit_floating(out.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    launch(ctx, "nll_loss_backward", put_shares<T>, grid_for(ctx, targets.loop.numel, kNllThreads),
           targets, none ? static_cast<const T*>(grad.raw()) : nullptr,
           none ? Number() : Number(grad.get()),
           reduction == "mean" ? Number(args.total_weight) : Number(), out.data<T>(),
           faults_of(ctx, site, class_dim, out.size(class_dim)));
  });
}

}  // namespace

void register_nll_loss(KernelEntries& kernels) {
  kernels.push_back(sdk::kernel<&nll_loss_forward>("targets", MT_TAKES_STRIDED));
  kernels.push_back(sdk::kernel<&nll_loss_backward>("targets", MT_TAKES_STRIDED));
}

}  // namespace mytorch::cuda
