// What data parallelism adds to a step: gradients that are reduced beside backward, and parameters
// that are gathered beside forward.
#pragma once

#include <vector>

#include "plan/layout.h"
#include "plan/machine.h"
#include "plan/timeline.h"

namespace mytorch::plan {

// Sizes of DistributedDataParallel's buckets by default, in bytes.
inline constexpr double kFirstBucket = 1 << 20, kBucket = 25 << 20;

// A part of a stage that computes and communicates as a whole, such as a layer. In forward order;
// seconds are those of one micro-batch, parameters those of a rank before ZeRO divides them.
struct Unit {
  double forward = 0, backward = 0;
  double shared = 0;   // parameters that all ranks of dp and cp have
  double experts = 0;  // those that dp * cp / ep ranks have
};

// Returns the seconds that communication adds to a step of so many micro-batches. Without ZeRO, and
// with ZeRO 1, the gradients of the last micro-batch are reduced beside its backward; with ZeRO 1
// and 2, parameters are gathered beside the first forward. ZeRO 2 reduces in each backward, and
// ZeRO 3 gathers parameters in each forward and backward, too: a unit ahead.
double data_seconds(const std::vector<Unit>& units, const Layout& layout,
                    const Precision& precision, const Machine& machine, double micro_batches);

// Returns what communication adds to computations beside which it runs.
double added_seconds(const std::vector<Computation>& computations,
                     const std::vector<Communication>& communications, const Machine& machine);

}  // namespace mytorch::plan
