#include "backends/cpu-openmp/convolution/implicit.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "backends/cpu-openmp/convolution/gathered.h"
#include "backends/cpu-openmp/convolution/windows.h"
#include "backends/cpu-openmp/scan/lines.h"

namespace mytorch::cpu {
namespace {

// The kernel reads a panel of up to so many rows of two vectors again and again: half of an L1.
constexpr int64_t kPanelRows = 256;
// A padded image, with all that is read and written beside it, should stay in the L2.
constexpr int64_t kImageBytes = int64_t{256} << 10;
constexpr int64_t kMostImageBytes = int64_t{8} << 20;
// Fewer channels would leave most of a vector empty.
constexpr int64_t kFewestChannels = 8;
// Enough to share among many threads.
constexpr int64_t kTasks = 16;

int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Channels in panels of two vectors; the last one has one where that is enough.
template <class T>
struct Panels {
  int64_t channels;
  int64_t lanes = vector_lanes(T{});
  int64_t count = divide_up(channels, 2 * lanes);

  int64_t first(int64_t panel) const { return panel * 2 * lanes; }  // channel
  int64_t real(int64_t panel) const { return std::min(2 * lanes, channels - first(panel)); }
  int64_t vectors(int64_t panel) const { return real(panel) <= lanes ? 1 : 2; }
  int64_t width(int64_t panel) const { return vectors(panel) * lanes; }
  int64_t padded() const { return first(count - 1) + width(count - 1); }  // channels
};

// Channels of the image in blocks, so that a panel has about kPanelRows rows.
struct Blocks {
  int64_t size, count;

  Blocks(int64_t channels, int64_t taps, int64_t channel_bytes) {
    const int64_t most = std::max<int64_t>(
        1, std::min(kPanelRows / std::max<int64_t>(taps, 1), kImageBytes / channel_bytes));
    count = divide_up(channels, most);
    size = divide_up(channels, count);
    count = divide_up(channels, size);
  }
};

// Copies channels [c0, c1) of the source that a chunk sees, padded with zeros. `from` is channel 0
// of the chunk's first image; images are `image_pitch` apart.
template <class T>
void lay_out(const Windows& w, const Chunks& chunks, const Chunks::Chunk& chunk, const T* from,
             int64_t image_pitch, int64_t c0, int64_t c1, T* to) {
  Spatial at, low, high;  // of the source; in the window, what lies in the source
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
  for (int64_t c = c0; c < c1; ++c) {
    for (int64_t j = 0; j < chunk.images; ++j) {
      for (int64_t z = low[0]; z < high[0]; ++z) {
        const int64_t row = (at[0] + z) * w.source[1] + at[1] + low[1];
        const int64_t line = (j * chunks.window[0] + z) * chunks.window[1] + low[1];
        copy_rows(from + j * image_pitch + c * plane + row * w.source[2] + at[2] + low[2],
                  w.source[2], high[1] - low[1], high[2] - low[2],
                  to + (c - c0) * chunks.pitch + line * chunks.window[2] + low[2],
                  chunks.window[2]);
      }
    }
  }
}

// Positions of a chunk, made anew only where they differ from those before.
class Positions {
 public:
  Positions(const Windows& w, const Chunks& chunks, int32_t* memory)
      : windows_(w), chunks_(chunks), memory_(memory) {}

  const int32_t* of(const Chunks::Chunk& chunk) {
    if (chunk.size != size_ || chunk.images > images_) {
      chunks_.positions(windows_, chunk, memory_);
      size_ = chunk.size;
      images_ = chunk.images;
    }
    return memory_;
  }

 private:
  const Windows& windows_;
  const Chunks& chunks_;
  int32_t* memory_;
  Spatial size_{};
  int64_t images_ = 0;
};

// A weight as (group, output channel, input channel, tap): elements apart.
struct WeightStrides {
  int64_t group, out, in;
};

// ---- target = source seen through windows, times weight, + bias

template <class T>
struct Correlation {
  mt_ctx& ctx;
  const Windows& w;
  int64_t batch, groups, in, out;  // channels in a group
  const T* source;
  const T* weight;
  WeightStrides strides;
  const T* bias;
  T* target;

  bool run() const;

