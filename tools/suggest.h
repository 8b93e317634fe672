// Suggestions for an unknown operator.
#pragma once

#include <string>
#include <vector>

#include "conformance/catalog.h"

namespace mytorch::tools {

// Explains that none of the records is named `name`: whether PyTorch has such an operator
// (pytorch_names.txt), what to use instead, and which operators have similar names.
std::string explain_unknown(const std::string& name,
                            const std::vector<conformance::OpRecord>& records);

// Returns the names most similar to `name`, the best first: those within a few typing errors, and
// those that contain it or that it contains. At most `most`.
std::vector<std::string> similar_names(const std::string& name,
                                       const std::vector<std::string>& known, size_t most = 6);

}  // namespace mytorch::tools
