// Gradients of tensors of which parts have come, as those of the pieces of a chunk: each part is
// copied to its place, and only what no part has written is filled with zeros in the end.
#pragma once

#include <cstdint>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "mytorch/tensor.h"

namespace mytorch::autograd {

// The elements [begin, end) of a dimension.
struct Slice {
  int64_t dim, begin, end;
};
// Returns the slice that the view `part` is of `whole`, a contiguous tensor, with or without the
// dimension if it has one element; none if it is another view or has no elements.
std::optional<Slice> slice_of(const Tensor& whole, const Tensor& part);

class Wholes {
 public:
  bool empty() const { return wholes_.empty(); }
  // `sum` has been allocated, and holds this slice alone.
  void begin(const Tensor* sum, const Slice& slice);
  // Returns whether `sum` is such a gradient and no part has written any of the slice; it then
  // counts as written.
  bool take(const Tensor* sum, const Slice& slice);
  // Fills the rest of `sum` with zeros if it is such a gradient. It becomes an ordinary one.
  void complete(const Tensor* sum);

 private:
  struct Written {
    int64_t dim;
    std::vector<std::pair<int64_t, int64_t>> slices;  // ascending, with gaps between them
  };
  std::unordered_map<const Tensor*, Written> wholes_;
};

}  // namespace mytorch::autograd
