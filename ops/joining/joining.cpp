// Joining and reordering that consists of other operators.
#include <algorithm>

#include "mytorch/generated/bodies.h"
#include "mytorch/ops/arange.h"
#include "mytorch/ops/atleast_3d.h"
#include "mytorch/ops/cat.h"
#include "mytorch/ops/constant_pad_nd.h"
#include "mytorch/ops/empty.h"
#include "mytorch/ops/meshgrid.h"
#include "mytorch/ops/stack.h"
#include "ops/check.h"
#include "ops/creation.h"
#include "ops/geometry.h"

namespace mytorch::composite {
namespace {

// Throws Error(kShape) if the combinations or products of elements could not be held in memory.
int64_t checked_rows(Wide n, const char* op) {
  constexpr int64_t kMost = int64_t{1} << 32;
  check_shape(n <= kMost, op, "the result would have more than ", kMost, " rows");
  return static_cast<int64_t>(n);
}

// Returns the number of combinations of r > 0 of n elements. Throws Error(kValue) if they would
// have more than 2^28 elements.
int64_t count_combinations(int64_t n, int64_t r, bool with_replacement, const char* op) {
  const Wide of = with_replacement ? Wide{n} + r - 1 : Wide{n};
  if (n == 0 || of < r) return 0;
  constexpr int64_t kMost = int64_t{1} << 28;
  const Wide fewer = std::min(Wide{r}, of - r);  // as many combinations as of r elements
  Wide count = 1;                                // of i of the elements: it grows with i
  for (Wide i = 1; i <= fewer && count <= kMost; ++i) count = count * (of - i + 1) / i;
  check_value(count * r <= kMost, op, "the result would have more than ", kMost, " elements");
  return static_cast<int64_t>(count);
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
  const int64_t rows = count_combinations(n, r, with_replacement, op);
  const Tensor index = empty_for_values({rows, r}, kInt64);
  // Counts as an odometer whose digits ascend.
  auto* digits = index.data<int64_t>();
  for (int64_t i = 0; rows > 0 && i < r; ++i) digits[i] = with_replacement ? 0 : i;
  for (int64_t row = 1; row < rows; ++row) {
    digits = std::copy(digits, digits + r, digits + r) - r;
    int64_t i = r - 1;
    while (digits[i] == (with_replacement ? n - 1 : n - r + i)) --i;
    ++digits[i];
    for (int64_t j = i + 1; j < r; ++j) digits[j] = digits[j - 1] + (with_replacement ? 0 : 1);
  }
  return self.index_select(0, index.view({-1}).to(self.device())).reshape({rows, r});
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
