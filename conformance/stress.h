// Checks beyond the samples that a record states or that follow from it: sizes past the blocks of
// kernels, special values in every operand, and calls from several threads at once.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "conformance/check.h"
#include "conformance/inputs.h"

namespace mytorch::conformance {

// Returns the cases of these checks, which the operator's samples determine. The first of each
// kind are the small ones. The first has the number `first`.
std::vector<Case> stress_cases(const OpRecord& op, int first);

// Describes a sample without its sizes: two samples of the same kind run the same code, or nearly.
std::string kind_of(const OpRecord& op, const Json& sample);

// Replaces the sample of a case with a limit of elements by a larger one that the reference
// accepts (the device's kernel, for a plug-in's operator), and its type by one that the operator
// takes. Returns nothing if there is none.
std::optional<Case> resolve(const Case& c, uint64_t seed, Device device);

// The kinds of data that a case's call is compared with. The first entry is the ordinary one.
struct Variation {
  std::string what;  // "with NaN in 'self'"
  Twist twist;
};
std::vector<Variation> variations_of(const Case& c, uint64_t seed);

// Calls the operator from several threads at once, each with its own data. Each call must return
// the bits that it returns alone. Returns false if the operator refuses the call.
bool check_threads(const Case& c, uint64_t seed, Device device, const Fail& fail);

}  // namespace mytorch::conformance
