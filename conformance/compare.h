// Compares results with those of the reference.
#pragma once

#include <string>
#include <vector>

#include "conformance/elements.h"
#include "conformance/inputs.h"
#include "mytorch/call.h"

namespace mytorch::conformance {

// The allowed error. Integers, bools, views, copies and random numbers must be equal. Floats may
// differ by a relative error, and by some rounding errors of the operands of the element: the error
// of a sum that cancels is relative to its terms, not to the sum.
struct Tolerance {
  bool exact = false;
  double factor = 1;  // scales both, for a program that rounds after each operation
  // Relates rounding errors to the largest element of the result instead of the operands, for data
  // whose sums are exact (Twist::grid). A mean of many must notice one of them.
  bool by_result = false;
  // Any two non-finite elements are equal: whether sums of infinities are infinite or NaN depends
  // on the order of additions.
  bool infinities = false;
  // A result at operands with rounding errors (Twist::rounding). A float may differ by what the
  // result moves there.
  std::vector<const Value*> nearby = {};
  // Slices of each result along its first dimension that are not compared (see skipped_slices).
  std::vector<bool> skipped = {};

  // Returns the largest allowed difference for each element of one result.
  std::vector<double> allowed(const OpRecord& op, const Arguments& arguments,
                              const Tensor& expected, const std::vector<Element>& elements) const;
};

// Whether the elements lie in the same order. The stride of a dimension of size 1 says nothing.
bool same_strides(const Tensor& a, const Tensor& b);

// Whether two elements count as equal because a mean or variance of infinities depends on the order
// of additions: any two non-finite values do.
bool undefined_moment(const OpRecord& op, double a, double b);

// For operators of which a record says `non_finite: spreads`: returns the slices along the first
// dimension of the results that have non-finite elements among those found and those expected.
// There is one slice unless all tensors have an equal first dimension, a batch. Describes in
// `problem` a slice that is finite on one side alone.
std::vector<bool> skipped_slices(const Arguments& arguments, const std::vector<Value>& found,
                                 const std::vector<Value>& expected, std::string* problem);

// Compares types, shapes, strides (unless `values_only`) and elements; NaN equals NaN. Returns ""
// if they agree, else a description of the difference with the worst element. Raises `worst` to the
// largest error of an element as a fraction of the allowed error.
std::string difference(const OpRecord& op, const Arguments& arguments, const Value& found,
                       const Value& expected, const Tolerance& tolerance, bool values_only = false,
                       double* worst = nullptr);

std::string shape_text(const Tensor& tensor);  // "float32 (2, 3) strides (3, 1)"

}  // namespace mytorch::conformance
