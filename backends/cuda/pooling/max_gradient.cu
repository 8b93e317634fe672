// The record of this gradient has indices, but not the windows that they come from. A warp owns a
// segment of each of 32 planes of the result, which it sums in shared memory and writes once. It
// adds those elements of the gradient whose indices lie in its segment, in order. Which runs of
// elements these can be among follows from the smallest and the largest index of each run, found
// before: indices of windows ascend from row to row, so that a warp reads little that is not its
// own where a few rows of windows are a few segments. Any other indices, and rows that are much
// longer, are right, too, but are read by more warps of their planes.
#include <cstdint>

#include "backends/cuda/common/divisor.h"
#include "backends/cuda/common/element.cuh"
#include "backends/cuda/pooling/max_gradient.h"
#include "backends/cuda/pooling/planes.h"
#include "backends/cuda/runtime/faults.h"
#include "backends/cuda/runtime/launch.h"
#include "backends/cuda/runtime/sdk.h"
#include "mytorch/abi_ops/max_pool2d_with_indices_backward.h"

namespace mytorch::cuda {
namespace {

using sdk::TensorView;

constexpr int kRunSize = 16;       // elements of a run
constexpr int kSegmentSize = 128;  // elements of a segment
constexpr unsigned kWarp = 0xFFFFFFFFu;

// A warp's planes, in the order of images and their channels.
struct Groups {
  int64_t planes, channels, count;

  explicit Groups(const Planes& x) : planes(x.n * x.c), channels(x.c), count((planes + 31) / 32) {}
};

// The elements of planes, in order.
struct Elements {
  int64_t sn, sc, sh, sw, w, size;
  bool wide;
  Divisor by_w;

