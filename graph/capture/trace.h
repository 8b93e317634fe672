// A part of a function that was recorded, from one point at which a graph ends to the next
// (CompileOptions::allow_breaks). Later calls of the function are compared with it node by node
// (deferral.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "graph/ir/ir.h"

namespace mytorch::graph {

// The address of a first element modulo this is what plans take for granted.
inline constexpr uintptr_t kTraceAlignment = 64;

struct Trace {
  struct Note {
    uint32_t draws = 0;  // call numbers that the node takes from its generator
    int8_t same = -1;    // the argument that its result is, or -1
    bool waits = true;   // whether the results can be made without running a kernel
  };

  // All memory that the nodes do not make is an argument, in the order of its first use. Values and
  // buffers that no node uses may remain.
  Graph graph;
  std::vector<Note> notes;         // of each node
  std::vector<uint64_t> storages;  // of each buffer: the id of its storage in the recording
  std::vector<uint8_t> alignment;  // of each buffer: of its storage
  size_t size() const { return graph.nodes.size(); }
};

// Returns the nodes [begin, end) of a trace as one of its own. Ids of values and buffers stay.
Trace slice(const Trace& trace, size_t begin, size_t end);

}  // namespace mytorch::graph
