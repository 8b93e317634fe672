// scatter: of the elements that meet at one target the last along `dim` wins. Each target first
// finds the largest position that names it, by an integer maximum, which is the same in any order;
// then the winners write.
#include <array>
#include <cstdint>
#include <optional>

#include "backends/cuda/indexing/faults.cuh"
#include "backends/cuda/indexing/operands.h"
#include "backends/cuda/kernel/element.cuh"
#include "backends/cuda/kernel/move.h"
#include "backends/cuda/kernel/strided.cuh"
#include "backends/cuda/registry.h"
#include "backends/cuda/runtime/launch.h"
#include "mytorch/abi_ops/scatter.h"
#include "mytorch/backend.h"

namespace mytorch::cuda {
namespace {

using sdk::TensorView;

// Operands of the walks: the index, the source, the output, the winners (contiguous, in the
// output's shape), and the position along the dimension.
constexpr int kOperands = 5;

__global__ void __launch_bounds__(256)
    find_winners(Strided<kOperands> walk, const void* index, uint32_t index_key, int64_t step,
                 unsigned* winners, Faults faults) {
  for (int64_t i = first_element(); i < walk.numel; i += grid_step()) {
    int64_t at[kOperands];
    walk.offsets(i, at);
    const int64_t value = load_index(index, at[0], index_key);
    if (!faults.check(value)) continue;
    atomicMax(winners + at[3] + value * step, static_cast<unsigned>(at[4]) + 1);
  }
}

template <class T>
__global__ void __launch_bounds__(256)
    write_winners(Strided<kOperands> walk, const void* index, uint32_t index_key, int64_t step,
                  const unsigned* winners, const T* src, T* out, int64_t out_step, int64_t size) {
  for (int64_t i = first_element(); i < walk.numel; i += grid_step()) {
    int64_t at[kOperands];
    walk.offsets(i, at);
    const int64_t value = load_index(index, at[0], index_key);
    if (static_cast<uint64_t>(value) >= static_cast<uint64_t>(size)) continue;
    if (winners[at[3] + value * step] == static_cast<unsigned>(at[4]) + 1) {
      out[at[2] + value * out_step] = src[at[1]];
    }
  }
}

void scatter(mt_ctx& ctx, const mt_args_scatter_src& args) {
  static const uint32_t site = fault_site("scatter");
  const ScatterOperands op(ctx, args.dim, args.index, args.src, args.self, args.out);
  if (op.self().raw() != op.out().raw()) move(ctx, op.self(), op.out());
  if (op.index().numel() == 0) return;
  const int dim = op.dim();
  const TensorView index = op.index(), src = op.src(), out = op.out();
  if (index.size(dim) >= int64_t{1} << 32) {
    throw sdk::Error(MT_ERROR_UNSUPPORTED, "[scatter] 2^32 elements and more along a dimension");
  }
  int64_t out_fixed[sdk::kMaxDims], winner_fixed[sdk::kMaxDims], position[sdk::kMaxDims];
  int64_t contiguous = 1, step = 0;
  for (int d = out.ndim() - 1; d >= 0; --d) {
    out_fixed[d] = d == dim ? 0 : out.stride(d);
    winner_fixed[d] = d == dim ? 0 : contiguous;
    position[d] = d == dim ? 1 : 0;
    if (d == dim) step = contiguous;
    contiguous *= out.size(d);
  }
  const Strided<kOperands> walk(sdk::StridedLoop<kOperands>(
      index.shape(),
      {index.get()->dl.strides, src.get()->dl.strides, out_fixed, winner_fixed, position}));
  unsigned* winners = scratch<unsigned>(ctx, contiguous);
  use_device(ctx);
  CUDA(cudaMemsetAsync(winners, 0, static_cast<size_t>(contiguous) * sizeof(unsigned),
                       stream_of(ctx)));
  const Grid grid = grid_for(ctx, walk.numel, 256);
  const void* indices = index.raw();
  const uint32_t key = sdk::dtype_key(index.dtype());
  launch(ctx, "find_winners", find_winners, grid, walk, indices, key, step, winners,
         faults_of(ctx, site, dim, out.size(dim)));
  sdk::visit_itemsize(out.itemsize(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    launch(ctx, "write_winners", write_winners<T>, grid, walk, indices, key, step,
           static_cast<const unsigned*>(winners), static_cast<const T*>(src.raw()), out.data<T>(),
           out.stride(dim), out.size(dim));
  });
}

}  // namespace

void register_scatter(KernelEntries& kernels) {
  kernels.push_back(sdk::kernel<&scatter>("winners", MT_TAKES_STRIDED));
}

}  // namespace mytorch::cuda
