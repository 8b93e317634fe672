// The norm of all tensors of a list, such as the gradients of a network. Each block reduces its
// part of a tensor, and one block combines the parts in order, so the result is deterministic.
#include <cmath>
#include <cstdint>
#include <vector>

#include "backends/cuda/common/element.cuh"
#include "backends/cuda/common/pack.cuh"
#include "backends/cuda/common/rows.cuh"
#include "backends/cuda/optim/lists.cuh"
#include "backends/cuda/registry.h"
#include "backends/cuda/runtime/launch.h"
#include "backends/cuda/runtime/sdk.h"
#include "mytorch/abi_ops/get_total_norm.h"

namespace mytorch::cuda {
namespace {

using sdk::TensorView;

// Norms: `push` adds an element, `combine` two parts, and `finish` gives the norm.
struct AbsoluteSum {
  using Combine = AddUp;
  template <class W>
  __device__ static void push(W& sum, W x) {
    sum += x < 0 ? -x : x;
  }
  __device__ static double finish(double sum) { return sum; }
};
struct SquareSum {
  using Combine = AddUp;
  template <class W>
  __device__ static void push(W& sum, W x) {
    sum += x * x;
  }
  __device__ static double finish(double sum) { return sqrt(sum); }
};
// A NaN propagates.
struct LargestOrNan {
  template <class W>
  __device__ __forceinline__ W operator()(W a, W b) const {
    return a > b || a != a ? a : b;
  }
};
struct LargestMagnitude {
  using Combine = LargestOrNan;
  template <class W>
  __device__ static void push(W& most, W x) {
    most = Combine()(x < 0 ? -x : x, most);
  }
  __device__ static double finish(double most) { return most; }
};

template <class T, class Norm, int kTensors>
__global__ void __launch_bounds__(kListThreads)
    reduce_parts(const __grid_constant__ Table<1, kTensors> table, double* parts) {
  using W = Wide<T>;
  constexpr int kRun = kPack<T>;
  const Part part = part_of<T>(table);
  const T* const from = static_cast<const T*>(table.data[0][part.tensor]) + part.begin;
  W own = 0;
  int done = 0;
  if (reinterpret_cast<uintptr_t>(from) % 16 == 0) {
    done = part.n / kRun * kRun;
#pragma unroll 4
    for (int i = threadIdx.x * kRun; i < done; i += kListThreads * kRun) {
      const auto run = *reinterpret_cast<const Pack<T, kRun>*>(from + i);
#pragma unroll
      for (int e = 0; e < kRun; ++e) Norm::push(own, widen(run.at[e]));
    }
  }
  for (int i = done + threadIdx.x; i < part.n; i += kListThreads) Norm::push(own, widen(from[i]));
  const double all = row_combine(static_cast<double>(own), typename Norm::Combine(), 0.0);
  if (threadIdx.x == 0) parts[blockIdx.x] = all;
}

constexpr int kFinishThreads = 1024;

template <class Norm>
__global__ void __launch_bounds__(kFinishThreads)
    combine_parts(int64_t count, const double* parts, void* out, uint32_t key) {
  const typename Norm::Combine combine;
  double all = 0;
#pragma unroll 8
  for (int64_t i = threadIdx.x; i < count; i += kFinishThreads) all = combine(parts[i], all);
  all = row_combine(all, combine, 0.0);
  if (threadIdx.x == 0) store_any(out, 0, key, Norm::finish(all));
}

template <class Norm>
void total_norm(mt_ctx& ctx, const Lists& lists, const TensorView& out) {
  int64_t count = 0;
  for (int64_t i = 0; i < lists.size(); ++i) {
    visit_floating(lists.first(i).dtype(), [&](auto tag) {
      constexpr int64_t kEach = kChunk<typename decltype(tag)::type>;
      count += (lists.first(i).numel() + kEach - 1) / kEach;
    });
  }
  double* const parts = scratch<double>(ctx, count);
  double* next = parts;
  for_each_type(lists, [&](mt_dtype dtype, const std::vector<int64_t>& which) {
    visit_floating(dtype, [&](auto tag) {
      using T = typename decltype(tag)::type;
      for_each_table<T, 1>(
          lists, which, [&]<int kTensors>(const Table<1, kTensors>& table, const Grid& grid) {
            launch(ctx, "get_total_norm", reduce_parts<T, Norm, kTensors>, grid, table, next);
            next += grid.blocks.x;
          });
    });
  });
  Grid grid;
  grid.threads = dim3(kFinishThreads);
  launch(ctx, "get_total_norm", combine_parts<Norm>, grid, count, static_cast<const double*>(parts),
         out.raw(), sdk::dtype_key(out.dtype()));
}

// Other orders are left to the composite.
void get_total_norm(mt_ctx& ctx, const mt_args_get_total_norm& args) {
  const Lists lists({args.tensors});
  const TensorView out = args.out;
  for (int64_t i = 0; i < lists.size(); ++i) {
    if (lists.first(i).is_host()) throw sdk::Declined{};
  }
  if (args.norm_type == 2) {
    total_norm<SquareSum>(ctx, lists, out);
  } else if (args.norm_type == 1) {
    total_norm<AbsoluteSum>(ctx, lists, out);
  } else if (std::isinf(args.norm_type) && args.norm_type > 0) {
    total_norm<LargestMagnitude>(ctx, lists, out);
  } else {
    throw sdk::Declined{};
  }
}

}  // namespace

void register_total_norm(KernelEntries& kernels) {
  constexpr uint32_t kTakes = MT_TAKES_STRIDED | MT_TAKES_MIXED_DTYPES;
  kernels.push_back(sdk::kernel<&get_total_norm>("one_launch", kTakes));
}

}  // namespace mytorch::cuda
