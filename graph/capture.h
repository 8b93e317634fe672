// Records a graph: the lowest layer, below autograd, sees every operator that a thread calls, with
// the tensors that kernels would get. The calls run as usual.
//
//   Capture capture(arguments);
//   const std::vector<Tensor> results = function(arguments);
//   Recorded recorded = capture.finish(results);
//
// Values are found by storage, type and geometry: a graph refers to no tensor that was computed.
// Tensors from outside are kept, and are inputs of the graph.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "graph/ir.h"
#include "mytorch/tensor.h"

namespace mytorch::graph {

// A graph with the tensors from outside that it refers to.
struct Recorded {
  Graph graph;
  std::vector<Tensor> outside;
  // The leaves whose grads the function reads before it replaces them, with the value of each, or
  // kNoValue if it had none.
  std::vector<GradResult> entry_grads;

  // Returns a leaf of a call with these arguments.
  const Tensor& leaf(const Leaf& of, const std::vector<Tensor>& arguments) const {
    return of.origin == Origin::kArgument ? arguments[of.index] : outside[of.index];
  }
};

class Capture {
 public:
  // Records the calls of this thread until finish() or the end of the scope. Captures do not nest:
  // throws Error(kUnsupported) inside another.
  explicit Capture(const std::vector<Tensor>& arguments);
  ~Capture();
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;

  // Ends the recording. Throws Error(kUnsupported) if a result has history to differentiate.
  Recorded finish(const std::vector<Tensor>& results);

  struct State;

 private:
  std::unique_ptr<State> state_;
  uint32_t wanted_;
};

// Returns whether a Capture of this thread exists.
bool is_recording();

// One call of an operator, in the frame of its wrapper (wrappers.h).
class Call {
 public:
  // Throws Error(kUnsupported) if a graph cannot hold the operator.
  Call(const OpEntry& entry, Form form);
  void tensor(const Tensor& tensor);
  void tensors(const Tensor* begin, size_t size);
  void constant(Value value);
  void wanted(const bool* wanted) { wanted_ = wanted; }

  void result(const Tensor& tensor);
  void results(const std::vector<Tensor>& tensors);
  void scalar_result(const OpInfo& op);
  // Adds the node to the graph.
  void finish();

 private:
  Capture::State& state_;
  size_t known_;  // buffers before the call
  Node node_;
  const bool* wanted_ = nullptr;
};

// Fills the layer's column of the operator table. Generated.
void install_wrappers();

}  // namespace mytorch::graph