 private:
  void pack(const Panels<T>& panels, const Blocks& blocks, int64_t group, int64_t panel,
            T* to) const;
  void store(const Chunks& chunks, const Chunks::Chunk& chunk, const Panels<T>& panels,
             int64_t group, int64_t panel, const T* sums) const;
};

// A panel's weights as the kernel reads them: for each block of channels (c, tap, lane).
template <class T>
void Correlation<T>::pack(const Panels<T>& panels, const Blocks& blocks, int64_t group,
                          int64_t panel, T* to) const {
  const int64_t taps = static_cast<int64_t>(w.taps.size());
  const int64_t real = panels.real(panel), width = panels.width(panel);
  const int64_t first = panels.first(panel);
  for (int64_t c0 = 0; c0 < in; c0 += blocks.size) {
    const int64_t c1 = std::min(c0 + blocks.size, in);
    T* at = to + c0 * taps * panels.padded() + first * (c1 - c0) * taps;
    for (int64_t c = c0; c < c1; ++c) {
      const T* from = weight + group * strides.group + first * strides.out + c * strides.in;
      for (const Windows::Tap& tap : w.taps) {
        for (int64_t o = 0; o < real; ++o) at[o] = from[o * strides.out + tap.index];
        std::fill(at + real, at + width, T{});
        at += width;
      }
    }
  }
}

template <class T>
void Correlation<T>::store(const Chunks& chunks, const Chunks::Chunk& chunk,
                           const Panels<T>& panels, int64_t group, int64_t panel,
                           const T* sums) const {
  const int64_t plane = volume(w.target);
  const int64_t width = panels.width(panel), real = panels.real(panel);
  T* const to = target + ((chunk.image * groups + group) * out + panels.first(panel)) * plane;
  chunks.for_each_run(w, chunk, [&](int64_t position, int64_t at, int64_t length, int64_t image) {
    T* run = to + image * groups * out * plane + at;
    const T* from = sums + position * width;
    if (w.apart[2] == 1) {
      transpose(from, width, length, real, run, plane);
      return;
    }
    for (int64_t o = 0; o < real; ++o) {
      for (int64_t i = 0; i < length; ++i) run[o * plane + i * w.apart[2]] = from[i * width + o];
    }
  });
}

template <class T>
bool Correlation<T>::run() const {
  const int64_t taps = static_cast<int64_t>(w.taps.size());
  const Chunks chunks(w, batch, kPanelRows);
  const int64_t item = sizeof(T);
  if (chunks.pitch * item > kMostImageBytes) return false;
  const Blocks blocks(in, taps, chunks.pitch * item);
  const Panels<T> panels{out};
  const int64_t padded = panels.padded();

  T* packed = sdk::scratch<T>(ctx, groups * padded * in * taps);
  sdk::parallel_for(
      ctx, 0, groups * panels.count, 1 + 65536 / (1 + in * taps * padded / panels.count),
      [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          const int64_t group = i / panels.count;
          pack(panels, blocks, group, i % panels.count, packed + group * padded * in * taps);
        }
      });
  T* offsets = nullptr;
  if (bias != nullptr) {
    offsets = sdk::scratch<T>(ctx, groups * padded);
    for (int64_t group = 0; group < groups; ++group) {
      T* to = offsets + group * padded;
      std::copy_n(bias + group * out, out, to);
      std::fill(to + out, to + padded, T{});
    }
  }
  int32_t* steps = sdk::scratch<int32_t>(ctx, blocks.size * taps);
  chunks.taps(w, blocks.size, steps);

