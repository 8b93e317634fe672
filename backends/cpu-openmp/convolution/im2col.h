// Computes one tile of the im2col matrix at a time: element (channel and tap, output position) is
// the input element that the tap reads at that position, or zero in the padding.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "backends/cpu-openmp/convolution/geometry.h"

namespace mytorch::cpu {

// The positions x of a row of `output` at which a tap falls into `input`: [first, last).
struct Inside {
  int64_t first, last;

  Inside(int64_t offset, int64_t stride, int64_t output, int64_t input) {
    // 0 <= x * stride + offset < input
    first = offset >= 0 ? 0 : std::min(output, (-offset + stride - 1) / stride);
    last = input - offset <= 0 ? 0 : std::min(output, (input - offset + stride - 1) / stride);
    last = std::max(first, last);
  }
};

// Calls f(im2col row, output row, offset of the input element for x = 0, inside) for each tap of
// channels [c0, c1) and each output row in [r0, r1), counted over both outer dimensions. `inside`
// is empty if the whole row lies in the padding.
template <class F>
void for_each_tap_row(const Geometry& g, int64_t c0, int64_t c1, int64_t r0, int64_t r1, F&& f) {
  int64_t row = 0;
  for (int64_t c = c0; c < c1; ++c) {
    for (int64_t i = 0; i < g.kernel[0]; ++i) {
      for (int64_t j = 0; j < g.kernel[1]; ++j) {
        for (int64_t k = 0; k < g.kernel[2]; ++k, ++row) {
          const int64_t offset = k * g.dilation[2] - g.padding[2];
          const Inside x(offset, g.stride[2], g.output[2], g.input[2]);
          for (int64_t r = r0; r < r1; ++r) {
            const int64_t z = r / g.output[1] * g.stride[0] - g.padding[0] + i * g.dilation[0];
            const int64_t y = r % g.output[1] * g.stride[1] - g.padding[1] + j * g.dilation[1];
            const bool seen = z >= 0 && z < g.input[0] && y >= 0 && y < g.input[1];
            const int64_t at = ((c * g.input[0] + z) * g.input[1] + y) * g.input[2] + offset;
            f(row, r, at, seen ? x : Inside(0, 1, 0, 0));
          }
        }
      }
    }
  }
}

// The columns of output rows [r0, r1), from one sample and group of the input. `columns` has
// (r1 - r0) * output[2] elements per row.
template <class T>
void im2col(const Geometry& g, const T* input, int64_t c0, int64_t c1, int64_t r0, int64_t r1,
            T* columns) {
  const int64_t width = g.output[2];
  const int64_t pitch = (r1 - r0) * width;
  const int64_t stride = g.stride[2];
  for_each_tap_row(g, c0, c1, r0, r1, [&](int64_t row, int64_t r, int64_t at, const Inside& x) {
    T* to = columns + row * pitch + (r - r0) * width;
    std::fill(to, to + x.first, T{});
    if (stride == 1) {
      if (x.last > x.first) {
        std::memcpy(to + x.first, input + at + x.first,
                    static_cast<size_t>(x.last - x.first) * sizeof(T));
      }
    } else {
      for (int64_t i = x.first; i < x.last; ++i) to[i] = input[at + i * stride];
    }
    std::fill(to + x.last, to + width, T{});
  });
}

// Does the reverse: adds columns to the corresponding input elements.
template <class T>
void col2im(const Geometry& g, const T* columns, int64_t c0, int64_t c1, int64_t r0, int64_t r1,
            T* input) {
  const int64_t width = g.output[2];
  const int64_t pitch = (r1 - r0) * width;
  const int64_t stride = g.stride[2];
  for_each_tap_row(g, c0, c1, r0, r1, [&](int64_t row, int64_t r, int64_t at, const Inside& x) {
    const T* from = columns + row * pitch + (r - r0) * width;
    for (int64_t i = x.first; i < x.last; ++i) {
      T& to = input[at + i * stride];
      to = static_cast<T>(to + from[i]);
    }
  });
}

}  // namespace mytorch::cpu
