// Optimizer steps, and clipping of gradients, for all tensors of a network in one launch. Values
// that depend on the learning rate, the step number and the norm, which may be in device memory,
// are computed once per block.
#include <cstdint>
#include <type_traits>
#include <vector>

#include "backends/cuda/common/element.cuh"
#include "backends/cuda/common/pack.cuh"
#include "backends/cuda/optim/lists.cuh"
#include "backends/cuda/registry.h"
#include "backends/cuda/runtime/launch.h"
#include "backends/cuda/runtime/sdk.h"
#include "mytorch/abi_ops/adagrad_steps_.h"
#include "mytorch/abi_ops/adam_steps_.h"
#include "mytorch/abi_ops/clip_grads_with_norm_.h"
#include "mytorch/abi_ops/rmsprop_steps_.h"
#include "mytorch/abi_ops/sgd_steps_.h"

namespace mytorch::cuda {
namespace {

using sdk::TensorView;

constexpr int kUnroll = 2;  // 16-byte loads of each list in flight per thread

// A number on the host or in device memory.
struct Number {
  double value = 0;
  const void* data = nullptr;
  int32_t type = 0;  // of `data`: 0 float64, 1 float32, 2 int64, 3 int32

  explicit Number(const mt_tensor* t) {
    const TensorView view = t;
    if ((t->flags & MT_TENSOR_HOST) != 0) {
      sdk::visit_dtype(view.dtype(), [&](auto tag) {
        using S = typename decltype(tag)::type;
        value = sdk::convert<double>(*static_cast<const S*>(t->dl.data));
      });
      return;
    }
    data = view.raw();
    const mt_dtype dtype = view.dtype();
    const bool wide = dtype.bits == 64;
    type = dtype.code == MT_FLOAT && dtype.bits >= 32 ? (wide ? 0 : 1)
           : dtype.code == MT_INT && dtype.bits >= 32 ? (wide ? 2 : 3)
                                                      : -1;
    if (type < 0) throw sdk::Declined{};
  }

  __device__ double get() const {
    if (data == nullptr) return value;
    switch (type) {
      case 0:
        return *static_cast<const double*>(data);
      case 1:
        return *static_cast<const float*>(data);
      case 2:
        return static_cast<double>(*static_cast<const int64_t*>(data));
      default:
        return *static_cast<const int32_t*>(data);
    }
  }
};

// base^n by squaring, in the order of the host's code (ops/optimizers.cpp), so that bits are equal.
__device__ double power(double base, double exponent) {
  double result = 1;
  for (int64_t n = static_cast<int64_t>(exponent); n > 0; n >>= 1) {
    if ((n & 1) != 0) result = __dmul_rn(result, base);
    base = __dmul_rn(base, base);
  }
  return result;
}

// ---- update rules: `at` holds an element of each list, written lists first; Numbers are computed
// once per block

// Returns the gradient with weight decay. Without decay, an infinite parameter has no part in it.
template <class W>
__device__ __forceinline__ W decayed(W gradient, W decay, W parameter) {
  return decay == 0 ? gradient : gradient + decay * parameter;
}

template <class T, bool kLargest>
struct Adam {
  using W = Wide<T>;
  static constexpr int kLists = kLargest ? 5 : 4;
  static constexpr int kWritten = kLists - 1;  // the gradient is last
  struct Numbers {
    W lr, rate1, keep2, rate2, eps, shrink, decay, scale;
  };
  Number lr, step;
  double beta1, beta2, eps, weight_decay;
  bool decoupled, maximize;

