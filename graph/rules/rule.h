// A rewriting rule (mytorch/rewrite.h) that was read and checked: its pattern over operators.
#pragma once

#include <string>
#include <vector>

#include "graph/rules/rule_text.h"
#include "mytorch/call.h"
#include "mytorch/rewrite.h"

namespace mytorch {
struct OpEntry;
}

namespace mytorch::graph {

struct Pattern {
  // An overload that may stand here, and where each of its arguments is among `args`: -1 for one
  // that must have its default.
  struct Overload {
    const OpEntry* entry = nullptr;
    std::vector<int> from;
  };
  enum Kind : uint8_t {
    kName,      // anything, bound to `name`; "_" is not bound
    kConstant,  // this number, string or None
    kList,      // a list of numbers
    kReshape,   // `args[0]`, or its elements in the same order and another shape
    kOperator,  // its result, bound to `name` if there is one
  };
  Kind kind = kName;
  std::string name;
  Value constant;
  std::vector<Pattern> args;
  std::vector<Overload> overloads;
  bool commutes = false;  // the first two arguments
};

struct Rule {
  std::string name;
  Pattern pattern;
  Assignment to;
  bool has_condition = false;
  Expr condition;
  RuleMode mode = RuleMode::kDefault;
};

// Reads and checks a rule. Throws Error(kValue) as add_rewrite() says.
Rule read_rule(const Rewrite& text);

// Returns the rules of the records and those that were added. They live as long as the process.
std::vector<const Rule*> rules();

// The rules of ops.yaml. Generated.
struct RuleText {
  const char* name;
  const char* pattern;
  const char* to;
  const char* condition;
  RuleMode mode;
};
struct RuleTexts {
  const RuleText* begin;
  int32_t size;
};
extern const RuleTexts kGeneratedRules;

// The attributes and functions of conditions and replacements, besides operators.
bool is_attribute(std::string_view name);
bool is_function(std::string_view name);
// Returns the operator of a symbol, such as "add" of "+"; null if there is none.
const char* rule_operator(const std::string& symbol);
// Returns which result of the pattern `result`, `result1`, ... names; -1 for other names.
int result_index(std::string_view name);

}  // namespace mytorch::graph
