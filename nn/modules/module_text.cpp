// Modules as text.
#include <ostream>
#include <sstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "mytorch/nn/module.h"
#include "nn/modules/names.h"

namespace mytorch::nn {

// Empty modules have no options to describe.
std::string Module::label() const {
  if (empty_) return absl::StrCat(class_name(*this), "(nullptr)");
  std::ostringstream text;
  pretty_print(text);
  return text.str();
}

std::string Module::name() const { return own_name_.empty() ? class_name(*this) : own_name_; }

std::string Module::describe() const { return absl::StrCat(name(), "()"); }

void Module::pretty_print(std::ostream& out) const { out << describe(); }

void Module::print(std::string& out, int depth) const {
  std::string line = label();
  if (children_.empty()) {
    out += line;
    return;
  }
  if (!line.empty() && line.back() == ')') {
    line.pop_back();
  } else if (!line.empty()) {
    line += '(';
  }
  absl::StrAppend(&out, line, line.empty() || line.back() == '(' ? "" : ",", "\n");
  const std::string indent(2 * static_cast<size_t>(depth + 1), ' ');
  for (const ChildEntry& entry : children_) {
    absl::StrAppend(&out, indent, "(", entry.name, "): ");
    resolve(entry).print(out, depth + 1);
    out += '\n';
  }
  out.append(2 * static_cast<size_t>(depth), ' ');
  out += ')';
}

std::string Module::str() const {
  std::string text;
  print(text, 0);
  return text;
}

std::ostream& operator<<(std::ostream& out, const Module& module) { return out << module.str(); }

}  // namespace mytorch::nn
