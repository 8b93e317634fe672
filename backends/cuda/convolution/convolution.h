// Convolutions and their gradients.
#pragma once

#include <cstdint>

#include "backends/cuda/runtime/sdk.h"
#include "mytorch/backend/windows.h"

namespace mytorch::cuda {

struct Convolution : sdk::Convolution {
  template <class Args>
  Convolution(const Args& args, int rank) : sdk::Convolution(args), rank(rank) {}

  int rank;  // index among the library's proposals, best first
};

// Runs cuDNN. Returns false, before anything is written, if it has no engine for this convolution.
bool convolve_cudnn(mt_ctx& ctx, const Convolution& call);
// Computes the definition: any type, any strides, also sums without terms.
void convolve_direct(mt_ctx& ctx, const Convolution& call);
// im2col along the width only, for 16-bit types and two spatial dimensions. unfold_columns() writes
// `input` with g.output[2] columns; the channels of a column are the elements of a row that a
// window reads, tap by tap. unfold_weight() writes the weight accordingly. Results are
// channels-last and contiguous; excess channels are zero.
void unfold_columns(mt_ctx& ctx, const sdk::ConvolutionGeometry& g, const sdk::TensorView& input,
                    int64_t channels, void* to);
void unfold_weight(mt_ctx& ctx, const sdk::ConvolutionGeometry& g, const sdk::TensorView& weight,
                   int64_t channels, void* to);
// Adds bias along dimension 1: out += bias.
void add_bias(mt_ctx& ctx, const sdk::TensorView& out, const sdk::TensorView& bias);

}  // namespace mytorch::cuda
