// Operators that are not in ops.yaml: those that a backend's library brought, or a program
// registered. Nobody else knows what they compute, so what is asked is what every operator has to
// keep to.
#pragma once

#include <string>
#include <vector>

#include "conformance/check.h"

namespace mytorch::conformance {

// A record for each that is registered in this process, with samples that its schema suggests:
// calls with operands of shapes and types that operators often take. An operator may refuse them.
std::vector<OpRecord> custom_records();
// Those of ops.yaml, from the files of a folder, and the above.
std::vector<OpRecord> all_records(const std::string& folder);

// What another process needs to make the same record.
Json describe_custom(const OpRecord& record);
OpRecord custom_record(const Json& description);

// Puts the samples of a file in the place of those that were suggested: a list in JSON of what
// conformance/samples/README.md describes. Throws Error(kIo), and Error(kValue) for an operator
// that is not among the records, which are those of the plug-in.
void read_samples(const std::string& file, std::vector<OpRecord>& records);

// Whether the call was taken (true) or refused (false). A taken one leaves its inputs as they are,
// gives the same result again, and from operands of other strides, writes all of its results and
// nothing beside them, and agrees with the CPU where that has a kernel of it, too; its gradient
// agrees with differences. An error is `refused` where it is one that operators may give.
bool check_custom(const Case& c, uint64_t seed, Device device, bool gradients, const Fail& fail,
                  std::string* refused);

}  // namespace mytorch::conformance
