// Reads the text of a graph, as to_text() writes it.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "graph/ir/ir.h"

namespace mytorch::graph {

// The hashes of the schemas of operators, by their full names.
using Schemas = std::map<std::string, uint64_t, std::less<>>;

// A dimension of an argument that a graph leaves open, as in "graph(%0: float32[n = 64, 784])":
// integers and numbers of the graph are functions of such symbols.
struct SizeSymbol {
  std::string name;
  size_t argument = 0;
  size_t dim = 0;
  int64_t size = 0;  // at which the graph was read
};

// Returns the graph of a text. Lines may be indented otherwise, and "#" begins a comment. Values
// keep their numbers. Operators are looked up by name; `schemas`, if given, says with which schema
// the text was written: arguments that an operator has received since take their defaults.
//
// Throws Error(kValue), with line and column and what to write instead, if the text is no graph: if
// it does not parse, names an unknown operator, does not fit an operator's schema, uses a value
// before it is defined, or describes views that leave the memory of an argument. A graph that was
// read refers to existing values, buffers and forms alone; whether operators give results of the
// stated types shows when it runs (checked_run.h).
//
// `symbols`, if given, says at which sizes to read the graph, by name, and receives the symbols. A
// symbol of which it says nothing has the size that the text states.
Graph parse_text(std::string_view text, const Schemas* schemas = nullptr,
                 std::vector<SizeSymbol>* symbols = nullptr);

// The names and hashes of the operators that a graph calls.
Schemas schemas_of(const Graph& graph);

// The elements of its buffer that a value covers, [begin, end); both 0 for a value without
// elements. Throws Error(kValue) if they are not between 0 and the largest size of a tensor.
struct Span {
  int64_t begin = 0;
  int64_t end = 0;
};
Span span_of(const ValueInfo& info);

}  // namespace mytorch::graph
