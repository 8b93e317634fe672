// How far results may be from those of a function whose sums are reordered, and whose values on the
// way are not rounded: in the modes other than kExact.
#pragma once

#include <string>
#include <vector>

#include "graph/ir/ir.h"
#include "mytorch/dtype.h"
#include "mytorch/tensor.h"

namespace mytorch::graph {

// Returns the distance of 1 from the next larger number of a floating or complex type.
double rounding_error(ScalarType dtype);

// Returns the largest rounding error among the floating and complex values of a graph; 0 if it has
// none.
double coarsest_rounding(const Graph& graph);

// Returns the elements of a tensor, or the parts of complex ones, in order.
std::vector<double> parts_of(const Tensor& tensor);

// Returns where two tensors differ by more than 64 rounding errors of the largest finite element,
// which counts as at least 1, or "" if they do nowhere. `coarsest` is the rounding error of a type
// to which values on the way may be rounded. Integers and bools must be equal, as must infinities;
// any two NaNs are.
std::string far_apart(const Tensor& found, const Tensor& expected, double coarsest = 0);

}  // namespace mytorch::graph
