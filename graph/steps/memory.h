// Places for values of limited lifetimes in one block of memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace mytorch::graph {

struct Lifetime {
  uint64_t bytes;
  size_t first, last;  // the steps at which it is in use, both included
};

struct Placement {
  std::vector<uint64_t> offsets;  // multiples of 64
  uint64_t bytes = 0;             // of the block
};

// Places values so that those in use at the same time do not overlap: the largest first, each at
// the lowest free offset (Greedy by Size, Pisarchyk and Lee, "Efficient Memory Management for Deep
// Neural Net Inference", 2020).
Placement place_lifetimes(const std::vector<Lifetime>& lifetimes);

}  // namespace mytorch::graph
