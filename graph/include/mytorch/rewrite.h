// Rules by which compiled functions are rewritten, for libraries that bring their own.
//
//   graph::add_rewrite({.name = "my-swish",
//                       .pattern = "x * sigmoid(x)",
//                       .to = "mylib::swish(x)"});
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "mytorch/compile_mode.h"

namespace mytorch::graph {

// In which modes a rule may be applied.
enum class RuleMode : uint8_t {
  kExact,    // in all: it keeps every bit
  kDefault,  // not in CompileMode::kExact: results are as accurate
  kFast,     // in CompileMode::kFast alone: what holds for real numbers only
};

// A pattern over the operators of a graph, and what takes its place (docs/compile.md, "Rules").
struct Rewrite {
  std::string name;
  std::string pattern;
  std::string to;
  std::string condition = {};  // "" if there is none
  RuleMode mode = RuleMode::kDefault;
};

// A pass over graphs, or a stage of planning one, which MYTORCH_COMPILE_WITHOUT disables and
// MYTORCH_COMPILE_DUMP prints by its name.
struct CompilePass {
  std::string name;
  std::string summary;
};
// Returns them in the order in which they run.
std::vector<CompilePass> compile_passes();

// Adds a rule, for functions that are compiled from then on. Throws Error(kValue), which says
// where, if a text does not parse, names an unknown operator or an unbound name, or gives an
// operator of the pattern arguments that it does not take; and if there is a rule of this name. A
// replacement that fails, or that writes an operand, does not apply: MYTORCH_COMPILE_DUMP says so.
void add_rewrite(const Rewrite& rule);

// Adds a pass that runs after those of the library. It takes the text of a graph
// (Compiled::text()) and returns that of another one, which computes the same; the tensors from
// outside keep their numbers. A text that is no graph is an error of the call that compiles.
// Results must have the types and the geometry that the text states.
void add_pass(std::string_view name, std::function<std::string(const std::string&)> pass);

}  // namespace mytorch::graph
