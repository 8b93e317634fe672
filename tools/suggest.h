// Suggestions for an unknown operator.
#pragma once

#include <string>
#include <vector>

namespace mytorch::tools {

// Explains that there is no operator `name`: whether PyTorch has one, what to use instead, and
// which of `known` have similar names. `folder` holds pytorch_names.txt.
std::string explain_unknown(const std::string& name, const std::vector<std::string>& known,
                            const std::string& folder);

// Returns the names most similar to `name`, the best first: those within a few typing errors, and
// those that contain it or that it contains. At most `most`.
std::vector<std::string> similar_names(const std::string& name,
                                       const std::vector<std::string>& known, size_t most = 6);

}  // namespace mytorch::tools
