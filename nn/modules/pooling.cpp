#include "mytorch/nn/pooling.h"

#include "mytorch/ops/adaptive_avg_pool2d.h"
#include "mytorch/ops/avg_pool2d.h"
#include "mytorch/ops/max_pool2d.h"
#include "nn/modules/options.h"

namespace mytorch::nn {

MaxPool2d::MaxPool2d(Size2 kernel_size, MaxPool2dOptions options)
    : kernel_size_(kernel_size), stride_(options.stride.value_or(kernel_size)), options_(options) {
  check_at_least("MaxPool2d", 1,
                 {{"the height of kernel_size", kernel_size.height()},
                  {"the width of kernel_size", kernel_size.width()},
                  {"the height of stride", stride_.height()},
                  {"the width of stride", stride_.width()}});
}

Tensor MaxPool2d::forward(const Tensor& input) {
  return max_pool2d(input, kernel_size_, stride_, options_.padding, options_.dilation,
                    options_.ceil_mode);
}

std::string MaxPool2d::describe() const {
  return absl::StrCat("MaxPool2d(kernel_size=", text(kernel_size_), ", stride=", text(stride_),
                      ", padding=", text(options_.padding), ", dilation=", text(options_.dilation),
                      ", ceil_mode=", text(options_.ceil_mode), ")");
}

AvgPool2d::AvgPool2d(Size2 kernel_size, AvgPool2dOptions options)
    : kernel_size_(kernel_size), stride_(options.stride.value_or(kernel_size)), options_(options) {
  check_at_least("AvgPool2d", 1,
                 {{"the height of kernel_size", kernel_size.height()},
                  {"the width of kernel_size", kernel_size.width()},
                  {"the height of stride", stride_.height()},
                  {"the width of stride", stride_.width()}});
}

Tensor AvgPool2d::forward(const Tensor& input) {
  return avg_pool2d(input, kernel_size_, stride_, options_.padding, options_.ceil_mode,
                    options_.count_include_pad);
}

std::string AvgPool2d::describe() const {
  return absl::StrCat("AvgPool2d(kernel_size=", text(kernel_size_), ", stride=", text(stride_),
                      ", padding=", text(options_.padding), ")");
}

Tensor AdaptiveAvgPool2d::forward(const Tensor& input) {
  return adaptive_avg_pool2d(input, output_size_);
}

std::string AdaptiveAvgPool2d::describe() const {
  return absl::StrCat("AdaptiveAvgPool2d(output_size=", text(output_size_), ")");
}

}  // namespace mytorch::nn
