// C++ operators of tensors. The other operand is a tensor or a number.
#pragma once

#include <iosfwd>

#include "mytorch/tensor.h"
#include "mytorch/tensor_index.h"

namespace mytorch {

// Writes the values, shape, dtype and device; mytorch/print_options.h sets the format.
std::ostream& operator<<(std::ostream& out, const Tensor& tensor);

Tensor operator-(const Tensor& a);
Tensor operator~(const Tensor& a);  // bitwise_not
Tensor operator!(const Tensor& a);  // logical_not

// For two tensors, the reversed forms of == and != would be as good as the others.
Tensor operator==(const Tensor& a, const Tensor& b);
Tensor operator!=(const Tensor& a, const Tensor& b);

#define MYTORCH_BINARY_OPERATOR(op)                      \
  Tensor operator op(const Tensor& a, const Operand& b); \
  Tensor operator op(const Scalar& a, const Tensor& b);
MYTORCH_BINARY_OPERATOR(+)
MYTORCH_BINARY_OPERATOR(-)
MYTORCH_BINARY_OPERATOR(*)
MYTORCH_BINARY_OPERATOR(/)  // true division, also of integers
MYTORCH_BINARY_OPERATOR(%)  // remainder, with the sign of the divisor as in Python
MYTORCH_BINARY_OPERATOR(&)  // of integers or bools
MYTORCH_BINARY_OPERATOR(|)
MYTORCH_BINARY_OPERATOR(^)
MYTORCH_BINARY_OPERATOR(<<)  // of integers
MYTORCH_BINARY_OPERATOR(>>)
MYTORCH_BINARY_OPERATOR(&&)  // logical_and; both sides are computed
MYTORCH_BINARY_OPERATOR(||)
MYTORCH_BINARY_OPERATOR(==)
MYTORCH_BINARY_OPERATOR(!=)
MYTORCH_BINARY_OPERATOR(<)
MYTORCH_BINARY_OPERATOR(<=)
MYTORCH_BINARY_OPERATOR(>)
MYTORCH_BINARY_OPERATOR(>=)
#undef MYTORCH_BINARY_OPERATOR

// Those of temporaries write elements, `x[0] += 1` and `x[mask] *= 2`, and throw Error(kValue)
// where assignment to a temporary does.
#define MYTORCH_COMPOUND_OPERATOR(op)                           \
  const Tensor& operator op(const Tensor& a, const Operand& b); \
  const Tensor& operator op(Tensor&& a, const Operand& b);      \
  const Tensor& operator op(IndexedTensor&& a, const Operand& b);
MYTORCH_COMPOUND_OPERATOR(+=)
MYTORCH_COMPOUND_OPERATOR(-=)
MYTORCH_COMPOUND_OPERATOR(*=)
MYTORCH_COMPOUND_OPERATOR(/=)
MYTORCH_COMPOUND_OPERATOR(%=)
MYTORCH_COMPOUND_OPERATOR(&=)
MYTORCH_COMPOUND_OPERATOR(|=)
MYTORCH_COMPOUND_OPERATOR(^=)
MYTORCH_COMPOUND_OPERATOR(<<=)
MYTORCH_COMPOUND_OPERATOR(>>=)
#undef MYTORCH_COMPOUND_OPERATOR

}  // namespace mytorch
