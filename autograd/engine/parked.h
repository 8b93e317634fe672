// What the first part of a split backward leaves to the second one.
#pragma once

#include <vector>

#include "autograd/access.h"

namespace mytorch::autograd {

struct Parked {
  // A node of which only some gradients have been computed.
  struct Part {
    CountedEdge node;
    std::vector<Tensor> gradients;  // of its inputs, after their hooks
    std::vector<bool> open;         // by edge: whether its gradient is still to be computed
  };
  // A gradient that is known, of a node that has not been executed.
  struct Root {
    CountedEdge edge;
    Tensor gradient;
  };
  std::vector<Part> parts;
  std::vector<Root> roots;
};

}  // namespace mytorch::autograd
