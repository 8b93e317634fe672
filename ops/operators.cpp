// C++ operators of tensors.
#include "mytorch/ops/add.h"
#include "mytorch/ops/div.h"
#include "mytorch/ops/eq.h"
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

Tensor operator+(const Tensor& a, const Operand& b) { return add(a, b); }
Tensor operator-(const Tensor& a, const Operand& b) { return sub(a, b); }
Tensor operator*(const Tensor& a, const Operand& b) { return mul(a, b); }
Tensor operator/(const Tensor& a, const Operand& b) { return div(a, b); }
Tensor operator+(const Scalar& a, const Tensor& b) { return add(b, a); }
Tensor operator-(const Scalar& a, const Tensor& b) { return rsub(b, a); }
Tensor operator*(const Scalar& a, const Tensor& b) { return mul(b, a); }
Tensor operator/(const Scalar& a, const Tensor& b) { return mul(reciprocal(b), a); }
Tensor operator-(const Tensor& a) { return neg(a); }
Tensor operator==(const Tensor& a, const Operand& b) { return eq(a, b); }
Tensor operator!=(const Tensor& a, const Operand& b) { return ne(a, b); }
Tensor operator<(const Tensor& a, const Operand& b) { return lt(a, b); }
Tensor operator<=(const Tensor& a, const Operand& b) { return le(a, b); }
Tensor operator>(const Tensor& a, const Operand& b) { return gt(a, b); }
Tensor operator>=(const Tensor& a, const Operand& b) { return ge(a, b); }
const Tensor& operator+=(const Tensor& a, const Operand& b) { return add_(a, b); }
const Tensor& operator-=(const Tensor& a, const Operand& b) { return sub_(a, b); }
const Tensor& operator*=(const Tensor& a, const Operand& b) { return mul_(a, b); }
const Tensor& operator/=(const Tensor& a, const Operand& b) { return div_(a, b); }

Tensor Tensor::operator[](int64_t index) const { return mytorch::select(*this, 0, index); }

}  // namespace mytorch
