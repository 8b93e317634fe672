// The columns that windows read, beside each other: what were taps of a row become channels.
#include "backends/cuda/common/element.cuh"
#include "backends/cuda/common/pack.cuh"
#include "backends/cuda/common/strided.cuh"
#include "backends/cuda/convolution/geometry.h"
#include "backends/cuda/runtime/launch.h"

namespace mytorch::cuda {
namespace {

using sdk::TensorView;

constexpr int kThreads = 256;
constexpr int kRun = 8;  // elements of a thread, 16 bytes

// Channel m of a result is channel m % channels of tap m / channels, and 0 beyond the last tap or
// the image. `pixels` says where a window begins, in memory and as a column, relative to the first.
struct Taps {
  Strided<2> pixels;
  int channels, taps, runs;        // of a pixel
  int64_t channel_stride, stride;  // in memory; the latter between taps
  int64_t before;                  // of the first window in memory
  int64_t step, first, width;      // columns between taps, where the first window begins, of all
};

__global__ void __launch_bounds__(kThreads)
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
  launch(ctx, "unfold_taps", unfold_taps, grid_for(ctx, numel, kThreads), taps, numel, from,
         static_cast<Pack<uint16_t, kRun>*>(to));
}

}  // namespace

void unfold_columns(mt_ctx& ctx, const Geometry& g, const TensorView& input, int64_t channels,
                    void* to) {
  const int64_t shape[] = {input.size(0), input.size(2), g.output[2]};
  const int64_t strides[] = {input.stride(0), input.stride(2), input.stride(3) * g.stride[2]};
  const int64_t columns[] = {0, 0, g.stride[2]};
  Taps taps{};
  taps.pixels = Strided<2>(sdk::StridedLoop<2>(shape, {strides, columns}, sdk::Order::kRowMajor));
  taps.channels = static_cast<int>(g.input_channels);
  taps.taps = static_cast<int>(g.kernel[2]);
  taps.runs = static_cast<int>(channels / kRun);
  taps.channel_stride = input.stride(1);
  taps.step = g.dilation[2];
  taps.stride = input.stride(3) * g.dilation[2];
  taps.width = g.input[2];
  taps.first = -g.padding[2];
  taps.before = -g.padding[2] * input.stride(3);
  unfold(ctx, taps, input.data<const uint16_t>(), to);
}

void unfold_weight(mt_ctx& ctx, const Geometry& g, const TensorView& weight, int64_t channels,
                   void* to) {
  const int64_t shape[] = {weight.size(0), weight.size(2)};
  const int64_t strides[] = {weight.stride(0), weight.stride(2)};
  const int64_t columns[] = {0, 0};
  Taps taps{};
  taps.pixels = Strided<2>(sdk::StridedLoop<2>(shape, {strides, columns}, sdk::Order::kRowMajor));
  taps.channels = static_cast<int>(g.input_channels);
  taps.taps = static_cast<int>(g.kernel[2]);
  taps.runs = static_cast<int>(channels / kRun);
  taps.channel_stride = weight.stride(1);
  taps.step = 1;
  taps.stride = weight.stride(3);
  taps.width = g.kernel[2];
  unfold(ctx, taps, weight.data<const uint16_t>(), to);
}

}  // namespace mytorch::cuda
