// C++ operators of tensors.
#include "core/types/errors.h"
#include "mytorch/ops/add.h"
#include "mytorch/ops/copy_.h"
#include "mytorch/ops/div.h"
#include "mytorch/ops/eq.h"
#include "mytorch/ops/fill_.h"
#include "mytorch/ops/ge.h"
#include "mytorch/ops/gt.h"
#include "mytorch/ops/le.h"
#include "mytorch/ops/lt.h"
#include "mytorch/ops/mul.h"
#include "mytorch/ops/ne.h"
#include "mytorch/ops/neg.h"
#include "mytorch/ops/reciprocal.h"
#include "mytorch/ops/rsub.h"
#include "mytorch/ops/select.h"
#include "mytorch/ops/sub.h"

namespace mytorch {
namespace {

// Returns the tensor. Throws Error(kValue) if nobody could read what is written into it.
const Tensor& kept(const Tensor& temporary) {
  if (!temporary.defined()) return temporary;
  const auto once = [](const auto& counted) {
    return counted.refs.load(std::memory_order_acquire) == 1;
  };
  const TensorImpl& impl = *temporary.impl();
  const TensorImpl& root = impl.base != nullptr ? *impl.base : impl;
  if (once(impl) && once(root) && once(*root.storage) &&
      (root.storage->abi.flags & MT_STORAGE_ESCAPED) == 0) {
    fail(ErrorCode::kValue,
         "[=] writes to a temporary copy, so the values would be lost: write elements that tensors "
         "select with index_put_(indices, values), and others through views of a variable");
  }
  return temporary;
}

}  // namespace

Tensor operator+(const Tensor& a, const Operand& b) { return add(a, b); }
Tensor operator-(const Tensor& a, const Operand& b) { return sub(a, b); }
Tensor operator*(const Tensor& a, const Operand& b) { return mul(a, b); }
Tensor operator/(const Tensor& a, const Operand& b) { return div(a, b); }
Tensor operator+(const Scalar& a, const Tensor& b) { return add(b, a); }
Tensor operator-(const Scalar& a, const Tensor& b) { return rsub(b, a); }
Tensor operator*(const Scalar& a, const Tensor& b) { return mul(b, a); }
Tensor operator/(const Scalar& a, const Tensor& b) { return mul(reciprocal(b), a); }
Tensor operator-(const Tensor& a) { return neg(a); }
Tensor operator==(const Tensor& a, const Tensor& b) { return eq(a, b); }
Tensor operator==(const Tensor& a, const Operand& b) { return eq(a, b); }
Tensor operator!=(const Tensor& a, const Tensor& b) { return ne(a, b); }
Tensor operator!=(const Tensor& a, const Operand& b) { return ne(a, b); }
Tensor operator<(const Tensor& a, const Operand& b) { return lt(a, b); }
Tensor operator<=(const Tensor& a, const Operand& b) { return le(a, b); }
Tensor operator>(const Tensor& a, const Operand& b) { return gt(a, b); }
Tensor operator>=(const Tensor& a, const Operand& b) { return ge(a, b); }
const Tensor& operator+=(const Tensor& a, const Operand& b) { return add_(a, b); }
const Tensor& operator-=(const Tensor& a, const Operand& b) { return sub_(a, b); }
const Tensor& operator*=(const Tensor& a, const Operand& b) { return mul_(a, b); }
const Tensor& operator/=(const Tensor& a, const Operand& b) { return div_(a, b); }
const Tensor& operator+=(Tensor&& a, const Operand& b) { return add_(kept(a), b); }
const Tensor& operator-=(Tensor&& a, const Operand& b) { return sub_(kept(a), b); }
const Tensor& operator*=(Tensor&& a, const Operand& b) { return mul_(kept(a), b); }
const Tensor& operator/=(Tensor&& a, const Operand& b) { return div_(kept(a), b); }

// NOLINTNEXTLINE(bugprone-unhandled-self-assignment): copies elements
Tensor& Tensor::operator=(const Tensor& values) && {
  kept(*this);
  if (!values.defined()) fail(ErrorCode::kValue, "[=] the assigned tensor is undefined");
  copy_(values);
  return *this;
}

Tensor& Tensor::operator=(const Scalar& value) && {
  kept(*this).fill_(value);
  return *this;
}

Tensor Tensor::operator[](int64_t index) const { return mytorch::select(*this, 0, index); }

}  // namespace mytorch
