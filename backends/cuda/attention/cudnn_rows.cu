#include <cmath>
#include <limits>

#include "backends/cuda/attention/cudnn_rows.h"
#include "backends/cuda/common/element.cuh"
#include "backends/cuda/runtime/launch.h"

namespace mytorch::cuda {
namespace {

constexpr int kThreads = 256;

// Element i of a layout, in row-major order, in two tensors.
struct Places {
  int64_t size[4], from[4], to[4];

  __device__ void at(int64_t i, int64_t& in, int64_t& out) const {
    in = out = 0;
#pragma unroll
    for (int d = 3; d >= 0; --d) {
      const int64_t index = i % size[d];
      i /= size[d];
      in += index * from[d];
      out += index * to[d];
    }
  }
};

// 16-bit floats are copied as they are.
template <bool kBool>
__global__ void additive_mask(Places places, int64_t n, const void* mask, uint16_t hidden,
                              uint16_t* to) {
  for (int64_t i = blockIdx.x * int64_t{blockDim.x} + threadIdx.x; i < n;
       i += int64_t{gridDim.x} * blockDim.x) {
    int64_t in, out;
    places.at(i, in, out);
    if constexpr (kBool) {
      to[out] = static_cast<const uint8_t*>(mask)[in] != 0 ? 0 : hidden;
    } else {
      to[out] = static_cast<const uint16_t*>(mask)[in];
    }
  }
}

__global__ void finite_logsumexp(int64_t n, const float* from, float* to) {
  for (int64_t i = blockIdx.x * int64_t{blockDim.x} + threadIdx.x; i < n;
       i += int64_t{gridDim.x} * blockDim.x) {
    to[i] = from[i] == -INFINITY ? 0.0F : from[i];
  }
}

// One warp per row.
__global__ void empty_rows(Places places, int64_t rows, int64_t width, const float* logsumexp,
                           uint16_t* output) {
  const int64_t warps = int64_t{gridDim.x} * blockDim.x / 32;
  for (int64_t row = (blockIdx.x * int64_t{blockDim.x} + threadIdx.x) / 32; row < rows;
       row += warps) {
    if (logsumexp[row] != -INFINITY) continue;
    int64_t unused, out;
    places.at(row, unused, out);
    for (int64_t c = threadIdx.x % 32; c < width; c += 32) output[out + c] = 0;
  }
}

}  // namespace

void write_additive_mask(mt_ctx& ctx, const sdk::TensorView& mask, mt_dtype dtype,
                         const Layout4& layout, void* to) {
  Places places{};
  int64_t n = 1;
  for (int d = 0; d < 4; ++d) {
    const auto at = static_cast<size_t>(d);
    places.size[d] = layout.size[at];
    places.from[d] = mask.size(d) == 1 ? 0 : mask.stride(d);
    places.to[d] = layout.stride[at];
    n *= layout.size[at];
  }
  const uint16_t hidden = sdk::is_dtype<sdk::Half>(dtype) ? 0xFC00 : 0xFF80;  // -infinity
  const Grid grid = grid_for(ctx, n, kThreads);
  auto* const out = static_cast<uint16_t*>(to);
  const void* const from = mask.raw();
  if (sdk::is_bool(mask.dtype())) {
    launch(ctx, "attention_mask", additive_mask<true>, grid, places, n, from, hidden, out);
  } else {
    launch(ctx, "attention_mask", additive_mask<false>, grid, places, n, from, hidden, out);
  }
}

void write_finite_logsumexp(mt_ctx& ctx, const float* logsumexp, int64_t n, float* to) {
  launch(ctx, "attention_logsumexp", finite_logsumexp, grid_for(ctx, n, kThreads), n, logsumexp,
         to);
}

void clear_empty_rows(mt_ctx& ctx, const float* logsumexp, const Layout4& layout, void* output) {
  Places places{};
  int64_t rows = 1;
  for (int d = 0; d < 4; ++d) {
    const auto at = static_cast<size_t>(d);
    places.size[d] = d == 3 ? 1 : layout.size[at];
    places.to[d] = layout.stride[at];
    rows *= places.size[d];
  }
  launch(ctx, "attention_empty_rows", empty_rows, grid_for(ctx, rows * 32, kThreads), places, rows,
         layout.size[3], logsumexp, static_cast<uint16_t*>(output));
}

}  // namespace mytorch::cuda