  explicit Elements(const Planes& x)
      : sn(x.sn),
        sc(x.sc),
        sh(x.sh),
        sw(x.sw),
        w(x.w),
        size(x.h * x.w),
        wide(size >= int64_t{1} << 31),
        by_w(wide ? 1 : static_cast<uint32_t>(x.w)) {}

#ifdef __CUDACC__
  struct Place {
    int64_t offset, x;
  };
  __device__ __forceinline__ int64_t plane(const Groups& groups, int64_t number) const {
    const int64_t n = number / groups.channels;
    return n * sn + (number - n * groups.channels) * sc;
  }
  __device__ __forceinline__ Place place(int64_t element) const {
    const int64_t y = wide ? element / w : by_w.divide(static_cast<uint32_t>(element));
    const int64_t x = element - y * w;
    return {y * sh + x * sw, x};
  }
  __device__ __forceinline__ void next(Place& at) const {
    at.offset += sw;
    if (++at.x < w) return;
    at.x = 0;
    at.offset += sh - w * sw;
  }
#endif
};

struct Range {
  int64_t first, last;  // inclusive
};
__device__ __forceinline__ Range over_warp(Range range) {
#pragma unroll
  for (int d = 16; d > 0; d /= 2) {
    const auto other = [&](int64_t x) {
      return static_cast<int64_t>(__shfl_xor_sync(kWarp, static_cast<long long>(x), d));
    };
    range = {min(range.first, other(range.first)), max(range.last, other(range.last))};
  }
  return range;
}

// Finds the range of the indices of each run, in all planes of a group.
__global__ void __launch_bounds__(256)
    find_ranges(Groups groups, Elements of, int64_t runs, const int64_t* indices, Range* ranges,
                Faults faults) {
  for (int64_t i = first_element() / 32; i < groups.count * runs; i += grid_step() / 32) {
    const int64_t plane = i / runs * 32 + threadIdx.x % 32;
    const int64_t begin = i % runs * kRunSize;
    Range range{INT64_MAX, -1};
    if (plane < groups.planes) {
      const int64_t* const from = indices + of.plane(groups, plane);
      Elements::Place at = of.place(begin);
      int64_t found[kRunSize];
#pragma unroll
      for (int k = 0; k < kRunSize; ++k) {
        if (begin + k >= of.size) break;
        found[k] = from[at.offset];
        of.next(at);
      }
#pragma unroll
      for (int k = 0; k < kRunSize; ++k) {
        if (begin + k >= of.size) break;
        if (!faults.check(found[k])) continue;
        range = {min(range.first, found[k]), max(range.last, found[k])};
      }
    }
    range = over_warp(range);
    if (threadIdx.x % 32 == 0) ranges[i] = range;
  }
}

template <class T>
__global__ void __launch_bounds__(32)
    add_segments(Groups groups, Elements from, Elements index, Elements to, int64_t runs,
                 int64_t segments, const T* grad, const int64_t* indices, const Range* ranges,
                 T* out) {
  using W = Wide<T>;
  __shared__ W sums[kSegmentSize][33];  // a column for each plane
  const int lane = static_cast<int>(threadIdx.x);
  for (int64_t i = blockIdx.x; i < groups.count * segments; i += gridDim.x) {
    const int64_t group = i / segments;
    const int64_t begin = i % segments * kSegmentSize;
    const int size = static_cast<int>(min(int64_t{kSegmentSize}, to.size - begin));
    const int64_t plane = group * 32 + lane;
    const bool live = plane < groups.planes;
    const T* const g = grad + (live ? from.plane(groups, plane) : 0);
    const int64_t* const own = indices + (live ? index.plane(groups, plane) : 0);
    for (int k = 0; k < size; ++k) sums[k][lane] = W(0);
    for (int64_t first = 0; first < runs; first += 32) {
      Range range{INT64_MAX, -1};
      if (first + lane < runs) range = ranges[group * runs + first + lane];
      unsigned among = __ballot_sync(kWarp, range.first < begin + size && range.last >= begin);
      for (; among != 0 && live; among &= among - 1) {
        const int64_t run = (first + __ffs(static_cast<int>(among)) - 1) * kRunSize;
        Elements::Place at = from.place(run), at_index = index.place(run);
        int64_t found[kRunSize];
        T terms[kRunSize];
#pragma unroll
        for (int k = 0; k < kRunSize; ++k) {
          if (run + k >= from.size) break;
          found[k] = own[at_index.offset] - begin;
          terms[k] = g[at.offset];
          from.next(at);
          index.next(at_index);
        }
#pragma unroll
        for (int k = 0; k < kRunSize; ++k) {
          if (run + k >= from.size) break;
          if (static_cast<uint64_t>(found[k]) >= static_cast<uint64_t>(size)) continue;
          W& sum = sums[found[k]][lane];
          sum = sum_as<W>(as_sum(sum) + as_sum(terms[k]));
        }
      }
    }
    if (to.sc == 1 && groups.channels > 1) {  // a lane writes its plane
      Elements::Place at = to.place(begin);
      T* const result = out + (live ? to.plane(groups, plane) : 0);
      for (int k = 0; live && k < size; ++k) {
        result[at.offset] = convert<T>(sums[k][lane]);
        to.next(at);
      }
    } else {
      __syncwarp();
      for (int64_t p = 0; p < 32 && group * 32 + p < groups.planes; ++p) {
        T* const result = out + to.plane(groups, group * 32 + p);
        for (int k = lane; k < size; k += 32) {
          result[to.place(begin + k).offset] = convert<T>(sums[k][p]);
        }
      }
      __syncwarp();
    }
  }
}

void max_pool2d_backward(mt_ctx& ctx, const mt_args_max_pool2d_with_indices_backward& args) {
  static const uint32_t site = fault_site("max_pool2d_with_indices_backward");
  const TensorView out = args.out, grad = args.grad_output, indices = args.indices;
  if (out.numel() == 0) return;
  const Groups groups((Planes(out)));
  const Elements to((Planes(out))), from((Planes(grad))), index((Planes(indices)));
  const int64_t runs = (from.size + kRunSize - 1) / kRunSize;
  const int64_t segments = (to.size + kSegmentSize - 1) / kSegmentSize;
  Range* const ranges = scratch<Range>(ctx, groups.count * runs);
  if (runs > 0) {
    launch(ctx, "find_ranges", find_ranges, grid_for(ctx, groups.count * runs * 32, 256), groups,
           index, runs, indices.data<int64_t>(), ranges,
           faults_of(ctx, site, out.ndim() - 2, to.size));
  }
  visit_type(out.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    launch(ctx, "add_segments", add_segments<T>, grid_for(ctx, groups.count * segments * 32, 32),
           groups, from, index, to, runs, segments, static_cast<const T*>(grad.raw()),
           indices.data<int64_t>(), ranges, out.data<T>());
  });
}

}  // namespace

void register_max_pool_gradient(KernelEntries& kernels) {
  kernels.push_back(sdk::kernel<&max_pool2d_backward>("segments", MT_TAKES_STRIDED));
}

}  // namespace mytorch::cuda
