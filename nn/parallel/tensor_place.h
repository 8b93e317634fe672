// Where a rank's part of a tensor lies among the elements of the whole one.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "mytorch/nn/parallel/sharded_checkpoint.h"

namespace mytorch::nn::checkpoint {

inline int64_t product(const std::vector<int64_t>& sizes) {
  int64_t n = 1;
  for (const int64_t size : sizes) n *= size;
  return n;
}

// The sizes of a part's whole tensor.
inline const std::vector<int64_t>& whole_sizes(const TensorPart& part) {
  return part.outer_sizes.empty() ? part.sizes : part.outer_sizes;
}

// Where a part's elements lie among those of the whole tensor: at the positions [begin, end) of a
// block, both in row-major order. The elements of a block are runs of neighbors, in ascending
// order.
class Place {
 public:
  explicit Place(const TensorPart& part)
      : sizes_(whole_sizes(part)), origin_(part.origin), extent_(part.sizes) {
    origin_.resize(sizes_.size());
    if (part.dim >= 0) {
      const auto dim = static_cast<size_t>(part.dim);
      origin_[dim] += part.begin;
      extent_[dim] = part.end - part.begin;
    }
    begin_ = part.dim == TensorPart::kFlat ? part.begin : 0;
    end_ = part.dim == TensorPart::kFlat ? part.end : product(extent_);
    // A run goes over the dimensions from run_dim_ on.
    run_dim_ = sizes_.size();
    while (run_dim_ > 0) {
      run_ *= extent_[--run_dim_];
      if (extent_[run_dim_] != sizes_[run_dim_]) break;
    }
  }

  int64_t begin() const { return begin_; }
  int64_t end() const { return end_; }
  int64_t numel() const { return end_ - begin_; }
  // The elements from a position on that are neighbors.
  int64_t run_at(int64_t position) const {
    return std::min(run_ - position % run_, end_ - position);
  }
  // Returns the position in the whole tensor.
  int64_t in_whole(int64_t position) const {
    int64_t place = position % run_, row = position / run_, stride = 1;
    for (size_t dim = sizes_.size(); dim-- > 0;) {
      int64_t index = origin_[dim];
      if (dim < run_dim_) {
        index += row % extent_[dim];
        row /= extent_[dim];
      }
      place += index * stride;
      stride *= sizes_[dim];
    }
    return place;
  }

 private:
  std::vector<int64_t> sizes_, origin_, extent_;
  int64_t begin_, end_, run_ = 1;
  size_t run_dim_;
};

// Calls `run(position, in_whole, n)` for each run of n neighbors of a place.
template <class F>
void for_runs(const Place& place, F&& run) {
  for (int64_t i = place.begin(), n = 0; i < place.end(); i += n) {
    n = place.run_at(i);
    run(i, place.in_whole(i), n);
  }
}

// Throws for a block that is not within its tensor.
void check_block(const TensorPart& part);
// Throws for a part that is not within its tensor, or whose elements are not those of its place.
void check_part(const TensorPart& part);

// A part's place as text, "dim begin end sizes...", and of a block " of " the sizes of the tensor
// " at " where it begins.
std::string place_text(const TensorPart& part);
// Reads what place_text() has written.
TensorPart read_place(const std::string& text);

}  // namespace mytorch::nn::checkpoint
