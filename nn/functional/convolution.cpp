// Convolutions of any number of dimensions, with options.
#include "mytorch/nn/functional.h"

namespace mytorch::nn::functional {
namespace {

template <size_t n, class Padding>
Tensor conv_padded(const Tensor& input, const Tensor& weight, const ConvFuncArgs<n>& o,
                   const Padding& padding) {
  if constexpr (n == 1) {
    return mytorch::conv1d(input, weight, o.bias, o.stride, padding, o.dilation, o.groups);
  } else if constexpr (n == 2) {
    return mytorch::conv2d(input, weight, o.bias, o.stride, padding, o.dilation, o.groups);
  } else {
    return mytorch::conv3d(input, weight, o.bias, o.stride, padding, o.dilation, o.groups);
  }
}

}  // namespace

template <size_t n>
Tensor conv(const Tensor& input, const Tensor& weight, const ConvFuncArgs<n>& options) {
  return options.padding.same()
             ? conv_padded(input, weight, options, Str("same"))
             : conv_padded(input, weight, options, IntList(options.padding.sizes()));
}

template <size_t n>
Tensor conv_transpose(const Tensor& input, const Tensor& weight,
                      const ConvTransposeFuncArgs<n>& o) {
  if constexpr (n == 1) {
    return mytorch::conv_transpose1d(input, weight, o.bias, o.stride, o.padding, o.output_padding,
                                     o.groups, o.dilation);
  } else if constexpr (n == 2) {
    return mytorch::conv_transpose2d(input, weight, o.bias, o.stride, o.padding, o.output_padding,
                                     o.groups, o.dilation);
  } else {
    return mytorch::conv_transpose3d(input, weight, o.bias, o.stride, o.padding, o.output_padding,
                                     o.groups, o.dilation);
  }
}

template Tensor conv(const Tensor&, const Tensor&, const ConvFuncArgs<1>&);
template Tensor conv(const Tensor&, const Tensor&, const ConvFuncArgs<2>&);
template Tensor conv(const Tensor&, const Tensor&, const ConvFuncArgs<3>&);
template Tensor conv_transpose(const Tensor&, const Tensor&, const ConvTransposeFuncArgs<1>&);
template Tensor conv_transpose(const Tensor&, const Tensor&, const ConvTransposeFuncArgs<2>&);
template Tensor conv_transpose(const Tensor&, const Tensor&, const ConvTransposeFuncArgs<3>&);

}  // namespace mytorch::nn::functional
