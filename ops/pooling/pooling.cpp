// Pooling over windows.
#include <algorithm>
#include <cmath>

#include "dispatcher/frame/layout.h"
#include "mytorch/generated/bodies.h"
#include "mytorch/ops/adaptive_avg_pool2d.h"
#include "mytorch/ops/avg_pool2d.h"
#include "mytorch/ops/floor_divide.h"
#include "mytorch/ops/max.h"
#include "mytorch/ops/max_pool2d_with_indices.h"
#include "mytorch/ops/max_pool3d_with_indices.h"
#include "mytorch/ops/scatter.h"
#include "mytorch/ops/zeros.h"
#include "ops/geometry.h"
#include "ops/gradients.h"
#include "ops/indexing.h"

namespace mytorch {
namespace {

struct Window {
  Dims kernel, stride, padding, dilation;
  bool ceil_mode;
};

Window window(IntList kernel, IntList stride, IntList padding, IntList dilation, bool ceil_mode,
              int64_t n, const char* op) {
  Window w;
  w.kernel = geometry::for_each_dim(kernel, n, op, "kernel_size");
  w.stride = stride.empty() ? w.kernel : geometry::for_each_dim(stride, n, op, "stride");
  w.padding = geometry::for_each_dim(padding, n, op, "padding");
  w.dilation = geometry::for_each_dim(dilation, n, op, "dilation");
  w.ceil_mode = ceil_mode;
  for (int64_t i = 0; i < n; ++i) {
    check_value(w.kernel[i] >= 1 && w.stride[i] >= 1 && w.dilation[i] >= 1, op, "kernel_size ",
                as_list(w.kernel), ", stride ", as_list(w.stride), " and dilation ",
                as_list(w.dilation), " must be positive");
    // With more padding, a window could contain only padding.
    const Wide reach = Wide{w.kernel[i] - 1} * w.dilation[i] + 1;
    check_value(w.padding[i] >= 0 && w.padding[i] <= reach / 2, op, "padding ", as_list(w.padding),
                " must lie between 0 and half of the window ", as_list(w.kernel));
  }
  return w;
}

// Returns the output shape for an input with `n` spatial dimensions, channels and an optional
// batch.
Dims pooled_sizes(IntList input, const Window& w, int64_t n, const char* op) {
  const int64_t ndim = static_cast<int64_t>(input.size());
  check_shape(ndim == n + 1 || ndim == n + 2, op, "input has shape ", input, ": it must have ",
              n + 2, " dimensions, or ", n + 1, " without a batch");
  Dims sizes = to_dims(input);
  for (int64_t i = 0; i < n; ++i) {
    const int64_t size = input[ndim - n + i];
    const Wide reach = Wide{w.dilation[i]} * (w.kernel[i] - 1) + 1;
    const Wide room = size + 2 * Wide{w.padding[i]} - reach;
    Wide out = room < 0 ? 0 : room / w.stride[i] + 1;
    if (w.ceil_mode && room > -w.stride[i]) {
      out = (room + w.stride[i] - 1) / w.stride[i] + 1;
      // The last window must begin inside the input or the padding before it.
      if ((out - 1) * w.stride[i] >= size + Wide{w.padding[i]}) --out;
    }
    check_shape(size != 0 && out >= 1, op, "the window ", as_list(w.kernel), " with padding ",
                as_list(w.padding), " does not fit input of shape ", input);
    sizes[ndim - n + i] = checked(out, op, "the size of the result");
    // The positions of a dilated window may lie around the input, or, of the last one, behind it.
    for (int64_t o = 0; w.dilation[i] > 1 && o < sizes[ndim - n + i]; ++o) {
      const Wide begin = Wide{o} * w.stride[i] - w.padding[i];
      const Wide skipped = begin < 0 ? (w.dilation[i] - 1 - begin) / w.dilation[i] : Wide{0};
      check_shape(skipped < w.kernel[i] && begin + skipped * w.dilation[i] < size, op, "window ", o,
                  " of dimension ", ndim - n + i, " has no element of the input, of shape ", input,
                  ", only padding: give less padding or dilation, or no ceil_mode");
    }
  }
  return sizes;
}

void check_average(const Tensor& self, std::optional<int64_t> divisor_override, const char* op) {
  check_type(self.is_floating_point(), op, "input is ", self.dtype(),
             ": means need a floating type");
  check_value(!divisor_override.has_value() || *divisor_override != 0, op, "divisor_override is 0");
}

void check_adaptive(const Tensor& self, IntList output_size, int64_t n, const char* op) {
  check_floating(self, "input", op);
  bool fits = self.dim() == n + 1 || self.dim() == n + 2;
  for (int64_t i = 1; fits && i <= n; ++i) fits = self.size(-i) > 0;
  check_shape(fits, op, "input has shape ", self.sizes(), ": it must have ", n + 2,
              " dimensions, or ", n + 1, " without a batch, the spatial ones not empty");
  for (const int64_t size : output_size) {
    check_value(size >= 0, op, "output_size ", output_size, " is negative");
  }
}

// Computes means over `out` windows of dimension `dim`. Window i contains the elements from floor(i
// * size / out) up to ceil((i + 1) * size / out). Each window is summed separately, so that an
// infinity or NaN affects only the windows that contain it.
Tensor adaptive_mean(const Tensor& x, int64_t dim, int64_t out) {
  dim = wrap_dim(dim, x.dim(), "adaptive_avg_pool");
  const int64_t size = x.size(dim);
  Dims windows = to_dims(x.sizes());
  windows[dim] = out;
  if (out == 0) return x.narrow(dim, 0, 0).clone();
  if (x.numel() == 0) return x.sum(dim, true).expand(as_list(windows)).contiguous();
  const auto begin = [&](int64_t i) { return static_cast<int64_t>(Wide{i} * size / out); };
  const auto count = [&](int64_t i) {
    return static_cast<int64_t>(((Wide{i} + 1) * size + out - 1) / out) - begin(i);
  };
  const auto along = [&](const Tensor& values, IntList shape) {
    Dims sizes(x.dim() + static_cast<int64_t>(shape.size()) - 1, 1);
    std::copy(shape.begin(), shape.end(), sizes.begin() + dim);
    return values.reshape(as_list(sizes));
  };
  const Tensor counts = indexing::index_of(out, x.device(), count);
  int64_t width = 0;
  for (int64_t i = 0; i < out; ++i) width = std::max(width, count(i));
  const int64_t n = checked(Wide{out} * width, "adaptive_avg_pool", "the number of windows");
  const Tensor index = indexing::index_of(
      n, x.device(), [&](int64_t i) { return std::min(begin(i / width) + i % width, size - 1); });
  const Tensor beyond = indexing::index_of(
      n, x.device(), [&](int64_t i) { return int64_t{i % width >= count(i / width)}; });
  windows.insert(windows.begin() + dim + 1, width);
  const Tensor picked = x.index_select(dim, index).reshape(as_list(windows));
  const Tensor kept = picked.masked_fill(along(beyond, {out, width}).to(kBool), 0);
  return kept.sum(dim + 1) / along(counts, out).to(x.dtype());
}

// Computes the maxima of `n` dimensions over windows as adaptive_mean has them, and their indices
// in the flattened plane.
Tensors<2> adaptive_max(const Tensor& self, IntList output_size, int64_t n, const char* op) {
  const Dims out = geometry::for_each_dim(output_size, n, op, "output_size");
  check_adaptive(self, as_list(out), n, op);
  Tensor values = self, indices;
  int64_t stride = 1;
  // The last dimension first, so that ties go to the first element in row-major order.
  for (int64_t i = n - 1; i >= 0; --i) {
    const int64_t dim = self.dim() - n + i, size = self.size(dim), count = out[i];
    const auto begin = [&](int64_t k) { return static_cast<int64_t>(Wide{k} * size / count); };
    const auto end = [&](int64_t k) {
      return static_cast<int64_t>(((Wide{k} + 1) * size + count - 1) / count);
    };
    const int64_t width = count == 0 ? 1 : std::min(size, size / count + 2);
    const int64_t total = checked(Wide{count} * width, op, "the number of windows");
    constexpr int64_t kMost = int64_t{1} << 31;
    check_value(total <= kMost, op, "output_size ", output_size, " takes more than ", kMost,
                " indices");
    const Tensor index = indexing::index_of(total, self.device(), [&](int64_t k) {
      return std::min(begin(k / width) + k % width, end(k / width) - 1);
    });
    Dims windows = to_dims(values.sizes());
    windows[dim] = count;
    windows.insert(windows.begin() + dim + 1, width);
    Dims along(windows.size(), 1);
    along[dim] = count;
    along[dim + 1] = width;
    const Tensor places = (index * stride).reshape(as_list(along));
    Tensor picked = values.index_select(dim, index).reshape(as_list(windows));
    const Tensor all = indices.defined()
                           ? indices.index_select(dim, index).reshape(as_list(windows)) + places
                           : places.expand(as_list(windows)).contiguous();
    if (picked.numel() == 0) {
      windows.erase(windows.begin() + dim + 1);
      values = picked.sum(dim + 1);
      indices = mytorch::zeros(as_list(windows), kInt64, self.device());
    } else {
      auto [largest, at] = mytorch::max(picked, dim + 1, true);
      values = largest.squeeze(dim + 1);
      indices = all.gather(dim + 1, at).squeeze(dim + 1);
    }
    stride *= size;
  }
  return {values, indices};
}

Tensor unpooled(const Tensor& self, const Tensor& indices, IntList output_size, int64_t n,
                const char* op) {
  const Dims out = geometry::for_each_dim(output_size, n, op, "output_size");
  check_shape(self.dim() == n + 1 || self.dim() == n + 2, op, "self has shape ", self.sizes(),
              ": it must have ", n + 2, " dimensions, or ", n + 1, " without a batch");
  check_shape(self.sizes() == indices.sizes(), op, "indices ", indices.sizes(),
              " do not have the shape of self, ", self.sizes());
  for (const int64_t size : out)
    check_value(size >= 0, op, "output_size ", output_size, " is negative");
  Dims sizes = to_dims(self.sizes());
  sizes.erase(sizes.end() - n, sizes.end());
  Dims flat = sizes;
  flat.push_back(checked_product(as_list(out), op));
  sizes.insert(sizes.end(), out.begin(), out.end());
  checked_product(as_list(sizes), op);
  const Tensor planes = mytorch::zeros(as_list(flat), self.dtype(), self.device());
  return mytorch::scatter(planes, -1, indices.flatten(-n), self.flatten(-n))
      .reshape(as_list(sizes));
}

}  // namespace

namespace shape {

Specs<2> max_pool2d_with_indices(const Tensor& self, IntList kernel_size, IntList stride,
                                 IntList padding, IntList dilation, bool ceil_mode) {
  const char* op = "max_pool2d";
  const Dims sizes = pooled_sizes(
      self.sizes(), window(kernel_size, stride, padding, dilation, ceil_mode, 2, op), 2, op);
  return {like(self, sizes), like(self, sizes, kInt64)};
}

TensorSpec max_pool2d_with_indices_backward(const Tensor& grad_output, IntList input_size,
                                            const Tensor& indices) {
  const char* op = "max_pool2d_with_indices_backward";
  check_shape(grad_output.sizes() == indices.sizes(), op, "grad_output has shape ",
              grad_output.sizes(), ", but indices have shape ", indices.sizes());
  const size_t ndim = grad_output.sizes().size();
  check_shape(indices.dtype() == kInt64 && input_size.size() == ndim && ndim >= 3, op,
              "input_size ", input_size, " does not fit int64 indices of shape ", indices.sizes());
  for (size_t d = 0; d + 2 < ndim; ++d) {
    check_shape(input_size[d] == grad_output.sizes()[d], op, "input_size ", input_size,
                " and grad_output of shape ", grad_output.sizes(), " differ in dimension ", d);
  }
  return like(grad_output, to_dims(input_size));
}

TensorSpec avg_pool2d(const Tensor& self, IntList kernel_size, IntList stride, IntList padding,
                      bool ceil_mode, bool /*count_include_pad*/,
                      std::optional<int64_t> divisor_override) {
  const char* op = "avg_pool2d";
  check_average(self, divisor_override, op);
  return like(self, pooled_sizes(self.sizes(),
                                 window(kernel_size, stride, padding, 1, ceil_mode, 2, op), 2, op));
}

TensorSpec avg_pool2d_backward(const Tensor& grad_output, IntList input_size, IntList kernel_size,
                               IntList stride, IntList padding, bool ceil_mode,
                               bool /*count_include_pad*/,
                               std::optional<int64_t> divisor_override) {
  const char* op = "avg_pool2d_backward";
  check_average(grad_output, divisor_override, op);
  const Dims expected =
      pooled_sizes(input_size, window(kernel_size, stride, padding, 1, ceil_mode, 2, op), 2, op);
  check_shape(grad_output.sizes() == as_list(expected), op, "grad_output has shape ",
              grad_output.sizes(), ", but pooling gives ", as_list(expected));
  return like(grad_output, to_dims(input_size));
}

}  // namespace shape

namespace composite {

Tensor max_pool2d(const Tensor& self, IntList kernel_size, IntList stride, IntList padding,
                  IntList dilation, bool ceil_mode) {
  const Window w = window(kernel_size, stride, padding, dilation, ceil_mode, 2, "max_pool2d");
  return std::get<0>(mytorch::max_pool2d_with_indices(self, as_list(w.kernel), as_list(w.stride),
                                                      as_list(w.padding), as_list(w.dilation),
                                                      ceil_mode));
}

Tensors<2> max_pool1d_with_indices(const Tensor& self, IntList kernel_size, IntList stride,
                                   IntList padding, IntList dilation, bool ceil_mode) {
  const char* op = "max_pool1d";
  const Window w = window(kernel_size, stride, padding, dilation, ceil_mode, 1, op);
  pooled_sizes(self.sizes(), w, 1, op);
  const auto [values, indices] =
      mytorch::max_pool2d_with_indices(self.unsqueeze(-2), {1, w.kernel[0]}, {1, w.stride[0]},
                                       {0, w.padding[0]}, {1, w.dilation[0]}, ceil_mode);
  return {values.squeeze(-2), indices.squeeze(-2)};
}

Tensor max_pool1d(const Tensor& self, IntList kernel_size, IntList stride, IntList padding,
                  IntList dilation, bool ceil_mode) {
  return std::get<0>(
      max_pool1d_with_indices(self, kernel_size, stride, padding, dilation, ceil_mode));
}

Tensor avg_pool1d(const Tensor& self, IntList kernel_size, IntList stride, IntList padding,
                  bool ceil_mode, bool count_include_pad) {
  const char* op = "avg_pool1d";
  const Window w = window(kernel_size, stride, padding, 1, ceil_mode, 1, op);
  pooled_sizes(self.sizes(), w, 1, op);
  return mytorch::avg_pool2d(self.unsqueeze(-2), {1, w.kernel[0]}, {1, w.stride[0]},
                             {0, w.padding[0]}, ceil_mode, count_include_pad)
      .squeeze(-2);
}

Tensor adaptive_avg_pool2d(const Tensor& self, IntList output_size) {
  const char* op = "adaptive_avg_pool2d";
  const Dims out = geometry::for_each_dim(output_size, 2, op, "output_size");
  check_adaptive(self, as_list(out), 2, op);
  const int64_t height = self.size(-2), width = self.size(-1);
  if (out[0] > 0 && out[1] > 0 && height % out[0] == 0 && width % out[1] == 0) {
    const Dims kernel = {height / out[0], width / out[1]};
    return mytorch::avg_pool2d(self, as_list(kernel), as_list(kernel));
  }
  return adaptive_mean(adaptive_mean(self, -2, out[0]), -1, out[1]);
}

Tensor adaptive_avg_pool1d(const Tensor& self, IntList output_size) {
  const char* op = "adaptive_avg_pool1d";
  const Dims out = geometry::for_each_dim(output_size, 1, op, "output_size");
  check_adaptive(self, as_list(out), 1, op);
  return mytorch::adaptive_avg_pool2d(self.unsqueeze(-2), {1, out[0]}).squeeze(-2);
}

// ---- three dimensions ----

Tensors<2> max_pool3d_with_indices(const Tensor& self, IntList kernel_size, IntList stride,
                                   IntList padding, IntList dilation, bool ceil_mode) {
  const char* op = "max_pool3d";
  const Window w = window(kernel_size, stride, padding, dilation, ceil_mode, 3, op);
  const Dims sizes = pooled_sizes(self.sizes(), w, 3, op);
  const int64_t lead = self.dim() == 5 ? self.size(0) * self.size(1) : self.size(0);
  const int64_t d = self.size(-3), plane = self.size(-2) * self.size(-1);
  const int64_t area = sizes[sizes.size() - 2] * sizes.back();
  // A window is the product of a plane's and a depth: each plane first, then along the depth.
  const auto [planes, within] = mytorch::max_pool2d_with_indices(
      self.reshape({lead * d, self.size(-2), self.size(-1)}), {w.kernel[1], w.kernel[2]},
      {w.stride[1], w.stride[2]}, {w.padding[1], w.padding[2]}, {w.dilation[1], w.dilation[2]},
      ceil_mode);
  const auto [out, place] = mytorch::max_pool2d_with_indices(
      planes.reshape({lead, d, area}), {w.kernel[0], 1}, {w.stride[0], 1}, {w.padding[0], 0},
      {w.dilation[0], 1}, ceil_mode);
  const Tensor places = place.flatten(-2);
  const Tensor index = within.reshape({lead, d * area}).gather(1, places);
  const Tensor indices = mytorch::floor_divide(places, area) * plane + index;
  return {out.reshape(as_list(sizes)), indices.reshape(as_list(sizes))};
}

Tensor max_pool3d(const Tensor& self, IntList kernel_size, IntList stride, IntList padding,
                  IntList dilation, bool ceil_mode) {
  return std::get<0>(
      mytorch::max_pool3d_with_indices(self, kernel_size, stride, padding, dilation, ceil_mode));
}

Tensor avg_pool3d(const Tensor& self, IntList kernel_size, IntList stride, IntList padding,
                  bool ceil_mode, bool count_include_pad, std::optional<int64_t> divisor_override) {
  const char* op = "avg_pool3d";
  check_average(self, divisor_override, op);
  const Window w = window(kernel_size, stride, padding, 1, ceil_mode, 3, op);
  const Dims sizes = pooled_sizes(self.sizes(), w, 3, op);
  const int64_t lead = self.dim() == 5 ? self.size(0) * self.size(1) : self.size(0);
  const int64_t d = self.size(-3), area = sizes[sizes.size() - 2] * sizes.back();
  // The number of elements of a window is the product of its sides, so that the mean of means is
  // the mean.
  const std::optional<int64_t> sum = divisor_override ? std::optional<int64_t>(1) : std::nullopt;
  const Tensor planes = mytorch::avg_pool2d(
      self.reshape({lead * d, self.size(-2), self.size(-1)}), {w.kernel[1], w.kernel[2]},
      {w.stride[1], w.stride[2]}, {w.padding[1], w.padding[2]}, ceil_mode, count_include_pad, sum);
  return mytorch::avg_pool2d(planes.reshape({lead, d, area}), {w.kernel[0], 1}, {w.stride[0], 1},
                             {w.padding[0], 0}, ceil_mode, count_include_pad, divisor_override)
      .reshape(as_list(sizes));
}

Tensor adaptive_avg_pool3d(const Tensor& self, IntList output_size) {
  const char* op = "adaptive_avg_pool3d";
  const Dims out = geometry::for_each_dim(output_size, 3, op, "output_size");
  check_adaptive(self, as_list(out), 3, op);
  Tensor result = self;
  for (int64_t i = 0; i < 3; ++i) result = adaptive_mean(result, i - 3, out[i]);
  return result;
}

Tensors<2> adaptive_max_pool1d(const Tensor& self, IntList output_size) {
  return adaptive_max(self, output_size, 1, "adaptive_max_pool1d");
}

Tensors<2> adaptive_max_pool2d(const Tensor& self, IntList output_size) {
  return adaptive_max(self, output_size, 2, "adaptive_max_pool2d");
}

Tensors<2> adaptive_max_pool3d(const Tensor& self, IntList output_size) {
  return adaptive_max(self, output_size, 3, "adaptive_max_pool3d");
}

Tensor max_unpool2d(const Tensor& self, const Tensor& indices, IntList output_size) {
  return unpooled(self, indices, output_size, 2, "max_unpool2d");
}

Tensor max_unpool1d(const Tensor& self, const Tensor& indices, IntList output_size) {
  return unpooled(self, indices, output_size, 1, "max_unpool1d");
}

Tensor max_unpool3d(const Tensor& self, const Tensor& indices, IntList output_size,
                    IntList /*stride*/, IntList /*padding*/) {
  return unpooled(self, indices, output_size, 3, "max_unpool3d");
}

}  // namespace composite

namespace grads {

Tensor in_layout_of(const Tensor& grad, IntList input_shape, IntList input_strides) {
  if (!is_channels_last(input_shape, input_strides) || is_channels_last(grad)) return grad;
  Dims to_last = {0}, sizes = {grad.size(0)}, back = {0, grad.dim() - 1};
  for (int64_t d = 2; d < grad.dim(); ++d) {
    to_last.push_back(d);
    sizes.push_back(grad.size(d));
    back.push_back(d - 1);
  }
  to_last.push_back(1);
  sizes.push_back(grad.size(1));
  // The view also sets the strides of dimensions of size 1, which determine the layout.
  return grad.permute(as_list(to_last)).contiguous().view(as_list(sizes)).permute(as_list(back));
}

}  // namespace grads
}  // namespace mytorch
