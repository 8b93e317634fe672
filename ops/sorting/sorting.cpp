// Sorting and selection by rank.
#include "mytorch/generated/bodies.h"
#include "mytorch/ops/arange.h"
#include "mytorch/ops/cat.h"
#include "mytorch/ops/kthvalue.h"
#include "mytorch/ops/median.h"
#include "mytorch/ops/sort.h"
#include "mytorch/ops/where.h"
#include "mytorch/ops/zeros.h"
#include "mytorch/ops/zeros_like.h"
#include "ops/geometry.h"

namespace mytorch {
namespace {

int64_t size_along(const Tensor& self, int64_t dim) {
  return self.dim() == 0 ? 1 : self.sizes()[dim];
}

}  // namespace

namespace shape {

Specs<2> sort(const Tensor& self, std::optional<bool> /*stable*/, int64_t dim,
              bool /*descending*/) {
  wrap_dim(dim, self.dim(), "sort");
  return {like(self), like(self, to_dims(self.sizes()), kInt64)};
}

Specs<2> topk(const Tensor& self, int64_t k, int64_t dim, bool /*largest*/, bool /*sorted*/) {
  dim = wrap_dim(dim, self.dim(), "topk");
  check_value(k >= 0 && k <= size_along(self, dim), "topk", "k ", k,
              " is out of range for dimension ", dim, " of shape ", self.sizes());
  Dims sizes = to_dims(self.sizes());
  if (!sizes.empty()) sizes[dim] = k;
  return {like(self, sizes), like(self, sizes, kInt64)};
}

}  // namespace shape

namespace composite {

Tensor argsort_stable(const Tensor& self, bool /*stable*/, int64_t dim, bool descending) {
  wrap_dim(dim, self.dim(), "argsort");
  return std::get<1>(mytorch::sort(self, true, dim, descending));
}

// NaN counts as the largest in both directions, as in sort.
Tensors<2> topk(const Tensor& self, int64_t k, int64_t dim, bool largest, bool /*sorted*/) {
  auto [values, indices] = mytorch::sort(self, true, dim, largest);
  if (self.dim() == 0) return {values, indices};
  return {values.narrow(dim, 0, k).contiguous(), indices.narrow(dim, 0, k).contiguous()};
}

Tensors<2> kthvalue(const Tensor& self, int64_t k, int64_t dim, bool keepdim) {
  const int64_t along = wrap_dim(dim, self.dim(), "kthvalue");
  check_value(k >= 1 && k <= size_along(self, along), "kthvalue", "k ", k,
              " is out of range for dimension ", along, " of shape ", self.sizes(),
              ": it counts from 1");
  auto [values, indices] = mytorch::sort(self, true, along, false);
  if (self.dim() == 0) return {values, indices};
  const auto pick = [&](const Tensor& sorted) {
    const Tensor picked = sorted.narrow(along, k - 1, 1);
    return keepdim ? picked.contiguous() : picked.squeeze(along).contiguous();
  };
  return {pick(values), pick(indices)};
}

Tensors<2> mode(const Tensor& self, int64_t dim, bool keepdim) {
  const int64_t along = wrap_dim(dim, self.dim(), "mode");
  const int64_t size = size_along(self, along);
  check_value(size > 0, "mode", "dimension ", along, " of shape ", self.sizes(),
              " is empty: it has no mode");
  if (self.dim() == 0) return {self.clone(), mytorch::zeros({}, kInt64, self.device())};
  const auto [sorted, order] = mytorch::sort(self.detach(), true, along, false);
  // The length of the run of equal elements that ends at each position of the sorted line; the
  // first of the longest runs is that of the smallest element.
  Dims line(self.dim(), 1);
  line[along] = size;
  const Tensor position = mytorch::arange(size, kInt64, self.device()).reshape(as_list(line));
  const Tensor changes = sorted.narrow(along, 1, size - 1).ne(sorted.narrow(along, 0, size - 1));
  const Tensor first = mytorch::zeros_like(sorted.narrow(along, 0, 1), kInt64);
  const Tensor starts =
      mytorch::cat({first, mytorch::where(changes, position.narrow(along, 1, size - 1), 0)}, along);
  const Tensor run = position - std::get<0>(starts.cummax(along));
  const Tensor index = order.gather(along, run.argmax(along, true));
  const Tensor values = self.gather(along, index);
  if (keepdim) return {values, index};
  return {values.squeeze(along), index.squeeze(along)};
}

Tensors<2> median(const Tensor& self, int64_t dim, bool keepdim) {
  const int64_t along = wrap_dim(dim, self.dim(), "median");
  const int64_t size = size_along(self, along);
  check_value(size > 0, "median", "dimension ", along, " of shape ", self.sizes(),
              " is empty: it has no median");
  if (self.dim() == 0) return {self.clone(), mytorch::zeros({}, kInt64, self.device())};
  Tensor index = std::get<1>(mytorch::kthvalue(self.detach(), (size + 1) / 2, along, true));
  if (self.is_floating_point()) {
    const Tensor nan = self.detach().isnan();
    index = mytorch::where(nan.any({along}, true), nan.to(kUInt8).argmax(along, true), index);
  }
  const Tensor values = self.gather(along, index);
  if (keepdim) return {values, index};
  return {values.squeeze(along), index.squeeze(along)};
}

Tensor median(const Tensor& self) {
  check_value(self.numel() > 0, "median", "shape ", self.sizes(), " is empty: it has no median");
  return std::get<0>(mytorch::median(self.reshape({-1}), 0));
}

}  // namespace composite
}  // namespace mytorch
