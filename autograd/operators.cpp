#include "autograd/operators.h"

#include "mytorch/ops/add.h"
#include "mytorch/ops/any.h"
#include "mytorch/ops/arange.h"
#include "mytorch/ops/as_strided.h"
#include "mytorch/ops/clamp_min.h"
#include "mytorch/ops/clone.h"
#include "mytorch/ops/copy_.h"
#include "mytorch/ops/div.h"
#include "mytorch/ops/empty.h"
#include "mytorch/ops/index_add.h"
#include "mytorch/ops/isnan.h"
#include "mytorch/ops/ones.h"
#include "mytorch/ops/real.h"
#include "mytorch/ops/reshape.h"
#include "mytorch/ops/sum.h"
#include "mytorch/ops/to.h"
#include "mytorch/ops/view_as_complex.h"
#include "mytorch/ops/view_as_real.h"
#include "mytorch/ops/zero_.h"
#include "mytorch/ops/zeros.h"

namespace mytorch::autograd::op {

Tensor add(const Tensor& a, const Tensor& b) { return mytorch::add(a, b); }
void add_(const Tensor& a, const Tensor& b) { mytorch::add_(a, b); }
Tensor div(const Tensor& a, const Tensor& b) { return mytorch::div(a, b); }
Tensor clamp_min(const Tensor& a, double low) { return mytorch::clamp_min(a, low); }
void copy_(const Tensor& to, const Tensor& from) { mytorch::copy_(to, from); }
void zero_(const Tensor& a) { mytorch::zero_(a); }
Tensor clone(const Tensor& a) { return mytorch::clone(a); }

Tensor contiguous_copy(const Tensor& a) {
  Tensor copy = op::empty(a.sizes(), a.dtype(), a.device());
  op::copy_(copy, a);
  return copy;
}

Tensor to(const Tensor& a, ScalarType dtype, Device device) {
  if (a.device() != device) return mytorch::to(a, device, dtype);
  return a.dtype() == dtype ? a : mytorch::to(a, dtype);
}

Tensor view_as_real(const Tensor& a) { return mytorch::view_as_real(a); }
Tensor view_as_complex(const Tensor& a) { return mytorch::view_as_complex(a); }
Tensor real(const Tensor& a) { return a.is_complex() ? mytorch::real(a) : a; }
Tensor empty(IntList sizes, ScalarType dtype, Device device) {
  return mytorch::empty(sizes, dtype, device);
}
Tensor zeros(IntList sizes, ScalarType dtype, Device device) {
  return mytorch::zeros(sizes, dtype, device);
}
Tensor ones(IntList sizes, ScalarType dtype, Device device) {
  return mytorch::ones(sizes, dtype, device);
}
Tensor arange(int64_t end, Device device) { return mytorch::arange(end, kInt64, device); }
Tensor as_strided(const Tensor& a, IntList sizes, IntList strides, int64_t offset) {
  return mytorch::as_strided(a, sizes, strides, offset);
}
Tensor flatten(const Tensor& a) { return mytorch::reshape(a, -1); }
Tensor sum(const Tensor& a, IntList dims) { return mytorch::sum(a, dims); }
Tensor index_add(const Tensor& a, const Tensor& index, const Tensor& source) {
  return mytorch::index_add(a, 0, index, source);
}

bool has_nan(const Tensor& a) { return mytorch::any(mytorch::isnan(a)).item().to_bool(); }

}  // namespace mytorch::autograd::op
