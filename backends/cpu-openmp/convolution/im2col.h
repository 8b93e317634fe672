// Computes one tile of the im2col matrix at a time: element (channel and tap, output position) is
// the input element that the tap reads at that position, or zero in the padding.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "mytorch/backend.h"

namespace mytorch::cpu {

// Calls f(im2col row, output row, offset of the input element for x = 0, inside) for each tap of
// channels [c0, c1) and each output row in [r0, r1), counted over both outer dimensions. `inside`
// is empty if the whole row lies in the padding.
template <class F>
void for_each_tap_row(const sdk::ConvolutionGeometry& g, int64_t c0, int64_t c1, int64_t r0,
                      int64_t r1, F&& f) {
  const sdk::Window along = g.window(2);
  int64_t row = 0;
  for (int64_t c = c0; c < c1; ++c) {
    for (int64_t i = 0; i < g.kernel[0]; ++i) {
      for (int64_t j = 0; j < g.kernel[1]; ++j) {
        for (int64_t k = 0; k < g.kernel[2]; ++k, ++row) {
          const int64_t offset = along.place(0, k);
          const sdk::IndexRange x = along.reached(k, g.input[2], g.output[2]);
          for (int64_t r = r0; r < r1; ++r) {
            const int64_t z = g.window(0).place(r / g.output[1], i);
            const int64_t y = g.window(1).place(r % g.output[1], j);
            const bool seen = z >= 0 && z < g.input[0] && y >= 0 && y < g.input[1];
            const int64_t line = seen ? (c * g.input[0] + z) * g.input[1] + y : 0;
            f(row, r, line * g.input[2] + offset, seen ? x : sdk::IndexRange{0, 0});
          }
        }
      }
    }
  }
}

// The columns of output rows [r0, r1), from one sample and group of the input. `columns` has
// (r1 - r0) * output[2] elements per row.
template <class T>
void im2col(const sdk::ConvolutionGeometry& g, const T* input, int64_t c0, int64_t c1, int64_t r0,
            int64_t r1, T* columns) {
  const int64_t width = g.output[2];
  const int64_t pitch = (r1 - r0) * width;
  const int64_t stride = g.stride[2];
  for_each_tap_row(g, c0, c1, r0, r1,
                   [&](int64_t row, int64_t r, int64_t at, const sdk::IndexRange& x) {
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
void col2im(const sdk::ConvolutionGeometry& g, const T* columns, int64_t c0, int64_t c1, int64_t r0,
            int64_t r1, T* input) {
  const int64_t width = g.output[2];
  const int64_t pitch = (r1 - r0) * width;
  const int64_t stride = g.stride[2];
  for_each_tap_row(g, c0, c1, r0, r1,
                   [&](int64_t row, int64_t r, int64_t at, const sdk::IndexRange& x) {
                     const T* from = columns + row * pitch + (r - r0) * width;
                     for (int64_t i = x.first; i < x.last; ++i) {
                       T& to = input[at + i * stride];
                       to = sdk::wrapping_add(to, from[i]);
                     }
                   });
}

}  // namespace mytorch::cpu
