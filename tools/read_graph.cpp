#include "tools/read_graph.h"

#include <fstream>
#include <iterator>

#include "graph/formats/parse.h"
#include "mytorch/program.h"

namespace mytorch::tools {

graph::Graph read_graph(const std::string& path) {
  std::ifstream file(path);
  char begin[6] = {};
  file.read(begin, sizeof(begin));
  const bool is_text = file && std::string(begin, sizeof(begin)) == "graph(";
  file.seekg(0);
  if (!is_text) return graph::parse_text(load(path).text());
  return graph::parse_text(std::string(std::istreambuf_iterator<char>(file), {}));
}

}  // namespace mytorch::tools
