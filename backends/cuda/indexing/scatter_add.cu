// scatter_add without atomics. Elements with the same target differ only along `dim`, so lines
// along it are independent (common/add_along.h). If all lines have the same index, whole rows are
// moved, and these are sorted instead (rows.h). Sums of 16-bit floats are accumulated in float32
// and rounded once.
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
#include "backends/cuda/runtime/sdk.h"
#include "mytorch/abi_ops/scatter_add.h"

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
  const uint64_t others = ~(uint64_t{1} << dim);
  const auto kept = static_cast<size_t>(sdk::select_dims(others, out.shape(), shape));
  sdk::select_dims(others, src.strides(), strides[0]);
  sdk::select_dims(others, self.strides(), strides[1]);
  sdk::select_dims(others, out.strides(), strides[2]);
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
  // The loop is in the order of the output's memory; the kernel's operands are src, self, out.
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
  bool covers = true;  // the index covers all of the output's lines
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
