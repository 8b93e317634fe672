// Gated activations of a tensor that holds both operands, as its halves along a dimension.
#include "mytorch/generated/bodies.h"
#include "mytorch/ops/cat.h"
#include "mytorch/ops/geglu.h"
#include "mytorch/ops/geglu_backward.h"
#include "mytorch/ops/swiglu.h"
#include "mytorch/ops/swiglu_backward.h"
#include "ops/geometry.h"
#include "ops/gradients.h"

namespace mytorch {
namespace {

using Halves = std::pair<Tensor, Tensor>;

Halves halves(const Tensor& x, int64_t dim) {
  const int64_t n = x.size(dim) / 2;
  return {x.narrow(dim, 0, n), x.narrow(dim, n, n)};
}

Halves checked_halves(const Tensor& self, int64_t dim, const char* op) {
  check_shape(self.dim() != 0, op, "self is 0-dim, which has no halves");
  const int64_t size = self.size(wrap_dim(dim, self.dim(), op));
  check_shape(size % 2 == 0, op, "self has shape ", self.sizes(), ": dimension ", dim, " of size ",
              size, " has no halves");
  return halves(self, dim);
}

Tensor joined(const std::tuple<Tensor, Tensor>& both, int64_t dim) {
  return mytorch::cat({std::get<0>(both), std::get<1>(both)}, dim);
}

}  // namespace

namespace composite {

Tensor swiglu_packed(const Tensor& self, int64_t dim) {
  const auto [gate, up] = checked_halves(self, dim, "swiglu");
  return mytorch::swiglu(gate, up);
}

Tensor geglu_packed(const Tensor& self, int64_t dim, Str approximate) {
  const auto [gate, up] = checked_halves(self, dim, "geglu");
  return mytorch::geglu(gate, up, approximate);
}

}  // namespace composite

namespace grads {

Tensor swiglu_packed_backward(const Tensor& grad, const Tensor& self, int64_t dim) {
  const auto [gate, up] = halves(self, dim);
  return joined(mytorch::swiglu_backward(grad, gate, up), dim);
}

Tensor geglu_packed_backward(const Tensor& grad, const Tensor& self, int64_t dim, Str approximate) {
  const auto [gate, up] = halves(self, dim);
  return joined(mytorch::geglu_backward(grad, gate, up, approximate), dim);
}

}  // namespace grads
}  // namespace mytorch
