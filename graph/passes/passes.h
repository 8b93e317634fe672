// Passes rewrite a graph into one that computes the same with less work. Each is one file.
//
// A recording is kept as it can be saved, after the passes that do not depend on the mode. What a
// plan runs is a copy, after all passes.
#pragma once

#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "graph/capture/capture.h"
#include "graph/ir/ir.h"
#include "graph/ir/switches.h"
#include "graph/rules/rewrite.h"
#include "mytorch/compile_mode.h"

namespace mytorch::graph {

struct PassOptions {
  CompileMode mode = CompileMode::kDefault;
  // The part of the bytes that live from forward to backward which may stay (recomputation.h).
  double memory_budget = 1;
};

struct Pass {
  const char* name;
  const char* summary;
  bool recording;  // runs on recordings, too
  void (*run)(Recorded* recorded, const PassOptions& options, Fired* fired);
};

// Returns the passes in the order in which they run.
std::span<const Pass> passes();

// Runs those that change recordings, without those that are disabled (ir/switches.h). Those that
// dump print to stderr what they change.
void run_passes(Recorded* recorded);
// How long each pass took, by name.
using Seconds = std::map<std::string, double>;

// Returns what a plan runs: a copy of a recording after all passes. `fired`, if given, receives how
// often each rule and pass changed something, and `seconds` how long each took.
Recorded optimized(const Recorded& recorded, const PassOptions& options, Fired* fired = nullptr,
                   Seconds* seconds = nullptr);

void remove_dead_code(Graph* graph);
void merge_common_subexpressions(Graph* graph);
void fold_constants(Recorded* recorded, const PassOptions& options, Fired* fired);
void simplify_algebra(Recorded* recorded, const PassOptions& options, Fired* fired);
void remove_copies(Recorded* recorded, const PassOptions& options, Fired* fired);
void apply_rules(Recorded* recorded, const PassOptions& options, Fired* fired);
void change_layout(Recorded* recorded, const PassOptions& options, Fired* fired);
void recompute_values(Recorded* recorded, const PassOptions& options, Fired* fired);
void run_added_passes(Recorded* recorded, const PassOptions& options, Fired* fired);

}  // namespace mytorch::graph