  // The bias corrections of the moments are folded into the step size and eps, as in
  // ops/optimizers.cpp.
  __device__ Numbers numbers() const {
    const double rate = lr.get(), t = step.get();
    const double root2 = __dsqrt_rn(__dadd_rn(1, -power(beta2, t)));
    const double one1 = __dadd_rn(1, -power(beta1, t));
    return {static_cast<W>(__ddiv_rn(__dmul_rn(rate, root2), one1)),
            static_cast<W>(1 - beta1),
            static_cast<W>(beta2),
            static_cast<W>(1 - beta2),
            static_cast<W>(__dmul_rn(eps, root2)),
            static_cast<W>(decoupled ? __dadd_rn(1, -__dmul_rn(rate, weight_decay)) : 1.0),
            static_cast<W>(decoupled ? 0.0 : weight_decay),
            static_cast<W>(maximize ? -1 : 1)};
  }
  __device__ static void apply(const Numbers& n, W (&at)[kLists]) {
    auto& [parameter, mean, square] = reinterpret_cast<W(&)[3]>(at);
    const W gradient = decayed(n.scale * at[kLists - 1], n.decay, parameter);
    mean += n.rate1 * (gradient - mean);
    square = n.keep2 * square + n.rate2 * (gradient * gradient);
    W under = square;
    if constexpr (kLargest) {
      at[3] = at[3] >= square || at[3] != at[3] ? at[3] : square;  // propagates NaN
      under = at[3];
    }
    parameter = n.shrink * parameter - n.lr * mean / (sqrt(under) + n.eps);
  }
};

template <class T, bool kMomentum>
struct Sgd {
  using W = Wide<T>;
  static constexpr int kLists = kMomentum ? 3 : 2;
  static constexpr int kWritten = kLists - 1;
  struct Numbers {
    W lr, shrink, momentum, rate, decay, scale;
  };
  Number lr;
  double momentum, rate, weight_decay;
  bool nesterov, maximize;

  __device__ Numbers numbers() const {
    const double by = lr.get();
    return {
        static_cast<W>(by),           static_cast<W>(__dadd_rn(1, -__dmul_rn(by, weight_decay))),
        static_cast<W>(momentum),     static_cast<W>(rate),
        static_cast<W>(weight_decay), static_cast<W>(maximize ? -1 : 1)};
  }
  __device__ void apply(const Numbers& n, W (&at)[kLists]) const {
    W gradient = n.scale * at[kLists - 1];
    if constexpr (kMomentum) {
      gradient += n.decay * at[0];
      at[1] = n.momentum * at[1] + n.rate * gradient;
      at[0] -= n.lr * (nesterov ? gradient + n.momentum * at[1] : at[1]);
    } else {
      at[0] = n.shrink * at[0] - n.lr * gradient;
    }
  }
};

template <class T>
struct RmsProp {
  using W = Wide<T>;
  static constexpr int kLists = 3;
  static constexpr int kWritten = 2;
  struct Numbers {
    W lr, rate, eps, decay, scale;
  };
  Number lr;
  double alpha, eps, weight_decay;
  bool maximize;

  __device__ Numbers numbers() const {
    return {static_cast<W>(lr.get()), static_cast<W>(1 - alpha), static_cast<W>(eps),
            static_cast<W>(weight_decay), static_cast<W>(maximize ? -1 : 1)};
  }
  __device__ static void apply(const Numbers& n, W (&at)[kLists]) {
    const W gradient = decayed(n.scale * at[2], n.decay, at[0]);
    at[1] += n.rate * (gradient * gradient - at[1]);
    at[0] -= n.lr * gradient / (sqrt(at[1]) + n.eps);
  }
};

template <class T>
struct Adagrad {
  using W = Wide<T>;
  static constexpr int kLists = 3;
  static constexpr int kWritten = 2;
  struct Numbers {
    W lr, eps, decay, scale;
  };
  Number lr, step;
  double lr_decay, eps, weight_decay;
  bool maximize;

