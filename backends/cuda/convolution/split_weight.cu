// The gradient of the weight in float32: a matrix product of the output's gradient (channels,
// positions) with the windows of the input (positions, taps), whose many positions are split among
// blocks. A second kernel adds the blocks' sums in order.
#include <algorithm>
#include <cstdint>

#include "backends/cuda/convolution/own.h"
#include "backends/cuda/runtime/launch.h"
#include "backends/cuda/runtime/settings.h"

namespace mytorch::cuda {
namespace {

// A block has a tile of kTile channels and kTile taps, of which each of its 64 threads has 8 x 8,
// and multiplies kDepth positions at a time.
constexpr int kTile = 64, kSplitThreads = 64, kOwn = 8, kDepth = 16;
constexpr int kRow = kTile + 4;  // keeps rows aligned to 16 bytes, and spreads them over the banks

struct SplitSizes {
  int channels, taps;     // of the product: output channels; input channels times taps
  int in_h, in_w, out_w;  // planes
  int positions;          // of an output plane
  int kernel_h, kernel_w, stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w;
  int64_t in_plane, in_image;  // elements
  int depths;                  // steps of kDepth positions in an image
  int64_t steps, own_steps;    // of all images, and of a block
};

// Where a tap reads the input, relative to its window.
struct Tap {
  int64_t offset;
  int y, x;
};

// `whole`: the planes of the gradient consist of aligned packs of four elements.
template <bool kWhole>
__global__ void __launch_bounds__(kSplitThreads)
    split_products(SplitSizes s, const float* __restrict__ input, const float* __restrict__ grad,
                   float* __restrict__ partial) {
  __shared__ __align__(16) float a[kDepth][kRow], b[kDepth][kRow];
  __shared__ Tap taps[kTile];
  const int own = static_cast<int>(threadIdx.x);
  const int row0 = static_cast<int>(blockIdx.x) * kTile,
            tap0 = static_cast<int>(blockIdx.y) * kTile;
  {
    const int tap = tap0 + own, area = s.kernel_h * s.kernel_w;
    const int c = tap / area, y = tap % area / s.kernel_w, x = tap % s.kernel_w;
    Tap at{0, INT32_MIN / 2, 0};  // outside
    if (tap < s.taps) {
      at.y = y * s.dilation_h - s.pad_h;
      at.x = x * s.dilation_w - s.pad_w;
      at.offset = c * s.in_plane + int64_t{at.y} * s.in_w + at.x;
    }
    taps[own] = at;
  }
  float sums[kOwn][kOwn] = {};
  const int64_t begin = blockIdx.z * s.own_steps;
  const int64_t end = min(begin + s.own_steps, s.steps);
  // A thread loads one position of every fourth tap, and quarters of rows of the gradient.
  const int depth = own % kDepth, part = own / kDepth;
  const int rows = own / 4, quad = own % 4;
  const int ty = own / 8 * 4, tx = own % 8 * 4;
  for (int64_t step = begin; step < end; ++step) {
    const int64_t image = step / s.depths;
    const int first = static_cast<int>(step - image * s.depths) * kDepth;
    __syncthreads();  // the last step has been read, or the taps written
    const float* const gradients = grad + image * s.channels * s.positions;
#pragma unroll
    for (int i = 0; i < kTile / 16; ++i) {
      const int row = rows + 16 * i, position = first + 4 * quad;
      float4 values = make_float4(0, 0, 0, 0);
      if (row0 + row < s.channels) {
        const float* const from = gradients + int64_t{row0 + row} * s.positions + position;
        if (kWhole) {
          if (position < s.positions) values = *reinterpret_cast<const float4*>(from);
        } else {
          if (position < s.positions) values.x = from[0];
          if (position + 1 < s.positions) values.y = from[1];
          if (position + 2 < s.positions) values.z = from[2];
          if (position + 3 < s.positions) values.w = from[3];
        }
      }
      a[4 * quad][row] = values.x;
      a[4 * quad + 1][row] = values.y;
      a[4 * quad + 2][row] = values.z;
      a[4 * quad + 3][row] = values.w;
    }
    const int position = first + depth;
    const bool inside = position < s.positions;
    const int out_y = position / s.out_w;
    const int y0 = out_y * s.stride_h, x0 = (position - out_y * s.out_w) * s.stride_w;
    const float* const window = input + image * s.in_image + int64_t{y0} * s.in_w + x0;
#pragma unroll
    for (int i = 0; i < kTile / 4; ++i) {
      const Tap tap = taps[part + 4 * i];
      const bool reads = inside &&
                         static_cast<unsigned>(y0 + tap.y) < static_cast<unsigned>(s.in_h) &&
                         static_cast<unsigned>(x0 + tap.x) < static_cast<unsigned>(s.in_w);
      b[depth][part + 4 * i] = reads ? window[tap.offset] : 0.0F;
    }
    __syncthreads();
#pragma unroll
    for (int k = 0; k < kDepth; ++k) {
      float left[kOwn], right[kOwn];
      // Two packs of four, half of the tile apart.
      *reinterpret_cast<float4*>(left) = *reinterpret_cast<const float4*>(&a[k][ty]);
      *reinterpret_cast<float4*>(left + 4) = *reinterpret_cast<const float4*>(&a[k][ty + 32]);
      *reinterpret_cast<float4*>(right) = *reinterpret_cast<const float4*>(&b[k][tx]);
      *reinterpret_cast<float4*>(right + 4) = *reinterpret_cast<const float4*>(&b[k][tx + 32]);
#pragma unroll
      for (int i = 0; i < kOwn; ++i) {
#pragma unroll
        for (int j = 0; j < kOwn; ++j) sums[i][j] += left[i] * right[j];
      }
    }
  }
  float* const to = partial + int64_t{blockIdx.z} * s.channels * s.taps;
#pragma unroll
  for (int i = 0; i < kOwn; ++i) {
    const int row = row0 + ty + i % 4 + i / 4 * 32;
#pragma unroll
    for (int j = 0; j < kOwn; ++j) {
      const int tap = tap0 + tx + j % 4 + j / 4 * 32;
      if (row < s.channels && tap < s.taps) to[int64_t{row} * s.taps + tap] = sums[i][j];
    }
  }
}

constexpr int kSumShares = 8;  // threads that share a sum

__global__ void __launch_bounds__(32 * kSumShares)
    add_partial(int64_t numel, int pieces, const float* __restrict__ partial, float* to) {
  __shared__ float parts[kSumShares][32];
  const int lane = static_cast<int>(threadIdx.x) % 32, share = static_cast<int>(threadIdx.x) / 32;
  const int64_t i = int64_t{blockIdx.x} * 32 + lane;
  float sum = 0;
  if (i < numel) {
#pragma unroll 8
    for (int p = share; p < pieces; p += kSumShares) sum += partial[p * numel + i];
  }
  parts[share][lane] = sum;
  __syncthreads();
  if (share != 0 || i >= numel) return;
#pragma unroll
  for (int other = 1; other < kSumShares; ++other) sum += parts[other][lane];
  to[i] = sum;
}

SplitSizes sizes_of(const mt_ctx& ctx, const Convolution& call, dim3& blocks) {
  const sdk::ConvolutionGeometry& g = call.geometry;
  const auto number = [](int64_t x) { return static_cast<int>(x); };
  SplitSizes s{};
  s.channels = number(g.out_channels), s.taps = number(g.depth());
  s.in_h = number(g.input[1]), s.in_w = number(g.input[2]), s.out_w = number(g.output[2]);
  s.positions = number(g.output_plane());
  s.kernel_h = number(g.kernel[1]), s.kernel_w = number(g.kernel[2]);
  s.stride_h = number(g.stride[1]), s.stride_w = number(g.stride[2]);
  s.pad_h = number(g.padding[1]), s.pad_w = number(g.padding[2]);
  s.dilation_h = number(g.dilation[1]), s.dilation_w = number(g.dilation[2]);
  s.in_plane = g.input_plane();
  s.in_image = g.in_channels * s.in_plane;
  s.depths = (s.positions + kDepth - 1) / kDepth;
  s.steps = g.batch * s.depths;
  const int64_t rows = (s.channels + kTile - 1) / kTile, columns = (s.taps + kTile - 1) / kTile;
  const int64_t wanted = int64_t{6} * properties(ctx.device.index).multiprocessors;
  const int64_t pieces =
      std::clamp<int64_t>(wanted / (rows * columns), 1, std::min<int64_t>(s.steps, 65535));
  s.own_steps = (s.steps + pieces - 1) / pieces;
  blocks = dim3(static_cast<unsigned>(rows), static_cast<unsigned>(columns),
                static_cast<unsigned>((s.steps + s.own_steps - 1) / s.own_steps));
  return s;
}

bool takes_split_weight(const Convolution& call) {
  const sdk::ConvolutionGeometry& g = call.geometry;
  if (call.computed != Convolution::kWeight || g.dims != 2 || g.groups != 1 ||
      !call.result().is<float>() || tf32_allowed()) {
    return false;
  }
  constexpr int64_t kMost = int64_t{1} << 24;
  for (int d = 1; d < 3; ++d) {
    const auto at = static_cast<size_t>(d);
    if (g.padding[at] >= kMost || g.stride[at] >= kMost ||
        g.dilation[at] * (g.kernel[at] - 1) >= kMost || g.input[at] >= kMost) {
      return false;
    }
  }
  return g.depth() < int64_t{1} << 21 && g.out_channels < kMost && g.output_plane() < kMost &&
         g.output[1] * g.stride[1] < kMost && g.output[2] * g.stride[2] < kMost;
}

int64_t split_workspace(const mt_ctx& ctx, const Convolution& call) {
  dim3 blocks;
  const SplitSizes s = sizes_of(ctx, call, blocks);
  return blocks.z == 1 ? 0 : int64_t{blocks.z} * s.channels * s.taps * 4;
}

bool run_split_weight(mt_ctx& ctx, const Convolution& call, const std::array<void*, 3>& data,
                      void* workspace) {
  Grid grid;
  const SplitSizes s = sizes_of(ctx, call, grid.blocks);
  grid.threads = dim3(kSplitThreads);
  const bool whole = s.positions % 4 == 0 && reinterpret_cast<uintptr_t>(data[2]) % 16 == 0;
  const unsigned pieces = grid.blocks.z;
  auto* const partial = static_cast<float*>(pieces == 1 ? data[1] : workspace);
  launch(ctx, "split_products", whole ? split_products<true> : split_products<false>, grid, s,
         static_cast<const float*>(data[0]), static_cast<const float*>(data[2]), partial);
  if (pieces == 1) return true;
  const int64_t numel = int64_t{s.channels} * s.taps;
  Grid sums;
  sums.blocks = dim3(static_cast<unsigned>((numel + 31) / 32));
  sums.threads = dim3(32 * kSumShares);
  launch(ctx, "add_partial", add_partial, sums, numel, static_cast<int>(pieces),
         static_cast<const float*>(partial), static_cast<float*>(data[1]));
  return true;
}

// The weight of a convolution that computes a gradient.

template <class T>
__global__ void flip_taps(int64_t numel, int64_t outputs, int64_t inputs, int64_t taps,
                          const T* from, T* to) {
  for (int64_t e = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; e < numel;
       e += int64_t{gridDim.x} * blockDim.x) {
    const int64_t tap = e % taps, o = e / taps % outputs, i = e / (taps * outputs);
    to[e] = from[(o * inputs + i) * taps + taps - 1 - tap];
  }
}

}  // namespace

const OwnKernel kSplitWeight = {&takes_split_weight, &split_workspace, &run_split_weight};

void flip_weight(mt_ctx& ctx, const sdk::ConvolutionGeometry& g, mt_dtype dtype, const void* weight,
                 void* to) {
  const int64_t numel = g.out_channels * g.depth();
  sdk::visit_itemsize(sdk::itemsize(dtype), [&](auto tag) {
    using T = typename decltype(tag)::type;
    launch(ctx, "flip_taps", flip_taps<T>, grid_for(ctx, numel, 256), numel, g.out_channels,
           g.in_channels, g.taps(), static_cast<const T*>(weight), static_cast<T*>(to));
  });
}

}  // namespace mytorch::cuda
