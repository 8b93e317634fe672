// The gradient of an input with few channels, as of the first layer of a network. The windows with
// stride s that contain an element of the input depend on its position modulo s, so a thread has
// cells of s x s elements, whose products with a position of the output's gradient are the whole
// weight. A block has the gradient's tile and the weights of a few output channels in shared
// memory.
#include <cstdint>
#include <type_traits>

#include "backends/cuda/convolution/own.h"
#include "backends/cuda/runtime/launch.h"

namespace mytorch::cuda {
namespace {

constexpr int kThreadsX = 16, kThreadsY = 8;
constexpr int kChannels = 8;  // output channels at a time

struct FewChannelsSizes {
  int in_h, in_w, out_h, out_w, pad_h, pad_w, outputs;
  int tiles_x, tiles_y;
};

// kTaps x kTaps taps, stride kStride, kInputs channels. A thread has kCells cells beside each
// other.
template <int kTaps, int kStride, int kInputs, int kCells>
struct Shape {
  static constexpr int kReach = (kTaps + kStride - 1) / kStride;         // windows over an element
  static constexpr int kTileX = kThreadsX * kCells, kTileY = kThreadsY;  // cells
  static constexpr int kGradX = kTileX + kReach - 1, kGradY = kTileY + kReach - 1;
  static constexpr int kRow = kGradX | 1;  // spreads rows over the banks
  static constexpr int kWeights = kInputs * kTaps * kTaps, kWeightRow = (kWeights + 3) / 4 * 4;
};

template <int kTaps, int kStride, int kInputs, int kCells>
__global__ void __launch_bounds__(kThreadsX* kThreadsY)
    few_channels_input(FewChannelsSizes s, const float* __restrict__ grad,
                       const float* __restrict__ weight, float* __restrict__ to) {
  using Of = Shape<kTaps, kStride, kInputs, kCells>;
  __shared__ __align__(16) float grads[kChannels][Of::kGradY][Of::kRow];
  __shared__ __align__(16) float weights[kChannels][Of::kWeightRow];
  const int tx = static_cast<int>(threadIdx.x) % kThreadsX;
  const int ty = static_cast<int>(threadIdx.x) / kThreadsX;
  const int tile = static_cast<int>(blockIdx.x);
  const int cell_x = tile % s.tiles_x * Of::kTileX, cell_y = tile / s.tiles_x * Of::kTileY;
  const int64_t n = blockIdx.y;
  const int64_t plane = int64_t{s.out_h} * s.out_w;
  const float* const from = grad + n * s.outputs * plane;
  float sums[kCells][kInputs][kStride][kStride] = {};
  for (int first = 0; first < s.outputs; first += kChannels) {
    const int channels = min(kChannels, s.outputs - first);
    __syncthreads();
    // The tile begins kReach - 1 positions before its first cell.
    for (int i = static_cast<int>(threadIdx.x); i < channels * Of::kGradY * Of::kGradX;
         i += kThreadsX * kThreadsY) {
      const int x = i % Of::kGradX, y = i / Of::kGradX % Of::kGradY;
      const int channel = i / (Of::kGradX * Of::kGradY);
      const int at_x = cell_x + x - (Of::kReach - 1), at_y = cell_y + y - (Of::kReach - 1);
      const bool inside = at_x >= 0 && at_x < s.out_w && at_y >= 0 && at_y < s.out_h;
      grads[channel][y][x] =
          inside ? from[(first + channel) * plane + int64_t{at_y} * s.out_w + at_x] : 0.0F;
    }
    for (int i = static_cast<int>(threadIdx.x); i < channels * Of::kWeights;
         i += kThreadsX * kThreadsY) {
      weights[i / Of::kWeights][i % Of::kWeights] = weight[first * Of::kWeights + i];
    }
    __syncthreads();
    for (int channel = 0; channel < channels; ++channel) {
      float w[Of::kWeights];
#pragma unroll
      for (int i = 0; i < Of::kWeights; ++i) w[i] = weights[channel][i];
        // Window rows t before the cell's: tap r + kStride * t of residue r.
#pragma unroll
      for (int t = 0; t < Of::kReach; ++t) {
        float g[kCells + Of::kReach - 1];
#pragma unroll
        for (int i = 0; i < kCells + Of::kReach - 1; ++i) {
          g[i] = grads[channel][ty + Of::kReach - 1 - t][tx * kCells + i];
        }
#pragma unroll
        for (int ry = 0; ry < kStride; ++ry) {
          if (ry + kStride * t >= kTaps) continue;
#pragma unroll
          for (int u = 0; u < Of::kReach; ++u) {
#pragma unroll
            for (int rx = 0; rx < kStride; ++rx) {
              if (rx + kStride * u >= kTaps) continue;
#pragma unroll
              for (int c = 0; c < kInputs; ++c) {
                const float factor = w[(c * kTaps + ry + kStride * t) * kTaps + rx + kStride * u];
#pragma unroll
                for (int cell = 0; cell < kCells; ++cell) {
                  sums[cell][c][ry][rx] += g[cell + Of::kReach - 1 - u] * factor;
                }
              }
            }
          }
        }
      }
    }
  }
#pragma unroll
  for (int cell = 0; cell < kCells; ++cell) {
#pragma unroll
    for (int c = 0; c < kInputs; ++c) {
#pragma unroll
      for (int ry = 0; ry < kStride; ++ry) {
        const int y = (cell_y + ty) * kStride + ry - s.pad_h;
#pragma unroll
        for (int rx = 0; rx < kStride; ++rx) {
          const int x = (cell_x + tx * kCells + cell) * kStride + rx - s.pad_w;
          if (y < 0 || y >= s.in_h || x < 0 || x >= s.in_w) continue;
          to[((n * kInputs + c) * s.in_h + y) * s.in_w + x] = sums[cell][c][ry][rx];
        }
      }
    }
  }
}

// Calls f(taps, stride, inputs) with constants, and returns its result, if there is a kernel.
template <class F>
bool with_shape(const sdk::ConvolutionGeometry& g, F&& f) {
  if (g.kernel[1] != g.kernel[2] || g.stride[1] != g.stride[2]) return false;
  const auto is = [&](int taps, int stride, int inputs) {
    return g.kernel[1] == taps && g.stride[1] == stride && g.in_channels == inputs;
  };
#define MYTORCH_FEW_CHANNELS(taps, stride, inputs)                                \
  if (is(taps, stride, inputs)) {                                                 \
    f(std::integral_constant<int, taps>(), std::integral_constant<int, stride>(), \
      std::integral_constant<int, inputs>());                                     \
    return true;                                                                  \
  }
  MYTORCH_FEW_CHANNELS(7, 2, 3)
  MYTORCH_FEW_CHANNELS(7, 2, 1)
  MYTORCH_FEW_CHANNELS(5, 1, 1)
  MYTORCH_FEW_CHANNELS(5, 1, 3)
  MYTORCH_FEW_CHANNELS(3, 1, 1)
  MYTORCH_FEW_CHANNELS(3, 1, 3)
  MYTORCH_FEW_CHANNELS(3, 2, 1)
  MYTORCH_FEW_CHANNELS(3, 2, 3)
#undef MYTORCH_FEW_CHANNELS
  return false;
}

bool is_plain(const Convolution& call) {
  const sdk::ConvolutionGeometry& g = call.geometry;
  bool small = g.batch <= 65535;
  for (const int64_t size : {g.batch, g.out_channels, g.input[1], g.input[2], g.output[1],
                             g.output[2], g.padding[1], g.padding[2]}) {
    small = small && size < int64_t{1} << 24;
  }
  return small && g.dims == 2 && g.groups == 1 && g.dilation[1] == 1 && g.dilation[2] == 1 &&
         call.result().is<float>();
}

bool takes_few_channels(const Convolution& call) {
  return call.computed == Convolution::kInput && is_plain(call) &&
         with_shape(call.geometry, [](auto, auto, auto) {});
}

int64_t few_channels_workspace(const mt_ctx& /*ctx*/, const Convolution& /*call*/) { return 0; }

bool run_few_channels(mt_ctx& ctx, const Convolution& call, const std::array<void*, 3>& data,
                      void* /*workspace*/) {
  const sdk::ConvolutionGeometry& g = call.geometry;
  return with_shape(g, [&](auto taps, auto stride, auto inputs) {
    constexpr int kCells = stride() == 1 ? 4 : 2;
    using Of = Shape<taps(), stride(), inputs(), kCells>;
    FewChannelsSizes s{};
    s.in_h = static_cast<int>(g.input[1]), s.in_w = static_cast<int>(g.input[2]);
    s.out_h = static_cast<int>(g.output[1]), s.out_w = static_cast<int>(g.output[2]);
    s.pad_h = static_cast<int>(g.padding[1]), s.pad_w = static_cast<int>(g.padding[2]);
    s.outputs = static_cast<int>(g.out_channels);
    const auto tiles = [&](int64_t input, int64_t padding, int64_t tile) {
      return (input + padding + stride() * tile - 1) / (stride() * tile);
    };
    s.tiles_x = static_cast<int>(tiles(g.input[2], g.padding[2], Of::kTileX));
    s.tiles_y = static_cast<int>(tiles(g.input[1], g.padding[1], Of::kTileY));
    Grid grid;
    grid.blocks =
        dim3(static_cast<unsigned>(int64_t{s.tiles_x} * s.tiles_y), static_cast<unsigned>(g.batch));
    grid.threads = dim3(kThreadsX * kThreadsY);
    launch(ctx, "few_channels_input", few_channels_input<taps(), stride(), inputs(), kCells>, grid,
           s, static_cast<const float*>(data[2]), static_cast<const float*>(data[1]),
           static_cast<float*>(data[0]));
  });
}

}  // namespace

const OwnKernel kFewChannelsInput = {&takes_few_channels, &few_channels_workspace,
                                     &run_few_channels};

}  // namespace mytorch::cuda
