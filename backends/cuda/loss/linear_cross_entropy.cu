// The cross entropy of a linear projection, with its gradients, in chunks of rows. For each chunk:
// the scores by a matrix product, their losses and gradients in place by one kernel, and the
// gradients of the input and the weight by two products, of which that of the weight adds to the
// sum of the chunks before, in float32 for 16-bit types.
#include <algorithm>
#include <cstdint>
#include <limits>
#include <set>
#include <type_traits>
#include <utility>

#include "backends/cuda/common/element.cuh"
#include "backends/cuda/common/online_softmax.cuh"
#include "backends/cuda/common/pack.cuh"
#include "backends/cuda/common/rows.cuh"
#include "backends/cuda/matrix/product.h"
#include "backends/cuda/registry.h"
#include "backends/cuda/runtime/faults.h"
#include "backends/cuda/runtime/launch.h"
#include "backends/cuda/runtime/sdk.h"
#include "mytorch/abi_ops/linear_cross_entropy_forward.h"

namespace mytorch::cuda {
namespace {

using sdk::TensorView;

// ---- losses and gradients of a chunk

// Rows of scores, which the gradients replace. Rows begin at multiples of `stride`, of whole packs.
template <class T>
struct Scores {
  T* data;
  int64_t rows, stride;
  int n;  // classes
};

struct Labels {
  const int64_t* target;
  int64_t ignore_index;
  const void* weight;  // of the classes, or NULL
  uint32_t weight_key;
  double smoothing;  // 0 with a weight
  double cap;        // 0: none
};

constexpr int kLinearThreads = 512,
              kLinearBlocks = 2;  // the blocks of a multiprocessor read and write in turn

// Returns a score bounded by the cap, rounded as a tensor of scores would be.
template <class T>
__device__ __noinline__ Wide<T> bounded(Wide<T> x, Wide<T> cap) {
  return widen(convert<T>(cap * tanh(x / cap)));
}

// Starts copies of the thread's packs of a row of n elements to shared memory.
template <class T>
__device__ __forceinline__ void fetch_row(const T* row, T* held, int n) {
  constexpr int kWidth = kPack<T>, kStep = kLinearThreads * kWidth;
  auto to = static_cast<uint32_t>(__cvta_generic_to_shared(held + threadIdx.x * kWidth));
#pragma unroll 4
  for (int place = threadIdx.x * kWidth; place < n; place += kStep, to += kLinearThreads * 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(row + place)
                 : "memory");
  }
  asm volatile("cp.async.commit_group;" ::: "memory");
}

// One block processes a row at a time, in two passes: the loss, and the gradient if `kGradient`. A
// thread processes the same packs in both. `kHeld`: the row is copied to shared memory first, with
// all loads in flight; otherwise each pass reads it. `kCapped`: the first pass bounds the scores.
template <class T, bool kHeld, bool kGradient, bool kCapped>
__global__ void __launch_bounds__(kLinearThreads, kLinearBlocks)
    losses_and_gradients(Scores<T> scores, Labels labels, Wide<T>* terms, Faults faults) {
  using W = Wide<T>;
  constexpr int kWidth = kPack<T>, kStep = kLinearThreads * kWidth;
  constexpr int kAhead = kHeld ? 2 : 4;
  using Elements = Pack<T, kWidth>;
  extern __shared__ uint4 memory[];
  const int n = scores.n;
  const W cap = static_cast<W>(labels.cap), smoothing = static_cast<W>(labels.smoothing);
  for (int64_t r = blockIdx.x; r < scores.rows; r += gridDim.x) {
    T* const row = scores.data + r * scores.stride;
    T* const from = kHeld ? reinterpret_cast<T*>(memory) : row;
    if constexpr (kHeld) fetch_row(row, from, n);
    const int64_t t = labels.target[r];
    const bool counts = t != labels.ignore_index && faults.check(t);
    // Read before any thread writes the gradient.
    W target_score = counts ? widen(row[t]) : W(0);
    if (kCapped) target_score = bounded<T>(target_score, cap);
    if constexpr (kHeld) asm volatile("cp.async.wait_all;" ::: "memory");
    PowerSum<T> own;
    W plain = 0;
    for (int first = threadIdx.x * kWidth; first < n; first += kAhead * kStep) {
      Elements packs[kAhead];
#pragma unroll
      for (int u = 0; u < kAhead; ++u) {
        const int place = first + u * kStep;
        packs[u] =
            place < n ? *reinterpret_cast<const Elements*>(from + place) : lowest_pack<T, kWidth>();
      }
#pragma unroll
      for (int u = 0; u < kAhead; ++u) {
        const int place = first + u * kStep;
        if (place + kWidth > n) {  // elements beyond the row
#pragma unroll
          for (int k = 0; k < kWidth; ++k) {
            if (place + k >= n) packs[u].at[k] = convert<T>(kLowest<W>);
          }
        }
        if (kCapped && place < n) {
#pragma unroll
          for (int k = 0; k < kWidth; ++k) {
            if (place + k < n) packs[u].at[k] = convert<T>(bounded<T>(widen(packs[u].at[k]), cap));
          }
          *reinterpret_cast<Elements*>(from + place) = packs[u];
        }
        if (smoothing == 0) continue;
#pragma unroll
        for (int k = 0; k < kWidth; ++k) {
          if (place + k < n) plain += widen(packs[u].at[k]);
        }
      }
      own.push(packs);
    }
    own.rise(row_combine(own.most, Largest(), kLowest<W>));
    own.sum = row_sum(own.sum);
    if (smoothing != 0) plain = row_sum(plain);
    const W rest =
        own.most == kLowest<W> ? std::numeric_limits<W>::quiet_NaN() : logarithm(own.sum);
    const W log_sum = own.most + rest;
    W weight = 0;
    if (counts) {
      weight = labels.weight == nullptr ? W(1) : load_any<W>(labels.weight, t, labels.weight_key);
    }
    if (threadIdx.x == 0) {
      W loss = 0;
      if (counts) {
        loss = weight * (rest - (target_score - own.most));
        if (smoothing != 0) loss += smoothing * (log_sum - plain / static_cast<W>(n) - loss);
      }
      terms[r] = loss;
    }
    if (!kGradient) continue;
    if (!counts) {
      for (int place = threadIdx.x * kWidth; place < n; place += kStep) {
        *reinterpret_cast<uint4*>(row + place) = uint4{};
      }
      continue;
    }
    // The gradient of score k is p[k] * factor - every, minus `share` for the target.
    const W share = (W(1) - smoothing) * weight;
    const W factor = share + smoothing, every = smoothing / static_cast<W>(n);
    const W per_cap = kCapped ? W(1) / cap : W(0);
    const auto gradient = [&](W x, W own_share) {
      const W value = power<T>(x, log_sum) * factor - every - own_share;
      return kCapped ? value * (W(1) - (x * per_cap) * (x * per_cap)) : value;
    };
    for (int first = threadIdx.x * kWidth; first < n; first += kAhead * kStep) {
      Elements packs[kAhead];
#pragma unroll
      for (int u = 0; u < kAhead; ++u) {
        const int place = first + u * kStep;
        if (place < n) packs[u] = *reinterpret_cast<const Elements*>(from + place);
      }
#pragma unroll
      for (int u = 0; u < kAhead; ++u) {
        const int place = first + u * kStep;
        if (place >= n) continue;
#pragma unroll
        for (int k = 0; k < kWidth; ++k) {
          packs[u].at[k] = convert<T>(gradient(widen(packs[u].at[k]), W(0)));
        }
        store_streaming<T, kWidth>(row + place, packs[u]);
      }
    }
    // The target's class, by the thread that wrote its pack.
    if (t / kWidth % kLinearThreads == threadIdx.x)
      row[t] = convert<T>(gradient(target_score, share));
  }
}

// Adds the terms of all rows in a fixed order.
constexpr int kSumThreads = 1024;
template <class W>
__global__ void __launch_bounds__(kSumThreads) add_terms(int64_t rows, const W* terms, W* to) {
  double sum = 0;
#pragma unroll 8
  for (int64_t r = threadIdx.x; r < rows; r += blockDim.x) sum += static_cast<double>(terms[r]);
  sum = row_sum(sum);
  if (threadIdx.x == 0) *to = static_cast<W>(sum);
}

// The sums of the columns of a chunk, the gradient of the bias: added to `to` if `adds`.
constexpr int kColumnShares = 16;
template <class T>
__global__ void __launch_bounds__(32 * kColumnShares)
    add_columns(Scores<T> gradients, bool adds, Wide<T>* to) {
  using W = Wide<T>;
  constexpr int kWidth = kPack<T>;
  __shared__ W parts[kColumnShares][kWidth][32];
  const int place = static_cast<int>((blockIdx.x * 32 + threadIdx.x) * kWidth);
  W sums[kWidth] = {};
  if (place < gradients.n) {
#pragma unroll 4
    for (int64_t r = threadIdx.y; r < gradients.rows; r += kColumnShares) {
      const auto pack =
          *reinterpret_cast<const Pack<T, kWidth>*>(gradients.data + r * gradients.stride + place);
#pragma unroll
      for (int k = 0; k < kWidth; ++k) sums[k] += widen(pack.at[k]);
    }
  }
#pragma unroll
  for (int k = 0; k < kWidth; ++k) parts[threadIdx.y][k][threadIdx.x] = sums[k];
  __syncthreads();
  if (threadIdx.y != 0) return;
#pragma unroll
  for (int k = 0; k < kWidth; ++k) {
    if (place + k >= gradients.n) break;
    W sum = adds ? to[place + k] : W(0);
    for (int share = 0; share < kColumnShares; ++share) sum += parts[share][k][threadIdx.x];
    to[place + k] = sum;
  }
}

// ---- the call

// The most bytes of the scores of a chunk, and the least number of chunks of many rows.
constexpr int64_t kMostBytes = int64_t{768} << 20;
constexpr int64_t kLeastChunks = 2, kFewestRows = 128;

// Returns the rows of a chunk. The gradient of the input, (rows, width), is the narrowest of the
// three products: its tiles of 128 x 256 should fill the multiprocessors in whole waves.
int64_t rows_of_chunk(const mt_ctx& ctx, int64_t rows, int64_t classes, int64_t width,
                      int64_t itemsize) {
  const int64_t across = (width + 255) / 256;
  const int64_t wave =
      std::max<int64_t>(1, properties(ctx.device.index).multiprocessors / across) * 128;
  int64_t most =
      std::min(kMostBytes / (classes * itemsize), (rows + kLeastChunks - 1) / kLeastChunks);
  most = most >= wave ? most / wave * wave : most / kFewestRows * kFewestRows;
  return std::min(rows, std::max(kFewestRows, most));
}

// Lets blocks of a kernel have all shared memory of a multiprocessor.
template <class Kernel>
void allow_shared(const mt_ctx& ctx, Kernel kernel) {
  thread_local std::set<std::pair<const void*, int32_t>> allowed;
  const auto* const function = reinterpret_cast<const void*>(kernel);
  if (!allowed.emplace(function, ctx.device.index).second) return;
  use_device(ctx);
  const size_t most = properties(ctx.device.index).shared;
  cudaFuncAttributes attributes{};
  CUDA(cudaFuncGetAttributes(&attributes, function));
  CUDA(cudaFuncSetAttribute(function, cudaFuncAttributeMaxDynamicSharedMemorySize,
                            static_cast<int>(most - attributes.sharedSizeBytes)));
}

template <class T>
void compute(mt_ctx& ctx, const mt_args_linear_cross_entropy_forward& args) {
  using W = Wide<T>;
  static const uint32_t site = fault_site("linear_cross_entropy");
  const TensorView input = args.input, matrix = args.linear_weight, bias = args.linear_bias;
  const TensorView output = args.output, weight = args.weight;
  const auto gradient = [&](int64_t i, const mt_tensor* to) {
    return TensorView(sdk::wanted(args.output_mask, i, to));
  };
  const TensorView dx = gradient(0, args.grad_input), dw = gradient(1, args.grad_weight);
  const TensorView db = gradient(2, args.grad_bias);
  const bool any = dx || dw || db;
  const int64_t classes = matrix.size(0), width = matrix.size(1), rows = input.numel() / width;
  const int64_t stride = (classes + 63) / 64 * 64;
  const int64_t chunk = rows_of_chunk(ctx, rows, stride, width, sizeof(T));
  T* const scores = scratch<T>(ctx, chunk * stride);
  W* const terms = args.reduce != 0 ? scratch<W>(ctx, rows) : output.data<W>();

  const int64_t packs = (classes + kPack<T> - 1) / kPack<T>;
  const Properties& device = properties(ctx.device.index);
  Grid grid;
  grid.threads = dim3(kLinearThreads);
  const size_t row_bytes = static_cast<size_t>(packs) * 16;
  const bool held = any && row_bytes <= device.shared - 1024;  // the rest: static shared memory
  if (held) grid.shared = row_bytes;
  const bool capped = args.softcap != 0;
  const auto select = [&](auto is_capped) {
    constexpr bool kCapped = decltype(is_capped)::value;
    return held  ? losses_and_gradients<T, true, true, kCapped>
           : any ? losses_and_gradients<T, false, true, kCapped>
                 : losses_and_gradients<T, false, false, kCapped>;
  };
  const auto kernel = capped ? select(std::true_type{}) : select(std::false_type{});
  if (held) allow_shared(ctx, kernel);
  const Faults faults = faults_of(ctx, site, 1, classes);

  const Matrix by_row{matrix.raw(), width, 1, 0};
  for (int64_t first = 0; first < rows; first += chunk) {
    const int64_t n = std::min(chunk, rows - first);
    const Matrix x{input.data<const T>() + first * width, width, 1, 0};
    const Matrix s{scores, stride, 1, 0};
    Product product;
    product.dtype = input.dtype();
    product.m = n;
    product.k = width;
    product.n = classes;
    product.a = x;
    product.b = {matrix.raw(), 1, width, 0};
    product.c = s;
    if (bias) {
      product.self = {bias.raw(), 0, 1, 0};
      product.beta = {{.i = 1}, MT_SCALAR_INT, 0};
    }
    multiply(ctx, product);
    const Scores<T> own{scores, n, stride, static_cast<int>(classes)};
    const Labels labels{TensorView(args.target).data<const int64_t>() + first,
                        args.ignore_index,
                        weight ? weight.raw() : nullptr,
                        weight ? sdk::dtype_key(weight.dtype()) : 0,
                        args.label_smoothing,
                        args.softcap};
    grid.blocks = dim3(static_cast<unsigned>(std::min(n, int64_t{4} * device.multiprocessors)));
    launch(ctx, "linear_cross_entropy", kernel, grid, own, labels, terms + first, faults);
    if (dx) {
      Product to_input;
      to_input.dtype = input.dtype();
      to_input.m = n;
      to_input.k = classes;
      to_input.n = width;
      to_input.a = s;
      to_input.b = by_row;
      to_input.c = {dx.data<T>() + first * width, width, 1, 0};
      multiply(ctx, to_input);
    }
    if (dw) {
      Product to_weight;
      to_weight.dtype = input.dtype();
      to_weight.wide = is_half<T>;
      to_weight.m = classes;
      to_weight.k = n;
      to_weight.n = width;
      to_weight.a = {scores, 1, stride, 0};
      to_weight.b = x;
      to_weight.c = {dw.raw(), width, 1, 0};
      if (first != 0) {
        to_weight.self = to_weight.c;
        to_weight.beta = {{.i = 1}, MT_SCALAR_INT, 0};
      }
      multiply(ctx, to_weight);
    }
    if (db) {
      Grid columns;
      columns.threads = dim3(32, kColumnShares);
      columns.blocks = dim3(static_cast<unsigned>((packs + 31) / 32));
      launch(ctx, "linear_cross_entropy", add_columns<T>, columns, own, first != 0, db.data<W>());
    }
  }
  if (args.reduce == 0) return;
  Grid one;
  one.threads = dim3(kSumThreads);
  launch(ctx, "linear_cross_entropy", add_terms<W>, one, rows, static_cast<const W*>(terms),
         output.data<W>());
}

// Label smoothing with class weights is left to the composite.
void linear_cross_entropy_forward(mt_ctx& ctx, const mt_args_linear_cross_entropy_forward& args) {
  const TensorView input = args.input, matrix = args.linear_weight;
  const TensorView target = args.target, weight = args.weight;
  if (input.numel() == 0 || matrix.numel() == 0 || matrix.size(0) > (1 << 30) ||
      !target.is<int64_t>() || target.is_host() || !sdk::is_floating(input.dtype()) ||
      (weight && (args.label_smoothing != 0 || weight.is_host()))) {
    throw sdk::Declined{};
  }
  visit_floating(input.dtype(),
                 [&](auto tag) { compute<typename decltype(tag)::type>(ctx, args); });
}

}  // namespace

void register_linear_cross_entropy(KernelEntries& kernels) {
  kernels.push_back(sdk::kernel<&linear_cross_entropy_forward>("chunks"));
}

}  // namespace mytorch::cuda
