// The geometry of a convolution. Its input, weight and output are related by one sum of products,
// and there are three computations: each operand from the other two. A transposed convolution is
// the gradient of the input of a convolution, so `input` and `output` always name the operands of
// the convolution that is not transposed.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "mytorch/backend.h"

namespace mytorch::cpu {

// Sizes of the three spatial dimensions; missing ones come first and have size 1.
using Spatial = std::array<int64_t, 3>;

inline int64_t volume(const Spatial& size) { return size[0] * size[1] * size[2]; }

struct Geometry {
  int64_t batch;
  int64_t groups;
  int64_t in_channels;   // in a group
  int64_t out_channels;  // in a group
  Spatial input, output, kernel, stride, padding, dilation;

  int64_t input_plane() const { return volume(input); }
  int64_t output_plane() const { return volume(output); }
  int64_t taps() const { return volume(kernel); }
  int64_t depth() const { return in_channels * taps(); }  // terms of an output element
  bool empty() const { return batch == 0 || input_plane() == 0 || output_plane() == 0; }
  // Whether windows are single adjacent elements, so that the input is its own im2col matrix.
  bool pointwise() const {
    return taps() == 1 && stride == Spatial{1, 1, 1} && padding == Spatial{0, 0, 0};
  }
};

// Of an input (N, groups * in_channels, ...), a weight (groups * out_channels, in_channels, ...)
// and an output (N, groups * out_channels, ...).
template <class Args>
Geometry geometry(std::span<const int64_t> input, std::span<const int64_t> weight,
                  std::span<const int64_t> output, const Args& args) {
  const size_t dims = weight.size() - 2;
  const auto sizes = [&](std::span<const int64_t> shape) {
    Spatial result = {1, 1, 1};
    for (size_t d = 0; d < dims; ++d) result[3 - dims + d] = shape[2 + d];
    return result;
  };
  const auto numbers = [&](const mt_int_list& list, int64_t fill) {
    Spatial result = {fill, fill, fill};
    for (size_t d = 0; d < dims; ++d) result[3 - dims + d] = list.data[list.size == 1 ? 0 : d];
    return result;
  };
  Geometry g;
  g.batch = input[0];
  g.groups = args.groups;
  g.in_channels = weight[1];
  g.out_channels = weight[0] / args.groups;
  g.input = sizes(input);
  g.output = sizes(output);
  g.kernel = sizes(weight);
  g.stride = numbers(args.stride, 1);
  g.padding = numbers(args.padding, 0);
  g.dilation = numbers(args.dilation, 1);
  return g;
}

}  // namespace mytorch::cpu
