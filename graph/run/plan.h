// A graph that is ready to run again: the calls of kernels that its nodes made once, with tensors
// of their own over memory that changes from run to run.
//
// A run does not dispatch, infer shapes or count references. It sets the addresses of arguments and
// results, and calls the kernels in order. Nodes that need the host run through the interpreter:
// those whose body reads or writes memory itself, and complex ones.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "graph/capture/capture.h"
#include "mytorch/compile_mode.h"
#include "mytorch/tensor.h"

namespace mytorch::graph {

class ReplayPlan {
 public:
  // Runs the graph once, node by node, and notes the calls of its kernels. `results` receives its
  // results. `recorded` must outlive the plan. The grads of leaves are set as the graph says.
  ReplayPlan(const Recorded& recorded, CompileMode mode, const std::vector<Tensor>& arguments,
             std::vector<Tensor>* results);
  ~ReplayPlan();
  ReplayPlan(const ReplayPlan&) = delete;
  ReplayPlan& operator=(const ReplayPlan&) = delete;

  // Runs the graph. The tensors must have the types and geometries of those recorded. If a kernel
  // fails, its Error is thrown; what the kernels before it wrote stays written, and the message
  // says so. `into` may name, for each result, memory in which it is to lie, or null; a result that
  // the plan cannot put there is in memory of its own.
  std::vector<Tensor> run(const std::vector<Tensor>& arguments,
                          const std::vector<Storage*>& into = {});

  // The number of kernel calls, and of calls that became parts of others.
  size_t kernel_calls() const;
  size_t fused() const;
  // The number of kernel calls that run only when a tensor from outside has changed, and the bytes
  // of their results.
  size_t kept() const;
  uint64_t kept_bytes() const;
  // Whether regions rely on tensors from outside to which only the recording refers.
  bool keeps_constants() const;
  // The number of regions, and a line for each that a backend compiled or declined.
  size_t regions() const;
  const std::vector<std::string>& region_report() const;
  // A line for each loop over elements or rows: the calls that it joins, or why it stands alone.
  const std::vector<std::string>& fusion_report() const;
  // Whether runs after the first are replays of a device graph.
  bool has_device_graph() const;
  // The streams over which it spreads its steps; 1 until replays have been measured.
  int streams() const;
  // Returns the names of the nodes that the interpreter runs.
  std::vector<std::string> interpreted() const;
  // The bytes of intermediates: as planned, and the sum of all.
  uint64_t arena_bytes() const;
  uint64_t intermediate_bytes() const;
  // The most bytes that the values of the recording hold at one time.
  uint64_t recorded_peak_bytes() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace mytorch::graph
