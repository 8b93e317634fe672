#include "tools/suggest.h"

#include <algorithm>
#include <fstream>
#include <numeric>
#include <optional>
#include <set>
#include <utility>

namespace mytorch::tools {
namespace {

// The number of insertions, deletions, replacements and swaps of neighbors that turn one word into
// the other.
size_t typing_errors(const std::string& a, const std::string& b) {
  std::vector<size_t> before;
  std::vector<size_t> last(b.size() + 1);
  std::iota(last.begin(), last.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    std::vector<size_t> now(b.size() + 1);
    now[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      now[j] = std::min({last[j] + 1, now[j - 1] + 1, last[j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        now[j] = std::min(now[j], before[j - 2] + 1);
      }
    }
    before = std::exchange(last, std::move(now));
  }
  return last[b.size()];
}

// Returns the line of pytorch_names.txt about `name`, after the name: "" or the replacement.
std::optional<std::string> find_in_pytorch(const std::string& name, const std::string& folder) {
  std::ifstream file(folder + "/pytorch_names.txt");
  for (std::string line; std::getline(file, line);) {
    if (line == name) return "";
    if (line.starts_with(name + ": ")) return line.substr(name.size() + 2);
  }
  return std::nullopt;
}

}  // namespace

std::vector<std::string> similar_names(const std::string& name,
                                       const std::vector<std::string>& known, size_t most) {
  std::set<std::pair<size_t, std::string>> found;
  for (const std::string& other : known) {
    const size_t errors = typing_errors(name, other);
    const size_t shorter = std::min(name.size(), other.size());
    const bool contained = (shorter >= 3 && other.find(name) != std::string::npos) ||
                           (2 * shorter >= name.size() && name.find(other) != std::string::npos);
    // A whole word in common counts as two typing errors.
    if (contained) {
      found.emplace(std::min<size_t>(errors, 2), other);
    } else if (errors <= std::max<size_t>(1, name.size() / 3)) {
      found.emplace(errors, other);
    }
  }
  std::vector<std::string> names;
  for (const auto& [errors, other] : found) {
    if (names.size() < most) names.push_back(other);
  }
  return names;
}

std::string explain_unknown(const std::string& name,
                            const std::vector<conformance::OpRecord>& records) {
  std::set<std::string> known;
  for (const conformance::OpRecord& op : records) {
    if (!op.derived) known.insert(op.name.substr(0, op.name.find('.')));
  }
  const std::optional<std::string> instead = find_in_pytorch(name, conformance::share_folder());
  std::string text = "unknown operator '" + name + "'";
  if (instead.has_value()) text += ": PyTorch has it, mytorch has no record of it";
  if (instead.has_value() && !instead->empty()) text += "\n  use instead: " + *instead;
  std::string list;
  for (const std::string& other : similar_names(name, {known.begin(), known.end()})) {
    list += (list.empty() ? "" : ", ") + other;
  }
  if (!list.empty()) text += "\n  similar names: " + list;
  if (!instead.has_value() || instead->empty()) {
    text +=
        "\n  to add it: a record in ops.yaml (docs/contributing.md), or register_op in your "
        "program "
        "(docs/custom_operators.md)";
  }
  return text + "\n  `mytorch ops` lists all operators";
}

}  // namespace mytorch::tools
