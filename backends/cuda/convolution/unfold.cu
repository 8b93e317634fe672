// im2col along the width: taps of a row become channels.
#include "backends/cuda/common/element.cuh"
#include "backends/cuda/common/pack.cuh"
#include "backends/cuda/common/strided.cuh"
#include "backends/cuda/convolution/convolution.h"
#include "backends/cuda/runtime/launch.h"

namespace mytorch::cuda {
namespace {

using sdk::TensorView;

constexpr int kUnfoldThreads = 256;
constexpr int kRun = 8;  // elements per thread, 16 bytes

// Channel m of a result is channel m % channels of tap m / channels; it is 0 beyond the last tap
// and outside of the input. `pixels` gives the beginning of a window, in memory and as a column,
// relative to the first window.
struct Taps {
  Strided<2> pixels;
  int channels, taps, runs;        // per pixel
  int64_t channel_stride, stride;  // in memory; `stride` is between taps
  int64_t before;                  // offset of the first window in memory
  int64_t step, first,
      width;  // columns between taps, first column of the first window, number of columns
};

__global__ void __launch_bounds__(kUnfoldThreads)
    unfold_taps(Taps t, int64_t numel, const uint16_t* from, Pack<uint16_t, kRun>* to) {
  for (int64_t i = first_element(); i < numel; i += grid_step()) {
    const int64_t pixel = i / t.runs;
    const int first = static_cast<int>(i - pixel * t.runs) * kRun;
    int64_t at[2];
    t.pixels.offsets(pixel, at);
    int tap = first / t.channels, channel = first - tap * t.channels;
    Pack<uint16_t, kRun> run;
#pragma unroll
    for (int k = 0; k < kRun; ++k) {
      const int64_t column = at[1] + t.first + tap * t.step;
      const bool inside = tap < t.taps && column >= 0 && column < t.width;
      run.at[k] = inside ? from[at[0] + t.before + tap * t.stride + channel * t.channel_stride]
                         : uint16_t{0};
      if (++channel == t.channels) {
        channel = 0;
        ++tap;
      }
    }
    to[i] = run;
  }
}

void unfold(mt_ctx& ctx, const Taps& taps, const uint16_t* from, void* to) {
  const int64_t numel = taps.pixels.numel * taps.runs;
  launch(ctx, "unfold_taps", unfold_taps, grid_for(ctx, numel, kUnfoldThreads), taps, numel, from,
         static_cast<Pack<uint16_t, kRun>*>(to));
}

// The fields common to both operands; the positions of the taps are not set.
Taps taps_of(const sdk::ConvolutionGeometry& g, int64_t channels, const TensorView& x,
             std::span<const int64_t> shape, const int64_t* strides, const int64_t* columns) {
  Taps taps{};
  taps.pixels = Strided<2>(sdk::StridedLoop<2>(shape, {strides, columns}, sdk::Order::kRowMajor));
  taps.channels = static_cast<int>(g.in_channels);
  taps.taps = static_cast<int>(g.kernel[2]);
  taps.runs = static_cast<int>(channels / kRun);
  taps.channel_stride = x.stride(1);
  return taps;
}

}  // namespace

void unfold_columns(mt_ctx& ctx, const sdk::ConvolutionGeometry& g, const TensorView& input,
                    int64_t channels, void* to) {
  const int64_t shape[] = {input.size(0), input.size(2), g.output[2]};
  const int64_t strides[] = {input.stride(0), input.stride(2), input.stride(3) * g.stride[2]};
  const int64_t columns[] = {0, 0, g.stride[2]};
  Taps taps = taps_of(g, channels, input, shape, strides, columns);
  taps.step = g.dilation[2];
  taps.stride = input.stride(3) * g.dilation[2];
  taps.width = g.input[2];
  taps.first = -g.padding[2];
  taps.before = -g.padding[2] * input.stride(3);
  unfold(ctx, taps, input.data<const uint16_t>(), to);
}

void unfold_weight(mt_ctx& ctx, const sdk::ConvolutionGeometry& g, const TensorView& weight,
                   int64_t channels, void* to) {
  const int64_t shape[] = {weight.size(0), weight.size(2)};
  const int64_t strides[] = {weight.stride(0), weight.stride(2)};
  const int64_t columns[] = {0, 0};
  Taps taps = taps_of(g, channels, weight, shape, strides, columns);
  taps.step = 1;
  taps.stride = weight.stride(3);
  taps.width = g.kernel[2];
  unfold(ctx, taps, weight.data<const uint16_t>(), to);
}

}  // namespace mytorch::cuda
