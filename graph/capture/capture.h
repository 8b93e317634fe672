// Records a graph: the lowest layer, below autograd, sees every operator that a thread calls, with
// the tensors that kernels would get. The calls run as usual.
//
//   OperatorCapture capture(arguments);
//   const std::vector<Tensor> results = function(arguments);
//   Recorded recorded = capture.finish(results);
//
// Values are found by storage, type and geometry: a graph refers to no tensor that was computed.
// Tensors from outside are kept, and are inputs of the graph.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/tensor/capture_layer.h"
#include "graph/capture/trace.h"
#include "graph/ir/ir.h"
#include "mytorch/tensor.h"

namespace mytorch::graph {

// A graph with the tensors from outside that it refers to.
struct Recorded {
  Graph graph;
  std::vector<Tensor> outside;
  // The leaves whose grads the function reads before it replaces them, with the value of each, or
  // kNoValue if it had none.
  std::vector<GradResult> entry_grads;
  // Views from outside that variables refer to: the memory is that of a tensor in `outside`.
  std::vector<Tensor> views;
  // Tensors from outside whose elements the host read, with what it read.
  struct HostRead {
    Tensor tensor;
    Tensor elements;  // on the CPU, contiguous
  };
  std::vector<HostRead> host_reads;
  // What each call asks whether the recording still holds.
  std::vector<std::shared_ptr<RecordedState>> states;

  // Of a rewritten copy: the recording, which holds the tensors, too, and outlives the copy.
  const Recorded* original = nullptr;
  // Whether the geometries follow from recordings at other sizes: the first run of the graph checks
  // that its operators give them.
  bool is_fitted = false;

  // Returns a leaf of a call with these arguments.
  const Tensor& leaf(const Leaf& of, const std::vector<Tensor>& arguments) const {
    return of.origin == BufferOrigin::kArgument ? arguments[of.index] : outside[of.index];
  }
};

// Returns a copy of a tensor's elements on the CPU, in order.
Tensor elements_of(const Tensor& tensor);

class OperatorCapture {
 public:
  // Records the calls of this thread until finish() or the end of the scope. `frame` is the frame
  // of the function that calls the recorded one, if assigns_variables() is wanted. Captures do not
  // nest: throws Error(kUnsupported) inside another.
  explicit OperatorCapture(const std::vector<Tensor>& arguments, const void* frame = nullptr);
  // The same in the middle of a function that has breaks (splitting.h): whatever tensors come from
  // outside, and grads are tensors like others.
  OperatorCapture();
  ~OperatorCapture();
  OperatorCapture(const OperatorCapture&) = delete;
  OperatorCapture& operator=(const OperatorCapture&) = delete;

  // Adds an argument, during the recording.
  void add_argument(const Tensor& argument);
  // Returns whether the function, which has returned, has assigned tensors to variables in the
  // stack of its callers.
  bool assigns_variables();
  // Returns whether anything else than its results and grads refers to memory that the function has
  // computed. If these have histories, the histories do.
  bool leaves_memory(const std::vector<Tensor>& results) const;
  // Returns the number of nodes so far.
  size_t size() const;
  // Ends the recording.
  Recorded finish(const std::vector<Tensor>& results);
  // Ends the recording in the middle of the function.
  Trace cut();
  // Returns whether the recording must end before the host accesses a tensor.
  bool ends_before_access(const Tensor& tensor, const char* op) const;

  struct State;

 private:
  void activate();
  std::unique_ptr<State> state_;
  uint32_t wanted_;
};

// Returns whether an OperatorCapture of this thread exists.
bool is_recording();

// Fills the layer's column of the operator table. Generated.
void install_wrappers();

}  // namespace mytorch::graph
