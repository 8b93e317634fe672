// The windows of a convolution or of its transpose, and chunks of the batch: pieces of a sample, or
// several small samples, whose padded source fits in a cache.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "mytorch/backend.h"

namespace mytorch::cpu {

using sdk::Spatial;
using sdk::volume;

// Along each dimension, the tap at t of grid position p reads source element origin + p * step + t,
// which is zero outside of the source. The result of position p is target element
// first + p * apart.
struct Windows {
  struct Tap {
    Spatial at;     // each counts from 0
    int64_t index;  // in the kernel, row-major
  };
  Spatial source, grid, step, origin;
  Spatial reach = {0, 0, 0};  // of the farthest tap
  std::vector<Tap> taps;
  Spatial target, first, apart;

  void add_tap(const Spatial& at, int64_t index) {
    taps.push_back({at, index});
    for (size_t d = 0; d < 3; ++d) reach[d] = std::max(reach[d], at[d]);
  }
  // The offset of a position's result in a plane of the target.
  int64_t place(const Spatial& position) const {
    Spatial at;
    for (size_t d = 0; d < 3; ++d) at[d] = first[d] + position[d] * apart[d];
    return (at[0] * target[1] + at[1]) * target[2] + at[2];
  }
  // Returns whether rows of the grid are contiguous in the target, and adjacent rows, too.
  bool fills_target() const { return grid == target; }
};

// The windows of a convolution: the source is the input, the target the output.
inline Windows windows_on_input(const sdk::ConvolutionGeometry& g) {
  Windows w;
  w.source = g.input;
  w.grid = w.target = g.output;
  // The stride of a single window does not matter, and may be huge.
  for (size_t d = 0; d < 3; ++d) w.step[d] = g.output[d] == 1 ? 1 : g.stride[d];
  w.origin = {-g.padding[0], -g.padding[1], -g.padding[2]};
  w.first = {0, 0, 0};
  w.apart = {1, 1, 1};
  int64_t index = 0;
  for (int64_t i = 0; i < g.kernel[0]; ++i) {
    for (int64_t j = 0; j < g.kernel[1]; ++j) {
      for (int64_t k = 0; k < g.kernel[2]; ++k) {
        w.add_tap({i * g.dilation[0], j * g.dilation[1], k * g.dilation[2]}, index++);
      }
    }
  }
  return w;
}

// The windows of a transposed convolution: the source is the output, and the target every
// stride-th input element from `first` on, which is below the stride. Taps read adjacent elements
// of the source for adjacent elements of this target, so a transposed convolution of stride s is s
// convolutions of stride 1.
inline Windows windows_on_output(const sdk::ConvolutionGeometry& g, const Spatial& first) {
  Windows w;
  w.source = g.output;
  w.step = {1, 1, 1};
  w.target = g.input;
  w.first = first;
  w.apart = g.stride;
  // Along a dimension, input element first + stride * p and tap t contribute to output element
  // (first + padding - t * dilation) / stride + p, if that is a whole number.
  std::array<std::vector<int64_t>, 3> tap, back;
  std::array<int64_t, 3> farthest{};
  for (size_t d = 0; d < 3; ++d) {
    const int64_t start = first[d] + g.padding[d];
    const int64_t phase = start % g.stride[d];
    for (int64_t t = 0; t < g.kernel[d]; ++t) {
      if (t * g.dilation[d] % g.stride[d] != phase) continue;
      tap[d].push_back(t);
      back[d].push_back(t * g.dilation[d] / g.stride[d]);
      farthest[d] = back[d].back();
    }
    w.grid[d] = sdk::divide_up(g.input[d] - first[d], g.stride[d]);
    w.origin[d] = start / g.stride[d] - farthest[d];
  }
  for (size_t i = 0; i < tap[0].size(); ++i) {
    for (size_t j = 0; j < tap[1].size(); ++j) {
      for (size_t k = 0; k < tap[2].size(); ++k) {
        w.add_tap({farthest[0] - back[0][i], farthest[1] - back[1][j], farthest[2] - back[2][k]},
                  (tap[0][i] * g.kernel[1] + tap[1][j]) * g.kernel[2] + tap[2][k]);
      }
    }
  }
  return w;
}

// Boxes of the grid; a box covers several samples if the grid is small. They depend on the shapes
// alone, not on the number of threads.
struct Chunks {
  int64_t batch;
  int64_t together;  // samples in a chunk
  Spatial box;       // size, in the grid
  Spatial boxes;     // their number along each dimension
  Spatial window;    // size of the source that a box reads
  int64_t pitch;     // elements of a channel

