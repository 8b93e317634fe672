// Graphs in files.
#pragma once

#include <string>

#include "graph/ir/ir.h"

namespace mytorch::tools {

// Reads a program that Compiled::save() wrote, or the text of a graph. Throws Error(kIo) or
// Error(kValue).
graph::Graph read_graph(const std::string& path);

}  // namespace mytorch::tools
