// gather, index_select and embedding are one loop over the output: the source has stride 0 along
// the indexed dimension, and the index, broadcast to the output, gives the offset there. If rows
// are contiguous in both, elements are combined into accesses of up to 16 bytes.
#include <algorithm>
#include <array>
#include <cstdint>
#include <type_traits>

#include "backends/cuda/common/element.cuh"
#include "backends/cuda/common/pack.cuh"
#include "backends/cuda/common/strided.cuh"
#include "backends/cuda/registry.h"
#include "backends/cuda/runtime/faults.h"
#include "backends/cuda/runtime/launch.h"
#include "backends/cuda/runtime/sdk.h"
#include "mytorch/abi_ops/embedding.h"
#include "mytorch/abi_ops/gather.h"
#include "mytorch/abi_ops/index_select.h"

namespace mytorch::cuda {
namespace {

using sdk::TensorView;

// The elements that a thread takes at a time: their indices are loaded together, then what these
// name.
constexpr int kTogether = 4;
constexpr int kTakeThreads = 256;

// Stores to[o] = from[f + index[i] * along] for the offsets (o, i, f) of each element. Index is the
// type of the indices, or void if only its key is known.
template <class T, class Index>
__global__ void __launch_bounds__(kTakeThreads)
    take(Strided<3> loop, T* to, const void* index, uint32_t index_key, const T* from,
         int64_t along, Faults faults) {
  const int64_t first = int64_t{blockIdx.x} * kTakeThreads * kTogether + threadIdx.x;
  for (int64_t base = first; base < loop.numel;
       base += int64_t{gridDim.x} * kTakeThreads * kTogether) {
    int64_t at[kTogether][3], value[kTogether];
    T taken[kTogether];
#pragma unroll
    for (int u = 0; u < kTogether; ++u) {
      const int64_t i = base + u * kTakeThreads;
      if (i >= loop.numel) continue;
      loop.offsets(i, at[u]);
      if constexpr (std::is_void_v<Index>) {
        value[u] = load_index(index, at[u][1], index_key);
      } else {
        value[u] = static_cast<const Index*>(index)[at[u][1]];
      }
    }
    bool found[kTogether];
#pragma unroll
    for (int u = 0; u < kTogether; ++u) {
      found[u] = base + u * kTakeThreads < loop.numel && faults.check(value[u]);
      if (found[u]) taken[u] = from[at[u][2] + value[u] * along];
    }
#pragma unroll
    for (int u = 0; u < kTogether; ++u) {
      if (found[u]) to[at[u][0]] = taken[u];
    }
  }
}

// The same for runs of kTogether adjacent elements, whose indices are adjacent, too. The loop is
// over runs; `inner` is between elements of `from` but for the index.
template <class T>
__global__ void __launch_bounds__(kTakeThreads)
    take_runs(Strided<3> loop, T* to, const int64_t* index, const T* from, int64_t inner,
              int64_t along, Faults faults) {
  using Indices = Pack<int64_t, 2>;
  for (int64_t i = int64_t{blockIdx.x} * kTakeThreads + threadIdx.x; i < loop.numel;
       i += int64_t{gridDim.x} * kTakeThreads) {
    int64_t at[3], value[kTogether];
    loop.offsets(i, at);
#pragma unroll
    for (int u = 0; u < kTogether; u += 2) {
      const Indices pair = *reinterpret_cast<const Indices*>(index + at[1] + u);
      value[u] = pair.at[0], value[u + 1] = pair.at[1];
    }
    Pack<T, kTogether> taken;
#pragma unroll
    for (int u = 0; u < kTogether; ++u) {
      if (!faults.check(value[u])) value[u] = 0;
    }
#pragma unroll
    for (int u = 0; u < kTogether; ++u) {
      taken.at[u] = from[at[2] + u * inner + value[u] * along];
    }
    *reinterpret_cast<Pack<T, kTogether>*>(to + at[0]) = taken;
  }
}

struct TakeCall {
  TensorView out, index, from;
  const int64_t* index_strides;  // one for each dimension of the output
  const int64_t* fixed;          // of `from`; 0 along the indexed dimension
  int64_t along;                 // the stride of `from` along the indexed dimension
};

bool divides(int64_t bytes, int64_t x) { return x % bytes == 0; }

template <class T>
void start(mt_ctx& ctx, const TakeCall& call, Strided<3> loop, int64_t joined,
           const Faults& faults) {
  int64_t along = call.along;
  if (joined > 1) {
    loop.size[0] /= joined;
    for (int d = 1; d < loop.ndim; ++d) {
      loop.stride[d][0] /= joined;
      loop.stride[d][2] /= joined;
    }
    loop.finish();
    along /= joined;
  }
  const auto kernel = call.index.is<int64_t>()   ? take<T, int64_t>
                      : call.index.is<int32_t>() ? take<T, int32_t>
                                                 : take<T, void>;
  const int64_t threads = (loop.numel + kTogether - 1) / kTogether;
  launch(ctx, "take", kernel, grid_for(ctx, threads, kTakeThreads), loop, call.out.data<T>(),
         static_cast<const void*>(call.index.raw()), sdk::dtype_key(call.index.dtype()),
         static_cast<const T*>(call.from.raw()), along, faults);
}

// Takes runs of elements, if the operands consist of them. Returns false otherwise.
bool start_runs(mt_ctx& ctx, const TakeCall& call, Strided<3> loop, const Faults& faults) {
  const int64_t size = call.out.itemsize();
  const auto fits = [&](int k, int64_t itemsize, const void* data) {
    bool whole = loop.stride[0][k] == 1 && divides(std::min<int64_t>(16, kTogether * itemsize),
                                                   reinterpret_cast<intptr_t>(data));
    for (int d = 1; d < loop.ndim; ++d) whole = whole && divides(kTogether, loop.stride[d][k]);
    return whole;
  };
  if (loop.ndim == 0 || faults.size == 0 || size > 4 || !call.index.is<int64_t>() ||
      !divides(kTogether, loop.size[0]) || !fits(0, size, call.out.raw()) ||
      !fits(1, 8, call.index.raw())) {
    return false;
  }
  const int64_t inner = loop.stride[0][2];
  loop.size[0] /= kTogether;
  for (int64_t& stride : loop.stride[0]) stride *= kTogether;
  loop.finish();
  sdk::visit_itemsize(size, [&](auto tag) {
    using T = typename decltype(tag)::type;
    if constexpr (sizeof(T) <= 4) {
      launch(ctx, "take", take_runs<T>, grid_for(ctx, loop.numel, kTakeThreads), loop,
             call.out.data<T>(), static_cast<const int64_t*>(call.index.raw()),
             static_cast<const T*>(call.from.raw()), inner, call.along, faults);
    }
  });
  return true;
}

void run(mt_ctx& ctx, const TakeCall& call, const Faults& faults) {
  if (call.out.numel() == 0) return;
  const Strided<3> loop(sdk::StridedLoop<3>(
      call.out.shape(), {call.out.get()->dl.strides, call.index_strides, call.fixed}));
  const int64_t size = call.out.itemsize();
  // Whether rows consist of aligned accesses of `bytes` bytes.
  const auto in_pieces = [&](int64_t bytes) {
    if (loop.ndim == 0 || loop.stride[0][0] != 1 || loop.stride[0][2] != 1 ||
        loop.stride[0][1] != 0) {
      return false;
    }
    bool fits = divides(bytes, loop.size[0] * size) && divides(bytes, call.along * size) &&
                divides(bytes, reinterpret_cast<intptr_t>(call.out.raw())) &&
                divides(bytes, reinterpret_cast<intptr_t>(call.from.raw()));
    for (int d = 1; d < loop.ndim; ++d) {
      fits = fits && divides(bytes, loop.stride[d][0] * size) &&
             divides(bytes, loop.stride[d][2] * size);
    }
    return fits;
  };
  if (in_pieces(16)) return start<uint4>(ctx, call, loop, 16 / size, faults);
  if (size < 8 && in_pieces(8)) return start<uint64_t>(ctx, call, loop, 8 / size, faults);
  if (size < 4 && in_pieces(4)) return start<uint32_t>(ctx, call, loop, 4 / size, faults);
  if (start_runs(ctx, call, loop, faults)) return;
  sdk::visit_itemsize(
      size, [&](auto tag) { start<typename decltype(tag)::type>(ctx, call, loop, 1, faults); });
}

// Takes elements of `self` along a dimension. index_stride(d, dim) is the index's stride for
// dimension d of the output.
template <class IndexStride>
void take_along(mt_ctx& ctx, uint32_t site, const TensorView& self, int64_t any_dim,
                const TensorView& index, const TensorView& out, IndexStride&& index_stride) {
  sdk::check_ndim(static_cast<size_t>(out.ndim()));
  const int64_t dim = sdk::wrap_dim(any_dim, self.ndim());
  int64_t fixed[sdk::kMaxDims], places[sdk::kMaxDims];
  // A 0-dim index into a 1-dim self, or the reverse, has one element along dim.
  for (int d = 0; d < out.ndim(); ++d) {
    fixed[d] = d == dim || d >= self.ndim() ? 0 : self.stride(d);
    places[d] = index_stride(d, dim);
  }
  const bool scalar = self.ndim() == 0;
  run(ctx, {out, index, self, places, fixed, scalar ? 0 : self.stride(static_cast<int>(dim))},
      faults_of(ctx, site, dim, scalar ? 1 : self.size(static_cast<int>(dim))));
}

void gather(mt_ctx& ctx, const mt_args_gather& args) {
  static const uint32_t site = fault_site("gather");
  const TensorView index = args.index;
  const TensorView out = args.out;
  take_along(ctx, site, args.self, args.dim, index, out,
             [&](int d, int64_t) { return index.ndim() == out.ndim() ? index.stride(d) : 0; });
}

void index_select(mt_ctx& ctx, const mt_args_index_select& args) {
  static const uint32_t site = fault_site("index_select");
  const TensorView index = args.index;
  take_along(ctx, site, args.self, args.dim, index, args.out, [&](int d, int64_t dim) {
    return d == dim && index.ndim() != 0 ? index.stride(0) : 0;
  });
}

void embedding(mt_ctx& ctx, const mt_args_embedding& args) {
  static const uint32_t site = fault_site("embedding");
  const TensorView weight = args.weight;
  const TensorView out = args.out;
  const TensorView index = args.indices;
  sdk::check_ndim(static_cast<size_t>(out.ndim()));
  int64_t fixed[sdk::kMaxDims] = {}, places[sdk::kMaxDims] = {};
  const int last = out.ndim() - 1;
  for (int d = 0; d < last; ++d) places[d] = index.stride(d);
  fixed[last] = weight.stride(1);
  run(ctx, {out, index, weight, places, fixed, weight.stride(0)},
      faults_of(ctx, site, 0, weight.size(0)));
}

}  // namespace

void register_take(KernelEntries& kernels) {
  constexpr uint32_t kTakes = MT_TAKES_STRIDED;
  kernels.push_back(sdk::kernel<&gather>("take", kTakes));
  kernels.push_back(sdk::kernel<&index_select>("take", kTakes));
  kernels.push_back(sdk::kernel<&embedding>("take", kTakes));
}

}  // namespace mytorch::cuda
