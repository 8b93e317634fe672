// Larger forms of a sample, which reach past the blocks and vectors of kernels.
#pragma once

#include <cstdint>
#include <vector>

#include "conformance/catalog.h"

namespace mytorch::conformance {

// Limits of an enlarged sample.
struct Room {
  int64_t elements = 0;  // of the largest tensor
  int64_t work = 0;      // the product of all sizes that occur, each as often as in one tensor
};

// Returns the shape of a tensor of a sample.
std::vector<int64_t> shape_of(const Json& spec);

// Returns the sizes larger than 1 of a sample's tensors, ascending; those of its lists and integers
// if it has no tensor. Empty if the sample cannot be enlarged, because a tensor is empty.
std::vector<int64_t> sizes_of(const OpRecord& op, const Json& sample);

// Returns the elements of a sample's largest tensor, or its largest number if it has no tensor.
double extent(const OpRecord& op, const Json& sample);

// A sample with other sizes. The operator may refuse them, because its sizes depend on each other
// in a way that no record states; then it refuses the probe, too, which is smaller.
struct Larger {
  Json sample;
  Json probe;
};

// Returns larger forms of a sample, the most useful first. New sizes are odd and as large as the
// room allows. Equal sizes stay equal. If `only` is an index of sizes_of(), other sizes stay as
// they are.
std::vector<Larger> enlarged(const OpRecord& op, const Json& sample, const Room& room, int only);

}  // namespace mytorch::conformance
