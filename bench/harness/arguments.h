// Makes the arguments of a case. The framework's generator fills them, because unlike the inputs of
// `mytorch check` they are large and their values matter little.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "bench/harness/cases.h"
#include "mytorch/call.h"

namespace mytorch::bench {

// Returns a value for each argument of the record, including defaults. Throws Error(kValue) for an
// invalid value and for a missing argument.
std::vector<Value> make_arguments(const Case& c);

// Returns the indices of the arguments that a call writes: in place, as its schema says, or the
// running statistics of ATen's batch normalization, which the schema does not mark.
std::vector<size_t> written_arguments(const Case& c);
// Returns the arguments with deep copies, of equal geometry, of the written ones.
std::vector<Value> with_copies(const std::vector<Value>& args, const std::vector<size_t>& written);
// Copies the elements of the written arguments back from the originals.
void restore(const std::vector<Value>& originals, const std::vector<size_t>& written,
             std::vector<Value>& args);

}  // namespace mytorch::bench
