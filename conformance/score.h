// The result of checking a whole backend: a table, a score, and both as JSON.
#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "conformance/check.h"
#include "conformance/contract.h"

namespace mytorch::conformance {

struct Summary {
  int ops = 0;
  int passed = 0;
  int routes[5] = {};  // number of operators by the slowest Route of their cases

  // The fraction of the operators that need no fallback to the CPU.
  double native_share() const;
};
Summary summary(const Report& report);

// Prints a row for each operator (route, cases, worst error), the reproducer of the first failure
// of each operator that failed, and the score.
void print_table(const Report& report, const Options& options, std::ostream& out);

Json to_json(const std::vector<ContractResult>& contract, const Report& report,
             const Options& options);

}  // namespace mytorch::conformance
