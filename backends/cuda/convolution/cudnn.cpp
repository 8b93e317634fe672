// Convolutions by cuDNN's graph API, of one operation: it is what the library's newer engines are
// reached by, and says of each engine whether it is deterministic and in which precision it works,
// so that those which are not can be passed over. Images of a few channels get more of them: the
// elements that a window reads of a row.
#include <array>
#include <cstdint>
#include <string>

#include "backends/cuda/convolution/forms.h"
#include "backends/cuda/convolution/geometry.h"
#include "backends/cuda/convolution/operation.h"
#include "backends/cuda/convolution/plans.h"
#include "backends/cuda/kernel/move.h"
#include "backends/cuda/runtime/launch.h"
#include "mytorch/backend.h"

namespace mytorch::cuda {
namespace {

using sdk::TensorView;

bool run(mt_ctx& ctx, const Convolution& call, bool channels_last) {
  const cudnnHandle_t handle = cudnn_handle_of(ctx);
  Formed big(ctx, call.big, channels_last, call.target == Target::kBig);
  Formed weight(ctx, call.weight, channels_last, call.target == Target::kWeight);
  Formed small(ctx, call.small, channels_last, call.target == Target::kSmall);
  Operands operands{{big.data(), weight.data(), small.data()}, nullptr};
  std::array<int64_t, 3> alignment;
  for (size_t i = 0; i < 3; ++i) alignment[i] = alignment_of(operands.data[i]);
  const PlanKey key = key_of(ctx, call, channels_last, alignment);
  const Plan* plan = known_plan(ctx, key);
  if (plan != nullptr && !plan->plan) return false;
  big.before();
  weight.before();
  small.before();
  if (plan == nullptr) {
    plan = &choose_plan(ctx, handle, call, key, operands, [&] {
      return graph_of(handle, call, big.form(), weight.form(), small.form(), alignment);
    });
    if (!plan->plan) return false;
  }
  if (plan->workspace != 0) {
    operands.room = scratch_bytes(ctx, static_cast<size_t>(plan->workspace));
  }
  if (!operands.run(handle, *plan->plan)) {
    throw sdk::Error(MT_ERROR_INTERNAL, std::string("cudnnBackendExecute: ") +
                                            cudnnGetErrorString(CUDNN_STATUS_EXECUTION_FAILED));
  }
  if (synchronous) queued(ctx, "cudnnBackendExecute");
  big.after();
  weight.after();
  small.after();
  return true;
}

// ---- few channels

// Tensor cores work on many channels at once, and the library fills up what is missing for each tap
// of a window; a window's taps of a row as channels fill them better. How many channels that makes,
// or 0 where it does not pay. (Not for the gradient of the image, whose elements would meet again.)
int64_t unfolded_channels(const Convolution& call, bool channels_last) {
  const Geometry& g = call.geometry;
  const int64_t channels = g.big_channels * g.kernel[2];
  const bool pays = channels_last && call.target != Target::kBig && call.rank == 0 &&
                    call.out().dtype().bits == 16 && g.dims == 2 && g.groups == 1 &&
                    g.big_channels < 8 && g.kernel[2] > 1 && channels <= 64 && is_large(call);
  return pays ? (channels + 7) / 8 * 8 : 0;
}

// A channels-last tensor of 16-bit elements in scratch memory.
struct Image {
  int64_t shape[4], strides[4];
  mt_tensor tensor{};

  Image(mt_ctx& ctx, mt_dtype dtype, int64_t n, int64_t channels, int64_t rows, int64_t columns)
      : shape{n, channels, rows, columns},
        strides{rows * columns * channels, 1, columns * channels, channels} {
    void* data = scratch_bytes(ctx, static_cast<size_t>(n * channels * rows * columns * 2));
    tensor.dl = {data, ctx.device, 4, dtype, shape, strides, 0};
  }
  Image(const Image&) = delete;
};

bool run_unfolded(mt_ctx& ctx, const Convolution& call, int64_t channels) {
  const Geometry& g = call.geometry;
  const mt_dtype dtype = call.out().dtype();
  Image big(ctx, dtype, g.batch, channels, g.big[1], g.small[2]);
  Image weight(ctx, dtype, g.small_channels, channels, g.kernel[1], 1);
  unfold_columns(ctx, g, call.big, channels, big.tensor.dl.data);
  Convolution unfolded{g,          call.target,  &big.tensor, &weight.tensor,
                       call.small, TensorView(), call.rank};
  unfolded.geometry.big_channels = channels;
  unfolded.geometry.big[2] = g.small[2];
  unfolded.geometry.kernel[2] = unfolded.geometry.stride[2] = unfolded.geometry.dilation[2] = 1;
  unfolded.geometry.padding[2] = 0;
  if (call.target != Target::kWeight) {
    unfold_weight(ctx, g, call.weight, channels, weight.tensor.dl.data);
  }
  if (!run(ctx, unfolded, true)) return false;
  if (call.target == Target::kWeight) {
    mt_tensor taps = weight.tensor;
    int64_t shape[] = {g.small_channels, g.big_channels, g.kernel[1], g.kernel[2]};
    int64_t strides[] = {g.kernel[1] * channels, 1, channels, g.big_channels};
    taps.dl.shape = shape;
    taps.dl.strides = strides;
    move(ctx, &taps, call.weight);
  }
  return true;
}

}  // namespace

bool convolve_cudnn(mt_ctx& ctx, const Convolution& call) {
  if (!sdk::is_floating(call.out().dtype()) || call.geometry.empty()) return false;
  use_device(ctx);
  const bool channels_last = prefers_channels_last(call);
  // What there is no engine for in one layout there may be one for in the other.
  const int64_t channels = unfolded_channels(call, channels_last);
  const bool done = (channels != 0 && run_unfolded(ctx, call, channels)) ||
                    run(ctx, call, channels_last) ||
                    (call.rank == 0 && run(ctx, call, !channels_last));
  if (done && call.bias) add_bias(ctx, call.out(), call.bias);
  return done;
}

}  // namespace mytorch::cuda