  struct Chunk {
    int64_t sample, samples;
    Spatial begin, size;  // of the grid
    int64_t positions() const { return samples * volume(size); }
  };

  // About `wanted` positions in a chunk.
  Chunks(const Windows& w, int64_t batch, int64_t wanted) : batch(batch), box(w.grid) {
    const auto cut = [&](size_t d, int64_t most) {
      const int64_t pieces = (w.grid[d] + most - 1) / most;
      box[d] = (w.grid[d] + pieces - 1) / pieces;
    };
    if (volume(box) > 2 * wanted) {
      if (box[2] > 4 * wanted) cut(2, 2 * wanted);
      cut(1, std::max<int64_t>(1, wanted / box[2]));
      cut(0, std::max<int64_t>(1, wanted / (box[1] * box[2])));
    }
    together = std::clamp<int64_t>(wanted / volume(box), 1, batch);
    if (box != w.grid) together = 1;
    for (size_t d = 0; d < 3; ++d) {
      boxes[d] = (w.grid[d] + box[d] - 1) / box[d];
      window[d] = (box[d] - 1) * w.step[d] + w.reach[d] + 1;
    }
    // An odd number of cache lines apart, so that channels do not compete for the same sets.
    constexpr int64_t kLine = 16;
    pitch = (elements() / kLine | 1) + 2;
    pitch *= kLine;
  }

  // Windows that are this large are never copied (Blocking::fits).
  static constexpr int64_t kMostElements = int64_t{1} << 40;
  // The elements of a channel that a box reads; at most kMostElements.
  int64_t elements() const {
    int64_t n = together;
    for (const int64_t size : window) {
      if (__builtin_mul_overflow(n, size, &n)) return kMostElements;
    }
    return std::min(n, kMostElements);
  }
  int64_t batches() const { return (batch + together - 1) / together; }
  int64_t count() const { return batches() * volume(boxes); }
  int64_t most_positions() const { return together * volume(box); }

  Chunk chunk(const Windows& w, int64_t i) const {
    Chunk c;
    const int64_t place = i % volume(boxes);
    c.sample = i / volume(boxes) * together;
    c.samples = std::min(together, batch - c.sample);
    const Spatial at = {place / (boxes[1] * boxes[2]), place / boxes[2] % boxes[1],
                        place % boxes[2]};
    for (size_t d = 0; d < 3; ++d) {
      c.begin[d] = at[d] * box[d];
      c.size[d] = std::min(box[d], w.grid[d] - c.begin[d]);
    }
    return c;
  }

  // The offsets in a chunk's padded source at which its positions read tap 0, in the order
  // (sample, z, y, x).
  void positions(const Windows& w, const Chunk& c, int32_t* to) const {
    for (int64_t j = 0; j < c.samples; ++j) {
      for (int64_t z = 0; z < c.size[0]; ++z) {
        for (int64_t y = 0; y < c.size[1]; ++y) {
          const int64_t row = ((j * window[0] + z * w.step[0]) * window[1] + y * w.step[1]);
          for (int64_t x = 0; x < c.size[2]; ++x) {
            *to++ = static_cast<int32_t>(row * window[2] + x * w.step[2]);
          }
        }
      }
    }
  }
  // The offsets of (channel, tap) from tap 0 of channel 0.
  void taps(const Windows& w, int64_t channels, int32_t* to) const {
    for (int64_t c = 0; c < channels; ++c) {
      for (const Windows::Tap& tap : w.taps) {
        *to++ = static_cast<int32_t>(c * pitch + (tap.at[0] * window[1] + tap.at[1]) * window[2] +
                                     tap.at[2]);
      }
    }
  }

  // Calls f(position, offset in a plane of the target, length, sample) for runs of positions along
  // target rows; elements of a run are apart[2] apart.
  template <class F>
  void for_each_run(const Windows& w, const Chunk& c, F&& f) const {
    const bool joined = w.fills_target() && c.size[2] == w.grid[2];
    const int64_t rows = joined ? 1 : c.size[1];
    const int64_t length = joined ? c.size[1] * c.size[2] : c.size[2];
    int64_t position = 0;
    for (int64_t j = 0; j < c.samples; ++j) {
      for (int64_t z = 0; z < c.size[0]; ++z) {
        for (int64_t y = 0; y < rows; ++y, position += length) {
          f(position, w.place({c.begin[0] + z, c.begin[1] + y, c.begin[2]}), length, j);
        }
      }
    }
  }
};

}  // namespace mytorch::cpu
