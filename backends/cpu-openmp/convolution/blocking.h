// The blocking of implicit GEMM and direct convolution: panels and blocks of channels, and padded
// pieces of the input.
#pragma once

#include <algorithm>
#include <cstdint>

#include "backends/cpu-openmp/convolution/direct_microkernel.h"
#include "backends/cpu-openmp/convolution/implicit_microkernel.h"
#include "backends/cpu-openmp/convolution/windows.h"

namespace mytorch::cpu {

// The microkernel repeatedly reads a panel of at most this many rows of two vectors: half an L1.
inline constexpr int64_t kPanelRows = 256;
// The padded input, and everything read and written with it, should stay in the L2.
inline constexpr int64_t kInputBytes = int64_t{256} << 10;
inline constexpr int64_t kMaxInputBytes = int64_t{8} << 20;
// The minimum number of tasks if there is enough work: it divides evenly among any common number of
// threads.
inline constexpr int64_t kTasks = 16;

using sdk::divide_up;

// With fewer channels, vectors along channels are mostly empty.
inline constexpr int64_t kFewChannels = 8;

// Returns whether direct convolution (vectors along rows) beats implicit GEMM (vectors along
// channels). The latter wastes lanes if channels are few, and transposes its results, which is
// noticeable for few taps. The former needs rows of stride 1 and wastes lanes at their ends.
inline bool prefers_direct(const Windows& w, int64_t in, int64_t out) {
  constexpr int64_t kFewTerms = 32;
  if (w.step[2] != 1 || w.apart[2] != 1) return false;
  const int64_t terms = in * static_cast<int64_t>(w.taps.size());
  return out < kFewChannels || (terms <= kFewTerms && w.grid[2] >= 8);
}

// Channels in panels of 2 * unit; the last panel has a single unit if that is enough.
struct Panels {
  int64_t channels, unit;
  int64_t count = divide_up(channels, 2 * unit);

  int64_t first(int64_t panel) const { return panel * 2 * unit; }  // channel
  int64_t real(int64_t panel) const { return std::min(2 * unit, channels - first(panel)); }
  int64_t units(int64_t panel) const { return real(panel) <= unit ? 1 : 2; }
  int64_t width(int64_t panel) const { return units(panel) * unit; }
  int64_t padded() const { return first(count - 1) + width(count - 1); }  // channels
};

// The blocks that a convolution computes in.
struct Blocking {
  bool direct;  // else implicit GEMM
  Chunks chunks;
  // Source channels at a time, so that a panel has about kPanelRows rows; all of them if direct.
  int64_t block;

  Blocking(const Windows& w, int64_t batch, int64_t in, int64_t out, int64_t item)
      : direct(prefers_direct(w, in, out)), chunks(w, batch, positions(in, item)), block(in) {
    if (direct) return;
    const int64_t taps = std::max<int64_t>(1, static_cast<int64_t>(w.taps.size()));
    const int64_t most = std::min(kPanelRows / taps, kInputBytes / (chunks.pitch * item));
    block = divide_up(in, divide_up(in, std::max<int64_t>(most, 1)));
  }
  // Returns whether `channels` channels of the padded source may be copied at a time.
  bool fits(int64_t channels, int64_t item) const {
    return channels <= kMaxInputBytes / (chunks.pitch * item);
  }

 private:
  int64_t positions(int64_t in, int64_t item) const {
    if (!direct) return kPanelRows;
    return std::clamp(kInputBytes / (in * item), kPanelRows / 4, 4 * kPanelRows);
  }
};

// Copies the part of source channels [c0, c1) that a chunk reads, padded with zeros. `from` is
// channel 0 of the chunk's first sample; samples are `sample_pitch` apart.
template <class T>
void copy_padded(const Windows& w, const Chunks& chunks, const Chunks::Chunk& chunk, const T* from,
                 int64_t sample_pitch, int64_t c0, int64_t c1, T* to) {
  Spatial at;         // the window's position in the source
  Spatial low, high;  // the part of the window inside the source
  bool padded = false, empty = false;
  for (size_t d = 0; d < 3; ++d) {
    at[d] = w.origin[d] + chunk.begin[d] * w.step[d];
    const int64_t seen = (chunk.size[d] - 1) * w.step[d] + w.reach[d] + 1;
    low[d] = std::max<int64_t>(0, -at[d]);
    high[d] = std::min(seen, w.source[d] - at[d]);
    padded = padded || low[d] > 0 || high[d] < seen;
    empty = empty || low[d] >= high[d];
  }
  if (padded) std::fill(to, to + (c1 - c0) * chunks.pitch, T{});
  if (empty) return;
  const int64_t plane = volume(w.source);
  const auto copy_rows = implicit_microkernels<T>().copy_rows;
  for (int64_t c = c0; c < c1; ++c) {
    for (int64_t j = 0; j < chunk.samples; ++j) {
      for (int64_t z = low[0]; z < high[0]; ++z) {
        const int64_t row = (at[0] + z) * w.source[1] + at[1] + low[1];
        const int64_t line = (j * chunks.window[0] + z) * chunks.window[1] + low[1];
        copy_rows(from + j * sample_pitch + c * plane + row * w.source[2] + at[2] + low[2],
                  w.source[2], high[1] - low[1], high[2] - low[2],
                  to + (c - c0) * chunks.pitch + line * chunks.window[2] + low[2],
                  chunks.window[2]);
      }
    }
  }
}

// The positions of a chunk, recomputed only if they differ from those of the previous chunk.
class Positions {
 public:
  Positions(const Windows& w, const Chunks& chunks, int32_t* memory)
      : windows_(w), chunks_(chunks), memory_(memory) {}

  const int32_t* of(const Chunks::Chunk& chunk) {
    if (chunk.size != size_ || chunk.samples > samples_) {
      chunks_.positions(windows_, chunk, memory_);
      size_ = chunk.size;
      samples_ = chunk.samples;
    }
    return memory_;
  }

 private:
  const Windows& windows_;
  const Chunks& chunks_;
  int32_t* memory_;
  Spatial size_{};
  int64_t samples_ = 0;
};

}  // namespace mytorch::cpu
