// The windows of convolutions and pooling: the only code that relates positions of the input to
// positions of the output and of the kernel.
//
//   Window                one dimension
//   ConvolutionGeometry   all sizes of a convolution
//   Convolution           the operands and the geometry of a call, from its arguments
//   pooling_windows       both windows of a pooling, from its arguments
//
// The functions that create them check that no position overflows, whatever the arguments are.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "mytorch/abi.h"
#include "mytorch/backend/error.h"
#include "mytorch/backend/sizes.h"
#include "mytorch/backend/tensor.h"

namespace mytorch::sdk {
inline namespace v1 {

// The indices in [first, last).
struct IndexRange {
  int64_t first, last;
};

// The windows along one dimension. Window x of the output has `kernel` taps, which read the input
// at place(x, 0), place(x, 1), ... Positions outside of the input are padding.
struct Window {
  int64_t kernel = 1, stride = 1, padding = 0, dilation = 1;

  MYTORCH_HOST_DEVICE int64_t place(int64_t x, int64_t tap) const {
    return x * stride - padding + tap * dilation;
  }
  // Returns the place of the first tap of window x that is not before the input.
  MYTORCH_HOST_DEVICE int64_t first(int64_t x) const {
    const int64_t start = x * stride - padding;
    return start >= 0 ? start : start + (-start + dilation - 1) / dilation * dilation;
  }
  // Returns the place after the last tap of window x, or `input` if that is smaller.
  MYTORCH_HOST_DEVICE int64_t end(int64_t x, int64_t input) const {
    const int64_t last = place(x, kernel - 1) + 1;
    return last < input ? last : input;
  }
  // Returns how many positions of window x a mean counts. In ceil_mode, the last window may extend
  // beyond the padding; positions there are not counted. The dilation is 1.
  MYTORCH_HOST_DEVICE int64_t count(int64_t x, int64_t input, bool include_padding) const {
    const int64_t begin = x * stride - padding;
    int64_t last = begin + kernel;
    if (last > input + padding) last = input + padding;
    if (include_padding) return last - begin;
    if (last > input) last = input;
    return last - (begin > 0 ? begin : 0);
  }
  // Returns the windows, among `output`, that contain position `at`. The dilation is 1.
  MYTORCH_HOST_DEVICE IndexRange containing(int64_t at, int64_t output) const {
    // x * stride <= padded < x * stride + kernel
    const int64_t padded = at + padding;
    const int64_t last = padded / stride + 1;
    return {padded < kernel ? 0 : (padded - kernel) / stride + 1, last < output ? last : output};
  }
  // Returns the windows, among `output`, whose tap `tap` reads the input rather than padding.
  IndexRange reached(int64_t tap, int64_t input, int64_t output) const {
    const int64_t start = place(0, tap);
    const int64_t first = start >= 0 ? 0 : std::min(output, divide_up(-start, stride));
    const int64_t last = input <= start ? 0 : std::min(output, divide_up(input - start, stride));
    return {first, std::max(first, last)};
  }

  // Throws Error(MT_ERROR_VALUE) if an argument is out of its range, or if a position that the
  // functions above compute for `output` windows on an input of size `input` exceeds int64_t.
  void check(int64_t input, int64_t output) const {
    bool bad = kernel < 1 || stride < 1 || padding < 0 || dilation < 1;
    const auto add = [&bad](int64_t a, int64_t b) {
      int64_t sum = 0;
      bad = bad || __builtin_add_overflow(a, b, &sum);
      return sum;
    };
    const auto mul = [&bad](int64_t a, int64_t b) {
      int64_t result = 0;
      bad = bad || __builtin_mul_overflow(a, b, &result);
      return result;
    };
    // The end of the last window, and what first() and count() add to it at most.
    const int64_t end =
        add(mul(std::max<int64_t>(output - 1, 0), stride), add(mul(kernel - 1, dilation), 1));
    add(std::max(end, input), add(padding, kernel == 1 ? 0 : dilation));
    if (!bad) return;
    throw Error(MT_ERROR_VALUE, "windows of kernel " + std::to_string(kernel) + ", stride " +
                                    std::to_string(stride) + ", padding " +
                                    std::to_string(padding) + " and dilation " +
                                    std::to_string(dilation) +
                                    " are not valid, or reach beyond the range of int64");
  }
};

// ---- convolution ----

// Sizes along the three spatial dimensions. Missing dimensions come first.
using Spatial = std::array<int64_t, 3>;

constexpr int64_t volume(const Spatial& size) { return product(size); }

// A convolution's input, weight and output are related by one sum of products, and there are three
// computations: each operand from the other two. A transposed convolution is the gradient of the
// input of a convolution, so `input` and `output` always name the operands of the convolution that
// is not transposed: a transposed one reads `output` and writes `input`.
struct ConvolutionGeometry {
  int dims = 0;  // spatial dimensions, 1 to 3
  int64_t batch = 0;
  int64_t groups = 1;
  int64_t in_channels = 0;   // in a group
  int64_t out_channels = 0;  // in a group
  Spatial input, output, kernel, stride, padding, dilation;

  MYTORCH_HOST_DEVICE Window window(int dim) const {
    const size_t d = static_cast<size_t>(dim);
    return {kernel[d], stride[d], padding[d], dilation[d]};
  }
  int64_t input_plane() const { return volume(input); }
  int64_t output_plane() const { return volume(output); }
  int64_t taps() const { return volume(kernel); }
  int64_t depth() const { return in_channels * taps(); }  // terms of an output element
  // Returns whether there are no products, so that every sum is 0.
  bool empty() const {
    const auto none = [](int64_t size) { return size == 0; };
    return none(batch) || none(in_channels) || none(out_channels) ||
           std::any_of(input.begin(), input.end(), none) ||
           std::any_of(output.begin(), output.end(), none) ||
           std::any_of(kernel.begin(), kernel.end(), none);
  }
  // Returns whether windows are single adjacent elements, so that the input is its own im2col
  // matrix.
  bool pointwise() const {
    return taps() == 1 && stride == Spatial{1, 1, 1} && padding == Spatial{0, 0, 0} &&
           input == output;
  }
};

// Returns whether results of this size, those of a convolution with 3 x 3 adjacent taps or of the
// gradient of its input, are faster to compute as tiles of 2 x 2, which share products (Winograd's
// method, in cpu-openmp for float32): there are so many channels and tiles that transforms take
// less time than the products that they save, and a third of the tiles' area at most lies outside.
inline bool gains_by_tiles(const ConvolutionGeometry& g, const Spatial& results) {
  constexpr int64_t kFewTiles = 64, kFewChannels = 16, kManyChannels = 4096;
  const Spatial ones = {1, 1, 1};
  if (g.kernel != Spatial{1, 3, 3} || g.stride != ones || g.dilation != ones || g.input[0] != 1 ||
      g.output[0] != 1 || g.in_channels < kFewChannels || g.out_channels < kFewChannels ||
      g.in_channels + g.out_channels > kManyChannels || g.batch == 0) {
    return false;
  }
  const int64_t tiles = divide_up(results[1], 2) * divide_up(results[2], 2);
  return tiles >= divide_up(kFewTiles, g.batch) && 3 * results[1] * results[2] >= 8 * tiles;
}

// Returns the geometry for an input (N, groups * in_channels, ...), a weight (groups *
// out_channels, in_channels, ...) and an output (N, groups * out_channels, ...). Throws
// Error(MT_ERROR_UNSUPPORTED) unless there are 1 to 3 spatial dimensions, and Error(MT_ERROR_VALUE)
// for arguments that Window::check refuses.
template <class Args>
ConvolutionGeometry convolution_geometry(const TensorView& input, const TensorView& weight,
                                         const TensorView& output, const Args& args) {
  ConvolutionGeometry g;
  g.dims = weight.ndim() - 2;
  if (g.dims < 1 || g.dims > 3) {
    throw Error(MT_ERROR_UNSUPPORTED, "[convolution] supports 1 to 3 spatial dimensions");
  }
  if (args.groups < 1) throw Error(MT_ERROR_VALUE, "[convolution] groups must be positive");
  const size_t missing = 3 - static_cast<size_t>(g.dims);
  const auto sizes = [&](const TensorView& tensor) {
    Spatial result = {1, 1, 1};
    for (size_t d = missing; d < 3; ++d) result[d] = tensor.shape()[2 + d - missing];
    return result;
  };
  // One number for each dimension, or one for all of them.
  const auto numbers = [&](const mt_int_list& list, int64_t absent) {
    Spatial result = {absent, absent, absent};
    for (size_t d = missing; d < 3; ++d) result[d] = list.data[list.size == 1 ? 0 : d - missing];
    return result;
  };
  g.batch = input.size(0);
  g.groups = args.groups;
  g.in_channels = weight.size(1);
  g.out_channels = weight.size(0) / args.groups;
  g.input = sizes(input);
  g.output = sizes(output);
  g.kernel = sizes(weight);
  g.stride = numbers(args.stride, 1);
  g.padding = numbers(args.padding, 0);
  g.dilation = numbers(args.dilation, 1);
  for (size_t d = missing; d < 3; ++d) {
    g.window(static_cast<int>(d)).check(g.input[d], g.output[d]);
  }
  return g;
}

// A call of convolution, convolution_backward_input or convolution_backward_weight: the operands by
// their roles in ConvolutionGeometry, and the one that the call computes from the other two.
struct Convolution {
  enum Operand { kOutput, kInput, kWeight };

  template <class Args>
  explicit Convolution(const Args& args) {
    if constexpr (requires { args.bias; }) {
      computed = kOutput;
      input = args.input, weight = args.weight, output = args.out, bias = args.bias;
    } else if constexpr (requires { args.weight; }) {
      computed = kInput;
      input = args.out, weight = args.weight, output = args.grad_output;
    } else {
      computed = kWeight;
      input = args.input, weight = args.out, output = args.grad_output;
    }
    if (args.transposed != 0) {
      std::swap(input, output);
      if (computed != kWeight) computed = computed == kInput ? kOutput : kInput;
    }
    geometry = convolution_geometry(input, weight, output, args);
  }

  // Returns the operand that the call writes.
  TensorView result() const {
    return computed == kOutput ? output : computed == kInput ? input : weight;
  }

  Operand computed;
  TensorView input, weight, output;
  TensorView bias;  // of `result`; optional
  ConvolutionGeometry geometry;
};

// ---- pooling ----

// The windows over planes, the last two dimensions.
struct PlaneWindows {
  Window h, w;
};

// Returns the windows of a pooling from planes of `input` to planes of `pooled`. An empty list of
// strides stands for the kernel's sizes. Throws Error(MT_ERROR_VALUE) for arguments that
// Window::check refuses.
template <class Args>
PlaneWindows pooling_windows(const Args& args, const TensorView& input, const TensorView& pooled) {
  // Of a list of two, of one for both, or of none.
  const auto number = [](const mt_int_list& list, int dim, int64_t absent) {
    return list.size == 0 ? absent : list.data[dim == 0 ? 0 : list.size - 1];
  };
  const auto window = [&](int dim) {
    Window w;
    w.kernel = number(args.kernel_size, dim, 1);
    w.stride = number(args.stride, dim, w.kernel);
    w.padding = number(args.padding, dim, 0);
    if constexpr (requires { args.dilation; }) w.dilation = number(args.dilation, dim, 1);
    w.check(input.size(dim - 2), pooled.size(dim - 2));
    return w;
  };
  return {window(0), window(1)};
}

}  // namespace v1
}  // namespace mytorch::sdk
