// Copies and conversions in a graph: copy_ into memory that nothing else writes.
#pragma once

#include <optional>

#include "graph/ir/ir.h"
#include "graph/ir/uses.h"

namespace mytorch::graph {

struct BufferCopy {
  int32_t node = -1;
  ValueId from = kNoValue;
  ValueId to = kNoValue;  // all of its memory
};

// Returns the copy that a node is: of equal sizes, on one device, into memory inside of the graph
// that has no other writer, and that is read only afterwards.
std::optional<BufferCopy> copy_of(const Graph& graph, const GraphUses& uses, int32_t node);

// Returns whether every value of a type is one of another type, too, which is at least as wide.
bool is_widening(ScalarType from, ScalarType to);

}  // namespace mytorch::graph