  __device__ Numbers numbers() const {
    const double slower = __dadd_rn(1, __dmul_rn(__dadd_rn(step.get(), -1), lr_decay));
    return {static_cast<W>(__ddiv_rn(lr.get(), slower)), static_cast<W>(eps),
            static_cast<W>(weight_decay), static_cast<W>(maximize ? -1 : 1)};
  }
  __device__ static void apply(const Numbers& n, W (&at)[kLists]) {
    const W gradient = decayed(n.scale * at[2], n.decay, at[0]);
    at[1] += gradient * gradient;
    at[0] -= n.lr * gradient / (sqrt(at[1]) + n.eps);
  }
};

// Multiplies by max_norm / (total_norm + 1e-6), unless that is 1 or more.
template <class T>
struct Clip {
  using W = Wide<T>;
  static constexpr int kLists = 1;
  static constexpr int kWritten = 1;
  struct Numbers {
    W factor;
  };
  Number total_norm;
  double max_norm;

  __device__ Numbers numbers() const {
    const double factor = __ddiv_rn(max_norm, __dadd_rn(total_norm.get(), 1e-6));
    return {static_cast<W>(factor >= 1 ? 1.0 : factor)};  // keeps NaN
  }
  __device__ static bool changes(const Numbers& n) { return n.factor != W(1); }
  __device__ static void apply(const Numbers& n, W (&at)[kLists]) { at[0] *= n.factor; }
};

// ---- the kernel

// The lists of a kernel in its order: those of the rule, of type T, and, unless L is T, the
// parameters rounded to L. Then the gradients, the last list of the rule, are of type L, too.
template <class T, class L, class Rule>
struct ListsOf {
  static constexpr bool kRounds = !std::is_same_v<T, L>;
  static constexpr int kRule = Rule::kLists, kWritten = Rule::kWritten;
  static constexpr int kWide = kRule - kRounds;  // lists of T
  static constexpr int kAll = kRule + kRounds;
};

template <class T, class L, class Rule, int kTensors>
__global__ void __launch_bounds__(kListThreads)
    step_all(const __grid_constant__ Table<ListsOf<T, L, Rule>::kAll, kTensors> table,
             const __grid_constant__ Rule rule) {
  using W = Wide<T>;
  using Its = ListsOf<T, L, Rule>;
  constexpr int kRun = kPack<T>;
  using Run = Pack<T, kRun>;
  using Short = Pack<L, kRun>;
  __shared__ typename Rule::Numbers shared;
  if (threadIdx.x == 0) shared = rule.numbers();
  const Part part = part_of<T>(table);
  const int n = part.n;
  T* lists[Its::kWide];
  uintptr_t addresses = 0;
#pragma unroll
  for (int k = 0; k < Its::kWide; ++k) {
    lists[k] = static_cast<T*>(table.data[k][part.tensor]) + part.begin;
    addresses |= reinterpret_cast<uintptr_t>(lists[k]);
  }
  [[maybe_unused]] const L* gradients = nullptr;
  [[maybe_unused]] L* rounded = nullptr;
  if constexpr (Its::kRounds) {
    gradients = static_cast<const L*>(table.data[Its::kWide][part.tensor]) + part.begin;
    rounded = static_cast<L*>(table.data[Its::kRule][part.tensor]) + part.begin;
    const uintptr_t both =
        reinterpret_cast<uintptr_t>(gradients) | reinterpret_cast<uintptr_t>(rounded);
    addresses |= both * (sizeof(Run) / sizeof(Short));  // these need less alignment
  }
  __syncthreads();
  const typename Rule::Numbers numbers = shared;
  if constexpr (requires { rule.changes(numbers); }) {
    if (!rule.changes(numbers)) return;
  }
  int done = 0;
  if (addresses % sizeof(Run) == 0) {
    constexpr int kStep = kListThreads * kRun;
    const int whole = n / kRun * kRun;
    for (int base = threadIdx.x * kRun; base < whole; base += kStep * kUnroll) {
      Run runs[kUnroll][Its::kWide];
      [[maybe_unused]] Short shorts[kUnroll];  // gradients, then rounded parameters
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) {
        const int at = base + u * kStep;
        if (at >= whole) break;
#pragma unroll
        for (int k = 0; k < Its::kWide; ++k) {
          runs[u][k] = *reinterpret_cast<const Run*>(lists[k] + at);
        }
        if constexpr (Its::kRounds) shorts[u] = *reinterpret_cast<const Short*>(gradients + at);
      }
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) {
        const int first = base + u * kStep;
        if (first >= whole) break;
#pragma unroll
        for (int e = 0; e < kRun; ++e) {
          W at[Its::kRule];
#pragma unroll
          for (int k = 0; k < Its::kWide; ++k) at[k] = widen(runs[u][k].at[e]);
          if constexpr (Its::kRounds) at[Its::kRule - 1] = widen(shorts[u].at[e]);
          rule.apply(numbers, at);
#pragma unroll
          for (int k = 0; k < Its::kWritten; ++k) runs[u][k].at[e] = convert<T>(at[k]);
          if constexpr (Its::kRounds) shorts[u].at[e] = convert<L>(at[0]);
        }
#pragma unroll
        for (int k = 0; k < Its::kWritten; ++k) {
          *reinterpret_cast<Run*>(lists[k] + first) = runs[u][k];
        }
        if constexpr (Its::kRounds) *reinterpret_cast<Short*>(rounded + first) = shorts[u];
      }
    }
    done = whole;
  }
  for (int i = done + threadIdx.x; i < n; i += kListThreads) {
    W at[Its::kRule];
#pragma unroll
    for (int k = 0; k < Its::kWide; ++k) at[k] = widen(lists[k][i]);
    if constexpr (Its::kRounds) at[Its::kRule - 1] = widen(gradients[i]);
    rule.apply(numbers, at);
#pragma unroll
    for (int k = 0; k < Its::kWritten; ++k) lists[k][i] = convert<T>(at[k]);
    if constexpr (Its::kRounds) rounded[i] = convert<L>(at[0]);
  }
}

