// Which nodes make, read and write the memory of a graph.
#pragma once

#include <cstdint>
#include <vector>

#include "graph/ir/ir.h"

namespace mytorch::graph {

// Of one buffer, by the indices of nodes, which ascend.
struct BufferUses {
  int32_t producer = -1;               // the node of which it is a result; -1: of none
  ValueId whole = kNoValue;            // that result
  std::vector<int32_t> written, read;  // views do not count
  std::vector<int32_t> viewed;         // views of it
  bool escapes = false;                // it outlives the run, as a result or a grad of the graph

  // Whether one node produces it, and no other writes it.
  bool is_single() const { return producer >= 0 && written.empty(); }
};

class GraphUses {
 public:
  explicit GraphUses(const Graph& graph);

  const BufferUses& of(ValueId id) const {
    return buffers_[static_cast<size_t>(graph_.values[static_cast<size_t>(id)].buffer)];
  }
  const BufferUses& buffer(int32_t id) const { return buffers_[static_cast<size_t>(id)]; }
  // Returns whether a node in [begin, end) writes the memory of a value.
  bool is_written(ValueId id, int32_t begin, int32_t end) const;
  // Counts what reads and views one buffer among the uses of another one, which takes its place.
  void join(int32_t from, int32_t to);

 private:
  const Graph& graph_;
  std::vector<BufferUses> buffers_;
};

// Returns whether a node is a view of its first operand.
bool is_view(const Graph& graph, const GraphNode& node);
// Returns whether a value holds all elements of its buffer, in row-major order.
bool is_whole(const Graph& graph, ValueId id);
// Returns the most bytes that buffers from inside hold at one time, each from its first to its last
// use, without those that outlive the run.
uint64_t peak_bytes(const Graph& graph);
// Returns the bytes of the elements of a value, each counted once.
uint64_t bytes_of(const ValueInfo& info);
bool same_geometry(const ValueInfo& a, const ValueInfo& b);

// Returns whether the values of a buffer have whole elements if they are moved by `shift` bytes: a
// view of floats as complex numbers does not move by one float.
bool can_move(const Graph& graph, int32_t buffer, int64_t shift);
// Returns where a value begins in its memory, in bytes.
int64_t begin_of(const ValueInfo& info);

}  // namespace mytorch::graph