  // Channels of the result are shared, too, where chunks are few or partial sums many.
  const int64_t whole = chunks.count() * groups;
  int64_t shares = blocks.count > 1 ? divide_up(panels.count, 8) : 1;
  if (whole < kTasks) shares = std::max(shares, std::min(divide_up(kTasks, whole), panels.count));
  const int64_t share = divide_up(panels.count, shares);
  shares = divide_up(panels.count, share);
  const int64_t image_size = blocks.size * chunks.pitch;
  const int64_t sums_size = chunks.most_positions() * 2 * panels.lanes;  // of a panel
  const int64_t kept = blocks.count > 1 ? share : 1;                     // panels
  const int64_t table = divide_up(chunks.most_positions() * int64_t{sizeof(int32_t)}, item);
  parallel_with_scratch<T>(
      ctx, whole * shares, 1, image_size + kept * sums_size + table,
      [&](T* image, int64_t begin, int64_t end) {
        T* const sums = image + image_size;
        Positions positions(w, chunks, reinterpret_cast<int32_t*>(sums + kept * sums_size));
        for (int64_t task = begin; task < end; ++task) {
          const int64_t first = task % shares * share;
          const int64_t last = std::min(first + share, panels.count);
          const int64_t group = task / shares % groups;
          const Chunks::Chunk chunk = chunks.chunk(w, task / shares / groups);
          const int64_t plane = volume(w.source);
          const T* from = source + (chunk.image * groups + group) * in * plane;
          for (int64_t c0 = 0; c0 < in; c0 += blocks.size) {
            const int64_t c1 = std::min(c0 + blocks.size, in);
            lay_out(w, chunks, chunk, from, groups * in * plane, c0, c1, image);
            for (int64_t panel = first; panel < last; ++panel) {
              Gathered<T> g;
              g.image = image;
              g.place = positions.of(chunk);
              g.rows = chunk.positions();
              g.step = steps;
              g.steps = (c1 - c0) * taps;
              g.panel = packed + (group * in + c0) * taps * padded +
                        panels.first(panel) * (c1 - c0) * taps;
              g.vectors = panels.vectors(panel);
              g.start =
                  offsets == nullptr ? nullptr : offsets + group * padded + panels.first(panel);
              g.accumulate = c0 > 0;
              g.out = sums + (panel - first) % kept * sums_size;
              gathered_product(g);
              if (c1 == in) store(chunks, chunk, panels, group, panel, g.out);
            }
          }
        }
      });
  return true;
}

template <class T>
bool small_from_windows(mt_ctx& ctx, const Geometry& g, const T* big, const T* weight,
                        const T* bias, T* small) {
  if (g.small_channels < kFewestChannels) return false;
  const int64_t depth = g.depth();
  const Windows w = windows_on_big(g);
  return Correlation<T>{ctx,
                        w,
                        g.batch,
                        g.groups,
                        g.big_channels,
                        g.small_channels,
                        big,
                        weight,
                        {g.small_channels * depth, depth, g.taps()},
                        bias,
                        small}
      .run();
}

template <class T>
bool all_finite(const T* x, int64_t n) {
  T sum{};
  for (int64_t i = 0; i < n; ++i) sum += x[i] - x[i];
  return sum == T{};
}

template <class T>
bool big_from_windows(mt_ctx& ctx, const Geometry& g, const T* small, const T* weight,
                      const T* bias, T* big) {
  if (g.big_channels < kFewestChannels) return false;
  // The zeros around `small` are no terms of the sums.
  if (!all_finite(weight, g.groups * g.small_channels * g.depth())) return false;
  for (int64_t z = 0; z < g.stride[0]; ++z) {
    for (int64_t y = 0; y < g.stride[1]; ++y) {
      for (int64_t x = 0; x < g.stride[2]; ++x) {
        const Windows w = windows_on_small(g, {z, y, x});
        if (volume(w.grid) == 0) continue;
        const bool done = Correlation<T>{ctx,
                                         w,
                                         g.batch,
                                         g.groups,
                                         g.small_channels,
                                         g.big_channels,
                                         small,
                                         weight,
                                         {g.small_channels * g.depth(), g.taps(), g.depth()},
                                         bias,
                                         big}
                              .run();
        if (!done) return false;
      }
    }
  }
  return true;
}

// ---- weight = columns(big)^T, times small

template <class T>
bool weight_from_windows(mt_ctx& ctx, const Geometry& g, const T* big, const T* small, T* weight) {
  if (g.small_channels < kFewestChannels) return false;
  const Windows w = windows_on_big(g);
  const int64_t taps = g.taps();
  const Chunks chunks(w, g.batch, kPanelRows);
  const int64_t item = sizeof(T);
  if (chunks.pitch * item > kMostImageBytes) return false;
  const Panels<T> panels{g.small_channels};

  // Tasks are blocks of input channels, enough of them to be worth the transposition of `small`
  // that each repeats; and where that makes few tasks, parts of the batch, summed in order: the
  // same bits on any number of threads.
  const int64_t fit = std::max<int64_t>(1, kImageBytes / (chunks.pitch * item));
  const int64_t wanted = std::clamp<int64_t>(g.depth() / 128, 1, kTasks);
  const int64_t block = std::min(fit, divide_up(g.big_channels, wanted));
  const int64_t blocks = divide_up(g.big_channels, block);
  const int64_t parts = std::min(chunks.count(), divide_up(kTasks, blocks * g.groups));

  int32_t* places = sdk::scratch<int32_t>(ctx, block * taps);
  chunks.taps(w, block, places);
  const int64_t depth = g.depth();
  const int64_t sums_size = panels.padded() * depth;  // of a part and group
  T* sums = sdk::scratch<T>(ctx, parts * g.groups * sums_size);
  const int64_t image_size = block * chunks.pitch;
  const int64_t panel_size = chunks.most_positions() * 2 * panels.lanes;
  const int64_t table = divide_up(chunks.most_positions() * int64_t{sizeof(int32_t)}, item);
  const int64_t plane = g.small_plane();
  parallel_with_scratch<T>(
      ctx, parts * g.groups * blocks, 1, image_size + panel_size + table,
      [&](T* image, int64_t begin, int64_t end) {
        T* const transposed = image + image_size;
        std::fill(transposed, transposed + panel_size, T{});
        Positions positions(w, chunks, reinterpret_cast<int32_t*>(transposed + panel_size));
        for (int64_t task = begin; task < end; ++task) {
          const int64_t c0 = task % blocks * block;
          const int64_t c1 = std::min(c0 + block, g.big_channels);
          const int64_t group = task / blocks % g.groups;
          const int64_t part = task / blocks / g.groups;
          T* own = sums + (part * g.groups + group) * sums_size;
          const int64_t first = chunks.count() * part / parts;
          const int64_t last = chunks.count() * (part + 1) / parts;
          for (int64_t i = first; i < last; ++i) {
            const Chunks::Chunk chunk = chunks.chunk(w, i);
            const int64_t big_image = g.groups * g.big_channels * g.big_plane();
            lay_out(w, chunks, chunk,
                    big + chunk.image * big_image + group * g.big_channels * g.big_plane(),
                    big_image, c0, c1, image);
            for (int64_t panel = 0; panel < panels.count; ++panel) {
              const int64_t width = panels.width(panel);
              const T* from = small + ((chunk.image * g.groups + group) * g.small_channels +
                                       panels.first(panel)) *
                                          plane;
              chunks.for_each_run(
                  w, chunk, [&](int64_t position, int64_t at, int64_t length, int64_t j) {
                    transpose(from + j * g.groups * g.small_channels * plane + at, plane,
                              panels.real(panel), length, transposed + position * width, width);
                  });
              Gathered<T> product;
              product.image = image;
              product.place = places;
              product.rows = (c1 - c0) * taps;
              product.step = positions.of(chunk);
              product.steps = chunk.positions();
              product.panel = transposed;
              product.vectors = panels.vectors(panel);
              product.start = nullptr;
              product.accumulate = i > first;
              product.out = own + panels.first(panel) * depth + c0 * taps * width;
              gathered_product(product);
            }
          }
        }
      });

  sdk::parallel_for(ctx, 0, g.groups * panels.count, 1 + 65536 / (parts * depth * 2 * panels.lanes),
                    [&](int64_t begin, int64_t end) {
                      for (int64_t i = begin; i < end; ++i) {
                        const int64_t group = i / panels.count, panel = i % panels.count;
                        const int64_t width = panels.width(panel);
                        T* total = sums + group * sums_size + panels.first(panel) * depth;
                        for (int64_t part = 1; part < parts; ++part) {
                          add_to(total, total + part * g.groups * sums_size, depth * width);
                        }
                        transpose(total, width, depth, panels.real(panel),
                                  weight + (group * g.small_channels + panels.first(panel)) * depth,
                                  depth);
                      }
                    });
  return true;
}

}  // namespace

#define MYTORCH_CPU_IMPLICIT(T)                                                          \
  template <>                                                                            \
  bool implicit_small<T>(mt_ctx & ctx, const Geometry& g, const T* big, const T* weight, \
                         const T* bias, T* small) {                                      \
    return small_from_windows(ctx, g, big, weight, bias, small);                         \
  }                                                                                      \
  template <>                                                                            \
  bool implicit_big<T>(mt_ctx & ctx, const Geometry& g, const T* small, const T* weight, \
                       const T* bias, T* big) {                                          \
    return big_from_windows(ctx, g, small, weight, bias, big);                           \
  }                                                                                      \
  template <>                                                                            \
  bool implicit_weight<T>(mt_ctx & ctx, const Geometry& g, const T* big, const T* small, \
                          T* weight) {                                                   \
    return weight_from_windows(ctx, g, big, small, weight);                              \
  }
MYTORCH_CPU_IMPLICIT(float)
MYTORCH_CPU_IMPLICIT(double)
#undef MYTORCH_CPU_IMPLICIT

}  // namespace mytorch::cpu
