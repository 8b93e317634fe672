// Checks of the arguments and results of factorizations.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "core/types/dims.h"
#include "mytorch/tensor.h"
#include "ops/spec.h"

namespace mytorch {

// Throws Error(kType) unless the elements are float32, float64 or their complex types, and
// Error(kShape) unless there are two dimensions; the second also unless the last two are equal.
void check_factorizable(const Tensor& x, const char* name, const char* op);
void check_square(const Tensor& x, const char* name, const char* op);
// Returns `result`, a matrix for each info. Throws Error(kValue) for the first info that is not 0,
// with the reason that `explain` gives. A graph cannot ask: there, such a matrix is NaN.
// (solvers.cpp)
Tensor checked_result(const Tensor& result, const Tensor& infos, const char* op,
                      const std::function<std::string(int64_t)>& explain);

// Returns the sizes of all but the last two dimensions.
Dims batch_of(const Tensor& x);
// Returns such sizes, followed by those of a matrix.
Dims with_matrix(Dims batch, int64_t rows, int64_t columns);

// The result of these sizes with the last two dimensions in column-major order.
TensorSpec in_columns(const Tensor& x, Dims sizes);
// Checks the operands of A X = B, or X A = B unless `left`, and returns what X is.
TensorSpec solution_of(const Tensor& a, const char* name, const Tensor& b, bool left,
                       const char* op);

// Whether B of A X = B is a vector for each matrix: 1-dim, or the shape of A without the last one.
bool has_vectors(const Tensor& a, const Tensor& b);
// Returns the values on the host of all examples, inside of vmap too.
Tensor every_example(Tensor x);

}  // namespace mytorch
