// Patches of images as columns, and their sums.
#include "mytorch/generated/bodies.h"
#include "mytorch/ops/constant_pad_nd.h"
#include "mytorch/ops/index_add.h"
#include "mytorch/ops/zeros.h"
#include "ops/check.h"
#include "ops/creation.h"
#include "ops/geometry.h"

namespace mytorch::composite {
namespace {

constexpr int64_t kMostIndices = int64_t{1} << 28;

// The windows of one dimension: element k of window i is at i * stride + k * dilation.
struct Windows {
  int64_t count;
  Tensor index;  // (count * kernel), on the host
};

// The arguments of im2col and col2im for the two dimensions.
struct Fold {
  Fold(IntList kernel_size, IntList dilation_list, IntList padding_list, IntList stride_list,
       const char* name)
      : kernel(geometry::for_each_dim(kernel_size, 2, name, "kernel_size")),
        dilation(geometry::for_each_dim(dilation_list, 2, name, "dilation")),
        padding(geometry::for_each_dim(padding_list, 2, name, "padding")),
        stride(geometry::for_each_dim(stride_list, 2, name, "stride")),
        op(name) {
    for (int64_t d = 0; d < 2; ++d) {
      check_value(kernel[d] >= 1 && dilation[d] >= 1 && stride[d] >= 1 && padding[d] >= 0, op,
                  "kernel_size ", as_list(kernel), ", dilation ", as_list(dilation), " and stride ",
                  as_list(stride), " must be positive, padding ", as_list(padding),
                  " must not be negative");
    }
  }

  int64_t padded(int64_t size, int64_t d) const {
    return checked(Wide{size} + 2 * Wide{padding[d]}, op, "the padded size");
  }

  Windows windows(int64_t size, int64_t d) const {
    const Wide reach = Wide{dilation[d]} * (kernel[d] - 1) + 1;
    const int64_t room = padded(size, d);
    check_shape(room >= reach, op, "a window of ", kernel[d], " elements with dilation ",
                dilation[d], " does not fit into ", room);
    const int64_t count = static_cast<int64_t>((room - reach) / stride[d]) + 1;
    check_shape(Wide{count} * kernel[d] <= kMostIndices, op, "the windows would have more than ",
                kMostIndices, " rows or columns");
    const Tensor index = empty_for_values({count * kernel[d]}, kInt64);
    auto* to = index.data<int64_t>();
    for (int64_t i = 0; i < count; ++i) {
      for (int64_t k = 0; k < kernel[d]; ++k) *to++ = i * stride[d] + k * dilation[d];
    }
    return {count, index};
  }

  Dims kernel, dilation, padding, stride;
  const char* op;
};

Tensor index_of(const Windows& windows, const Tensor& like) {
  return windows.index.to(like.device());
}

}  // namespace

Tensor im2col(const Tensor& self, IntList kernel_size, IntList dilation, IntList padding,
              IntList stride) {
  const Fold fold(kernel_size, dilation, padding, stride, "im2col");
  check_shape(self.dim() == 3 || self.dim() == 4, fold.op, "self ", self.sizes(),
              " is neither (N, C, H, W) nor (C, H, W)");
  const Tensor batch = self.dim() == 3 ? self.unsqueeze(0) : self;
  const Dims &k = fold.kernel, &p = fold.padding;
  const Windows rows = fold.windows(batch.size(2), 0), columns = fold.windows(batch.size(3), 1);
  const int64_t n = batch.size(0), c = batch.size(1);
  const Dims sizes{n, checked(Wide{c} * k[0] * k[1], fold.op, "the number of channels"),
                   checked(Wide{rows.count} * columns.count, fold.op, "the number of windows")};
  checked_product(as_list(sizes), fold.op);
  const Tensor padded = mytorch::constant_pad_nd(batch, {p[1], p[1], p[0], p[0]});
  const Tensor result = padded.index_select(2, index_of(rows, self))
                            .index_select(3, index_of(columns, self))
                            .reshape({n, c, rows.count, k[0], columns.count, k[1]})
                            .permute({0, 1, 3, 5, 2, 4})
                            .reshape(as_list(sizes));
  return self.dim() == 3 ? result.squeeze(0) : result;
}

Tensor col2im(const Tensor& self, IntList output_size, IntList kernel_size, IntList dilation,
              IntList padding, IntList stride) {
  const Fold fold(kernel_size, dilation, padding, stride, "col2im");
  const Dims size = geometry::for_each_dim(output_size, 2, fold.op, "output_size");
  check_value(size[0] >= 1 && size[1] >= 1, fold.op, "output_size ", output_size,
              " must be positive");
  check_shape(self.dim() == 2 || self.dim() == 3, fold.op, "self ", self.sizes(),
              " is neither (N, C * kernel, L) nor (C * kernel, L)");
  const Tensor batch = self.dim() == 2 ? self.unsqueeze(0) : self;
  const Dims &k = fold.kernel, &p = fold.padding;
  const Windows rows = fold.windows(size[0], 0), columns = fold.windows(size[1], 1);
  const Wide block = Wide{k[0]} * k[1];
  check_shape(batch.size(1) % block == 0 && batch.size(2) == Wide{rows.count} * columns.count,
              fold.op, "self ", self.sizes(), " is not (N, C * ", k[0], " * ", k[1], ", ",
              rows.count, " * ", columns.count, "), the windows of output_size ", output_size);
  const int64_t n = batch.size(0), c = static_cast<int64_t>(batch.size(1) / block);
  const Tensor parts = batch.reshape({n, c, k[0], k[1], rows.count, columns.count})
                           .permute({0, 1, 4, 2, 5, 3})
                           .reshape({n, c, rows.count * k[0], columns.count * k[1]});
  const auto spread = [&](const Tensor& from, int64_t dim, const Windows& windows) {
    const Dims sizes = geometry::with_size(from.sizes(), dim, fold.padded(size[dim - 2], dim - 2));
    const Tensor zeros = mytorch::zeros(as_list(sizes), from.dtype(), from.device());
    return mytorch::index_add(zeros, dim, index_of(windows, self), from);
  };
  const Tensor planes = spread(spread(parts, 2, rows), 3, columns);
  const Tensor result = planes.narrow(2, p[0], size[0]).narrow(3, p[1], size[1]).contiguous();
  return self.dim() == 2 ? result.squeeze(0) : result;
}

}  // namespace mytorch::composite
