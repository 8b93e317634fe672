// Convolutions with cuDNN's graph API, as graphs of one operation. This API reaches the newer
// engines and reports whether an engine is deterministic and in which precision it computes, so
// that others can be skipped. Inputs with few channels are unfolded first.
#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "backends/cuda/common/move.h"
#include "backends/cuda/convolution/convolution.h"
#include "backends/cuda/convolution/layout.h"
#include "backends/cuda/convolution/operation.h"
#include "backends/cuda/convolution/own.h"
#include "backends/cuda/convolution/plans.h"
#include "backends/cuda/runtime/launch.h"
#include "mytorch/backend.h"

namespace mytorch::cuda {
namespace {

using sdk::TensorView;

bool run(mt_ctx& ctx, const Convolution& call, bool channels_last) {
  const cudnnHandle_t handle = cudnn_handle_of(ctx);
  ConvertedOperand input(ctx, call.input, channels_last, call.computed == Convolution::kInput);
  ConvertedOperand weight(ctx, call.weight, channels_last, call.computed == Convolution::kWeight);
  ConvertedOperand output(ctx, call.output, channels_last, call.computed == Convolution::kOutput);
  Operands operands{{input.data(), weight.data(), output.data()}, nullptr};
  std::array<int64_t, 3> alignment;
  for (size_t i = 0; i < 3; ++i) alignment[i] = alignment_of(operands.data[i]);
  const ConvolutionKey key = key_of(ctx, call, channels_last, alignment);
  const ConvolutionPlan* plan = known_plan(ctx, key);
  if (plan != nullptr && !plan->exists()) return false;
  input.copy_in();
  weight.copy_in();
  output.copy_in();
  if (plan == nullptr) {
    std::vector<const OwnKernel*> own;
    for (const OwnKernel* kernel : {&kFewChannelsInput, &kSplitWeight, &kFlippedInput}) {
      if (!channels_last && is_large(call) && kernel->takes(call)) own.push_back(kernel);
    }
    plan = &choose_plan(ctx, handle, call, key, operands, own, [&] {
      return graph_of(handle, call, input.layout(), weight.layout(), output.layout(), alignment);
    });
    if (!plan->exists()) return false;
  }
  if (plan->workspace != 0) {
    operands.workspace = scratch_bytes(ctx, static_cast<size_t>(plan->workspace));
  }
  if (!plan->run(ctx, handle, call, operands)) {
    throw sdk::Error(MT_ERROR_INTERNAL, std::string("cudnnBackendExecute: ") +
                                            cudnnGetErrorString(CUDNN_STATUS_EXECUTION_FAILED));
  }
  if (synchronous) queued(ctx, "cudnnBackendExecute");
  input.copy_out();
  weight.copy_out();
  output.copy_out();
  return true;
}

// ---- few channels

// Tensor cores work on many channels at once, and the library pads the channels of each tap of a
// window. Treating a window's taps along the width as channels fills them better. Returns the
// number of channels after unfolding, or 0 if it does not pay. (Not for the gradient of the input,
// whose elements would have to be accumulated.)
int64_t unfolded_channels(const Convolution& call, bool channels_last) {
  const sdk::ConvolutionGeometry& g = call.geometry;
  const int64_t channels = g.in_channels * g.kernel[2];
  const bool pays = channels_last && call.computed != Convolution::kInput && call.rank == 0 &&
                    call.result().dtype().bits == 16 && g.dims == 2 && g.groups == 1 &&
                    g.in_channels < 8 && g.kernel[2] > 1 && channels <= 64 && is_large(call);
  return pays ? (channels + 7) / 8 * 8 : 0;
}

// A channels-last tensor of 16-bit elements in scratch memory.
struct ChannelsLastScratch {
  int64_t shape[4], strides[4];
  mt_tensor tensor{};

  ChannelsLastScratch(mt_ctx& ctx, mt_dtype dtype, int64_t n, int64_t channels, int64_t rows,
                      int64_t columns)
      : shape{n, channels, rows, columns},
        strides{rows * columns * channels, 1, columns * channels, channels} {
    void* data = scratch_bytes(ctx, static_cast<size_t>(n * channels * rows * columns * 2));
    tensor.dl = {data, ctx.device, 4, dtype, shape, strides, 0};
  }
  ChannelsLastScratch(const ChannelsLastScratch&) = delete;
};

bool run_unfolded(mt_ctx& ctx, const Convolution& call, int64_t channels) {
  const sdk::ConvolutionGeometry& g = call.geometry;
  const mt_dtype dtype = call.result().dtype();
  ChannelsLastScratch input(ctx, dtype, g.batch, channels, g.input[1], g.output[2]);
  ChannelsLastScratch weight(ctx, dtype, g.out_channels, channels, g.kernel[1], 1);
  unfold_columns(ctx, g, call.input, channels, input.tensor.dl.data);
  Convolution unfolded = call;
  unfolded.input = &input.tensor;
  unfolded.weight = &weight.tensor;
  unfolded.bias = nullptr;
  unfolded.geometry.in_channels = channels;
  unfolded.geometry.input[2] = g.output[2];
  unfolded.geometry.kernel[2] = unfolded.geometry.stride[2] = unfolded.geometry.dilation[2] = 1;
  unfolded.geometry.padding[2] = 0;
  if (call.computed != Convolution::kWeight) {
    unfold_weight(ctx, g, call.weight, channels, weight.tensor.dl.data);
  }
  if (!run(ctx, unfolded, true)) return false;
  if (call.computed == Convolution::kWeight) {
    mt_tensor taps = weight.tensor;
    int64_t shape[] = {g.out_channels, g.in_channels, g.kernel[1], g.kernel[2]};
    int64_t strides[] = {g.kernel[1] * channels, 1, channels, g.in_channels};
    taps.dl.shape = shape;
    taps.dl.strides = strides;
    move(ctx, &taps, call.weight);
  }
  return true;
}

// ---- gradients of the input as convolutions

// A contiguous operand with two spatial dimensions.
struct Contiguous {
  int64_t shape[4], strides[4];
  mt_tensor tensor{};

