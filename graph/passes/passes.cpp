#include "graph/passes/passes.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <iterator>
#include <mutex>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "mytorch/check.h"
#include "mytorch/rewrite.h"

namespace mytorch::graph {
namespace {

template <void (*run)(Graph*)>
void on_graph(Recorded* recorded, const PassOptions&, Fired*) {
  run(&recorded->graph);
}

constexpr Pass kPasses[] = {
    {"constant-folding", "computes what depends on constants alone", false, fold_constants},
    {"algebra", "drops what gives its operand", false, simplify_algebra},
    {"view-copies", "drops copies that nobody needs", false, remove_copies},
    {"rewrite", "applies the rules of the records", false, apply_rules},
    {"added", "runs the passes of add_pass()", false, run_added_passes},
    {"layout", "lets convolutions work on channels-last tensors", false, change_layout},
    {"common-subexpressions", "computes equal values once", true,
     on_graph<merge_common_subexpressions>},
    {"dead-code", "drops what nothing uses", true, on_graph<remove_dead_code>},
    // Behind common-subexpressions, which would undo it.
    {"recomputation", "computes values of forward again in backward", false, recompute_values},
};

// The stages that make a plan of a graph.
const CompilePass kStages[] = {
    {kRegions, "hands regions to the backends that compile them"},
    {kKept, "keeps what depends on nothing that changes from call to call"},
    {kFusion, "joins calls into loops over elements or rows"},
    {kInPlace, "gives results the memory of operands that nobody reads later"},
    {kBranches, "runs independent calls of a device graph on several streams"},
};

// Prints a line to stderr for each name in MYTORCH_COMPILE_WITHOUT that no pass or stage has, once
// for each value of the variable.
void tell_unknown_names() {
  const char* text = std::getenv("MYTORCH_COMPILE_WITHOUT");
  static std::mutex mutex;
  static std::string told;
  const std::lock_guard<std::mutex> lock(mutex);
  if (text == nullptr || told == text) return;
  told = text;
  std::vector<std::string> known;
  for (const CompilePass& pass : compile_passes()) known.push_back(pass.name);
  for (const absl::string_view part : absl::StrSplit(told, ',')) {
    const std::string name(part);
    if (name.empty() || std::find(known.begin(), known.end(), name) != known.end()) continue;
    detail::tell(absl::StrCat("[compile] MYTORCH_COMPILE_WITHOUT: nothing is called '", name,
                              "'; there are ", absl::StrJoin(known, ", ")));
  }
}

void run_pass(const Pass& pass, Recorded* recorded, const PassOptions& options, Fired* fired) {
  if (is_disabled(pass.name)) return;
  const size_t before = recorded->graph.nodes.size();
  const std::string text = dumps(pass.name) ? to_text(recorded->graph) : "";
  pass.run(recorded, options, fired);
  if (!dumps(pass.name)) return;
  const std::string now = to_text(recorded->graph);
  if (now == text) return;
  detail::tell(absl::StrCat("[compile] ", pass.name, ": ", recorded->graph.nodes.size(),
                            " nodes instead of ", before, "\n", absl::StripSuffix(now, "\n")));
}

}  // namespace

std::span<const Pass> passes() { return kPasses; }

std::vector<CompilePass> compile_passes() {
  std::vector<CompilePass> found;
  for (const Pass& pass : kPasses) found.push_back({pass.name, pass.summary});
  found.insert(found.end(), std::begin(kStages), std::end(kStages));
  return found;
}

void run_passes(Recorded* recorded) {
  Fired unused;
  for (const Pass& pass : kPasses) {
    if (pass.recording) run_pass(pass, recorded, {CompileMode::kExact}, &unused);
  }
}

Recorded optimized(const Recorded& recorded, const PassOptions& options, Fired* fired,
                   Seconds* seconds) {
  tell_unknown_names();
  Recorded copy = recorded;
  copy.original = &recorded;
  Fired unused;
  for (const Pass& pass : kPasses) {
    const auto begin = std::chrono::steady_clock::now();
    run_pass(pass, &copy, options, fired != nullptr ? fired : &unused);
    if (seconds == nullptr) continue;
    (*seconds)[pass.name] =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  }
  return copy;
}

}  // namespace mytorch::graph
