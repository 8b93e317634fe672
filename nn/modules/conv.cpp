#include "mytorch/nn/conv.h"

#include <cmath>

#include "mytorch/nn/init.h"
#include "mytorch/ops/conv1d.h"
#include "mytorch/ops/conv2d.h"
#include "mytorch/ops/empty.h"
#include "nn/modules/options.h"

namespace mytorch::nn {
namespace {

void check_channels(const char* module, int64_t in, int64_t out, int64_t groups) {
  check_at_least(module, 1, {{"in_channels", in}, {"out_channels", out}, {"groups", groups}});
  if (in % groups != 0 || out % groups != 0) {
    fail(ErrorCode::kValue, "[", module, "] ", groups, " groups do not divide ", in,
         " input channels and ", out, " output channels");
  }
}

void reset(const Tensor& weight, const Tensor& bias) {
  const double bound = 1 / std::sqrt(static_cast<double>(init::fans(weight).in));
  init::uniform_(weight, -bound, bound);
  if (bias.defined()) init::uniform_(bias, -bound, bound);
}

// Returns the options that differ from their defaults, for describe().
std::string extras(const std::string& padding, const std::string& dilation, int64_t groups,
                   bool bias) {
  return absl::StrCat(
      padding == "0" ? "" : ", padding=" + padding, dilation == "1" ? "" : ", dilation=" + dilation,
      groups == 1 ? "" : absl::StrCat(", groups=", groups), bias ? "" : ", bias=false", ")");
}

}  // namespace

Conv1d::Conv1d(int64_t in_channels, int64_t out_channels, int64_t kernel_size,
               Conv1dOptions options)
    : options_(options) {
  check_channels("Conv1d", in_channels, out_channels, options.groups);
  check_at_least(
      "Conv1d", 1,
      {{"kernel_size", kernel_size}, {"stride", options.stride}, {"dilation", options.dilation}});
  check_at_least("Conv1d", 0, {{"padding", options.padding}});
  weight = empty({out_channels, in_channels / options.groups, kernel_size}, kFloat32);
  if (options.bias) bias = empty({out_channels}, kFloat32);
  register_parameter("weight", weight);
  register_parameter("bias", bias);
  reset_parameters();
}

void Conv1d::reset_parameters() { reset(weight, bias); }

Tensor Conv1d::forward(const Tensor& input) {
  return conv1d(input, weight, bias, options_.stride, options_.padding, options_.dilation,
                options_.groups);
}

std::string Conv1d::describe() const {
  return absl::StrCat("Conv1d(", weight.size(1) * options_.groups, ", ", weight.size(0),
                      ", kernel_size=", weight.size(2), ", stride=", options_.stride,
                      extras(absl::StrCat(options_.padding), absl::StrCat(options_.dilation),
                             options_.groups, bias.defined()));
}

Conv2d::Conv2d(int64_t in_channels, int64_t out_channels, Size2 kernel_size, Conv2dOptions options)
    : options_(options) {
  check_channels("Conv2d", in_channels, out_channels, options.groups);
  check_at_least("Conv2d", 1,
                 {{"the height of kernel_size", kernel_size.height()},
                  {"the width of kernel_size", kernel_size.width()},
                  {"the height of stride", options.stride.height()},
                  {"the width of stride", options.stride.width()},
                  {"the height of dilation", options.dilation.height()},
                  {"the width of dilation", options.dilation.width()}});
  check_at_least("Conv2d", 0,
                 {{"the height of padding", options.padding.height()},
                  {"the width of padding", options.padding.width()}});
  weight =
      empty({out_channels, in_channels / options.groups, kernel_size.height(), kernel_size.width()},
            kFloat32);
  if (options.bias) bias = empty({out_channels}, kFloat32);
  register_parameter("weight", weight);
  register_parameter("bias", bias);
  reset_parameters();
}

void Conv2d::reset_parameters() { reset(weight, bias); }

Tensor Conv2d::forward(const Tensor& input) {
  return conv2d(input, weight, bias, options_.stride, options_.padding, options_.dilation,
                options_.groups);
}

std::string Conv2d::describe() const {
  return absl::StrCat(
      "Conv2d(", weight.size(1) * options_.groups, ", ", weight.size(0),
      ", kernel_size=", text(Size2(weight.size(2), weight.size(3))),
      ", stride=", text(options_.stride),
      extras(text(options_.padding), text(options_.dilation), options_.groups, bias.defined()));
}

}  // namespace mytorch::nn
