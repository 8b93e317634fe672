// A part of a function that is a graph of its own, and what can follow it.
//
// A function with breaks is a tree of segments. Each call walks it from the root: the calls of
// operators decide which segment follows.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "core/types/call_site.h"
#include "graph/capture/capture.h"
#include "graph/capture/deferral.h"
#include "graph/passes/passes.h"
#include "graph/run/plan.h"

namespace mytorch::graph {

// Why a segment ends before the function does.
struct Break {
  std::string op;
  std::string reason;
  CallSite site = {};  // where the function first was then, if it is known
};

class Segment {
 public:
  Segment() = default;  // the root: nothing
  explicit Segment(Trace trace);

  // Ends the segment behind its first nodes; the others become a segment that can follow it.
  void split(size_t nodes);

  // Runs the calls of `waiting`, which are this segment's, and gives its results that are alive
  // their values. `changing` are storages that are others in each call. With `check`, the operators
  // run one by one, too, and are compared.
  struct How {
    const PassOptions& passes;
    const std::vector<Storage*>& changing;
    bool check;
  };
  void run(const Deferral& waiting, const How& how);

  const ReplayPlan* plan() const { return plan_.get(); }
  // Returns what the plan runs, or the recording before there is one.
  const Graph& graph() const { return plan_ != nullptr ? planned_.graph : trace.graph; }
  const Fired& rewritten() const { return rewritten_; }

  Trace trace;
  Break end;  // without an operator: nothing that a graph could not hold
  std::vector<std::unique_ptr<Segment>> children;  // the last used first
  // Operators that run outside of graphs where the segment ends.
  absl::flat_hash_set<const OpEntry*> outside_graphs;

 private:
  void make_graph(const Deferral& waiting, const How& how, const std::vector<int32_t>& alive);
  bool suits(const Deferral& waiting, const std::vector<int32_t>& alive) const;
  Tensor source(const Deferral& waiting, ValueId id) const;

  std::vector<ValueId> whole_;  // of each buffer that the trace makes: its first value
  // The buffers that somebody referred to at the end of a run, in order: results of the graph.
  std::vector<int32_t> live_out_;
  std::vector<bool> direct_;        // of these: whether the plan writes where they lie
  std::vector<ValueId> arguments_;  // of the graph
  // Tensors that are the same in each call are tensors from outside: their values, and where they
  // are in `planned_`, or -1.
  std::vector<ValueId> outside_;
  std::vector<int32_t> outside_places_;
  bool all_change_ = false;
  Recorded recorded_, planned_;
  Fired rewritten_;
  std::unique_ptr<ReplayPlan> plan_;
};

}  // namespace mytorch::graph
