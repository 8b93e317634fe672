// Comparing results with the reference's.
#pragma once

#include <string>
#include <vector>

#include "conformance/elements.h"
#include "conformance/inputs.h"
#include "mytorch/call.h"

namespace mytorch::conformance {

// How close results have to be. Integers, bools, views, copies and random numbers have to be equal.
// Floats may differ by `relative`, and by `steps` rounding errors of what went into the element:
// where a sum cancels, its error is relative to its terms, not to itself.
struct Tolerance {
  bool exact = false;
  double factor = 1;  // loosens both, for a program that rounds after each operation

  // Of one result: the largest difference from each expected element.
  std::vector<double> allowed(const OpRecord& op, const Arguments& arguments,
                              const Tensor& expected, const std::vector<Element>& elements) const;
};

// Means and variances of infinities depend on the order of additions: there whatever is not finite
// counts as equal.
bool undefined_moment(const OpRecord& op, double a, double b);

// "" when equal: types, shapes, strides (unless `values_only`) and elements; NaN equals NaN, and an
// infinity itself. Else what differs, with the worst element. `worst` is raised to the largest
// error of an element, in what is allowed for it: 1 is the bound.
std::string difference(const OpRecord& op, const Arguments& arguments, const Value& found,
                       const Value& expected, const Tolerance& tolerance, bool values_only = false,
                       double* worst = nullptr);

std::string shape_text(const Tensor& tensor);  // "float32 (2, 3) strides (3, 1)"

}  // namespace mytorch::conformance
