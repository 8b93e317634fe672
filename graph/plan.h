// A graph that is ready to run again: the calls of kernels that its nodes made once, with tensors
// of their own over memory that changes from run to run.
//
// A run does not dispatch, infer shapes or count references. It sets the addresses of arguments and
// results, and calls the kernels in order. Nodes that need the host run through the interpreter:
// those whose body reads or writes memory itself, and complex ones.
#pragma once

#include <memory>
#include <vector>

#include "graph/capture.h"
#include "mytorch/generator.h"
#include "mytorch/tensor.h"

namespace mytorch::graph {

class Plan {
 public:
  // Runs the graph once, node by node, and notes the calls of its kernels. `results` receives its
  // results. `recorded` must outlive the plan. The grads of leaves are set as the graph says.
  Plan(const Recorded& recorded, const std::vector<Tensor>& arguments,
       std::vector<Tensor>* results);
  ~Plan();
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;

  // Runs the graph. The tensors must have the types and geometries of those recorded. If a kernel
  // fails, its Error is thrown; what the kernels before it wrote stays written.
  std::vector<Tensor> run(const std::vector<Tensor>& arguments);

  // The number of kernel calls, and of nodes that the interpreter runs.
  size_t kernel_calls() const;
  size_t interpreted() const;
  // The bytes of intermediates: as planned, and the sum of all.
  uint64_t arena_bytes() const;
  uint64_t intermediate_bytes() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace mytorch::graph
