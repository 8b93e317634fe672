// Normalization by neighbouring channels.
#include "mytorch/generated/bodies.h"
#include "mytorch/ops/avg_pool2d.h"
#include "mytorch/ops/constant_pad_nd.h"
#include "mytorch/ops/pow.h"
#include "mytorch/ops/square.h"
#include "ops/check.h"

namespace mytorch::composite {

Tensor local_response_norm(const Tensor& self, int64_t size, double alpha, double beta, double k) {
  const char* op = "local_response_norm";
  check_shape(self.dim() >= 3, op, "self ", self.sizes(),
              " has fewer than 3 dimensions: give (N, C, ...)");
  check_value(size >= 1, op, "size is ", size, ": it must be positive");
  if (self.numel() == 0) return self.clone();
  // One plane (C, rest) for each sample, with windows of `size` channels.
  const Tensor wide = self.element_size() == 2 ? self.to(kFloat32) : self;  // squares overflow
  const Tensor planes = mytorch::square(wide).flatten(2).unsqueeze(1);
  const Tensor padded = mytorch::constant_pad_nd(planes, {0, 0, size / 2, (size - 1) / 2});
  const Tensor mean =
      mytorch::avg_pool2d(padded, {size, 1}, {1, 1}).squeeze(1).reshape(self.sizes());
  return (wide / mytorch::pow(k + alpha * mean, beta)).to(self.dtype());
}

}  // namespace mytorch::composite
