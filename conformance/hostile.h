// Arguments that a caller would not pass on purpose: ends of int64, wrong types and ranks, empty
// and overlapping tensors, values of another kind.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "conformance/catalog.h"
#include "conformance/inputs.h"
#include "mytorch/call.h"

namespace mytorch::conformance {

// What to do with the results of a call.
enum class Backward {
  kNone,
  kOnce,
  kTwice,     // gradients of the gradients, too
  kAfterZero  // after setting every tensor that the call read to zero
};

// A call of any form of an operator.
struct HostileCall {
  const OpRecord* op = nullptr;
  std::string name;  // of the form: "add.Tensor", "add_.Tensor"
  Arguments arguments;
  std::vector<Tensor> outs;  // of the out= form
  Backward backward = Backward::kNone;
  std::vector<Tensor> leaves;  // that require gradients
  bool with_gradient = false;  // of the results: this tensor instead of ones
  Tensor gradient;
};

// Makes a call of `op`: one of its samples, of which a few arguments are replaced.
HostileCall make_hostile_call(const OpRecord& op, Random& random, Device device);

}  // namespace mytorch::conformance
