// Cross-entropy of class indices in one pass over the scores, and its gradient in a second pass;
// only the log-sum-exp of each target is kept in between. If classes are contiguous, each row of
// scores is processed by a block. Otherwise, and for few classes, each target is processed by a
// thread. Blocks accumulate the sums over targets in double; the last block adds them in order.
#include <algorithm>
#include <cstdint>
#include <limits>
#include <string_view>

#include "backends/cuda/common/counters.h"
#include "backends/cuda/common/element.cuh"
#include "backends/cuda/common/move.h"
#include "backends/cuda/common/online_softmax.cuh"
#include "backends/cuda/common/pack.cuh"
#include "backends/cuda/common/rows.cuh"
#include "backends/cuda/common/strided.cuh"
#include "backends/cuda/loss/targets.cuh"
#include "backends/cuda/registry.h"
#include "backends/cuda/runtime/faults.h"
#include "backends/cuda/runtime/launch.h"
#include "backends/cuda/runtime/sdk.h"
#include "mytorch/abi_ops/cross_entropy_backward.h"
#include "mytorch/abi_ops/cross_entropy_forward.h"

namespace mytorch::cuda {
namespace {

using sdk::TensorView;

constexpr int kLossThreads = 256;
constexpr int64_t kMostParts = 16384;  // blocks of the forward kernel
constexpr int64_t kFewClasses = 64;    // up to here a thread is as fast as a warp
// The loads in flight per thread, and the resident blocks whose registers allow them.
constexpr int kLoads = 4;
template <class T>
constexpr int kAhead = sizeof(T) == 8 ? 2 : kLoads;
constexpr int kBlocks = 4;

// The results of a forward pass and its options.
struct Results {
  void* terms;  // of each target, in the order of the loop's third operand; NULL with a reduction
  void* log_sum;
  double2* parts;     // for each block, the sums of terms and of weights
  uint32_t* counter;  // NULL with `terms`
  void* loss;         // one element, with a reduction
  void* total;        // optional
  uint32_t total_key;
  bool mean;
  double smoothing;
};

// The loss of a target and its weight.
template <class W>
struct Term {
  W loss = 0, weight = 0;
};

template <class T>
__device__ __forceinline__ Term<Wide<T>> term_of(const Targets& targets, int64_t n,
                                                 const Faults& faults, const T* scores, int64_t t,
                                                 const PowerSum<T>& sum, Wide<T> rest,
                                                 Wide<T> plain, double smoothing) {
  using W = Wide<T>;
  Term<W> term;
  if (t == targets.ignore_index || !faults.check(t)) return term;
  const W own = rest - (widen(scores[t * targets.class_stride]) - sum.most);
  term.weight = targets.weight_of<W>(t);
  term.loss = term.weight * own;
  if (smoothing != 0) {
    const W every = sum.most + rest - plain / static_cast<W>(n);
    term.loss += static_cast<W>(smoothing) * (every - term.loss);
  }
  return term;
}

// Adds the sums of all blocks; `sum` and `weights` are the block's own, in thread 0.
template <class T>
__device__ __forceinline__ void finish(const Results& to, double sum, double weights) {
  using W = Wide<T>;
  __shared__ bool last;
  if (threadIdx.x == 0) {
    to.parts[blockIdx.x] = make_double2(sum, weights);
    __threadfence();
    last = atomicInc(to.counter, gridDim.x - 1) == gridDim.x - 1;
  }
  __syncthreads();
  if (!last) return;
  __threadfence();
  sum = weights = 0;
#pragma unroll 8
  for (unsigned b = threadIdx.x; b < gridDim.x; b += blockDim.x) {
    const double2 part = __ldcg(to.parts + b);
    sum += part.x;
    weights += part.y;
  }
  row_sums(sum, weights);
  if (threadIdx.x != 0) return;
  *static_cast<T*>(to.loss) = convert<T>(static_cast<W>(to.mean ? sum / weights : sum));
  if (to.total != nullptr) store_any(to.total, 0, to.total_key, static_cast<W>(weights));
}

// Returns log(sum), the second part of log-sum-exp; NaN if all scores are -inf.
template <class T>
__device__ __forceinline__ Wide<T> rest_of(const PowerSum<T>& sum) {
  using W = Wide<T>;
  return sum.most == kLowest<W> ? std::numeric_limits<W>::quiet_NaN() : logarithm(sum.sum);
}

// Writes the results of target i, whose scores are at `scores`, and adds its part to the sums.
// `plain` is the sum of its scores.
template <class T>
__device__ __forceinline__ void write_term(const Targets& targets, int64_t n, const Faults& faults,
                                           const T* scores, int64_t i, const int64_t (&at)[3],
                                           const PowerSum<T>& sum, Wide<T> plain, const Results& to,
                                           double& terms, double& weights) {
  using W = Wide<T>;
  const W rest = rest_of(sum);
  const int64_t t = load_index(targets.target, at[0], targets.target_key);
  const Term<W> term = term_of(targets, n, faults, scores, t, sum, rest, plain, to.smoothing);
  static_cast<W*>(to.log_sum)[i] = sum.most + rest;
  if (to.terms != nullptr) static_cast<T*>(to.terms)[at[2]] = convert<T>(term.loss);
  terms += static_cast<double>(term.loss);
  weights += static_cast<double>(term.weight);
}

template <class T, int kWidth>
__global__ void __launch_bounds__(kLossThreads, kBlocks)
    rows_forward(Targets targets, int64_t n, const T* scores, Results to, Faults faults) {
  using W = Wide<T>;
  using Elements = Pack<T, kWidth>;
  const bool smooth = to.smoothing != 0;
  double sum_of_terms = 0, weights = 0;
  for (int64_t r = blockIdx.x; r < targets.loop.numel; r += gridDim.x) {
    int64_t at[3];
    targets.loop.offsets(r, at);
    const T* from = scores + at[1];
    PowerSum<T> own;
    W plain = 0;
    const int64_t step = int64_t{blockDim.x} * kWidth;
    for (int64_t k = threadIdx.x * kWidth; k < n; k += kAhead<T> * step) {
      Elements packs[kAhead<T>];
#pragma unroll
      for (int u = 0; u < kAhead<T>; ++u) {
        const bool inside = k + u * step < n;
        packs[u] =
            inside ? load_streaming<T, kWidth>(from + k + u * step) : lowest_pack<T, kWidth>();
        if (smooth && inside) {
#pragma unroll
          for (int i = 0; i < kWidth; ++i) plain += widen(packs[u].at[i]);
        }
      }
      own.push(packs);
    }
    own.rise(row_combine(own.most, Largest(), kLowest<W>));
    own.sum = row_sum(own.sum);
    if (smooth) plain = row_sum(plain);
    if (threadIdx.x != 0) continue;
    write_term(targets, n, faults, from, r, at, own, plain, to, sum_of_terms, weights);
  }
  if (to.counter != nullptr) finish<T>(to, sum_of_terms, weights);
}

template <class T>
__global__ void __launch_bounds__(kLossThreads)
    targets_forward(Targets targets, int64_t n, const T* scores, Results to, Faults faults) {
  using W = Wide<T>;
  double sum_of_terms = 0, weights = 0;
  for (int64_t i = first_element(); i < targets.loop.numel; i += grid_step()) {
    int64_t at[3];
    targets.loop.offsets(i, at);
    const T* from = scores + at[1];
    PowerSum<T> own;
    W plain = 0;
    for (int64_t k = 0; k < n; k += kAhead<T>) {
      Pack<T, 1> some[kAhead<T>];
#pragma unroll
      for (int u = 0; u < kAhead<T>; ++u) {
        const bool inside = k + u < n;
        some[u] = inside ? Pack<T, 1>{from[(k + u) * targets.class_stride]} : lowest_pack<T, 1>();
        if (inside) plain += widen(some[u].at[0]);
      }
      own.push(some);
    }
    write_term(targets, n, faults, from, i, at, own, plain, to, sum_of_terms, weights);
  }
  if (to.counter == nullptr) return;
  row_sums(sum_of_terms, weights);
  finish<T>(to, sum_of_terms, weights);
}

// ---- the gradient

// The operands of a backward pass, other than the scores.
struct Given {
  Strided<2> loop;    // the output, and the incoming gradient of each target
  const void* grads;  // NULL: `grad` applies to all targets
  Number grad, total;
  const void* log_sum;
  double smoothing;
};

// The gradient of score k is factor * p[k] - every, minus `own` for the target's class.
template <class W>
struct Share {
  W factor = 0, own = 0, every = 0;
  int64_t t = -1;
};

template <class T>
__device__ __forceinline__ Share<Wide<T>> share_of(const Targets& targets, const Given& given,
                                                   int64_t n, const Faults& faults, int64_t target,
                                                   int64_t grad) {
  using W = Wide<T>;
  Share<W> share;
  const int64_t t = load_index(targets.target, target, targets.target_key);
  if (t == targets.ignore_index || !faults.check(t)) return share;
  share.t = t;
  const W g = given.grads != nullptr
                  ? static_cast<W>(widen(static_cast<const T*>(given.grads)[grad]))
                  : given.grad.get<W>();
  const W scale = g / given.total.get<W>();
  const W smoothing = static_cast<W>(given.smoothing);
  share.own = (W(1) - smoothing) * targets.weight_of<W>(t) * scale;
  const W spread = smoothing == 0 ? W(0) : smoothing * scale;  // the scale may be infinite
  share.factor = share.own + spread;
  share.every = spread / static_cast<W>(n);
  return share;
}

template <class T>
__device__ __forceinline__ Wide<T> gradient(const Share<Wide<T>>& share, Wide<T> p, int64_t k) {
  Wide<T> value = p * share.factor - share.every;
  if (k == share.t) value -= share.own;
  return value;
}

template <class T, int kWidth>
__global__ void __launch_bounds__(kLossThreads, kBlocks)
    rows_backward(Targets targets, Given given, int64_t n, const T* scores, T* to, Faults faults) {
  using W = Wide<T>;
  using Elements = Pack<T, kWidth>;
  for (int64_t r = blockIdx.x; r < targets.loop.numel; r += gridDim.x) {
    int64_t at[3], into[2];
    targets.loop.offsets(r, at);
    given.loop.offsets(r, into);
    const T* from = scores + at[1];
    T* out = to + into[0];
    const int64_t step = int64_t{blockDim.x} * kWidth;
    const W log_sum = static_cast<const W*>(given.log_sum)[r];
    const Share<W> share = share_of<T>(targets, given, n, faults, at[0], into[1]);
    const bool counts = share.t >= 0;
    for (int64_t k = threadIdx.x * kWidth; k < n; k += kAhead<T> * step) {
      Elements packs[kAhead<T>];
#pragma unroll
      for (int u = 0; u < kAhead<T>; ++u) {
        if (counts && k + u * step < n) packs[u] = load_streaming<T, kWidth>(from + k + u * step);
      }
#pragma unroll
      for (int u = 0; u < kAhead<T>; ++u) {
        const int64_t first = k + u * step;
        if (first >= n) continue;
        Elements result;
#pragma unroll
        for (int i = 0; i < kWidth; ++i) {
          const W p = counts ? power<T>(widen(packs[u].at[i]), log_sum) : W(0);
          result.at[i] = convert<T>(p * share.factor - share.every);
        }
        store_streaming<T, kWidth>(out + first, result);
      }
    }
    // The target's class, by the thread that wrote its pack.
    if (counts && share.t / kWidth % blockDim.x == threadIdx.x) {
      const W p = power<T>(widen(from[share.t]), log_sum);
      out[share.t] = convert<T>(gradient<T>(share, p, share.t));
    }
  }
}

template <class T>
__global__ void __launch_bounds__(kLossThreads)
    targets_backward(Targets targets, Given given, int64_t n, const T* scores, T* to,
                     int64_t to_stride, Faults faults) {
  using W = Wide<T>;
  for (int64_t i = first_element(); i < targets.loop.numel; i += grid_step()) {
    int64_t at[3], into[2];
    targets.loop.offsets(i, at);
    given.loop.offsets(i, into);
    const W log_sum = static_cast<const W*>(given.log_sum)[i];
    const Share<W> share = share_of<T>(targets, given, n, faults, at[0], into[1]);
#pragma unroll 4
    for (int64_t k = 0; k < n; ++k) {
      const W x = widen(scores[at[1] + k * targets.class_stride]);
      const W value = share.t < 0 ? W(0) : gradient<T>(share, power<T>(x, log_sum), k);
      to[into[0] + k * to_stride] = convert<T>(value);
    }
  }
}

// ---- selection of the kernel

// Whether the classes of all targets are rows of whole packs of T.
template <class T, int N>
bool in_packs(const Strided<N>& loop, int operand, int64_t n, const void* data) {
  bool whole = n % kPack<T> == 0 && aligned(data);
  for (int d = 0; d < loop.ndim; ++d) whole = whole && loop.stride[d][operand] % kPack<T> == 0;
  return whole;
}

// One block for each row, whose threads have kLoads packs each if the row is long enough.
Grid row_grid(int64_t rows, int64_t packs, int64_t most) {
  Grid grid;
  const int64_t threads = std::clamp<int64_t>((packs + kLoads - 1) / kLoads, 1, kLossThreads);
  grid.threads = dim3(static_cast<unsigned>((threads + 31) / 32 * 32));
  grid.blocks = dim3(static_cast<unsigned>(std::min(rows, most)));
  return grid;
}

void check_operands(const TensorView& self, const TensorView& target, const TensorView& log_sum,
                    const TensorView& weight, double smoothing) {
  // Label smoothing with class weights is left to the composite.
  if (self.numel() == 0 || !sdk::is_integral(target.dtype()) || target.is_host() || !log_sum ||
      !log_sum.is_contiguous() || (weight && (smoothing != 0 || weight.is_host()))) {
    throw sdk::Declined{};
  }
}

void cross_entropy_forward(mt_ctx& ctx, const mt_args_cross_entropy_forward& args) {
  static const uint32_t site = fault_site("cross_entropy");
  const TensorView self = args.self, target = args.target, output = args.output;
  const TensorView log_sum = args.log_sum, total = args.total_weight;
  check_operands(self, target, log_sum, args.weight, args.label_smoothing);
  if (!output || !sdk::same_dtype(output.dtype(), self.dtype())) throw sdk::Declined{};
  const std::string_view reduction = args.reduction;
  const bool none = reduction == "none";
  const int class_dim = self.ndim() == 1 ? 0 : 1;
  const int64_t n = self.size(class_dim);
  const Targets targets(self, target, none ? output : TensorView(), args.weight, args.ignore_index);
  visit_floating(self.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    using W = Wide<T>;
    if (!sdk::is_dtype<W>(log_sum.dtype())) throw sdk::Declined{};
    const int64_t rows = targets.loop.numel;
    const bool by_rows = targets.class_stride == 1 && n > kFewClasses;
    const bool whole = in_packs<T>(targets.loop, 1, n, self.raw());
    Grid grid;
    if (by_rows) {
      grid = row_grid(rows, whole ? n / kPack<T> : n, none ? int64_t{1} << 30 : kMostParts);
    } else {
      grid = grid_for(ctx, rows, kLossThreads);
      grid.blocks.x = std::min(grid.blocks.x, static_cast<unsigned>(kMostParts));
    }
    Results to{};
    to.terms = none ? output.raw() : nullptr;
    to.log_sum = log_sum.raw();
    to.loss = output.raw();
    to.mean = reduction == "mean";
    to.smoothing = args.label_smoothing;
    if (none) {
      if (total) clear(ctx, total);
    } else {
      to.total = total ? total.raw() : nullptr;
      to.total_key = total ? sdk::dtype_key(total.dtype()) : 0;
      to.parts = scratch<double2>(ctx, grid.blocks.x);
      to.counter = counters_of(ctx);
    }
    const Faults faults = faults_of(ctx, site, class_dim, n);
    const T* scores = static_cast<const T*>(self.raw());
    const auto start = [&](auto kernel) {
      launch(ctx, "cross_entropy_forward", kernel, grid, targets, n, scores, to, faults);
    };
    if (!by_rows) {
      start(targets_forward<T>);
    } else {
      start(whole ? rows_forward<T, kPack<T>> : rows_forward<T, 1>);
    }
  });
}

void cross_entropy_backward(mt_ctx& ctx, const mt_args_cross_entropy_backward& args) {
  static const uint32_t site = fault_site("cross_entropy");
  const TensorView grad = args.grad_output, self = args.self, target = args.target, out = args.out;
  check_operands(self, target, args.log_sum, args.weight, args.label_smoothing);
  if (!sdk::same_dtype(self.dtype(), out.dtype())) throw sdk::Declined{};
  const std::string_view reduction = args.reduction;
  const bool none = reduction == "none";
  if (none && (!sdk::same_dtype(grad.dtype(), out.dtype()) || grad.is_host())) {
    throw sdk::Declined{};
  }
  const int class_dim = self.ndim() == 1 ? 0 : 1;
  const int64_t n = self.size(class_dim);
  const Targets targets(self, target, TensorView(), args.weight, args.ignore_index);
  int64_t strides[sdk::kMaxDims], no_strides[sdk::kMaxDims] = {};
  without_classes(out, strides);
  Given given{};
  given.loop = Strided<2>(sdk::StridedLoop<2>(target.shape(),
                                              {strides, none ? grad.get()->dl.strides : no_strides},
                                              sdk::Order::kRowMajor));
  given.grads = none ? grad.raw() : nullptr;
  if (!none) given.grad = Number(grad.get());
  if (reduction == "mean") given.total = Number(args.total_weight);
  given.log_sum = TensorView(args.log_sum).raw();
  given.smoothing = args.label_smoothing;
  visit_floating(out.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    if (!sdk::is_dtype<Wide<T>>(TensorView(args.log_sum).dtype())) throw sdk::Declined{};
    const int64_t rows = targets.loop.numel;
    const Faults faults = faults_of(ctx, site, class_dim, n);
    const T* scores = static_cast<const T*>(self.raw());
    if (targets.class_stride != 1 || out.stride(class_dim) != 1 || n <= kFewClasses) {
      launch(ctx, "cross_entropy_backward", targets_backward<T>, grid_for(ctx, rows, kLossThreads),
             targets, given, n, scores, out.data<T>(), out.stride(class_dim), faults);
      return;
    }
    const bool whole =
        in_packs<T>(targets.loop, 1, n, self.raw()) && in_packs<T>(given.loop, 0, n, out.raw());
    const Grid grid = row_grid(rows, whole ? n / kPack<T> : n, int64_t{1} << 30);
    launch(ctx, "cross_entropy_backward", whole ? rows_backward<T, kPack<T>> : rows_backward<T, 1>,
           grid, targets, given, n, scores, out.data<T>(), faults);
  });
}

}  // namespace

void register_cross_entropy(KernelEntries& kernels) {
  kernels.push_back(sdk::kernel<&cross_entropy_forward>("online", MT_TAKES_STRIDED));
  kernels.push_back(sdk::kernel<&cross_entropy_backward>("online", MT_TAKES_STRIDED));
}

}  // namespace mytorch::cuda
