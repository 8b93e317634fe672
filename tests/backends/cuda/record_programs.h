// The programs of the records, as the host passes them to mt_backend::compile.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "mytorch/abi.h"

namespace mytorch::testing {

struct RecordPrograms {
  std::string op;
  std::span<const mt_program* const> variants;
};

// Returns those of all operators that have any.
const std::vector<RecordPrograms>& record_programs();

// Returns a program of an operator; the test ends if it has none.
const mt_program* program_of(const std::string& op, size_t variant = 0);

}  // namespace mytorch::testing
