// scatter: if several elements have the same target, the last one along `dim` is written. An atomic
// maximum, whose result does not depend on the order, first finds the last position for each
// target; then these positions write.
#include <array>
#include <cstdint>
#include <optional>

#include "backends/cuda/common/element.cuh"
#include "backends/cuda/common/move.h"
#include "backends/cuda/common/strided.cuh"
#include "backends/cuda/indexing/operands.h"
#include "backends/cuda/registry.h"
#include "backends/cuda/runtime/faults.h"
#include "backends/cuda/runtime/launch.h"
#include "backends/cuda/runtime/sdk.h"
#include "mytorch/abi_ops/scatter.h"

namespace mytorch::cuda {
namespace {

using sdk::TensorView;

// Operands of the loop: the index, the source, the output, the last writers (contiguous, in the
// output's shape), and the position along the dimension.
constexpr int kOperands = 5;

__global__ void __launch_bounds__(256)
    find_last_writers(Strided<kOperands> loop, const void* index, uint32_t index_key, int64_t step,
                      unsigned* last_writers, Faults faults) {
  for (int64_t i = first_element(); i < loop.numel; i += grid_step()) {
    int64_t at[kOperands];
    loop.offsets(i, at);
    const int64_t value = load_index(index, at[0], index_key);
    if (!faults.check(value)) continue;
    atomicMax(last_writers + at[3] + value * step, static_cast<unsigned>(at[4]) + 1);
  }
}

template <class T>
__global__ void __launch_bounds__(256)
    write_last(Strided<kOperands> loop, const void* index, uint32_t index_key, int64_t step,
               const unsigned* last_writers, const T* src, T* out, int64_t out_step, int64_t size) {
  for (int64_t i = first_element(); i < loop.numel; i += grid_step()) {
    int64_t at[kOperands];
    loop.offsets(i, at);
    const int64_t value = load_index(index, at[0], index_key);
    if (static_cast<uint64_t>(value) >= static_cast<uint64_t>(size)) continue;
    if (last_writers[at[3] + value * step] == static_cast<unsigned>(at[4]) + 1) {
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
    throw sdk::Error(MT_ERROR_UNSUPPORTED, "[scatter] 2^32 or more elements along a dimension");
  }
  int64_t out_fixed[sdk::kMaxDims], writer_fixed[sdk::kMaxDims], position[sdk::kMaxDims];
  int64_t contiguous = 1, step = 0;
  for (int d = out.ndim() - 1; d >= 0; --d) {
    out_fixed[d] = d == dim ? 0 : out.stride(d);
    writer_fixed[d] = d == dim ? 0 : contiguous;
    position[d] = d == dim ? 1 : 0;
    if (d == dim) step = contiguous;
    contiguous *= out.size(d);
  }
  const Strided<kOperands> loop(sdk::StridedLoop<kOperands>(
      index.shape(),
      {index.get()->dl.strides, src.get()->dl.strides, out_fixed, writer_fixed, position}));
  unsigned* last_writers = scratch<unsigned>(ctx, contiguous);
  use_device(ctx);
  CUDA(cudaMemsetAsync(last_writers, 0, static_cast<size_t>(contiguous) * sizeof(unsigned),
                       stream_of(ctx)));
  const Grid grid = grid_for(ctx, loop.numel, 256);
  const void* indices = index.raw();
  const uint32_t key = sdk::dtype_key(index.dtype());
  launch(ctx, "find_last_writers", find_last_writers, grid, loop, indices, key, step, last_writers,
         faults_of(ctx, site, dim, out.size(dim)));
  sdk::visit_itemsize(out.itemsize(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    launch(ctx, "write_last", write_last<T>, grid, loop, indices, key, step,
           static_cast<const unsigned*>(last_writers), static_cast<const T*>(src.raw()),
           out.data<T>(), out.stride(dim), out.size(dim));
  });
}

}  // namespace

void register_scatter(KernelEntries& kernels) {
  kernels.push_back(sdk::kernel<&scatter>("last_writer", MT_TAKES_STRIDED));
}

}  // namespace mytorch::cuda
