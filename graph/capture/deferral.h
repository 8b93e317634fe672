// Calls of operators that wait: they were compared with a trace and found equal, and no kernel has
// run. Their results are tensors over memory that nothing has filled.
//
// A call equals a node if it is the same operator with the same constants, and its operands have
// the types, geometries and aliases of the node's. Memory that the trace does not make is bound by
// its first use, and held until the calls have run: what it held when the first call waited is
// what they read. Whoever runs the trace fills the memory of results that are still alive.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "graph/capture/trace.h"
#include "mytorch/generator.h"
#include "mytorch/tensor.h"

namespace mytorch::graph {

class Deferral {
 public:
  explicit Deferral(const Trace* trace);
  // Lets all memory go. Results that are alive are ordinary tensors from now on.
  ~Deferral();
  Deferral(const Deferral&) = delete;
  Deferral& operator=(const Deferral&) = delete;

  // The number of calls that wait.
  size_t size() const { return at_; }
  bool complete() const { return at_ == trace_->size(); }

  // Compares a call with the next node: begin(), then each argument in order, then accept(), as
  // long as they return true. What a call that differs has bound is let go by the next begin().
  bool begin(const OpEntry& entry, Form form);
  bool tensor(const TensorImpl* impl);  // null: absent
  bool tensors(const Tensor* begin, size_t size);
  bool wanted(const bool* wanted) const;
  // Returns the constant to which the next argument must be equal, or null if it is none.
  const Value* constant();
  // Returns whether the call that was compared last differs in nothing but constants, as far as it
  // was compared.
  bool differs_in_constants() const {
    return argument_ > 0 && candidate_->args[argument_ - 1].kind == Arg::kConstant;
  }
  // The next node.
  const GraphNode& expected() const { return trace_->graph.nodes[at_]; }
  // The call waits from now on. False if the host has changed its generator since the last call.
  bool accept();

  // Of the call that was accepted last.
  const GraphNode& node() const { return trace_->graph.nodes[at_ - 1]; }
  Tensor result(size_t i);
  std::vector<Tensor> results(size_t i);

  // Returns whether a call that waits uses, or makes, the memory of a tensor, and whether one
  // writes or makes it.
  bool uses(const Tensor& tensor) const;
  bool changes(const Tensor& tensor) const;
  // Returns whether this holds a reference to the memory of a tensor.
  bool holds(const Tensor& tensor) const;

  // The memory of a buffer; without a storage for those that are dead or were not used.
  struct BoundMemory {
    Storage* storage = nullptr;
    int64_t begin = 0;      // from where it lay in its storage in the recording, in bytes
    bool produced = false;  // whether it holds results of calls that wait, and is a placeholder
  };
  const BoundMemory& bound(int32_t buffer) const { return bound_[static_cast<size_t>(buffer)]; }
  // Returns the buffers that the calls made and that are alive.
  std::vector<int32_t> alive() const;

  // What the calls took from generators, which are already beyond it.
  struct Draws {
    Generator generator;
    uint64_t seed, first, next;
  };
  const std::vector<Draws>& draws() const { return draws_; }

 private:
  struct Placeholder;
  bool operand(ValueId id, const TensorImpl& impl, bool written);
  // Returns a tensor for a result, over the placeholder of its buffer.
  Tensor placeholder(ValueId id);
  void undo();

  const Trace* trace_;
  size_t at_ = 0;
  const GraphNode* candidate_ = nullptr;
  size_t argument_ = 0;
  std::vector<TensorImpl*> arguments_;                // of the candidate, null for constants
  std::vector<int32_t> tentative_;                    // buffers that the candidate has bound
  std::vector<BoundMemory> bound_;                    // by buffer
  absl::flat_hash_map<uint64_t, int32_t> buffer_of_;  // by the id of the storage
  std::vector<Draws> draws_;
};

// Returns whether a call with one constant is a call with another one.
bool same_constant(const Value& a, const Value& b);

}  // namespace mytorch::graph
