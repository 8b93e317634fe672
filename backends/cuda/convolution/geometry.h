// A convolution in all of its directions. A transposed convolution computes the gradient with
// respect to the input of an ordinary convolution, so there are three computations: each of (input,
// weight, output) from the other two. `input` and `output` are those of the ordinary convolution; a
// transposed one has its input in `output` and its output in `input`.
#pragma once

#include <cstdint>

#include "mytorch/backend.h"

namespace mytorch::cuda {

enum class Direction { kForward, kBackwardInput, kBackwardWeight };

// Spatial dimensions align at the right: missing ones come first and have size 1.
struct Geometry {
  int dims = 0;  // spatial dimensions, 1 to 3
  int64_t batch = 0, groups = 1;
  int64_t input_channels = 0, output_channels = 0;  // per group
  int64_t input[3], output[3], kernel[3], stride[3], padding[3], dilation[3];

  bool empty() const {
    int64_t n = batch * input_channels * output_channels;
    for (int d = 0; d < 3; ++d) n *= input[d] * output[d] * kernel[d];
    return n == 0;
  }
};

// The shapes are (N, groups * input_channels, ...), (groups * output_channels, input_channels, ...)
// and (N, groups * output_channels, ...). Throws Error(MT_ERROR_UNSUPPORTED) for more than 3
// spatial dimensions.
template <class Args>
Geometry geometry(const sdk::TensorView& input, const sdk::TensorView& weight,
                  const sdk::TensorView& output, const Args& args) {
  Geometry g;
  g.dims = weight.ndim() - 2;
  if (g.dims < 1 || g.dims > 3) {
    throw sdk::Error(MT_ERROR_UNSUPPORTED, "[convolution] supports 1 to 3 spatial dimensions");
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

// One of the three computations. kForward writes `output`, kBackwardInput `input`, kBackwardWeight
// `weight`.
struct Convolution {
  Geometry geometry;
  Direction direction;
  sdk::TensorView input, weight, output;
  sdk::TensorView bias;  // optional
  int rank = 0;          // index among the library's proposals, best first

  sdk::TensorView result() const {
    return direction == Direction::kForward         ? output
           : direction == Direction::kBackwardInput ? input
                                                    : weight;
  }
};

// Runs cuDNN. Returns false, before anything is written, if it has no engine for this convolution.
bool convolve_cudnn(mt_ctx& ctx, const Convolution& call);
// Computes the definition: any type, any strides, also sums without terms.
void convolve_direct(mt_ctx& ctx, const Convolution& call);
// im2col along the width only, for 16-bit types and two spatial dimensions. unfold_columns() writes
// `input` with g.output[2] columns; the channels of a column are the elements of a row that a
// window reads, tap by tap. unfold_weight() writes the weight accordingly. Results are
// channels-last and contiguous; excess channels are zero.
void unfold_columns(mt_ctx& ctx, const Geometry& g, const sdk::TensorView& input, int64_t channels,
                    void* to);
void unfold_weight(mt_ctx& ctx, const Geometry& g, const sdk::TensorView& weight, int64_t channels,
                   void* to);
// Adds bias along dimension 1: out += bias.
void add_bias(mt_ctx& ctx, const sdk::TensorView& out, const sdk::TensorView& bias);

}  // namespace mytorch::cuda
