// scatter_add without atomics. Elements that meet at one target differ only along `dim`, so lines
// along it are independent: a thread goes along each, where neighbouring lines are neighbours in
// memory, else a warp, which adds what meets within 32 positions in their order. An index that is
// the same for all lines moves whole rows, which are sorted instead. Sums of 16-bit floats are kept
// in float32 and rounded once.
#include <array>
#include <cstdint>
#include <cstdlib>

#include "backends/cuda/indexing/add.h"
#include "backends/cuda/indexing/faults.cuh"
#include "backends/cuda/indexing/operands.h"
#include "backends/cuda/indexing/rows.h"
#include "backends/cuda/kernel/element.cuh"
#include "backends/cuda/kernel/move.h"
#include "backends/cuda/kernel/strided.cuh"
#include "backends/cuda/registry.h"
#include "backends/cuda/runtime/launch.h"
#include "mytorch/abi_ops/scatter_add.h"
#include "mytorch/backend.h"

namespace mytorch::cuda {
namespace {

using sdk::TensorView;

// Between neighbours of a line, and how long it is.
struct Along {
  int64_t index, src, acc, length;
};

template <class T, class A>
__global__ void __launch_bounds__(128)
    add_by_threads(Strided<3> lines, Along along, const void* index, uint32_t index_key,
                   const T* src, A* acc, Faults faults) {
  for (int64_t line = first_element(); line < lines.numel; line += grid_step()) {
    int64_t at[3];
    lines.offsets(line, at);
    for (int64_t k = 0; k < along.length; ++k) {
      const int64_t value = load_index(index, at[0] + k * along.index, index_key);
      if (!faults.check(value)) continue;
      A& to = acc[at[2] + value * along.acc];
      to = sum_as<A>(as_sum(to) + as_sum(src[at[1] + k * along.src]));
    }
  }
}

template <class T, class A>
__global__ void __launch_bounds__(128)
    add_by_warps(Strided<3> lines, Along along, const void* index, uint32_t index_key, const T* src,
                 A* acc, Faults faults) {
  constexpr unsigned kAll = 0xFFFFFFFFu;
  const unsigned lane = threadIdx.x % 32;
  const int64_t warps = grid_step() / 32;
  for (int64_t line = first_element() / 32; line < lines.numel; line += warps) {
    int64_t at[3];
    lines.offsets(line, at);
    for (int64_t first = 0; first < along.length; first += 32) {
      const int64_t k = first + lane;
      int64_t value = -1;
      Sum<T> term = 0;
      if (k < along.length) {
        value = load_index(index, at[0] + k * along.index, index_key);
        if (faults.check(value)) {
          term = as_sum(src[at[1] + k * along.src]);
        } else {
          value = -1;
        }
      }
      // The lanes that have the same target; the first of them adds for all.
      const unsigned same = __match_any_sync(kAll, static_cast<unsigned long long>(value));
      const bool first_of = value >= 0 && (same & ((1u << lane) - 1)) == 0;
      A* to = acc + at[2] + value * along.acc;
      Sum<T> sum = term;
      if (first_of) sum = as_sum(*to) + term;
      if (__any_sync(kAll, value >= 0 && (same & (same - 1)) != 0)) {
        for (unsigned other = 1; other < 32; ++other) {
          const Sum<T> its = __shfl_sync(kAll, term, other);
          if (other > lane && (same >> other & 1) != 0) sum += its;
        }
      }
      if (first_of) *to = sum_as<A>(sum);
      __syncwarp();  // the next 32 may read what was written
    }
  }
}

template <class T, class A>
void start(mt_ctx& ctx, const TensorView& index, const TensorView& src, const TensorView& acc,
           int dim, const Faults& faults) {
  int64_t shape[sdk::kMaxDims], strides[3][sdk::kMaxDims];
  size_t kept = 0;
  for (int d = 0; d < index.ndim(); ++d) {
    if (d == dim) continue;
    shape[kept] = index.size(d);
    strides[0][kept] = index.stride(d);
    strides[1][kept] = src.stride(d);
    strides[2][kept++] = acc.stride(d);
  }
  const sdk::StridedLoop<3> loop(std::span<const int64_t>(shape, kept),
                                 {strides[0], strides[1], strides[2]});
  const Strided<3> lines(loop);
  const Along along{index.stride(dim), src.stride(dim), acc.stride(dim), index.size(dim)};
  const bool side_by_side = lines.ndim > 0 && std::abs(lines.stride[0][1]) < std::abs(along.src);
  const bool threads = along.length == 1 || (side_by_side && lines.numel >= 2048);
  const void* indices = index.raw();
  const uint32_t key = sdk::dtype_key(index.dtype());
  const T* from = static_cast<const T*>(src.raw());
  if (threads) {
    launch(ctx, "add_by_threads", add_by_threads<T, A>, grid_for(ctx, lines.numel, 128), lines,
           along, indices, key, from, acc.data<A>(), faults);
  } else {
    launch(ctx, "add_by_warps", add_by_warps<T, A>, grid_for(ctx, lines.numel * 32, 128), lines,
           along, indices, key, from, acc.data<A>(), faults);
  }
}

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
  // The walk is in the order of the output's memory; its operands are src, self, out.
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

void add_along(mt_ctx& ctx, const TensorView& index, const TensorView& src, const TensorView& acc,
               int dim, const Faults& faults) {
  visit_type(src.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    start<T, Wide<T>>(ctx, index, src, acc, dim, faults);
  });
}

void register_scatter_add(KernelEntries& kernels) {
  kernels.push_back(sdk::kernel<&scatter_add>("lines", MT_TAKES_STRIDED));
}

}  // namespace mytorch::cuda
