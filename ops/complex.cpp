// Complex numbers: their parts, and operators that compute on the parts or on magnitudes.
//
// What only moves or adds elements does the same with the parts, the last dimension of
// view_as_real. These functions run above the layers, so their gradients are those of the operators
// that they call.
#include "mytorch/ops/complex.h"

#include <algorithm>
#include <numbers>
#include <utility>
#include <vector>

#include "core/types/dims.h"
#include "mytorch/generated/bodies.h"
#include "mytorch/ops/abs.h"
#include "mytorch/ops/add.h"
#include "mytorch/ops/all.h"
#include "mytorch/ops/any.h"
#include "mytorch/ops/atan2.h"
#include "mytorch/ops/bmm.h"
#include "mytorch/ops/broadcast_tensors.h"
#include "mytorch/ops/cat.h"
#include "mytorch/ops/conj_physical.h"
#include "mytorch/ops/contiguous.h"
#include "mytorch/ops/convolution.h"
#include "mytorch/ops/cumsum.h"
#include "mytorch/ops/eq.h"
#include "mytorch/ops/expand.h"
#include "mytorch/ops/fill_.h"
#include "mytorch/ops/gather.h"
#include "mytorch/ops/imag.h"
#include "mytorch/ops/isfinite.h"
#include "mytorch/ops/isinf.h"
#include "mytorch/ops/linalg_vector_norm.h"
#include "mytorch/ops/logical_and.h"
#include "mytorch/ops/logical_or.h"
#include "mytorch/ops/mean.h"
#include "mytorch/ops/mul.h"
#include "mytorch/ops/narrow.h"
#include "mytorch/ops/ne.h"
#include "mytorch/ops/nonzero.h"
#include "mytorch/ops/normal_.h"
#include "mytorch/ops/real.h"
#include "mytorch/ops/reshape.h"
#include "mytorch/ops/scatter.h"
#include "mytorch/ops/scatter_add.h"
#include "mytorch/ops/select.h"
#include "mytorch/ops/sqrt.h"
#include "mytorch/ops/squeeze.h"
#include "mytorch/ops/stack.h"
#include "mytorch/ops/sum.h"
#include "mytorch/ops/to.h"
#include "mytorch/ops/uniform_.h"
#include "mytorch/ops/unsqueeze.h"
#include "mytorch/ops/var.h"
#include "mytorch/ops/view_as_complex.h"
#include "mytorch/ops/view_as_real.h"
#include "mytorch/ops/where.h"
#include "ops/check.h"
#include "ops/gradients.h"

