// scatter_add without atomics. Elements that meet at one target differ only along `dim`, so lines
// along it are independent: a thread goes along each, where neighbouring lines are neighbours in
// memory, else a warp, which adds what meets within 32 positions in their order. An index that is
// the same for all lines moves whole rows, which are sorted instead. Sums of 16-bit floats are kept
// in float32 and rounded once.
#include <array>
#include <cstdint>
#include <cstdlib>

#include "backends/cuda/common/add_along.h"
#include "backends/cuda/common/element.cuh"
#include "backends/cuda/common/move.h"
#include "backends/cuda/common/strided.cuh"
#include "backends/cuda/indexing/operands.h"
#include "backends/cuda/indexing/rows.h"
#include "backends/cuda/registry.h"
#include "backends/cuda/runtime/faults.h"
#include "backends/cuda/runtime/launch.h"
#include "mytorch/abi_ops/scatter_add.h"
#include "mytorch/backend.h"

namespace mytorch::cuda {
namespace {

using sdk::TensorView;

// Whether every line has the same indices.
bool same_for_all(const TensorView& index, int dim) {
  for (int d = 0; d < index.ndim(); ++d) {
    if (d != dim && index.size(d) != 1 && index.stride(d) != 0) return false;
  }
  return true;
}

void add_rows(mt_ctx& ctx, const ScatterOperands& op, const Faults& faults) {
  const int dim = op.dim();
  const TensorView index = op.index(), src = op.src(), self = op.self(), out = op.out();
  int64_t shape[sdk::kMaxDims], strides[3][sdk::kMaxDims];
  size_t kept = 0;
  for (int d = 0; d < out.ndim(); ++d) {
    if (d == dim) continue;
    shape[kept] = out.size(d);
    strides[0][kept] = src.stride(d);
    strides[1][kept] = self.stride(d);
    strides[2][kept++] = out.stride(d);
  }
  RowSums call;
  call.index = index;
  const int64_t length = index.size(dim), step = index.stride(dim);
  call.positions = Strided<1>(sdk::StridedLoop<1>(std::span(&length, 1), {&step}));
  call.rows = out.size(dim);
  call.dtype = out.dtype();
  call.src = src.raw();
  call.src_step = src.stride(dim);
  call.self = self.raw();
  call.self_step = self.stride(dim);
  call.out = out.raw();
  call.out_step = out.stride(dim);
  call.columns = Strided<3>(sdk::StridedLoop<3>(std::span<const int64_t>(shape, kept),
                                                {strides[2], strides[1], strides[0]}));
  // The loop is in the order of the output's memory; its operands are src, self, out.
  for (int d = 0; d < call.columns.ndim; ++d) {
    std::swap(call.columns.stride[d][0], call.columns.stride[d][2]);
  }
  sum_rows(ctx, call, faults);
}

void scatter_add(mt_ctx& ctx, const mt_args_scatter_add& args) {
  static const uint32_t site = fault_site("scatter_add");
  const ScatterOperands op(ctx, args.dim, args.index, args.src, args.self, args.out);
  const TensorView index = op.index(), out = op.out();
  const int dim = op.dim();
  const Faults faults = faults_of(ctx, site, dim, out.size(dim));
  bool covers = true;  // the index has all of the output's lines
  for (int d = 0; d < out.ndim(); ++d) {
    covers = covers && (d == dim || index.size(d) == out.size(d));
  }
  if (covers && index.size(dim) > 256 && same_for_all(index, dim)) {
    return add_rows(ctx, op, faults);
  }
  if (out.is<sdk::Half>() || out.is<sdk::BFloat16>()) {
    const ContiguousScratch sums(ctx, out, sdk::dtype_of<float>);
    move(ctx, op.self(), sums.view());
    if (index.numel() != 0) add_along(ctx, index, op.src(), sums.view(), dim, faults);
    move(ctx, sums.view(), out);
    return;
  }
  if (op.self().raw() != out.raw()) move(ctx, op.self(), out);
  if (index.numel() != 0) add_along(ctx, index, op.src(), out, dim, faults);
}

}  // namespace

void register_scatter_add(KernelEntries& kernels) {
  kernels.push_back(sdk::kernel<&scatter_add>("lines", MT_TAKES_STRIDED));
}

}  // namespace mytorch::cuda
