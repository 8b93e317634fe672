// Operators that are not in ops.yaml: those of a backend's library, and those that a program
// registers. There is no reference for them, so the checks are the rules that hold for every
// operator.
#pragma once

#include <string>
#include <vector>

#include "conformance/check.h"

namespace mytorch::conformance {

// Returns a record for each operator registered in this process, with samples that its schema
// suggests: calls with common shapes and types, which the operator may refuse.
std::vector<OpRecord> custom_records();
// Returns the records of ops.yaml, read from `folder`, followed by custom_records().
std::vector<OpRecord> all_records(const std::string& folder);

// Serializes a record for another process; custom_record() restores it.
Json describe_custom(const OpRecord& record);
OpRecord custom_record(const Json& description);

// Replaces the suggested samples by those of a file: a JSON list in the form of
// conformance/samples/README.md. Throws Error(kIo) if the file cannot be read, and Error(kValue)
// for an operator that is not among `records`.
void read_samples(const std::string& file, std::vector<OpRecord>& records);

// Checks one call. It must leave its inputs unchanged, return the same result again and for
// operands with other strides, write all of its results and nothing else, agree with the CPU's
// kernel if there is one, and have a gradient that agrees with finite differences. Returns false if
// the operator refuses the call; `refused` is then its error.
bool check_custom(const Case& c, uint64_t seed, Device device, bool gradients, const Fail& fail,
                  std::string* refused);

}  // namespace mytorch::conformance
