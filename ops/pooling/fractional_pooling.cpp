// Maxima of windows at random places: Graham, "Fractional max-pooling" (2014).
#include "mytorch/generated/bodies.h"
#include "mytorch/ops/arange.h"
#include "mytorch/ops/gather.h"
#include "mytorch/ops/max.h"
#include "mytorch/ops/where.h"
#include "ops/geometry.h"

namespace mytorch::composite {
namespace {

// Returns where the windows of one dimension begin, (planes, windows): the whole parts of
// (i + u) * alpha, less that of u * alpha, so that they are spread evenly; the last ends the
// dimension. `u` has shape (planes).
Tensor starts(const Tensor& u, int64_t size, int64_t kernel, int64_t windows) {
  const Tensor i = mytorch::arange(windows, kInt64, u.device());
  const int64_t last = size - kernel;
  if (windows == 1) return (i * 0 + last).expand({u.size(0), 1});
  const double alpha = static_cast<double>(last) / static_cast<double>(windows - 1);
  const Tensor column = u.unsqueeze(1);
  const Tensor begin = ((i + column) * alpha).trunc() - (column * alpha).trunc();
  // Samples outside of [0, 1) must not leave the input.
  const Tensor inside = begin.nan_to_num(0).clamp(0, static_cast<double>(last)).to(kInt64);
  return mytorch::where(i.eq(windows - 1), last, inside);
}

Tensors<2> fractional_max_pool(const Tensor& self, IntList kernel_size, IntList output_size,
                               const Tensor& random_samples, int64_t n, const char* op) {
  check_shape(self.dim() == n + 1 || self.dim() == n + 2, op, "self has shape ", self.sizes(),
              ": it must have ", n + 2, " dimensions, or ", n + 1, " without a batch");
  check_floating(self, "self", op);
  check_floating(random_samples, "random_samples", op);
  const Dims kernel = geometry::for_each_dim(kernel_size, n, op, "kernel_size");
  const Dims output = geometry::for_each_dim(output_size, n, op, "output_size");
  const int64_t batch = self.dim() == n + 2 ? self.size(0) : 1;
  const int64_t channels = self.size(-n - 1);
  check_shape(random_samples.dim() == 3 && random_samples.size(0) == batch &&
                  random_samples.size(1) == channels && random_samples.size(2) == n,
              op, "random_samples has shape ", random_samples.sizes(), ", expected (", batch, ", ",
              channels, ", ", n, ")");
  Dims sizes = to_dims(self.sizes());
  Wide window = 1;
  for (int64_t d = 0; d < n; ++d) {
    const int64_t size = self.size(d - n);
    check_value(kernel[d] >= 1 && output[d] >= 1, op, "kernel_size ", as_list(kernel),
                " and output_size ", as_list(output), " must be positive");
    check_shape(Wide{output[d]} + kernel[d] - 1 <= size, op, output[d], " windows of ", kernel[d],
                " elements do not fit a dimension of ", size);
    sizes[self.dim() - n + d] = output[d];
    window = checked(window * kernel[d], op, "the size of a window");
  }
  const int64_t planes = checked(Wide{batch} * channels, op, "the number of planes");
  const Tensor samples = random_samples.detach().reshape({planes, n});
  // The index in the flattened plane of each element of each window: (planes, o..., k...).
  Tensor index;
  for (int64_t d = 0; d < n; ++d) {
    // In two dimensions, the first sample is that of the width.
    const Tensor u = samples.select(1, n == 2 ? 1 - d : d);
    const Tensor begin = starts(u, self.size(d - n), kernel[d], output[d]);
    Dims begin_shape(1 + 2 * n, 1), offset_shape(1 + 2 * n, 1);
    begin_shape[0] = planes;
    begin_shape[1 + d] = output[d];
    offset_shape[1 + n + d] = kernel[d];
    const Tensor offset = mytorch::arange(kernel[d], kInt64, self.device());
    const Tensor place =
        begin.reshape(as_list(begin_shape)) + offset.reshape(as_list(offset_shape));
    index = index.defined() ? index * self.size(d - n) + place : place;
  }
  const Tensor flat = index.flatten(n + 1).flatten(1, n);  // (planes, windows, window)
  const Tensor plane = self.flatten(-n);
  const Tensor elements =
      mytorch::gather(plane.reshape({planes, plane.size(-1)}), 1, flat.flatten(1));
  const auto [values, at] = mytorch::max(elements.reshape(flat.sizes()), 2, false);
  const Tensor indices = mytorch::gather(flat, 2, at.unsqueeze(2));
  return {values.reshape(as_list(sizes)), indices.reshape(as_list(sizes))};
}

}  // namespace

Tensors<2> fractional_max_pool2d(const Tensor& self, IntList kernel_size, IntList output_size,
                                 const Tensor& random_samples) {
  return fractional_max_pool(self, kernel_size, output_size, random_samples, 2,
                             "fractional_max_pool2d");
}

Tensors<2> fractional_max_pool3d(const Tensor& self, IntList kernel_size, IntList output_size,
                                 const Tensor& random_samples) {
  return fractional_max_pool(self, kernel_size, output_size, random_samples, 3,
                             "fractional_max_pool3d");
}

}  // namespace mytorch::composite
