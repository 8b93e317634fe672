#include "graph/fusion/loop_space.h"

#include <utility>

namespace mytorch::graph {
namespace {

int64_t product(const Dims& sizes) {
  int64_t n = 1;
  for (const int64_t size : sizes) n *= size;
  return n;
}

Dims without_ones(const Dims& shape) {
  Dims sizes;
  for (const int64_t size : shape) {
    if (size != 1) sizes.push_back(size);
  }
  return sizes;
}

// Returns sizes of which those of both lists, with equal products, are products of neighbors; or
// nothing: (4, 6) and (6, 4) have none.
std::optional<Dims> common_sizes(const Dims& a, const Dims& b) {
  Dims common;
  size_t i = 0, j = 0;
  int64_t left = 1, right = 1;  // of the current size of each list
  while (i < a.size() || j < b.size() || left != right) {
    if (left == 1 && i < a.size()) left = a[i++];
    if (right == 1 && j < b.size()) right = b[j++];
    if (left == 1 || right == 1) return std::nullopt;
    int64_t& large = left < right ? right : left;
    int64_t& small = left < right ? left : right;
    if (large % small != 0) return std::nullopt;
    common.push_back(small);
    large /= small;
    small = 1;
  }
  return common;
}

// Returns the first dimensions, which are not part of a row.
Dims outer_of(const LoopSpace& space) {
  return Dims(space.sizes.begin(), space.sizes.end() - space.inner());
}

}  // namespace

int64_t LoopSpace::numel() const { return product(sizes); }

int LoopSpace::inner() const {
  int count = 0;
  for (int64_t n = 1; n < columns; ++count)
    n *= sizes[sizes.size() - 1 - static_cast<size_t>(count)];
  return count;
}

LoopSpace space_of(const Dims& shape, int inner) {
  LoopSpace space{without_ones(shape)};
  if (inner > 0) space.columns = product(Dims(shape.end() - inner, shape.end()));
  return space;
}

std::optional<LoopSpace> common_space(const LoopSpace& a, const LoopSpace& b) {
  if (a.columns != 0 && b.columns != 0 && a.columns != b.columns) return std::nullopt;
  LoopSpace space;
  space.columns = a.columns != 0 ? a.columns : b.columns;
  std::optional<Dims> sizes;
  if (a.numel() == b.numel()) {
    // The first dimensions of a row begin where it begins.
    sizes = common_sizes(a.sizes, b.sizes);
  } else {
    const LoopSpace& whole = a.columns != 0 ? a : b;
    const LoopSpace& rows = a.columns != 0 ? b : a;
    if (whole.columns == 0 || rows.columns != 0 || rows.numel() != whole.rows()) {
      return std::nullopt;
    }
    sizes = common_sizes(rows.sizes, outer_of(whole));
    if (sizes.has_value()) {
      sizes->insert(sizes->end(), whole.sizes.end() - whole.inner(), whole.sizes.end());
    }
  }
  if (!sizes.has_value()) return std::nullopt;
  space.sizes = *std::move(sizes);
  return space;
}

Dims strides_in(const LoopSpace& space, const Dims& shape, const Dims& strides) {
  const bool row = product(shape) != space.numel();
  const size_t count = space.sizes.size() - static_cast<size_t>(row ? space.inner() : 0);
  Dims found(space.sizes.size(), 0);
  size_t at = count;
  for (size_t d = shape.size(); d-- > 0;) {
    int64_t stride = strides[d];
    for (int64_t n = 1; n < shape[d];) {
      found[--at] = stride;
      n *= space.sizes[at];
      stride *= space.sizes[at];
    }
  }
  return found;
}

}  // namespace mytorch::graph
