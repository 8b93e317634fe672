#include "graph/steps/memory.h"

#include <algorithm>
#include <numeric>

namespace mytorch::graph {

Placement place_lifetimes(const std::vector<Lifetime>& lifetimes) {
  constexpr uint64_t kLine = 64;
  Placement placement;
  placement.offsets.resize(lifetimes.size());
  std::vector<size_t> order(lifetimes.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return lifetimes[a].bytes > lifetimes[b].bytes; });
  std::vector<size_t> placed;  // by offset
  for (const size_t i : order) {
    const Lifetime& value = lifetimes[i];
    const uint64_t bytes = (value.bytes + kLine - 1) / kLine * kLine;
    uint64_t offset = 0;
    for (const size_t other : placed) {
      const Lifetime& placed = lifetimes[other];
      if (placed.last < value.first || value.last < placed.first) continue;
      const uint64_t begin = placement.offsets[other];
      if (offset + bytes <= begin) break;
      offset = std::max(offset, begin + (placed.bytes + kLine - 1) / kLine * kLine);
    }
    placement.offsets[i] = offset;
    placement.bytes = std::max(placement.bytes, offset + bytes);
    placed.insert(std::upper_bound(placed.begin(), placed.end(), i,
                                   [&](size_t a, size_t b) {
                                     return placement.offsets[a] < placement.offsets[b];
                                   }),
                  i);
  }
  return placement;
}

}  // namespace mytorch::graph
