// Whether two recordings are the same graph up to their numbers.
#pragma once

#include <string>

#include "graph/capture/capture.h"

namespace mytorch::graph {

// Returns "" if two recordings have the same nodes over the same tensors from outside, or what
// differs, naming the operator.
std::string structural_difference(const Recorded& a, const Recorded& b);

// Makes each argument begin where its memory begins: a call may give it at any offset.
void normalize_arguments(Recorded* recorded);

}  // namespace mytorch::graph
