// What a check of a whole backend came to: a table, a score, and the same for programs to read.
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
  int routes[5] = {};  // operators, by the slowest way that a case of theirs took

  // Of the operators: the part that passes without the host's fallback.
  double native_share() const;
};
Summary summary(const Report& report);

// A row for each operator: op, route, cases, worst error (of what is allowed), and, where it
// failed, how to see that again; then the score.
void print_table(const Report& report, const Options& options, std::ostream& out);

Json to_json(const std::vector<ContractResult>& contract, const Report& report,
             const Options& options);

}  // namespace mytorch::conformance
