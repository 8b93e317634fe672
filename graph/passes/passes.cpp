#include "graph/passes/passes.h"

#include <algorithm>
#include <chrono>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "mytorch/check.h"

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

void run_pass(const Pass& pass, Recorded* recorded, const PassOptions& options, Fired* fired) {
  if (is_disabled(pass.name)) return;
  const size_t before = recorded->graph.nodes.size();
  const std::string text = dumps() ? to_text(recorded->graph) : "";
  pass.run(recorded, options, fired);
  if (!dumps()) return;
  const std::string now = to_text(recorded->graph);
  if (now == text) return;
  detail::tell(absl::StrCat("[compile] ", pass.name, ": ", recorded->graph.nodes.size(),
                            " nodes instead of ", before, "\n", absl::StripSuffix(now, "\n")));
}

}  // namespace

std::span<const Pass> passes() { return kPasses; }

bool is_disabled(std::string_view pass) {
  const char* text = std::getenv("MYTORCH_COMPILE_WITHOUT");
  if (text == nullptr) return false;
  for (const absl::string_view each : absl::StrSplit(text, ',')) {
    if (std::string_view(each.data(), each.size()) == pass) return true;
  }
  return false;
}

void run_passes(Recorded* recorded) {
  Fired unused;
  for (const Pass& pass : kPasses) {
    if (pass.recording) run_pass(pass, recorded, {CompileMode::kExact}, &unused);
  }
}

Recorded optimized(const Recorded& recorded, const PassOptions& options, Fired* fired,
                   Seconds* seconds) {
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