// ---- the calls

// Launches the rule for the tensors `which`, whose elements are T; of `others`, L.
template <class T, class L, class Rule>
void step_type(mt_ctx& ctx, const char* name, const Lists& lists, const std::vector<int64_t>& which,
               const Rule& rule) {
  constexpr int kAll = ListsOf<T, L, Rule>::kAll;
  for_each_table<T, kAll>(lists, which,
                          [&]<int kTensors>(const Table<kAll, kTensors>& table, const Grid& grid) {
                            launch(ctx, name, step_all<T, L, Rule, kTensors>, grid, table, rule);
                          });
}

// `make(tag)` returns the rule for elements of a type. There is one launch for each type.
template <class Make>
void step(mt_ctx& ctx, const char* name, const Lists& lists, Make&& make) {
  for_each_type(lists, [&](mt_dtype dtype, const std::vector<int64_t>& which) {
    visit_floating(dtype, [&](auto tag) {
      using T = typename decltype(tag)::type;
      step_type<T, T>(ctx, name, lists, which, make(tag));
    });
  });
}

// The same for float32 parameters that are also rounded to a 16-bit type, that of the gradients.
template <class Make>
void step_and_round(mt_ctx& ctx, const char* name, const Lists& lists, mt_dtype lower,
                    Make&& make) {
  for (int64_t i = 0; i < lists.size(); ++i) {
    if (!sdk::same_dtype(lists.first(i).dtype(), sdk::dtype_of<float>)) throw sdk::Declined{};
  }
  visit_floating(lower, [&](auto tag) {
    using L = typename decltype(tag)::type;
    if constexpr (is_half<L>) {
      for_each_type(lists, [&](mt_dtype, const std::vector<int64_t>& which) {
        step_type<float, L>(ctx, name, lists, which, make(sdk::TypeTag<float>{}));
      });
    } else {
      throw sdk::Declined{};
    }
  });
}

