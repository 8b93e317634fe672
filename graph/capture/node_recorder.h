// Records one call of an operator as a node of this thread's graph.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "graph/capture/capture.h"
#include "graph/capture/trace.h"
#include "graph/ir/ir.h"
#include "mytorch/generator.h"
#include "mytorch/tensor.h"

namespace mytorch::graph {

// One call of an operator, in the frame of its wrapper (wrappers.h).
class NodeRecorder {
 public:
  // Throws Error(kUnsupported) if a graph cannot hold the operator.
  NodeRecorder(const OpEntry& entry, Form form);
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
  Trace::Note note() const;

  OperatorCapture::State& state_;
  GraphNode node_;
  const bool* wanted_ = nullptr;
  // What the note is made of: the tensors of arguments, the buffers before there were results, and
  // where the generator was.
  std::vector<const TensorImpl*> operands_;
  const TensorImpl* result_ = nullptr;
  int32_t buffers_ = -1;
  Generator generator_;
  uint64_t call_;
};

}  // namespace mytorch::graph
