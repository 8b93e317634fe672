// Convolutions and transposed convolutions with 1, 2 and 3 spatial dimensions.
#include "mytorch/ops/convolution.h"

#include <algorithm>

#include "mytorch/generated/bodies.h"
#include "mytorch/ops/constant_pad_nd.h"
#include "ops/composites.h"
#include "ops/geometry.h"
#include "ops/gradients.h"

namespace mytorch {
namespace {

struct Window {
  IntList stride, padding, dilation, output_padding;
  bool transposed;
  int64_t groups;
};

void check_list(IntList list, int64_t n, int64_t least, const char* name, const char* op) {
  check_shape(static_cast<int64_t>(list.size()) == n || list.size() == 1, op, name, " has ",
              list.size(), " values: give one, or one for each of the ", n, " spatial dimensions");
  for (const int64_t value : list) {
    check_value(value >= least, op, name, " ", list, " has ", value, ": the least is ", least);
  }
}

// Returns the value of a spatial dimension in a list that has one for each, or one for all.
int64_t value_of(IntList list, int64_t i) { return list[list.size() == 1 ? 0 : i]; }

// Returns `strides` if they are those of a contiguous tensor in some permutation; else none, which
// means row-major.
Dims contiguous_strides(IntList sizes, IntList strides) {
  check_shape(strides.size() == sizes.size(), "convolution_backward_weight", "weight_stride has ",
              strides.size(), " values for ", sizes.size(), " dimensions");
  Dims order;  // innermost first
  for (size_t d = sizes.size(); d-- > 0;) order.push_back(static_cast<int64_t>(d));
  std::stable_sort(order.begin(), order.end(),
                   [&](int64_t a, int64_t b) { return strides[a] < strides[b]; });
  Dims contiguous(sizes.size(), 1);
  int64_t stride = 1;
  for (const int64_t d : order) {
    if (sizes[d] != 1 && strides[d] != stride) return {};
    contiguous[d] = stride;
    stride *= sizes[d];
  }
  return contiguous;
}

// Checks the operands' shapes, and returns the result's shape.
Dims result_sizes(IntList input, IntList weight, const Window& w, const char* op) {
  const int64_t n = static_cast<int64_t>(input.size()) - 2;
  check_shape(n >= 1 && n <= 3 && weight.size() == input.size(), op, "input of shape ", input,
              " and weight of shape ", weight, " must have as many dimensions, from 3 to 5");
  check_list(w.stride, n, 1, "stride", op);
  check_list(w.padding, n, 0, "padding", op);
  check_list(w.dilation, n, 1, "dilation", op);
  check_list(w.output_padding, n, 0, "output_padding", op);
  check_value(w.groups > 0, op, "groups ", w.groups, " is not positive");
  check_shape(weight[0] % w.groups == 0, op, "the ", weight[0], " channels of weight ", weight,
              " do not divide into ", w.groups, " groups");
  const int64_t per_weight = checked(Wide{weight[1]} * w.groups, op, "the number of channels");
  const int64_t channels = w.transposed ? weight[0] : per_weight;
  check_shape(input[1] == channels, op, "input has ", input[1], " channels, but weight ", weight,
              " with groups ", w.groups, " expects ", channels,
              input.back() == channels
                  ? ": move the channels of the input behind its first dimension, by movedim(-1, 1)"
                  : ": make the layer for the channels of the input");
  Dims sizes = {input[0], w.transposed ? per_weight : weight[0]};
  for (int64_t i = 0; i < n; ++i) {
    const int64_t size = input[2 + i], kernel = weight[2 + i];
    const int64_t stride = value_of(w.stride, i), padding = value_of(w.padding, i);
    const int64_t dilation = value_of(w.dilation, i), more = value_of(w.output_padding, i);
    check_shape(kernel >= 1, op, "weight ", weight, " has an empty window");
    const Wide reach = Wide{dilation} * (kernel - 1) + 1;
    Wide result;
    if (w.transposed) {
      check_value(more < std::max(stride, dilation), op, "output_padding ", w.output_padding,
                  " must be smaller than stride ", w.stride, " or dilation ", w.dilation);
      result = (Wide{size} - 1) * stride - 2 * Wide{padding} + reach + more;
    } else {
      const Wide room = Wide{size} + 2 * Wide{padding} - reach;
      check_shape(room >= 0, op, "the window of weight ", weight, " with dilation ", w.dilation,
                  " is larger than the padded input, ", input, " with padding ", w.padding);
      result = room / stride + 1;
    }
    sizes.push_back(checked(result, op, "the size of the result"));
    check_shape(sizes.back() >= 1, op, "input ", input, " and weight ", weight, " would give size ",
                sizes.back(), " in spatial dimension ", i);
  }
  return sizes;
}

void check_grad(const Tensor& grad_output, const Dims& expected, const char* op) {
  check_shape(grad_output.sizes() == as_list(expected), op, "grad_output has shape ",
              grad_output.sizes(), ", but the convolution gives ", as_list(expected));
}

}  // namespace

namespace shape {

TensorSpec convolution(const Tensor& input, const Tensor& weight, const Tensor& bias,
                       IntList stride, IntList padding, IntList dilation, bool transposed,
                       IntList output_padding, int64_t groups) {
  const char* op = "convolution";
  Dims sizes = result_sizes(input.sizes(), weight.sizes(),
                            {stride, padding, dilation, output_padding, transposed, groups}, op);
  check_same_type(input, "input", weight, "weight", op);
  if (bias.defined()) {
    check_same_type(input, "input", bias, "bias", op);
    check_shape(bias.dim() == 1 && bias.sizes()[0] == sizes[1], op, "bias has shape ", bias.sizes(),
                ", but there are ", sizes[1], " output channels");
  }
  return like(input, std::move(sizes));
}

TensorSpec convolution_backward_input(const Tensor& grad_output, const Tensor& weight,
                                      IntList input_size, IntList stride, IntList padding,
                                      IntList dilation, bool transposed, IntList output_padding,
                                      int64_t groups) {
  const char* op = "convolution_backward_input";
  check_same_type(grad_output, "grad_output", weight, "weight", op);
  check_grad(grad_output,
             result_sizes(input_size, weight.sizes(),
                          {stride, padding, dilation, output_padding, transposed, groups}, op),
             op);
  return like(grad_output, to_dims(input_size));
}

TensorSpec convolution_backward_weight(const Tensor& grad_output, const Tensor& input,
                                       IntList weight_size, IntList stride, IntList padding,
                                       IntList dilation, bool transposed, IntList output_padding,
                                       int64_t groups, OptionalIntList weight_stride) {
  const char* op = "convolution_backward_weight";
  check_same_type(grad_output, "grad_output", input, "input", op);
  check_grad(grad_output,
             result_sizes(input.sizes(), weight_size,
                          {stride, padding, dilation, output_padding, transposed, groups}, op),
             op);
  TensorSpec spec = like(grad_output, to_dims(weight_size));
  if (weight_stride.has_value()) spec.strides = contiguous_strides(weight_size, *weight_stride);
  return spec;
}

}  // namespace shape

namespace composite {

Tensor convolve(const Tensor& input, const Tensor& weight, const Tensor& bias, IntList stride,
                IntList padding, IntList dilation, bool transposed, IntList output_padding,
                int64_t groups, int64_t n, const char* op) {
  check_shape(weight.dim() == n + 2, op, "weight has shape ", weight.sizes(), ": it must have ",
              n + 2, " dimensions");
  check_shape(input.dim() == n + 2 || input.dim() == n + 1, op, "input has shape ", input.sizes(),
              ": it must have ", n + 2, " dimensions, or ", n + 1, " without a batch");
  const Dims s = geometry::for_each_dim(stride, n, op, "stride");
  const Dims p = geometry::for_each_dim(padding, n, op, "padding");
  const Dims d = geometry::for_each_dim(dilation, n, op, "dilation");
  const Dims o = geometry::for_each_dim(output_padding, n, op, "output_padding");
  const bool batched = input.dim() == n + 2;
  const Tensor x = batched ? input : input.unsqueeze(0);
  // Errors name the caller.
  result_sizes(x.sizes(), weight.sizes(),
               {as_list(s), as_list(p), as_list(d), as_list(o), transposed, groups}, op);
  const Tensor result = mytorch::convolution(x, weight, bias, as_list(s), as_list(p), as_list(d),
                                             transposed, as_list(o), groups);
  return batched ? result : result.squeeze(0);
}

Tensor convolve_padded(const Tensor& input, const Tensor& weight, const Tensor& bias,
                       IntList stride, Str padding, IntList dilation, int64_t groups, int64_t n,
                       const char* op) {
  if (padding == "valid") {
    return convolve(input, weight, bias, stride, 0, dilation, false, 0, groups, n, op);
  }
  check_value(padding == "same", op, "padding '", padding, "' is neither 'valid' nor 'same'");
  check_shape(weight.dim() == n + 2, op, "weight has shape ", weight.sizes(), ": it must have ",
              n + 2, " dimensions");
  for (const int64_t s : stride) {
    check_value(s == 1, op, "padding 'same' takes stride 1, not ", s);
  }
  const Dims d = geometry::for_each_dim(dilation, n, op, "dilation");
  Dims both(n);
  Dims after(2 * n, 0);  // the extra padding of the end, in the order of constant_pad_nd
  bool even = true;
  for (int64_t i = 0; i < n; ++i) {
    const int64_t total = checked(Wide{d[i]} * (weight.sizes()[2 + i] - 1), op, "the padding");
    both[i] = total / 2;
    after[2 * (n - 1 - i) + 1] = total % 2;
    even = even && total % 2 == 0;
  }
  const Tensor x = even ? input : mytorch::constant_pad_nd(input, as_list(after));
  return convolve(x, weight, bias, stride, as_list(both), as_list(d), false, 0, groups, n, op);
}

}  // namespace composite

namespace grads {

OptionalIntList strides_of_layout(const Tensor& tensor) {
  if (tensor.is_contiguous()) return {};
  return tensor.strides();
}

Tensor sum_to_channel(const Tensor& grad) {
  return grad.sum(as_list(geometry::all_dims_but(1, grad.dim())));
}

}  // namespace grads
}  // namespace mytorch