void adam_steps_(mt_ctx& ctx, const mt_args_adam_steps_& args) {
  const auto make = [&](auto tag, auto largest) {
    return Adam<typename decltype(tag)::type, decltype(largest)::value>{
        Number(args.lr), Number(args.step), args.beta1,          args.beta2,
        args.eps,        args.weight_decay, args.decoupled != 0, args.maximize != 0};
  };
  if (args.rounded.size != 0) {
    // With amsgrad, each parameter is converted by itself.
    if (args.max_exp_avg_sqs.size != 0) throw sdk::Declined{};
    step_and_round(
        ctx, "adam_steps_",
        Lists({args.self, args.exp_avgs, args.exp_avg_sqs}, {args.gradients, args.rounded}),
        TensorView(args.rounded.data[0]).dtype(),
        [&](auto tag) { return make(tag, std::false_type{}); });
    return;
  }
  if (args.max_exp_avg_sqs.size == 0) {
    step(ctx, "adam_steps_", Lists({args.self, args.exp_avgs, args.exp_avg_sqs, args.gradients}),
         [&](auto tag) { return make(tag, std::false_type{}); });
  } else {
    step(ctx, "adam_steps_",
         Lists({args.self, args.exp_avgs, args.exp_avg_sqs, args.max_exp_avg_sqs, args.gradients}),
         [&](auto tag) { return make(tag, std::true_type{}); });
  }
}

void sgd_steps_(mt_ctx& ctx, const mt_args_sgd_steps_& args) {
  const auto make = [&](auto tag, auto momentum) {
    return Sgd<typename decltype(tag)::type, decltype(momentum)::value>{
        Number(args.lr),   args.momentum,      1 - args.dampening,
        args.weight_decay, args.nesterov != 0, args.maximize != 0};
  };
  if (args.momentum == 0) {
    step(ctx, "sgd_steps_", Lists({args.self, args.gradients}),
         [&](auto tag) { return make(tag, std::false_type{}); });
  } else {
    step(ctx, "sgd_steps_", Lists({args.self, args.momentum_buffers, args.gradients}),
         [&](auto tag) { return make(tag, std::true_type{}); });
  }
}

void rmsprop_steps_(mt_ctx& ctx, const mt_args_rmsprop_steps_& args) {
  step(ctx, "rmsprop_steps_", Lists({args.self, args.square_avgs, args.gradients}), [&](auto tag) {
    return RmsProp<typename decltype(tag)::type>{Number(args.lr), args.alpha, args.eps,
                                                 args.weight_decay, args.maximize != 0};
  });
}

void adagrad_steps_(mt_ctx& ctx, const mt_args_adagrad_steps_& args) {
  step(ctx, "adagrad_steps_", Lists({args.self, args.sums, args.gradients}), [&](auto tag) {
    return Adagrad<typename decltype(tag)::type>{Number(args.lr),   Number(args.step),
                                                 args.lr_decay,     args.eps,
                                                 args.weight_decay, args.maximize != 0};
  });
}

void clip_grads_with_norm_(mt_ctx& ctx, const mt_args_clip_grads_with_norm_& args) {
  step(ctx, "clip_grads_with_norm_", Lists({args.self}), [&](auto tag) {
    return Clip<typename decltype(tag)::type>{Number(args.total_norm), args.max_norm};
  });
}

}  // namespace

void register_steps(KernelEntries& kernels) {
  constexpr uint32_t kTakes = MT_TAKES_STRIDED | MT_TAKES_MIXED_DTYPES;
  kernels.push_back(sdk::kernel<&adam_steps_>("one_launch", kTakes));
  kernels.push_back(sdk::kernel<&sgd_steps_>("one_launch", kTakes));
  kernels.push_back(sdk::kernel<&rmsprop_steps_>("one_launch", kTakes));
  kernels.push_back(sdk::kernel<&adagrad_steps_>("one_launch", kTakes));
  kernels.push_back(sdk::kernel<&clip_grads_with_norm_>("one_launch", kTakes));
}

}  // namespace mytorch::cuda
