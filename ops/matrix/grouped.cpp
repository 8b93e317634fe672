// Products of groups of matrices of different sizes, which share memory along the dimension that is
// divided between them. Without a kernel, one product for each group writes its part of the result.
#include <vector>

#include "core/tensor/batched.h"
#include "mytorch/generated/bodies.h"
#include "mytorch/ops/bmm.h"
#include "mytorch/ops/cat.h"
#include "mytorch/ops/empty.h"
#include "mytorch/ops/grouped_mm.h"
#include "mytorch/ops/mm.h"
#include "mytorch/ops/narrow.h"
#include "mytorch/ops/stack.h"
#include "mytorch/ops/to.h"
#include "mytorch/ops/zero_.h"
#include "mytorch/ops/zeros.h"
#include "ops/gradients.h"
#include "ops/spec.h"

namespace mytorch {
namespace {

constexpr const char* kGrouped = "grouped_mm";

// The dimension that is divided between the groups.
enum class Divided { kRows, kColumns, kInner };

struct Groups {
  Divided divided;
  int64_t length;  // of the divided dimension
  int64_t rows, inner, columns;
};

Groups checked_groups(const Tensor& self, const Tensor& mat2, IntList offs) {
  const int64_t a = self.dim(), b = mat2.dim();
  check_shape((a == 2 || a == 3) && (b == 2 || b == 3) && a + b < 6, kGrouped, "shapes ",
              self.sizes(), " and ", mat2.sizes(),
              " are not two matrices, or a matrix and a batch of matrices: ",
              a == 3 && b == 3 ? "use bmm" : "reshape them");
  check_type(self.dtype() == mat2.dtype(), kGrouped, "operands are ", self.dtype(), " and ",
             mat2.dtype(), ": convert one of them");
  check_shape(self.size(-1) == mat2.size(-2), kGrouped, "shapes ", self.sizes(), " and ",
              mat2.sizes(), ": inner dimensions ", self.size(-1), " and ", mat2.size(-2),
              " differ");
  Groups groups{Divided::kInner, self.size(-1), self.size(-2), self.size(-1), mat2.size(-1)};
  const auto count = static_cast<int64_t>(offs.size());
  if (a != b) {
    groups.divided = a == 2 ? Divided::kRows : Divided::kColumns;
    groups.length = a == 2 ? groups.rows : groups.columns;
    const Tensor& batch = a == 2 ? mat2 : self;
    check_shape(batch.size(0) == count, kGrouped, "there are ", batch.size(0),
                " matrices, of shape ", batch.sizes(), ", but ", count,
                " ends: give one for each matrix");
  }
  int64_t before = 0;
  for (const int64_t end : offs) {
    check_value(end >= before && end <= groups.length, kGrouped, "offs is ", offs,
                ": the ends must ascend from 0 to at most ", groups.length,
                ", the size of the dimension that they divide");
    before = end;
  }
  return groups;
}

// Returns the products of all groups, in their order.
template <class F>
void for_each_part(IntList offs, F f) {
  int64_t begin = 0;
  for (size_t i = 0; i < offs.size(); ++i) {
    f(static_cast<int64_t>(i), begin, offs[i] - begin);
    begin = offs[i];
  }
}

struct Operands {
  Tensor self, mat2;
};

// Returns the operands of one product.
Operands operands_of(const Tensor& self, const Tensor& mat2, Divided divided, int64_t group,
                     int64_t begin, int64_t size) {
  switch (divided) {
    case Divided::kRows:
      return {self.narrow(0, begin, size), mat2.select(0, group)};
    case Divided::kColumns:
      return {self.select(0, group), mat2.narrow(1, begin, size)};
    case Divided::kInner:
      return {self.narrow(1, begin, size), mat2.narrow(0, begin, size)};
  }
  return {};
}

// Of examples of vmap, whose products have no memory to write into.
Tensor joined(const Tensor& self, const Tensor& mat2, IntList offs, const Groups& groups) {
  std::vector<Tensor> parts;
  for_each_part(offs, [&](int64_t group, int64_t begin, int64_t size) {
    const Operands each = operands_of(self, mat2, groups.divided, group, begin, size);
    parts.push_back(mytorch::mm(each.self, each.mat2));
  });
  if (groups.divided == Divided::kInner) {
    if (!parts.empty()) return mytorch::stack(parts, 0);
    return mytorch::zeros({0, groups.rows, groups.columns}, self.dtype(), self.device());
  }
  const bool rows = groups.divided == Divided::kRows;
  const int64_t rest = groups.length - (offs.empty() ? 0 : offs[offs.size() - 1]);
  if (rest > 0 || parts.empty()) {
    parts.push_back(rows ? mytorch::zeros({rest, groups.columns}, self.dtype(), self.device())
                         : mytorch::zeros({groups.rows, rest}, self.dtype(), self.device()));
  }
  return mytorch::cat(parts, rows ? 0 : 1);
}

}  // namespace

namespace shape {

TensorSpec grouped_mm(const Tensor& self, const Tensor& mat2, IntList offs) {
  const Groups groups = checked_groups(self, mat2, offs);
  if (groups.divided == Divided::kInner) {
    return like(self, {static_cast<int64_t>(offs.size()), groups.rows, groups.columns});
  }
  return like(self, {groups.rows, groups.columns});
}

}  // namespace shape

Tensor composite::grouped_mm(const Tensor& self, const Tensor& mat2, IntList offs) {
  const Groups groups = checked_groups(self, mat2, offs);
  if (is_batched(self.impl()) || is_batched(mat2.impl())) return joined(self, mat2, offs, groups);
  const auto count = static_cast<int64_t>(offs.size());
  const bool inner = groups.divided == Divided::kInner;
  Tensor out =
      inner ? mytorch::empty({count, groups.rows, groups.columns}, self.dtype(), self.device())
            : mytorch::empty({groups.rows, groups.columns}, self.dtype(), self.device());
  const int64_t dim = groups.divided == Divided::kRows ? 0 : 1;
  int64_t end = 0;
  for_each_part(offs, [&](int64_t group, int64_t begin, int64_t size) {
    const Operands each = operands_of(self, mat2, groups.divided, group, begin, size);
    mytorch::mm_out(inner ? out.select(0, group) : out.narrow(dim, begin, size), each.self,
                    each.mat2);
    end = begin + size;
  });
  if (!inner && end < groups.length) out.narrow(dim, end, groups.length - end).zero_();
  return out;
}

// In the order of strides of `mat2`: the gradient of a transposed weight is contiguous once it is
// transposed back.
Tensor grads::grouped_mm_backward_mat2(const Tensor& grad, const Tensor& self, const Tensor& mat2,
                                       IntList offs) {
  if (mat2.stride(-1) > mat2.stride(-2)) {
    return mytorch::grouped_mm(grad.mT(), self, offs).mT();
  }
  return mytorch::grouped_mm(self.mT(), grad, offs);
}

Tensor composite::grouped_mm_of_tensor(const Tensor& self, const Tensor& mat2, const Tensor& offs) {
  if (!offs.defined()) return mytorch::bmm(self, mat2);
  check_shape(offs.dim() == 1, kGrouped, "offs has shape ", offs.sizes(),
              ": give the ends as a vector");
  check_not_batched(offs, kGrouped);
  const std::vector<int64_t> ends = offs.to(kCPU).to(kInt64).to_vector<int64_t>();
  return mytorch::grouped_mm(self, mat2, IntList(ends));
}

}  // namespace mytorch
