#include <cstdint>
#include <cstdlib>

#include "backends/cuda/common/add_along.h"
#include "backends/cuda/common/element.cuh"
#include "backends/cuda/common/strided.cuh"
#include "backends/cuda/runtime/launch.h"

namespace mytorch::cuda {
namespace {

using sdk::TensorView;

// Strides along a line, and its length.
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
      // Finds the lanes with the same target; the first of them adds for all of them, in order.
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
      __syncwarp();  // the next 32 elements may read these results
    }
  }
}

template <class T, class A>
void start_add_along(mt_ctx& ctx, const TensorView& index, const TensorView& src,
                     const TensorView& acc, int dim, const Faults& faults) {
  const Lines<3> of(sdk::make_lines<3>({index, src, acc}, dim));
  const Strided<3>& lines = of.loop;
  const Along along{of.step[0], of.step[1], of.step[2], of.size[0]};
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

}  // namespace

void add_along(mt_ctx& ctx, const TensorView& index, const TensorView& src, const TensorView& acc,
               int dim, const Faults& faults) {
  visit_type(src.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    start_add_along<T, Wide<T>>(ctx, index, src, acc, dim, faults);
  });
}

}  // namespace mytorch::cuda
