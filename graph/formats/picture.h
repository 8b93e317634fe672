// Pictures of graphs: sources, operators and results, with the memory that flows between them.
#pragma once

#include <string>

#include "graph/ir/ir.h"

namespace mytorch::graph {

// Returns the picture in Graphviz's language.
std::string to_dot(const Graph& graph);

// Returns the picture as SVG. Operators lie in layers, each below those whose results it takes
// (Sugiyama, Tagawa and Toda, "Methods for Visual Understanding of Hierarchical System Structures",
// 1981): layers by longest path, order by barycenters.
std::string to_svg(const Graph& graph);

}  // namespace mytorch::graph
