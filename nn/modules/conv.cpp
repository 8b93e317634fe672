#include "mytorch/nn/conv.h"

#include <cmath>
#include <vector>

#include "core/runtime/stream_capture.h"
#include "mytorch/nn/functional.h"
#include "mytorch/nn/init.h"
#include "mytorch/ops/empty.h"
#include "mytorch/ops/pad.h"
#include "nn/functional/options.h"

namespace mytorch::nn {
namespace {

template <size_t n>
constexpr const char* kConv = n == 1   ? "Conv1d"
                              : n == 2 ? "Conv2d"
                                       : "Conv3d";
template <size_t n>
constexpr const char* kConvTranspose = n == 1   ? "ConvTranspose1d"
                                       : n == 2 ? "ConvTranspose2d"
                                                : "ConvTranspose3d";

void check_groups(const char* module, int64_t in, int64_t out, int64_t groups) {
  check_at_least(module, 1, {{"in_channels", in}, {"out_channels", out}, {"groups", groups}});
  if (in % groups != 0 || out % groups != 0) {
    fail(ErrorCode::kValue, "[", module, "] ", groups, " groups do not divide ", in,
         " input channels and ", out, " output channels");
  }
}

// Returns a parameter of shape (outer, inner, kernel...).
template <size_t n>
Tensor empty_weight(int64_t outer, int64_t inner, const Sizes<n>& kernel) {
  std::vector<int64_t> sizes = {outer, inner};
  for (size_t i = 0; i < n; ++i) sizes.push_back(kernel[i]);
  return empty(sizes, kFloat32);
}

// PyTorch's bound, which takes dimension 1 for the inputs of transposed convolutions, too.
void reset_conv(const Tensor& weight, const Tensor& bias) {
  const double bound = 1 / std::sqrt(static_cast<double>(init::fans(weight).in));
  init::uniform_(weight, -bound, bound);
  if (bias.defined()) init::uniform_(bias, -bound, bound);
}

// Returns the options that differ from their defaults, for describe().
std::string extras(const std::string& padding, const std::string& dilation, int64_t groups,
                   bool bias) {
  return absl::StrCat(
      padding == "0" ? "" : ", padding=" + padding, dilation == "1" ? "" : ", dilation=" + dilation,
      groups == 1 ? "" : absl::StrCat(", groups=", groups), bias ? "" : ", bias=false");
}

}  // namespace

template <size_t n>
ConvNd<n>::ConvNd(int64_t out_channels, const Sizes<n>& kernel_size, const ConvArgs<n>& options,
                  int64_t in_channels)
    : options({options, 0, out_channels, kernel_size}) {
  check_groups(kConv<n>, in_channels, out_channels, options.groups);
  check_sizes(kConv<n>, 1, "kernel_size", kernel_size);
  check_sizes(kConv<n>, 1, "stride", options.stride);
  check_sizes(kConv<n>, 1, "dilation", options.dilation);
  check_sizes(kConv<n>, 0, "padding", options.padding.sizes());
  if (options.padding.same() && !(options.stride == Sizes<n>(1))) {
    fail(ErrorCode::kValue, "[", kConv<n>, "] padding is \"same\", which needs stride 1, not ",
         text(options.stride));
  }
}

template <size_t n>
ConvNd<n>::ConvNd(int64_t in_channels, int64_t out_channels, Sizes<n> kernel_size,
                  ConvArgs<n> options)
    : ConvNd(out_channels, kernel_size, options, in_channels) {
  create(in_channels);
  register_parameter("weight", weight);
  register_parameter("bias", bias);
}

template <size_t n>
ConvNd<n>::ConvNd(int64_t out_channels, Sizes<n> kernel_size, ConvArgs<n> options)
    : ConvNd(out_channels, kernel_size, options, options.groups) {
  register_parameter("weight", weight);
  register_parameter("bias", bias);
  set_lazy();
}

template <size_t n>
void ConvNd<n>::create(int64_t in_channels) {
  check_groups(kConv<n>, in_channels, options->out_channels, options->groups);
  options.args().in_channels = in_channels;
  weight = empty_weight(options->out_channels, in_channels / options->groups, options->kernel_size);
  if (options->bias) bias = empty({options->out_channels}, kFloat32);
  reset_parameters();
}

template <size_t n>
void ConvNd<n>::reset_parameters() {
  reset_conv(weight, bias);
}

template <size_t n>
Tensor ConvNd<n>::forward(const Tensor& input) {
  if (lazy()) {
    const UnrecordedTensors unrecorded;
    create(lazy_size(input, -static_cast<int64_t>(n) - 1));
    finish_lazy(input);
  }
  functional::ConvFuncArgs<n> function{.bias = bias,
                                       .stride = options->stride,
                                       .padding = options->padding,
                                       .dilation = options->dilation,
                                       .groups = options->groups};
  if (options->padding_mode == PaddingMode::kZeros) {
    return functional::conv(input, weight, function);
  }
  std::vector<int64_t> pairs;  // the last dimension's first
  for (size_t i = n; i-- > 0;) {
    const int64_t total = options->padding.same()
                              ? options->dilation[i] * (options->kernel_size[i] - 1)
                              : 2 * options->padding.sizes()[i];
    pairs.push_back(total / 2);
    pairs.push_back(total - total / 2);
  }
  function.padding = 0;
  return functional::conv(pad(input, pairs, name_of(options->padding_mode)), weight, function);
}

template <size_t n>
double ConvNd<n>::flops(const Tensor& /*input*/, const Tensor& output) const {
  const int64_t products = weight.numel() / weight.size(0);  // for one element of the output
  return 2.0 * static_cast<double>(output.numel()) * static_cast<double>(products);
}

template <size_t n>
std::string ConvNd<n>::describe() const {
  const PaddingMode mode = options->padding_mode;
  return absl::StrCat(
      lazy() ? "Lazy" : "", kConv<n>, "(",
      lazy() ? "" : absl::StrCat(weight.size(1) * options->groups, ", "), options->out_channels,
      ", kernel_size=", text(options->kernel_size), ", stride=", text(options->stride),
      extras(text(options->padding), text(options->dilation), options->groups, options->bias),
      mode == PaddingMode::kZeros ? "" : absl::StrCat(", padding_mode=", name_of(mode)), ")");
}

template class ConvNd<1>;
template class ConvNd<2>;
template class ConvNd<3>;

// ---- transposed ----

template <size_t n>
ConvTransposeNd<n>::ConvTransposeNd(int64_t out_channels, const Sizes<n>& kernel_size,
                                    const ConvTransposeArgs<n>& options, int64_t in_channels)
    : options({options, 0, out_channels, kernel_size}) {
  const char* module = kConvTranspose<n>;
  check_groups(module, in_channels, out_channels, options.groups);
  check_sizes(module, 1, "kernel_size", kernel_size);
  check_sizes(module, 1, "stride", options.stride);
  check_sizes(module, 1, "dilation", options.dilation);
  check_sizes(module, 0, "padding", options.padding);
  check_sizes(module, 0, "output_padding", options.output_padding);
}

template <size_t n>
ConvTransposeNd<n>::ConvTransposeNd(int64_t in_channels, int64_t out_channels, Sizes<n> kernel_size,
                                    ConvTransposeArgs<n> options)
    : ConvTransposeNd(out_channels, kernel_size, options, in_channels) {
  create(in_channels);
  register_parameter("weight", weight);
  register_parameter("bias", bias);
}

template <size_t n>
ConvTransposeNd<n>::ConvTransposeNd(int64_t out_channels, Sizes<n> kernel_size,
                                    ConvTransposeArgs<n> options)
    : ConvTransposeNd(out_channels, kernel_size, options, options.groups) {
  register_parameter("weight", weight);
  register_parameter("bias", bias);
  set_lazy();
}

template <size_t n>
void ConvTransposeNd<n>::create(int64_t in_channels) {
  check_groups(kConvTranspose<n>, in_channels, options->out_channels, options->groups);
  options.args().in_channels = in_channels;
  weight = empty_weight(in_channels, options->out_channels / options->groups, options->kernel_size);
  if (options->bias) bias = empty({options->out_channels}, kFloat32);
  reset_parameters();
}

template <size_t n>
void ConvTransposeNd<n>::finish(const Tensor& input) {
  if (!lazy()) return;
  const UnrecordedTensors unrecorded;
  create(lazy_size(input, -static_cast<int64_t>(n) - 1));
  finish_lazy(input);
}

template <size_t n>
void ConvTransposeNd<n>::reset_parameters() {
  reset_conv(weight, bias);
}

namespace {

template <size_t n>
functional::ConvTransposeFuncArgs<n> options_of(const Tensor& bias,
                                                const ConvTransposeArgs<n>& options) {
  return {.bias = bias,
          .stride = options.stride,
          .padding = options.padding,
          .output_padding = options.output_padding,
          .groups = options.groups,
          .dilation = options.dilation};
}

}  // namespace

template <size_t n>
Tensor ConvTransposeNd<n>::forward(const Tensor& input) {
  finish(input);
  return functional::conv_transpose(input, weight, options_of<n>(bias, options.args()));
}

template <size_t n>
Tensor ConvTransposeNd<n>::forward(const Tensor& input, Sizes<n> output_size) {
  finish(input);
  if (input.dim() <= static_cast<int64_t>(n)) return forward(input);  // throws
  functional::ConvTransposeFuncArgs<n> function = options_of<n>(bias, options.args());
  for (size_t i = 0; i < n; ++i) {
    const int64_t size = input.size(static_cast<int64_t>(i) - static_cast<int64_t>(n));
    if (size < 1 || size > INT32_MAX) return forward(input);  // throws
    const int64_t least = (size - 1) * options->stride[i] - 2 * options->padding[i] +
                          options->dilation[i] * (options->kernel_size[i] - 1) + 1;
    const int64_t most = least + options->stride[i] - 1;
    if (output_size[i] < least || output_size[i] > most) {
      fail(ErrorCode::kValue, "[", kConvTranspose<n>, "] output_size ", shape_str(output_size),
           " is impossible for input ", shape_str(input.sizes()), ": give ", least, " to ", most,
           " for spatial dimension ", i);
    }
    function.output_padding.set(i, output_size[i] - least);
  }
  return functional::conv_transpose(input, weight, function);
}

template <size_t n>
double ConvTransposeNd<n>::flops(const Tensor& input, const Tensor& /*output*/) const {
  const int64_t products = weight.numel() / weight.size(0);  // for one element of the input
  return 2.0 * static_cast<double>(input.numel()) * static_cast<double>(products);
}

template <size_t n>
std::string ConvTransposeNd<n>::describe() const {
  return absl::StrCat(
      lazy() ? "Lazy" : "", kConvTranspose<n>, "(",
      lazy() ? "" : absl::StrCat(weight.size(0), ", "), options->out_channels,
      ", kernel_size=", text(options->kernel_size), ", stride=", text(options->stride),
      extras(text(options->padding), text(options->dilation), options->groups, options->bias),
      text(options->output_padding) == "0"
          ? ""
          : absl::StrCat(", output_padding=", text(options->output_padding)),
      ")");
}

template class ConvTransposeNd<1>;
template class ConvTransposeNd<2>;
template class ConvTransposeNd<3>;

}  // namespace mytorch::nn