namespace mytorch {

namespace views {

ViewSpec view_as_real(const Tensor& self) {
  check_type(self.is_complex(), "view_as_real", "self is ", self.dtype(), ", which has no parts");
  ViewSpec view{to_dims(self.sizes()), {}, 0, static_cast<int8_t>(to_real(self.dtype()))};
  for (const int64_t stride : self.strides()) view.strides.push_back(2 * stride);
  view.sizes.push_back(2);
  view.strides.push_back(1);
  return view;
}

ViewSpec view_as_complex(const Tensor& self) {
  const char* const op = "view_as_complex";
  check_type(self.dtype() == kFloat32 || self.dtype() == kFloat64, op, "self is ", self.dtype(),
             ": it must be float32 or float64");
  const int64_t ndim = self.dim();
  check_shape(ndim > 0 && self.size(-1) == 2, op, "shape ", self.sizes(),
              ": the last dimension must be that of the parts, of size 2");
  const bool empty = self.numel() == 0;  // whose strides say nothing
  check_shape(empty || self.stride(-1) == 1, op, "the last dimension has stride ", self.stride(-1),
              ", not 1: use contiguous()");
  check_shape(self.storage_offset() % 2 == 0, op, "the first element is at the odd offset ",
              self.storage_offset(), ": use clone()");
  ViewSpec view{{}, {}, 0, static_cast<int8_t>(to_complex(self.dtype()))};
  for (int64_t i = 0; i < ndim - 1; ++i) {
    // The stride of a dimension of size 1 says nothing.
    const int64_t stride = empty || self.sizes()[i] == 1 ? 2 : self.strides()[i];
    check_shape(stride % 2 == 0, op, "strides ", self.strides(),
                ": all but the last must be even: use contiguous()");
    view.sizes.push_back(self.sizes()[i]);
    view.strides.push_back(stride / 2);
  }
  return view;
}

}  // namespace views

namespace grads {

Tensor as_complex(const Tensor& parts) {
  const Tensor packed = mytorch::contiguous(parts);
  return mytorch::view_as_complex(packed.storage_offset() % 2 == 0 ? packed : packed.clone());
}

}  // namespace grads

namespace {

Tensor parts_of(const Tensor& self) { return mytorch::view_as_real(self); }

Tensor from_parts(const Tensor& parts) { return grads::as_complex(parts); }

// An operand as a tensor of a complex type.
Tensor complex_tensor(const Tensor& x, ScalarType type) {
  return x.dtype() == type ? x : mytorch::to(x, type);
}

// The dimensions of the parts' tensor that stand for those of `self`: all of them if none is given.
Dims dims_of_parts(const OptionalIntList& dim, const Tensor& self, const char* op) {
  Dims dims;
  if (dim.has_value()) {
    for (const int64_t each : *dim) dims.push_back(wrap_dim(each, self.dim(), op));
  }
  if (dims.empty()) {
    for (int64_t i = 0; i < self.dim(); ++i) dims.push_back(i);
  }
  return dims;
}

// Converts as the argument `dtype` of a reduction says.
Tensor as_given(const Tensor& self, std::optional<ScalarType> dtype, const char* op) {
  if (!dtype.has_value() || *dtype == self.dtype()) return self;
  check_type(is_complex(*dtype), op, "dtype=", *dtype, " would drop the imaginary parts of ",
             self.dtype(), ": take real(x) first");
  return mytorch::to(self, *dtype);
}

// The index tensor of the parts' tensor.
Tensor index_of_parts(const Tensor& index) {
  Dims sizes = to_dims(index.sizes());
  sizes.push_back(2);
  return mytorch::expand(mytorch::unsqueeze(index, -1), as_list(sizes));
}

// The product along a dimension by halves: the elements i and i + n / 2 at once, so that each step
// is one product of tensors.
Tensor product_along(Tensor x, int64_t dim) {
  while (x.size(dim) > 1) {
    const int64_t n = x.size(dim);
    const int64_t half = n / 2;
    Tensor product =
        mytorch::mul(mytorch::narrow(x, dim, 0, half), mytorch::narrow(x, dim, half, half));
    if (n % 2 != 0) {
      product = mytorch::cat({product, mytorch::narrow(x, dim, n - 1, 1)}, dim);
    }
    x = std::move(product);
  }
  return x;
}

}  // namespace

namespace composite {

Tensor real_part(const Tensor& self) {
  return self.is_complex() ? mytorch::select(parts_of(self), -1, 0) : self;
}

Tensor imaginary_part(const Tensor& self) {
  check_type(self.is_complex(), "imag", "self is ", self.dtype(), ", which has no imaginary parts");
  return mytorch::select(parts_of(self), -1, 1);
}

Tensor conjugate(const Tensor& self) {
  return self.is_complex() ? mytorch::conj_physical(self) : self;
}

bool never_pending(const Tensor& self) {
  self.sizes();  // throws if undefined
  return false;
}

Tensor complex_of_parts(const Tensor& real, const Tensor& imag) {
  check_type(real.dtype() == kFloat32 || real.dtype() == kFloat64, "complex", "real is ",
             real.dtype(), ": it must be float32 or float64");
  check_same_type(real, "real", imag, "imag", "complex");
  const std::vector<Tensor> parts = mytorch::broadcast_tensors({real, imag});
  return mytorch::view_as_complex(mytorch::stack(parts, -1));
}

}  // namespace composite

namespace parts {

Tensor angle(const Tensor& self) {
  return mytorch::atan2(mytorch::imag(self), mytorch::real(self));
}

Tensor sgn(const Tensor& self) {
  const Tensor size = mytorch::abs(self);
  const Tensor zero = mytorch::eq(size, 0);
  return mytorch::where(zero, 0, self / mytorch::where(zero, 1, size));
}

Tensor isreal(const Tensor& self) { return mytorch::eq(mytorch::imag(self), 0); }

Tensor isinf(const Tensor& self) {
  return mytorch::logical_or(mytorch::isinf(mytorch::real(self)),
                             mytorch::isinf(mytorch::imag(self)));
}

Tensor isfinite(const Tensor& self) {
  return mytorch::logical_and(mytorch::isfinite(mytorch::real(self)),
                              mytorch::isfinite(mytorch::imag(self)));
}

// ---- filling ----

void fill_(const Tensor& self, const Operand& value) {
  check_type(self.is_complex(), "fill_", "the value is complex, but self is ", self.dtype());
  const Tensor to = parts_of(self);
  if (value.is_tensor() && !value.tensor().is_complex()) {
    mytorch::fill_(mytorch::select(to, -1, 0), value);
    mytorch::fill_(mytorch::select(to, -1, 1), 0);
    return;
  }
  const Scalar number = value.is_tensor() ? value.tensor().item() : value.scalar();
  mytorch::fill_(mytorch::select(to, -1, 0), number.real());
  mytorch::fill_(mytorch::select(to, -1, 1), number.imag());
}

void uniform_(const Tensor& self, double from, double to, std::optional<Generator> generator) {
  mytorch::uniform_(parts_of(self), from, to, generator);
}

void normal_(const Tensor& self, double mean, double std, std::optional<Generator> generator) {
  // The mean is a real number.
  mytorch::normal_(parts_of(self), 0, std / std::numbers::sqrt2, generator);
  if (mean != 0) mytorch::select(parts_of(self), -1, 0).add_(mean);
}

// ---- products ----

// The rows of a real matrix are those of `self` as they lie in memory, r0 i0 r1 i1 ...; the columns
// of the other alternate between mat2 and 1j * mat2. One real product of the same number of
// multiplications gives the parts of the result as they lie in memory.
Tensor bmm(const Tensor& self, const Tensor& mat2) {
  check_shape(self.dim() == 3 && mat2.dim() == 3, "bmm", "shapes ", self.sizes(), " and ",
              mat2.sizes(), " are not both 3-dim: use matmul");
  const int64_t b = self.size(0);
  const int64_t n = self.size(1);
  const int64_t m = self.size(2);
  const int64_t p = mat2.size(2);
  check_shape(mat2.size(0) == b && mat2.size(1) == m, "bmm", "shapes ", self.sizes(), " and ",
              mat2.sizes(), ": the batches or the inner dimensions differ");
  check_same_type(self, "self", mat2, "mat2", "bmm");
  const Tensor rows = mytorch::reshape(parts_of(self), {b, n, 2 * m});
  const Tensor turned = mytorch::mul(mat2, Scalar::complex(0, 1));
  const Tensor both = mytorch::stack({mat2, turned}, 2);  // (b, m, 2, p)
  const Tensor columns = mytorch::reshape(parts_of(both), {b, 2 * m, 2 * p});
  return from_parts(mytorch::reshape(mytorch::bmm(rows, columns), {b, n, p, 2}));
}

Tensor convolution(const Tensor& input, const Tensor& weight, const Tensor& bias, IntList stride,
                   IntList padding, IntList dilation, bool transposed, IntList output_padding,
                   int64_t groups) {
  check_same_type(input, "input", weight, "weight", "convolution");
  const auto product = [&](const Tensor& x, const Tensor& w) {
    return mytorch::convolution(x, w, {}, stride, padding, dilation, transposed, output_padding,
                                groups);
  };
  const Tensor x[] = {mytorch::real(input), mytorch::imag(input)};
  const Tensor w[] = {mytorch::real(weight), mytorch::imag(weight)};
  Tensor result = mytorch::complex(product(x[0], w[0]) - product(x[1], w[1]),
                                   product(x[0], w[1]) + product(x[1], w[0]));
  if (!bias.defined()) return result;
  check_same_type(input, "input", bias, "bias", "convolution");
  Dims channels(static_cast<size_t>(result.dim() - 1), 1);
  channels[0] = bias.numel();
  return result + mytorch::reshape(bias, as_list(channels));
}

// ---- moves ----

// With a tensor of 0 dimensions, which counts as one of 1 dimension.
static void check_vector(const Tensor& x, const char* name, const char* op) {
  check_shape(x.dim() <= 1, op, name, " has shape ", x.sizes(),
              ": it must have as many dimensions as self, which has none");
}

Tensor gather(const Tensor& self, int64_t dim, const Tensor& index) {
  const int64_t at = wrap_dim(dim, self.dim(), "gather");
  if (self.dim() == 0) {
    check_vector(index, "index", "gather");
    return mytorch::reshape(
        mytorch::gather(mytorch::unsqueeze(self, 0), 0, mytorch::reshape(index, {-1})),
        index.sizes());
  }
  return from_parts(mytorch::gather(parts_of(self), at, index_of_parts(index)));
}

Tensor scatter(const Tensor& self, int64_t dim, const Tensor& index, const Tensor& src) {
  const int64_t at = wrap_dim(dim, self.dim(), "scatter");
  check_same_type(self, "self", src, "src", "scatter");
  if (self.dim() == 0) {
    check_vector(index, "index", "scatter");
    check_vector(src, "src", "scatter");
    const Tensor row = mytorch::scatter(mytorch::unsqueeze(self, 0), 0,
                                        mytorch::reshape(index, {-1}), mytorch::reshape(src, {-1}));
    return mytorch::squeeze(row, 0);
  }
  return from_parts(mytorch::scatter(parts_of(self), at, index_of_parts(index), parts_of(src)));
}

Tensor scatter_add(const Tensor& self, int64_t dim, const Tensor& index, const Tensor& src) {
  const int64_t at = wrap_dim(dim, self.dim(), "scatter_add");
  check_same_type(self, "self", src, "src", "scatter_add");
  if (self.dim() == 0) {
    check_vector(index, "index", "scatter_add");
    check_vector(src, "src", "scatter_add");
    const Tensor row = mytorch::scatter_add(
        mytorch::unsqueeze(self, 0), 0, mytorch::reshape(index, {-1}), mytorch::reshape(src, {-1}));
    return mytorch::squeeze(row, 0);
  }
  return from_parts(mytorch::scatter_add(parts_of(self), at, index_of_parts(index), parts_of(src)));
}

Tensor cat(TensorList tensors, int64_t dim) {
  check_value(!tensors.empty(), "cat", "the list of tensors is empty");
  ScalarType type = tensors[0].dtype();
  int64_t ndim = 0;
  for (const Tensor& each : tensors) {
    type = promote_types(type, each.dtype());
    ndim = std::max(ndim, each.dim());
  }
  check_shape(ndim > 0, "cat", "the tensors have no dimension: use stack");
  const int64_t at = wrap_dim(dim, ndim, "cat");
  std::vector<Tensor> all;
  for (const Tensor& each : tensors) {
    // Empty vectors are skipped, as among real tensors.
    if (each.dim() == 1 && each.numel() == 0 && ndim != 1) continue;
    all.push_back(parts_of(complex_tensor(each, type)));
  }
  return from_parts(mytorch::cat(all, at));
}

Tensor nonzero(const Tensor& self) { return mytorch::nonzero(mytorch::ne(self, 0)); }

// ---- sums and products ----

Tensor sum(const Tensor& self, OptionalIntList dim, bool keepdim, std::optional<ScalarType> dtype) {
  const Tensor x = as_given(self, dtype, "sum");
  const Dims dims = dims_of_parts(dim, x, "sum");
  if (dims.empty() || x.dim() == 0) return x.clone();
  return from_parts(mytorch::sum(parts_of(x), as_list(dims), keepdim));
}

Tensor mean(const Tensor& self, OptionalIntList dim, bool keepdim,
            std::optional<ScalarType> dtype) {
  const Tensor x = as_given(self, dtype, "mean");
  const Dims dims = dims_of_parts(dim, x, "mean");
  if (dims.empty() || x.dim() == 0) return x.clone();
  return from_parts(mytorch::mean(parts_of(x), as_list(dims), keepdim));
}

Tensor prod(const Tensor& self, std::optional<ScalarType> dtype) {
  const Tensor x = mytorch::reshape(as_given(self, dtype, "prod"), {-1});
  if (x.numel() == 0) return mytorch::add(mytorch::sum(x), 1);
  return mytorch::select(product_along(x, 0), 0, 0);
}

Tensor prod_dim(const Tensor& self, int64_t dim, bool keepdim, std::optional<ScalarType> dtype) {
  const Tensor x = as_given(self, dtype, "prod");
  const int64_t at = wrap_dim(dim, x.dim(), "prod");
  if (x.dim() == 0) return x.clone();
  if (x.size(at) == 0) return mytorch::add(mytorch::sum(x, {at}, keepdim), 1);
  const Tensor product = x.size(at) == 1 ? x.clone() : product_along(x, at);
  return keepdim ? product : mytorch::squeeze(product, at);
}

Tensor all(const Tensor& self, OptionalIntList dim, bool keepdim) {
  return mytorch::all(mytorch::ne(self, 0), dim, keepdim);
}

Tensor any(const Tensor& self, OptionalIntList dim, bool keepdim) {
  return mytorch::any(mytorch::ne(self, 0), dim, keepdim);
}

Tensor var(const Tensor& self, OptionalIntList dim, const Scalar& correction, bool keepdim) {
  const auto of = [&](const Tensor& part) { return mytorch::var(part, dim, correction, keepdim); };
  return mytorch::add(of(mytorch::real(self)), of(mytorch::imag(self)));
}

Tensor std(const Tensor& self, OptionalIntList dim, const Scalar& correction, bool keepdim) {
  const Tensor variance = parts::var(self, dim, correction, keepdim);
  // The gradient of the root of 0 counts as 0, not NaN.
  const Tensor zero = mytorch::eq(variance, 0);
  return mytorch::where(zero, 0.0, mytorch::sqrt(mytorch::where(zero, 1.0, variance)));
}

Tensors<2> var_mean(const Tensor& self, OptionalIntList dim, const Scalar& correction,
                    bool keepdim) {
  return {parts::var(self, dim, correction, keepdim), mytorch::mean(self, dim, keepdim)};
}

Tensor vector_norm(const Tensor& self, const Scalar& ord, OptionalIntList dim, bool keepdim,
                   std::optional<ScalarType> dtype) {
  const Tensor x = as_given(self, dtype, "linalg_vector_norm");
  if (ord == Scalar(2) || ord == Scalar(2.0)) {  // smooth at elements of 0, which abs is not
    Dims dims;
    if (dim.has_value()) {
      for (const int64_t d : *dim) dims.push_back(wrap_dim(d, x.dim(), "linalg_vector_norm"));
    }
    if (dims.empty()) {
      for (int64_t d = 0; d < x.dim(); ++d) dims.push_back(d);
    }
    if (x.dim() == 0) dims.clear();
    dims.push_back(x.dim());  // of the parts
    const Tensor norm = mytorch::linalg_vector_norm(parts_of(x), ord, as_list(dims), keepdim);
    return keepdim ? mytorch::squeeze(norm, -1) : norm;
  }
  return mytorch::linalg_vector_norm(mytorch::abs(x), ord, dim, keepdim);
}

Tensor cumsum(const Tensor& self, int64_t dim, std::optional<ScalarType> dtype) {
  const Tensor x = as_given(self, dtype, "cumsum");
  const int64_t at = wrap_dim(dim, x.dim(), "cumsum");
  return x.dim() == 0 ? x.clone() : from_parts(mytorch::cumsum(parts_of(x), at));
}

// Each step multiplies by the element 1, 2, 4, ... before, so that after the last one all earlier
// elements are factors.
Tensor cumprod(const Tensor& self, int64_t dim, std::optional<ScalarType> dtype) {
  Tensor x = as_given(self, dtype, "cumprod");
  const int64_t at = wrap_dim(dim, x.dim(), "cumprod");
  if (x.dim() == 0 || x.size(at) <= 1) return x.clone();
  const int64_t n = x.size(at);
  for (int64_t step = 1; step < n; step *= 2) {
    const Tensor later =
        mytorch::mul(mytorch::narrow(x, at, step, n - step), mytorch::narrow(x, at, 0, n - step));
    x = mytorch::cat({mytorch::narrow(x, at, 0, step), later}, at);
  }
  return x;
}

}  // namespace parts
}  // namespace mytorch
