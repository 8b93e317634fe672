// Joining and reordering that consists of other operators.
#include <algorithm>

#include "mytorch/generated/bodies.h"
#include "mytorch/ops/arange.h"
#include "mytorch/ops/atleast_3d.h"
#include "mytorch/ops/cat.h"
#include "mytorch/ops/constant_pad_nd.h"
#include "mytorch/ops/meshgrid.h"
#include "mytorch/ops/stack.h"
#include "mytorch/tensor_values.h"
#include "ops/check.h"
#include "ops/geometry.h"

namespace mytorch::composite {
namespace {

// Throws Error(kShape) if the combinations or products of elements could not be held in memory.
int64_t checked_rows(Wide n, const char* op) {
  constexpr int64_t kMost = int64_t{1} << 32;
  check_shape(n <= kMost, op, "the result would have more than ", kMost, " rows");
  return static_cast<int64_t>(n);
}

}  // namespace

Tensor dstack(TensorList tensors) {
  check_value(!tensors.empty(), "dstack", "the list of tensors is empty");
  std::vector<Tensor> raised;
  for (const Tensor& tensor : tensors) raised.push_back(mytorch::atleast_3d(tensor));
  return mytorch::cat(raised, 2);
}

Tensor column_stack(TensorList tensors) {
  check_value(!tensors.empty(), "column_stack", "the list of tensors is empty");
  std::vector<Tensor> raised;
  for (const Tensor& tensor : tensors) {
    raised.push_back(tensor.dim() <= 1 ? tensor.reshape({tensor.numel(), 1}) : tensor);
  }
  return mytorch::cat(raised, 1);
}

Tensor block_diag(TensorList tensors) {
  const char* op = "block_diag";
  check_value(!tensors.empty(), op, "the list of tensors is empty");
  std::vector<Tensor> blocks;
  Wide width = 0;
  for (const Tensor& tensor : tensors) {
    check_shape(tensor.dim() <= 2, op, "shape ", tensor.sizes(), " has more than two dimensions");
    blocks.push_back(tensor.dim() == 2   ? tensor
                     : tensor.dim() == 1 ? tensor.unsqueeze(0)
                                         : tensor.reshape({1, 1}));
    width += blocks.back().size(1);
  }
  const int64_t columns = checked(width, op, "the width");
  int64_t before = 0;
  for (Tensor& block : blocks) {
    const int64_t own = block.size(1);
    block = mytorch::constant_pad_nd(block, {before, columns - before - own});
    before += own;
  }
  return mytorch::cat(blocks, 0);
}

Tensor cartesian_prod(TensorList tensors) {
  const char* op = "cartesian_prod";
  check_value(!tensors.empty(), op, "the list of tensors is empty");
  Wide rows = 1;
  for (const Tensor& tensor : tensors) {
    check_shape(tensor.dim() == 1, op, "shape ", tensor.sizes(), " is not that of a vector");
    rows = checked_rows(rows * tensor.numel(), op);
  }
  if (tensors.size() == 1) return tensors[0];
  std::vector<Tensor> columns;
  for (const Tensor& grid : mytorch::meshgrid(tensors)) columns.push_back(grid.reshape({-1}));
  return mytorch::stack(columns, 1);
}

Tensor combinations(const Tensor& self, int64_t r, bool with_replacement) {
  const char* op = "combinations";
  check_shape(self.dim() == 1, op, "self has shape ", self.sizes(), ": it must be a vector");
  check_value(r >= 0, op, "r is ", r, ": it must not be negative");
  const int64_t n = self.numel();
  if (r == 0) return self.slice(0, 0, 0);
  constexpr int64_t kMost = int64_t{1} << 28;
  std::vector<int64_t> positions;
  if (with_replacement ? n > 0 : r <= n) {
    check_value(r <= kMost, op, "the result would have more than ", kMost, " elements");
    // Counts as an odometer whose digits ascend.
    std::vector<int64_t> digits(r);
    for (int64_t i = 0; i < r; ++i) digits[i] = with_replacement ? 0 : i;
    for (;;) {
      check_value(static_cast<int64_t>(positions.size()) + r <= kMost, op,
                  "the result would have more than ", kMost, " elements");
      positions.insert(positions.end(), digits.begin(), digits.end());
      int64_t i = r - 1;
      while (i >= 0 && digits[i] == (with_replacement ? n - 1 : n - r + i)) --i;
      if (i < 0) break;
      ++digits[i];
      for (int64_t j = i + 1; j < r; ++j) digits[j] = digits[j - 1] + (with_replacement ? 0 : 1);
    }
  }
  const int64_t rows = static_cast<int64_t>(positions.size()) / r;
  const Tensor index = mytorch::tensor(positions, kInt64).to(self.device());
  return self.index_select(0, index).reshape({rows, r});
}

Tensor fliplr(const Tensor& self) {
  check_shape(self.dim() >= 2, "fliplr", "shape ", self.sizes(), " has no columns");
  return self.flip({1});
}

Tensor flipud(const Tensor& self) {
  check_shape(self.dim() >= 1, "flipud", "a 0-dim tensor has no rows");
  return self.flip({0});
}

Tensor rot90(const Tensor& self, int64_t k, IntList dims) {
  const char* op = "rot90";
  check_value(dims.size() == 2, op, "dims ", dims, " does not name two dimensions");
  check_shape(self.dim() >= 2, op, "shape ", self.sizes(), " has fewer than two dimensions");
  const int64_t from = wrap_dim(dims[0], self.dim(), op), to = wrap_dim(dims[1], self.dim(), op);
  check_value(from != to, op, "dims ", dims, " are one dimension");
  switch ((k % 4 + 4) % 4) {
    case 1:
      return self.flip({to}).transpose(from, to).clone();
    case 2:
      return self.flip({from, to});
    case 3:
      return self.flip({from}).transpose(from, to).clone();
    default:
      return self.clone();
  }
}

}  // namespace mytorch::composite
