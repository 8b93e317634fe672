#include "graph/run/same_bits.h"

#include <cmath>
#include <cstring>

#include "mytorch/ops/isnan.h"
#include "mytorch/ops/view_as_real.h"

namespace mytorch::graph {
namespace {

bool same_bytes(const Tensor& a, const Tensor& b) {
  return std::memcmp(a.raw_data(), b.raw_data(), static_cast<size_t>(a.nbytes())) == 0;
}

}  // namespace

Tensor with_one_nan(const Tensor& tensor) {
  Tensor copy = tensor.detach().to(kCPU).contiguous().clone();
  Tensor parts = copy.is_complex() ? view_as_real(copy) : copy;
  if (parts.is_floating_point()) parts.masked_fill_(isnan(parts), std::nan(""));
  return copy;
}

bool same_bits(const Tensor& a, const Tensor& b) {
  if (!a.defined() || !b.defined()) return a.defined() == b.defined();
  if (a.dtype() != b.dtype() || !(a.sizes() == b.sizes())) return false;
  const Tensor x = a.detach().to(kCPU).contiguous(), y = b.detach().to(kCPU).contiguous();
  return same_bytes(x, y) || same_bytes(with_one_nan(x), with_one_nan(y));
}

}  // namespace mytorch::graph
