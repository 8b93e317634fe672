// A set of nodes of least weight that separates sources from sinks.
#pragma once

#include <cstdint>
#include <vector>

namespace mytorch::graph {

class MinCut {
 public:
  // Nodes, each with the weight that it has in a cut.
  explicit MinCut(std::vector<uint64_t> weights);

  void edge(int32_t from, int32_t to);
  void source(int32_t node);
  void sink(int32_t node);

  // Returns, for each node, whether it is in the cut: of those of least weight, the one next to the
  // sinks. Every path from a source to a sink, these included, leads through one of its nodes.
  std::vector<bool> run();

 private:
  struct CutEdge {
    int32_t to;
    uint64_t room;
  };
  void add(int32_t from, int32_t to, uint64_t room);
  bool augment();

  // A node is two, the edge between which has room for its weight.
  static int32_t in(int32_t node) { return 2 * node + 2; }
  static int32_t out(int32_t node) { return 2 * node + 3; }

  const std::vector<uint64_t> weights_;
  std::vector<CutEdge> edges_;                // each followed by its reverse
  std::vector<std::vector<int32_t>> leaves_;  // the edges that leave a node
  std::vector<int32_t> came_by_;              // of each node, in a search
};

}  // namespace mytorch::graph
