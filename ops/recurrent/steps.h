// The steps of a layer of a recurrent network.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "mytorch/tensor.h"

namespace mytorch::recurrent {

// A step in the order of computation. The rows of all steps are consecutive in memory, in the order
// of time. The states of the first `carried` rows come from the step before; the others begin here,
// with the initial state.
struct Step {
  int64_t first, rows, carried;

  Tensor of(const Tensor& all) const { return all.narrow(0, first, rows); }
};
using Steps = std::vector<Step>;

// `batch_sizes` are the rows of the steps in the order of time, and do not increase.
Steps make_steps(IntList batch_sizes, bool reverse);

// Returns the states before step i, given those after all steps and the initial ones.
Tensor before(const Steps& steps, size_t i, const Tensor& states, const Tensor& initial);

// Returns the state of each sequence after its last step.
Tensor last_states(const Steps& steps, const Tensor& states);

// Returns a copy of a matrix that all steps multiply by. Its rows are contiguous and a cache line
// more than their length apart: rows at a distance of a power of two share few sets of a cache, and
// a product would copy the matrix again in each step.
Tensor spread_rows(const Tensor& matrix);

}  // namespace mytorch::recurrent
