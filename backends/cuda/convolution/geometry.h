// What a convolution is, whichever way it goes. A direct convolution maps `input` to `output`, a
// transposed one `output` to `input`, and so do the gradients with respect to the input: there are
// three computations, each of one of (input, weight, output) from the other two, over the same
// terms.
#pragma once

#include <cstdint>

#include "mytorch/backend.h"

namespace mytorch::cuda {

enum class Direction { kForward, kBackwardInput, kBackwardWeight };

// Spatial dimensions are aligned at the right: a missing one comes first and is of size 1.
struct Geometry {
  int dims = 0;  // spatial ones, 1 to 3
  int64_t batch = 0, groups = 1;
  int64_t input_channels = 0, output_channels = 0;  // in a group
  int64_t input[3], output[3], kernel[3], stride[3], padding[3], dilation[3];

  bool empty() const {
    int64_t n = batch * input_channels * output_channels;
    for (int d = 0; d < 3; ++d) n *= input[d] * output[d] * kernel[d];
    return n == 0;
  }
};

// Tensors of shapes (N, groups * input_channels, ...), (groups * output_channels, input_channels,
// ...) and (N, groups * output_channels, ...).
template <class Args>
Geometry geometry(const sdk::TensorView& input, const sdk::TensorView& weight,
                  const sdk::TensorView& output, const Args& args) {
  Geometry g;
  g.dims = weight.ndim() - 2;
  if (g.dims < 1 || g.dims > 3) {
    throw sdk::Error(MT_ERROR_UNSUPPORTED, "[convolution] of 1 to 3 spatial dimensions");
  }
  const auto put = [&](int64_t(&to)[3], int64_t missing, auto&& value) {
    for (int d = 0; d < 3; ++d) to[d] = d < 3 - g.dims ? missing : value(d - (3 - g.dims));
  };
  const auto listed = [](const mt_int_list& list) {
    return [&list](int d) { return list.data[list.size == 1 ? 0 : d]; };
  };
  g.batch = input.size(0);
  g.groups = args.groups;
  g.input_channels = weight.size(1);
  g.output_channels = weight.size(0) / args.groups;
  put(g.input, 1, [&](int d) { return input.size(d + 2); });
  put(g.output, 1, [&](int d) { return output.size(d + 2); });
  put(g.kernel, 1, [&](int d) { return weight.size(d + 2); });
  put(g.stride, 1, listed(args.stride));
  put(g.padding, 0, listed(args.padding));
  put(g.dilation, 1, listed(args.dilation));
  return g;
}

// One of the three computations. The tensor of `target` is written.
struct Convolution {
  Geometry geometry;
  Direction direction;
  sdk::TensorView input, weight, output;
  sdk::TensorView bias;  // may be absent
  int rank = 0;          // which of the library's proposals, the best guess first

  sdk::TensorView result() const {
    return direction == Direction::kForward         ? output
           : direction == Direction::kBackwardInput ? input
                                                    : weight;
  }
};

// cuDNN; false where it has nothing for this one, before anything is written.
bool convolve_cudnn(mt_ctx& ctx, const Convolution& call);
// Any type, any strides, no terms.
void convolve_direct(mt_ctx& ctx, const Convolution& call);
// Of 16-bit types and two spatial dimensions: `input` as an image of g.output[2] columns whose
// channels are the elements that windows read of a row, tap by tap, and the weight for it. Both are
// written contiguous, channels last; channels beyond these are zeros.
void unfold_columns(mt_ctx& ctx, const Geometry& g, const sdk::TensorView& input, int64_t channels,
                    void* to);
void unfold_weight(mt_ctx& ctx, const Geometry& g, const sdk::TensorView& weight, int64_t channels,
                   void* to);
// out += bias along dimension 1.
void add_bias(mt_ctx& ctx, const sdk::TensorView& out, const sdk::TensorView& bias);

}  // namespace mytorch::cuda
