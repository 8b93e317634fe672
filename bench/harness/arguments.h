// Making the arguments of a case. The framework's own generator fills them: unlike the inputs of
// `mytorch check` they are large, and their values matter little.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "bench/harness/cases.h"
#include "mytorch/call.h"

namespace mytorch::bench {

// One value for each argument of the record, defaults included. Throws Error(kValue) for a value
// that an argument cannot take, and for an argument that is missing.
std::vector<Value> make_arguments(const Case& c);

// The arguments with deep copies, of equal geometry, of the tensors that a call writes: in place,
// by its schema, or as ATen's batch normalization does without saying so. `changed` says which.
std::vector<size_t> written_arguments(const Case& c);
std::vector<Value> with_copies(const std::vector<Value>& args, const std::vector<size_t>& written);
// Copies the elements of the written arguments back from the originals.
void restore(const std::vector<Value>& originals, const std::vector<size_t>& written,
             std::vector<Value>& args);

}  // namespace mytorch::bench
