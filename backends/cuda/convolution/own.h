// Our kernels of gradients in float32, for which the library's deterministic engines are slow. They
// are timed beside those engines. Operands are contiguous, with two spatial dimensions.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "backends/cuda/convolution/convolution.h"

namespace mytorch::cuda {

struct OwnKernel {
  bool (*takes)(const Convolution& call);
  // Bytes of memory that run() needs.
  int64_t (*workspace)(const mt_ctx& ctx, const Convolution& call);
  // `data` are those of input, weight and output. Returns false if it cannot run.
  bool (*run)(mt_ctx& ctx, const Convolution& call, const std::array<void*, 3>& data,
              void* workspace);
};

// The gradient of an input with up to four channels.
extern const OwnKernel kFewChannelsInput;
// The gradient of an input of a convolution with stride 1, as a convolution of the library.
extern const OwnKernel kFlippedInput;
// The gradient of the weight: products of tiles, whose sums are split and added in order.
extern const OwnKernel kSplitWeight;

// Writes the weight (in, out, taps) of a convolution that computes the gradient of the input of one
// with `weight` (out, in, taps) and stride 1: with the taps reversed.
void flip_weight(mt_ctx& ctx, const sdk::ConvolutionGeometry& g, mt_dtype dtype, const void* weight,
                 void* to);

}  // namespace mytorch::cuda
