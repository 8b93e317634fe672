// What a convolution is, whichever way it goes. A direct convolution maps `big` to `small`, a
// transposed one `small` to `big`, and so do the gradients with respect to the input: there are
// three computations, each of one of (big, weight, small) from the other two, over the same terms.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "mytorch/backend.h"

namespace mytorch::cpu {

// Sizes along the three spatial dimensions; missing ones come first and are of size 1.
using Spatial = std::array<int64_t, 3>;

inline int64_t volume(const Spatial& size) { return size[0] * size[1] * size[2]; }

struct Geometry {
  int64_t batch;
  int64_t groups;
  int64_t big_channels;    // in a group
  int64_t small_channels;  // in a group
  Spatial big, small, kernel, stride, padding, dilation;

  int64_t big_plane() const { return volume(big); }
  int64_t small_plane() const { return volume(small); }
  int64_t taps() const { return volume(kernel); }
  int64_t depth() const { return big_channels * taps(); }  // terms of a small element
  bool empty() const { return batch == 0 || big_plane() == 0 || small_plane() == 0; }
  // Windows that are single elements, side by side: the operand is its own matrix of columns.
  bool pointwise() const {
    return taps() == 1 && stride == Spatial{1, 1, 1} && padding == Spatial{0, 0, 0};
  }
};

// Tensors of shapes (N, groups * big_channels, ...), (groups * small_channels, big_channels, ...)
// and (N, groups * small_channels, ...).
template <class Args>
Geometry geometry(std::span<const int64_t> big, std::span<const int64_t> weight,
                  std::span<const int64_t> small, const Args& args) {
  const size_t dims = weight.size() - 2;
  const auto sizes = [&](std::span<const int64_t> shape) {
    Spatial result = {1, 1, 1};
    for (size_t d = 0; d < dims; ++d) result[3 - dims + d] = shape[2 + d];
    return result;
  };
  const auto numbers = [&](const mt_int_list& list, int64_t fill) {
    Spatial result = {fill, fill, fill};
    for (size_t d = 0; d < dims; ++d) result[3 - dims + d] = list.data[list.size == 1 ? 0 : d];
    return result;
  };
  Geometry g;
  g.batch = big[0];
  g.groups = args.groups;
  g.big_channels = weight[1];
  g.small_channels = weight[0] / args.groups;
  g.big = sizes(big);
  g.small = sizes(small);
  g.kernel = sizes(weight);
  g.stride = numbers(args.stride, 1);
  g.padding = numbers(args.padding, 0);
  g.dilation = numbers(args.dilation, 1);
  return g;
}

}  // namespace mytorch::cpu
