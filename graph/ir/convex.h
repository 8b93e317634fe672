// Parts of a graph that can run one after the other: no path leaves a part and returns to it.
#pragma once

#include <cstdint>
#include <vector>

namespace mytorch::graph {

class ConvexParts {
 public:
  // Begins with a part for each node. `before[i]` are nodes that must run before node i, all of
  // smaller numbers.
  explicit ConvexParts(std::vector<std::vector<int32_t>> before);

  // Makes the parts of two nodes one, unless a path between them leads through a third part.
  // Returns whether they are one.
  bool join(int32_t a, int32_t b);

  // Returns the nodes of a node's part, in order.
  const std::vector<int32_t>& part(int32_t node) const { return members_[part_[node]]; }
  // Returns the first node of each part, in an order in which the parts can run.
  std::vector<int32_t> order() const;

 private:
  using Edges = std::vector<std::vector<int32_t>>;

  // Calls f(part) for the parts to which the edges of a part lead.
  template <class F>
  void for_each_next(const Edges& edges, int32_t part, F f) const {
    for (const int32_t member : members_[part]) {
      for (const int32_t node : edges[member]) {
        if (part_[node] != part) f(part_[node]);
      }
    }
  }
  bool mark(const Edges& edges, int32_t from, int32_t to);
  void merge(int32_t first, int32_t second);

  Edges before_, after_;                       // of nodes
  std::vector<int32_t> part_;                  // of each node: its first node
  std::vector<std::vector<int32_t>> members_;  // of the parts, by their first node
  // An order in which the parts can run, with -1 at places that have become free, and the place of
  // each part. A path between two parts leads through places between theirs alone, so that a join
  // looks at, and moves, no others.
  std::vector<int32_t> places_, place_of_;
  std::vector<bool> marked_;    // parts, during a join
  std::vector<int32_t> marks_;  // these
};

}  // namespace mytorch::graph
