// Fourier transforms: the geometry of the primitives, the transforms that consist of them, and
// gradients.
#include "ops/fourier/fourier.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>

#include "core/types/dims.h"
#include "mytorch/generated/bodies.h"
#include "mytorch/ops/_fft_c2c.h"
#include "mytorch/ops/_fft_c2r.h"
#include "mytorch/ops/_fft_r2c.h"
#include "mytorch/ops/arange.h"
#include "mytorch/ops/cat.h"
#include "mytorch/ops/complex.h"
#include "mytorch/ops/constant_pad_nd.h"
#include "mytorch/ops/full.h"
#include "mytorch/ops/imag.h"
#include "mytorch/ops/mul.h"
#include "mytorch/ops/neg.h"
#include "mytorch/ops/real.h"
#include "mytorch/ops/roll.h"
#include "mytorch/ops/slice.h"
#include "mytorch/ops/to.h"
#include "mytorch/ops/view_as_real.h"
#include "ops/check.h"
#include "ops/geometry.h"
#include "ops/gradients.h"

namespace mytorch {

// ---- primitives ----

namespace {

bool is_transformed(ScalarType type) { return type == kFloat32 || type == kFloat64; }

// Returns the dimensions of a primitive, counted from the front, after checks.
Dims transformed_dims(const Tensor& self, IntList dim, int64_t normalization, const char* op) {
  check_shape(self.dim() > 0, op, "self has no dimension: it must have at least one");
  check_shape(!dim.empty(), op, "dim is empty: name at least one dimension");
  Dims dims = geometry::wrap_dims(dim, self.dim(), op);
  for (const int64_t d : dims) {
    check_shape(self.sizes()[d] > 0, op, "dimension ", d, " of shape ", self.sizes(),
                " has no elements to transform");
  }
  check_value(
      normalization >= fourier::kNone && normalization <= fourier::kByNumber, op,
      "normalization is ", normalization,
      ": it must be 0 (none), 1 (by the root of the number of points) or 2 (by the number)");
  return dims;
}

}  // namespace

namespace shape {

TensorSpec _fft_c2c(const Tensor& self, IntList dim, int64_t normalization, bool) {
  check_type(self.is_complex(), "_fft_c2c", "self is ", self.dtype(),
             ": it must be complex64 or complex128");
  transformed_dims(self, dim, normalization, "_fft_c2c");
  return like(self, to_dims(self.sizes()));
}

TensorSpec _fft_r2c(const Tensor& self, IntList dim, int64_t normalization, bool onesided) {
  check_type(is_transformed(self.dtype()), "_fft_r2c", "self is ", self.dtype(),
             ": it must be float32 or float64");
  const Dims dims = transformed_dims(self, dim, normalization, "_fft_r2c");
  Dims sizes = to_dims(self.sizes());
  if (onesided) sizes[dims.back()] = sizes[dims.back()] / 2 + 1;
  return like(self, std::move(sizes), to_complex(self.dtype()));
}

TensorSpec _fft_c2r(const Tensor& self, IntList dim, int64_t normalization, int64_t last) {
  const char* const op = "_fft_c2r";
  check_type(self.is_complex(), op, "self is ", self.dtype(),
             ": it must be complex64 or complex128");
  const Dims dims = transformed_dims(self, dim, normalization, op);
  const int64_t halved = self.sizes()[dims.back()];
  check_value(last >= 1 && last / 2 + 1 == halved, op, "last_dim_size is ", last, ", which has ",
              last < 0 ? 0 : last / 2 + 1, " frequencies, but self has ", halved);
  return like(self, geometry::with_size(self.sizes(), dims.back(), last), to_real(self.dtype()));
}

}  // namespace shape

// ---- arguments of the public functions ----

namespace fourier {

int64_t normalization(const OptionalText& norm, bool forward, const char* op) {
  const Str mode = norm.value_or("backward");
  check_value(mode == "backward" || mode == "forward" || mode == "ortho", op, "norm is '", mode,
              "': it must be 'backward', 'forward' or 'ortho'");
  if (mode == "ortho") return kByRoot;
  return (mode == "forward") == forward ? kByNumber : kNone;
}

Tensor as_floating(const Tensor& self, const char* op) {
  if (self.is_complex() || is_transformed(self.dtype())) return self;
  check_type(!self.is_floating_point(), op, "self is ", self.dtype(),
             ": transforms are computed in float32, float64, complex64 and complex128, convert it");
  return mytorch::to(self, kFloat32);
}

Tensor as_complex(const Tensor& self, const char* op) {
  const Tensor x = as_floating(self, op);
  return x.is_complex() ? x : mytorch::to(x, to_complex(x.dtype()));
}

Tensor as_real(const Tensor& self, const char* op) {
  check_type(
      !self.is_complex(), op, "self is ", self.dtype(),
      ", but the transform is that of a real tensor: take real(x), or the complex transform");
  return as_floating(self, op);
}

// By parts, which every device can do.
Tensor conjugated(const Tensor& self) {
  return mytorch::complex(mytorch::real(self), mytorch::neg(mytorch::imag(self)));
}

Tensor resized(const Tensor& self, IntList dims, IntList sizes) {
  Tensor x = self;
  Dims pad(2 * static_cast<size_t>(self.dim()), 0);
  bool pads = false;
  for (size_t i = 0; i < dims.size(); ++i) {
    const int64_t size = x.sizes()[dims[i]];
    if (sizes[i] < size) x = mytorch::slice(x, dims[i], 0, sizes[i], 1);
    if (sizes[i] <= size) continue;
    pad[2 * static_cast<size_t>(self.dim() - 1 - dims[i]) + 1] = sizes[i] - size;
    pads = true;
  }
  return pads ? mytorch::constant_pad_nd(x, as_list(pad), 0) : x;
}

}  // namespace fourier

namespace {

using fourier::conjugated;
using fourier::normalization;
using fourier::resized;

// What a call transforms: dimensions from the front, and their sizes.
struct Points {
  Dims dims, sizes;
};

void check_points(int64_t n, const char* op) {
  check_value(n >= 1, op, "the number of points is ", n, ": it must be at least 1");
}

// The spectrum of a real result has half of the last size; without it, `size` elements stand for
// the most points that are even.
int64_t whole_size(int64_t size, const char* op) {
  return checked(2 * (Wide{size} - 1), op, "the size of the result");
}

Points points_of(const Tensor& self, const std::optional<int64_t>& n, int64_t dim, bool halved,
                 const char* op) {
  check_shape(self.dim() > 0, op, "self has no dimension: it must have at least one");
  const int64_t d = wrap_dim(dim, self.dim(), op);
  const int64_t size = self.sizes()[d];
  const int64_t count = n.has_value() ? *n : halved ? whole_size(size, op) : size;
  check_points(count, op);
  return {{d}, {count}};
}

Points points_of(const Tensor& self, const OptionalIntList& s, const OptionalIntList& dim,
                 bool halved, const char* op) {
  Points points;
  if (dim.has_value()) {
    points.dims = geometry::wrap_dims(*dim, self.dim(), op);
    check_shape(!s.has_value() || s->size() == dim->size(), op, "s and dim have ",
                s.has_value() ? s->size() : 0, " and ", dim->size(),
                " elements: give as many sizes as dimensions");
  } else {
    const int64_t count = s.has_value() ? static_cast<int64_t>(s->size()) : self.dim();
    check_shape(count <= self.dim(), op, "s has ", count, " sizes, but self has only ", self.dim(),
                " dimensions");
    for (int64_t d = self.dim() - count; d < self.dim(); ++d) points.dims.push_back(d);
  }
  check_shape(points.dims.empty() || self.dim() > 0, op,
              "self has no dimension: it must have at least one");
  for (size_t i = 0; i < points.dims.size(); ++i) {
    const bool given = s.has_value() && (*s)[i] != -1;
    const bool last = i + 1 == points.dims.size();
    const int64_t size = self.sizes()[points.dims[i]];
    points.sizes.push_back(given ? (*s)[i] : halved && last ? whole_size(size, op) : size);
    check_points(points.sizes.back(), op);
  }
  return points;
}

void check_any(const Points& points, const char* op) {
  check_shape(!points.dims.empty(), op, "dim is empty: transform at least one dimension");
}

Tensor complex_transform(const Tensor& self, const Points& points, const OptionalText& norm,
                         bool forward, const char* op) {
  const int64_t scale = normalization(norm, forward, op);
  const Tensor x =
      resized(fourier::as_floating(self, op), as_list(points.dims), as_list(points.sizes));
  if (points.dims.empty()) return fourier::as_complex(x, op).clone();
  if (x.is_complex() || !forward) {
    return mytorch::_fft_c2c(fourier::as_complex(x, op), as_list(points.dims), scale, forward);
  }
  return mytorch::_fft_r2c(x, as_list(points.dims), scale, false);
}

// Half of the spectrum of a real tensor, by positive exponents if it is an inverse.
Tensor to_half(const Tensor& self, const Points& points, const OptionalText& norm, bool forward,
               const char* op) {
  check_any(points, op);
  const int64_t scale = normalization(norm, forward, op);
  const Tensor x = resized(fourier::as_real(self, op), as_list(points.dims), as_list(points.sizes));
  const Tensor half = mytorch::_fft_r2c(x, as_list(points.dims), scale, true);
  return forward ? half : conjugated(half);
}

Tensor from_half(const Tensor& self, const Points& points, const OptionalText& norm, bool forward,
                 const char* op) {
  check_any(points, op);
  const int64_t scale = normalization(norm, forward, op);
  Dims sizes = points.sizes;
  sizes.back() = sizes.back() / 2 + 1;
  const Tensor x = resized(fourier::as_complex(self, op), as_list(points.dims), as_list(sizes));
  return mytorch::_fft_c2r(forward ? conjugated(x) : x, as_list(points.dims), scale,
                           points.sizes.back());
}

// The shifts by half of each dimension, rounded down or up.
Tensor shifted(const Tensor& self, const OptionalIntList& dim, int64_t round, const char* op) {
  Dims dims, shifts;
  if (dim.has_value()) {
    for (const int64_t d : *dim) dims.push_back(wrap_dim(d, self.dim(), op));
  } else {
    for (int64_t d = 0; d < self.dim(); ++d) dims.push_back(d);
  }
  if (dims.empty() || self.dim() == 0) return self.clone();
  for (const int64_t d : dims) shifts.push_back((self.sizes()[d] + round) / 2);
  return mytorch::roll(self, as_list(shifts), as_list(dims));
}

ScalarType frequency_type(int64_t n, std::optional<ScalarType> dtype, const char* op) {
  check_value(n >= 0, op, "n is ", n, ": it must not be negative");
  const ScalarType type = dtype.value_or(kFloat32);
  check_type(is_floating_point(type) || is_complex(type), op, "dtype is ", type,
             ": frequencies are of a floating or complex type");
  return type;
}

}  // namespace

namespace composite {

Tensor fft_fft(const Tensor& self, std::optional<int64_t> n, int64_t dim, OptionalText norm) {
  return complex_transform(self, points_of(self, n, dim, false, "fft_fft"), norm, true, "fft_fft");
}
Tensor fft_ifft(const Tensor& self, std::optional<int64_t> n, int64_t dim, OptionalText norm) {
  return complex_transform(self, points_of(self, n, dim, false, "fft_ifft"), norm, false,
                           "fft_ifft");
}
Tensor fft_rfft(const Tensor& self, std::optional<int64_t> n, int64_t dim, OptionalText norm) {
  return to_half(self, points_of(self, n, dim, false, "fft_rfft"), norm, true, "fft_rfft");
}
Tensor fft_irfft(const Tensor& self, std::optional<int64_t> n, int64_t dim, OptionalText norm) {
  return from_half(self, points_of(self, n, dim, true, "fft_irfft"), norm, false, "fft_irfft");
}
Tensor fft_hfft(const Tensor& self, std::optional<int64_t> n, int64_t dim, OptionalText norm) {
  return from_half(self, points_of(self, n, dim, true, "fft_hfft"), norm, true, "fft_hfft");
}
Tensor fft_ihfft(const Tensor& self, std::optional<int64_t> n, int64_t dim, OptionalText norm) {
  return to_half(self, points_of(self, n, dim, false, "fft_ihfft"), norm, false, "fft_ihfft");
}

Tensor fft_fftn(const Tensor& self, OptionalIntList s, OptionalIntList dim, OptionalText norm) {
  return complex_transform(self, points_of(self, s, dim, false, "fft_fftn"), norm, true,
                           "fft_fftn");
}
Tensor fft_ifftn(const Tensor& self, OptionalIntList s, OptionalIntList dim, OptionalText norm) {
  return complex_transform(self, points_of(self, s, dim, false, "fft_ifftn"), norm, false,
                           "fft_ifftn");
}
Tensor fft_rfftn(const Tensor& self, OptionalIntList s, OptionalIntList dim, OptionalText norm) {
  return to_half(self, points_of(self, s, dim, false, "fft_rfftn"), norm, true, "fft_rfftn");
}
Tensor fft_irfftn(const Tensor& self, OptionalIntList s, OptionalIntList dim, OptionalText norm) {
  return from_half(self, points_of(self, s, dim, true, "fft_irfftn"), norm, false, "fft_irfftn");
}
Tensor fft_hfftn(const Tensor& self, OptionalIntList s, OptionalIntList dim, OptionalText norm) {
  return from_half(self, points_of(self, s, dim, true, "fft_hfftn"), norm, true, "fft_hfftn");
}
Tensor fft_ihfftn(const Tensor& self, OptionalIntList s, OptionalIntList dim, OptionalText norm) {
  return to_half(self, points_of(self, s, dim, false, "fft_ihfftn"), norm, false, "fft_ihfftn");
}

Tensor fft_fft2(const Tensor& self, OptionalIntList s, IntList dim, OptionalText norm) {
  return complex_transform(self, points_of(self, s, dim, false, "fft_fft2"), norm, true,
                           "fft_fft2");
}
Tensor fft_ifft2(const Tensor& self, OptionalIntList s, IntList dim, OptionalText norm) {
  return complex_transform(self, points_of(self, s, dim, false, "fft_ifft2"), norm, false,
                           "fft_ifft2");
}
Tensor fft_rfft2(const Tensor& self, OptionalIntList s, IntList dim, OptionalText norm) {
  return to_half(self, points_of(self, s, dim, false, "fft_rfft2"), norm, true, "fft_rfft2");
}
Tensor fft_irfft2(const Tensor& self, OptionalIntList s, IntList dim, OptionalText norm) {
  return from_half(self, points_of(self, s, dim, true, "fft_irfft2"), norm, false, "fft_irfft2");
}
Tensor fft_hfft2(const Tensor& self, OptionalIntList s, IntList dim, OptionalText norm) {
  return from_half(self, points_of(self, s, dim, true, "fft_hfft2"), norm, true, "fft_hfft2");
}
Tensor fft_ihfft2(const Tensor& self, OptionalIntList s, IntList dim, OptionalText norm) {
  return to_half(self, points_of(self, s, dim, false, "fft_ihfft2"), norm, false, "fft_ihfft2");
}

Tensor fft_fftshift(const Tensor& self, OptionalIntList dim) {
  return shifted(self, dim, 0, "fft_fftshift");
}
Tensor fft_ifftshift(const Tensor& self, OptionalIntList dim) {
  return shifted(self, dim, 1, "fft_ifftshift");
}

Tensor fft_fftfreq(int64_t n, double d, std::optional<ScalarType> dtype,
                   std::optional<Device> device) {
  const ScalarType type = frequency_type(n, dtype, "fft_fftfreq");
  const int64_t half = n - n / 2;
  const Tensor at = mytorch::cat(
      {mytorch::arange(half, kFloat64, device), mytorch::arange(half - n, 0, kFloat64, device)}, 0);
  return mytorch::to(mytorch::mul(at, 1 / (static_cast<double>(n) * d)), type);
}

Tensor fft_rfftfreq(int64_t n, double d, std::optional<ScalarType> dtype,
                    std::optional<Device> device) {
  const ScalarType type = frequency_type(n, dtype, "fft_rfftfreq");
  const Tensor at = mytorch::arange(n / 2 + 1, kFloat64, device);
  return mytorch::to(mytorch::mul(at, 1 / (static_cast<double>(n) * d)), type);
}

}  // namespace composite

// ---- gradients ----

namespace {

// Multiplies the frequencies of half a spectrum by `inner`, except those of which the whole
// spectrum has no second one.
Tensor weighted(const Tensor& half, int64_t dim, int64_t n, double inner) {
  const int64_t single_last = n % 2 == 0 ? 1 : 0;
  const int64_t twice = half.size(dim) - 1 - single_last;
  if (twice <= 0) return half;
  const auto weights = [&](int64_t count, double weight) {
    return mytorch::full({count}, weight, to_real(half.dtype()), half.device());
  };
  const Tensor along =
      mytorch::cat({weights(1, 1), weights(twice, inner), weights(single_last, 1)}, 0);
  Dims sizes(static_cast<size_t>(half.dim()) + 1, 1);  // of the parts
  sizes[dim] = half.size(dim);
  return grads::as_complex(
      mytorch::mul(mytorch::view_as_real(half), along.reshape(as_list(sizes))));
}

}  // namespace

namespace grads {

// The transform's adjoint. An element of half the spectrum that stands for two in the transform to
// a real tensor gets half of the gradient there.
Tensor fft_r2c_backward(const Tensor& grad, IntList shape, IntList dim, int64_t normalization,
                        bool onesided) {
  if (!onesided) {
    return mytorch::real(mytorch::_fft_c2c(grad, dim, normalization, false));
  }
  const int64_t last = wrap_dim(dim.back(), grad.dim(), "_fft_r2c");
  const int64_t n = shape[last];
  return mytorch::_fft_c2r(weighted(grad, last, n, 0.5), dim, normalization, n);
}

Tensor fft_c2r_backward(const Tensor& grad, IntList dim, int64_t normalization) {
  const int64_t last = wrap_dim(dim.back(), grad.dim(), "_fft_c2r");
  const int64_t n = grad.size(last);
  return weighted(mytorch::_fft_r2c(grad, dim, normalization, true), last, n, 2);
}

}  // namespace grads
}  // namespace mytorch
