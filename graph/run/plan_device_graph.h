// The steps of a plan as one graph of the device (mytorch/device_graph.h): a replay is one launch.
//
// A device graph has fixed addresses. Arguments are copied into memory of the plan before a replay,
// and results out of it after. Tensors from outside are used where they lie: if one moves, the
// steps are captured again, as they are if a generator gets another seed. Grads that the function
// leaves are used where they lie, too, as long as nobody but the leaf refers to the grad of the
// call before.
//
// If steps may run beside others (branches.h), the first replays alternate between two graphs, one
// of them with branches; the faster one stays.
#pragma once

#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "graph/run/branches.h"
#include "graph/steps/plan_parts.h"
#include "mytorch/device_graph.h"
#include "mytorch/timed_event.h"

namespace mytorch::graph {

class PlanDeviceGraph {
 public:
  // Returns whether the device graph can stand for the steps of a plan: all run on one device that
  // has graphs and may be captured, none reads the host's memory, and none writes an argument.
  static bool suits(const PlanParts& parts);

  explicit PlanDeviceGraph(PlanParts* parts);

  // Queues the steps of the plan; on the streams of `branches` if it is not null.
  using RunSteps = std::function<void(BranchRun* branches)>;
  // Runs the plan. `run_steps` is called when the steps must be captured. Returns false, having
  // done nothing, if this call must run without the graph: also if there is no memory for the
  // graph, which holds arguments and results besides. If a kernel fails, its Error says what the
  // call may have written.
  bool run(const std::vector<Tensor>& arguments, const RunSteps& run_steps,
           std::vector<Tensor>* results);

  // Returns whether all further calls run without the graph.
  bool is_given_up() const { return captures_ > kMaxCaptures; }

  // The number of streams over which the steps are spread, as far as it is known by now.
  int streams() const { return branched_ ? branches_.streams : 1; }

 private:
  // Plans whose tensors from outside move in each call run without a device graph.
  static constexpr int kMaxCaptures = 8;

  bool grads_are_free(const std::vector<Tensor>& arguments) const;
  bool outside_has_moved(const std::vector<Tensor>& arguments) const;
  bool seeds_have_changed() const;
  void capture(const std::vector<Tensor>& arguments, const RunSteps& run_steps);
  void release_allocated();
  void capture_branches(const RunSteps& run_steps);
  void replay();
  void choose();
  Tensor output_tensor(ValueId id, const std::vector<Tensor>& arguments,
                       const absl::flat_hash_map<int32_t, Tensor>& fresh) const;

  PlanParts& parts_;
  Device device_;
  DeviceGraph graph_;
  Branches branches_;
  // The graph with branches, while replays alternate. What is measured of both, in turns.
  std::optional<DeviceGraph> beside_;
  std::vector<std::pair<TimedEvent, TimedEvent>> measured_;
  bool branched_ = false;  // whether graph_ is the one with branches
  int captures_ = 0;
  bool is_captured_ = false;                           // whether the last capture has succeeded
  std::vector<Tensor> inputs_;                         // the memory of each argument
  std::vector<int32_t> outside_;                       // the sources that are no arguments
  std::vector<uint64_t> outside_ids_;                  // of their storages at capture
  std::vector<std::pair<Generator, uint64_t>> seeds_;  // of random numbers, at capture
  absl::flat_hash_map<int32_t, Tensor> kept_;          // the memory of results and grads, as bytes
  absl::flat_hash_set<int32_t> copied_out_;            // the memories of results
  std::vector<std::pair<int32_t, uint64_t>> writes_;   // versions that a run adds to memories
};

}  // namespace mytorch::graph