  Contiguous(const TensorView& like, void* data, std::array<int64_t, 4> sizes)
      : shape{sizes[0], sizes[1], sizes[2], sizes[3]},
        strides{sizes[1] * sizes[2] * sizes[3], sizes[2] * sizes[3], sizes[3], 1},
        tensor(*like.get()) {
    tensor.dl.data = data;
    tensor.dl.byte_offset = 0;
    tensor.dl.ndim = 4;
    tensor.dl.shape = shape;
    tensor.dl.strides = strides;
    tensor.flags = MT_TENSOR_CONTIGUOUS;
  }
  Contiguous(const Contiguous&) = delete;
};

// The padding of the convolution that computes a gradient, along a dimension.
int64_t flipped_padding(const sdk::ConvolutionGeometry& g, size_t d) {
  return g.dilation[d] * (g.kernel[d] - 1) - g.padding[d];
}

bool takes_flipped(const Convolution& call) {
  const sdk::ConvolutionGeometry& g = call.geometry;
  return call.computed == Convolution::kInput && call.rank == 0 && g.dims == 2 && g.groups == 1 &&
         call.result().is<float>() && g.stride[1] == 1 && g.stride[2] == 1 &&
         flipped_padding(g, 1) >= 0 && flipped_padding(g, 2) >= 0;
}

int64_t flipped_workspace(const mt_ctx& /*ctx*/, const Convolution& call) {
  return call.weight.numel() * call.weight.itemsize();
}

bool run_flipped(mt_ctx& ctx, const Convolution& call, const std::array<void*, 3>& data,
                 void* workspace) {
  const sdk::ConvolutionGeometry& g = call.geometry;
  flip_weight(ctx, g, call.weight.dtype(), data[1], workspace);
  const Contiguous input(call.output, data[2], {g.batch, g.out_channels, g.output[1], g.output[2]});
  const Contiguous weight(call.weight, workspace,
                          {g.in_channels, g.out_channels, g.kernel[1], g.kernel[2]});
  const Contiguous output(call.input, data[0], {g.batch, g.in_channels, g.input[1], g.input[2]});
  Convolution turned = call;
  turned.computed = Convolution::kOutput;
  turned.input = &input.tensor;
  turned.weight = &weight.tensor;
  turned.output = &output.tensor;
  turned.bias = nullptr;
  std::swap(turned.geometry.in_channels, turned.geometry.out_channels);
  std::swap(turned.geometry.input, turned.geometry.output);
  for (size_t d = 1; d < 3; ++d) turned.geometry.padding[d] = flipped_padding(g, d);
  return run(ctx, turned, false);
}

// The library computes positions in 32 bits.
bool fits_32_bits(const sdk::ConvolutionGeometry& g) {
  for (const sdk::Spatial& numbers : {g.stride, g.padding, g.dilation}) {
    if (std::any_of(numbers.begin(), numbers.end(), [](int64_t n) { return n > INT32_MAX; })) {
      return false;
    }
  }
  return true;
}

}  // namespace

const OwnKernel kFlippedInput = {&takes_flipped, &flipped_workspace, &run_flipped};

bool convolve_cudnn(mt_ctx& ctx, const Convolution& call) {
  if (!sdk::is_floating(call.result().dtype()) || call.geometry.empty()) return false;
  if (!fits_32_bits(call.geometry)) return false;
  use_device(ctx);
  const bool channels_last = prefers_channels_last(call);
  // There may be an engine for only one of the two layouts.
  const int64_t channels = unfolded_channels(call, channels_last);
  const bool done = (channels != 0 && run_unfolded(ctx, call, channels)) ||
                    run(ctx, call, channels_last) ||
                    (call.rank == 0 && run(ctx, call, !channels_last));
  if (done && call.bias) add_bias(ctx, call.result(), call.bias);
  return done;
}

}  // namespace mytorch::cuda
