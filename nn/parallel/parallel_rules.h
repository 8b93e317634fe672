// What a plan says of the modules of a model.
#pragma once

#include <string>
#include <vector>

#include "mytorch/nn/parallel/parallelize.h"

namespace mytorch::nn::parallel {

// Whether a name matches a pattern of a rule.
bool matches(const std::string& pattern, const std::string& name);

const char* name_of(ParallelStyle style);

// Returns the rules of a plan without those for split sequences, unless sequences are split.
ParallelPlan rules_for(const ParallelPlan& plan, bool sequences);

struct RuledModule {
  std::string name;
  Module* module;
  ParallelStyle style;
};
// Returns the modules that rules hold for. Throws Error(kValue) for a rule that matches no module,
// and for styles that are none.
std::vector<RuledModule> ruled_modules(Module& module, const ParallelPlan& plan, bool strict);

}  // namespace mytorch::nn::parallel
