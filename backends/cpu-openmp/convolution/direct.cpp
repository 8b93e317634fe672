#include "backends/cpu-openmp/convolution/direct.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "backends/cpu-openmp/convolution/tile.h"
#include "backends/cpu-openmp/scan/lines.h"

namespace mytorch::cpu {
namespace {

constexpr int64_t kImageBytes = int64_t{512} << 10;  // of padded images: half of a typical L2
constexpr int64_t kWanted = 256;  // positions, so that the ends of the line do not matter

int64_t round_up(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }

// Images in a line: `together` of them side by side, each padded to what windows of stride 1 see.
struct Line {
  Spatial padded;
  int64_t plane;     // of one padded image
  int64_t together;  // images
  int64_t chunks;    // of so many images, in the batch

  Line(const Geometry& g, int64_t item) {
    for (size_t d = 0; d < 3; ++d) padded[d] = g.small[d] + (g.kernel[d] - 1) * g.dilation[d];
    plane = volume(padded);
    const int64_t fit = kImageBytes / std::max<int64_t>(1, g.big_channels * plane * item);
    together = std::clamp<int64_t>((kWanted + plane - 1) / plane, 1, std::max<int64_t>(fit, 1));
    together = std::min(together, g.batch);
    chunks = (g.batch + together - 1) / together;
  }
  int64_t length() const { return together * plane; }
  // The end of the last position with a window.
  int64_t positions(const Geometry& g, int64_t images) const {
    return (images - 1) * plane + ((g.small[0] - 1) * padded[1] + g.small[1] - 1) * padded[2] +
           g.small[2];
  }
};

// Copies between images of planes `size` and places in a line, row by row. `origin` is the place of
// the image's first element, relative to the padded image; what lies outside is left out.
template <class F>
void for_each_row(const Line& line, const Spatial& size, const Spatial& origin, F&& f) {
  for (int64_t z = 0; z < size[0]; ++z) {
    if (z + origin[0] < 0 || z + origin[0] >= line.padded[0]) continue;
    for (int64_t y = 0; y < size[1]; ++y) {
      if (y + origin[1] < 0 || y + origin[1] >= line.padded[1]) continue;
      f((z * size[1] + y) * size[2],
        ((z + origin[0]) * line.padded[1] + y + origin[1]) * line.padded[2] + origin[2]);
    }
  }
}

// `channels` planes of each image into rows of the line, `pitch` apart, with zeros around them and
// up to the slack behind the last one.
template <class T>
void lay_out(const Line& line, const T* from, int64_t image_pitch, int64_t images, int64_t channels,
             const Spatial& size, const Spatial& origin, T* to, int64_t pitch) {
  const int64_t first = std::max<int64_t>(0, -origin[2]);
  const int64_t last = std::min(size[2], line.padded[2] - origin[2]);
  const bool whole = origin == Spatial{0, 0, 0} && size == line.padded;
  std::fill(to + (whole ? channels * pitch : 0), to + channels * pitch + kTileSlack, T{});
  const int64_t plane = volume(size);
  for (int64_t c = 0; c < channels; ++c) {
    for (int64_t j = 0; j < images; ++j) {
      const T* source = from + j * image_pitch + c * plane;
      T* target = to + c * pitch + j * line.plane;
      if (whole) {
        std::memcpy(target, source, static_cast<size_t>(plane) * sizeof(T));
      } else if (first < last) {
        for_each_row(line, size, origin, [&](int64_t at, int64_t place) {
          std::memcpy(target + place + first, source + at + first,
                      static_cast<size_t>(last - first) * sizeof(T));
        });
      }
    }
    // What a chunk of fewer images leaves unused is read, too.
    if (whole) std::fill(to + c * pitch + images * line.plane, to + (c + 1) * pitch, T{});
  }
}

// Where each (channel, tap) sees position 0.
void shifts(const Geometry& g, const Line& line, int64_t* shift) {
  for (int64_t c = 0; c < g.big_channels; ++c) {
    for (int64_t i = 0; i < g.kernel[0]; ++i) {
      for (int64_t j = 0; j < g.kernel[1]; ++j) {
        for (int64_t k = 0; k < g.kernel[2]; ++k) {
          *shift++ = c * line.length() +
                     (i * g.dilation[0] * line.padded[1] + j * g.dilation[1]) * line.padded[2] +
                     k * g.dilation[2];
        }
      }
    }
  }
}

template <class T>
bool suits(const Geometry& g, const Line& line) {
  // A window of one element is a plain matrix product.
  return g.stride == Spatial{1, 1, 1} && g.taps() > 1 &&
         g.big_channels * line.plane * static_cast<int64_t>(sizeof(T)) <= 2 * kImageBytes;
}

// small = weight * big + bias, where weight(group, o, c, tap) reads a weight.
template <class T, class W>
void correlate_images(mt_ctx& ctx, const Geometry& g, const Line& line, const T* big, W&& weight,
                      const T* bias, T* small) {
  const int64_t tile = g.small_channels == 1 ? 1 : kTileChannels;
  const int64_t tiles = (g.small_channels + tile - 1) / tile;
  const int64_t depth = g.depth();
  int64_t* shift = sdk::scratch<int64_t>(ctx, depth);
  shifts(g, line, shift);
  // Weights as the kernel reads them: (group, tile, k, channel of the tile).
  T* packed = sdk::scratch<T>(ctx, g.groups * tiles * tile * depth);
  T* offsets = sdk::scratch<T>(ctx, g.groups * tiles * tile);
  for (int64_t i = 0; i < g.groups * tiles * tile; ++i) {
    const int64_t group = i / (tiles * tile), o = i % (tiles * tile);
    T* to = packed + (i - i % tile) * depth + i % tile;
    const bool real = o < g.small_channels;
    offsets[i] = real && bias != nullptr ? bias[group * g.small_channels + o] : T{};
    for (int64_t c = 0; c < g.big_channels; ++c) {
      for (int64_t t = 0; t < g.taps(); ++t) {
        to[(c * g.taps() + t) * tile] = real ? weight(group, o, c, t) : T{};
      }
    }
  }
  const int64_t image = g.big_channels * line.length() + kTileSlack;
  const int64_t pitch = round_up(line.length(), 16) + kTileSlack;
  const int64_t big_image = g.groups * g.big_channels * g.big_plane();
  const int64_t small_image = g.groups * g.small_channels * g.small_plane();
  const Spatial origin = g.padding;
  parallel_with_scratch<T>(
      ctx, line.chunks * g.groups, 1, image + tile * pitch,
      [&](T* buffer, int64_t begin, int64_t end) {
        T* out = buffer + image;
        for (int64_t task = begin; task < end; ++task) {
          const int64_t group = task % g.groups;
          const int64_t first = task / g.groups * line.together;
          const int64_t images = std::min(line.together, g.batch - first);
          lay_out(line, big + first * big_image + group * g.big_channels * g.big_plane(), big_image,
                  images, g.big_channels, g.big, origin, buffer, line.length());
          for (int64_t t = 0; t < tiles; ++t) {
            const int64_t base = (group * tiles + t) * tile;
            correlate(buffer, shift, depth, packed + base * depth, offsets + base, tile,
                      line.positions(g, images), out, pitch);
            const int64_t channels = std::min(tile, g.small_channels - t * tile);
            for (int64_t j = 0; j < images; ++j) {
              T* to = small + (first + j) * small_image +
                      (group * g.small_channels + t * tile) * g.small_plane();
              for (int64_t o = 0; o < channels; ++o) {
                const T* from = out + o * pitch + j * line.plane;
                for_each_row(line, g.small, {0, 0, 0}, [&](int64_t at, int64_t place) {
                  std::memcpy(to + o * g.small_plane() + at, from + place,
                              static_cast<size_t>(g.small[2]) * sizeof(T));
                });
              }
            }
          }
        }
      });
}

template <class T>
bool forward(mt_ctx& ctx, const Geometry& g, const T* big, const T* weight, const T* bias,
             T* small) {
  const Line line(g, sizeof(T));
  if (!suits<T>(g, line)) return false;
  correlate_images(
      ctx, g, line, big,
      [&](int64_t group, int64_t o, int64_t c, int64_t t) {
        return weight[((group * g.small_channels + o) * g.big_channels + c) * g.taps() + t];
      },
      bias, small);
  return true;
}

// With stride 1 the other direction is a convolution, too: roles of the channels exchanged, taps in
// reverse, and the padding that is missing to a full one.
template <class T>
bool backward(mt_ctx& ctx, const Geometry& g, const T* small, const T* weight, const T* bias,
              T* big) {
  Geometry r = g;
  r.big_channels = g.small_channels;
  r.small_channels = g.big_channels;
  r.big = g.small;
  r.small = g.big;
  for (size_t d = 0; d < 3; ++d) {
    r.padding[d] = (g.kernel[d] - 1) * g.dilation[d] - g.padding[d];
  }
  const Line line(r, sizeof(T));
  if (!suits<T>(r, line)) return false;
  correlate_images(
      ctx, r, line, small,
      [&](int64_t group, int64_t o, int64_t c, int64_t t) {
        return weight[((group * g.small_channels + c) * g.big_channels + o) * g.taps() + g.taps() -
                      1 - t];
      },
      bias, big);
  return true;
}

template <class T>
bool gradient(mt_ctx& ctx, const Geometry& g, const T* big, const T* small, T* weight) {
  const Line line(g, sizeof(T));
  // Few output channels leave most of a tile empty; with groups that is still better than products
  // of matrices of one row each.
  if (!suits<T>(g, line) || (g.small_channels < 4 && g.groups == 1)) return false;
  const int64_t depth = g.depth();
  const int64_t taps = round_up(depth, kTileTaps);
  const int64_t tiles = (g.small_channels + kTileChannels - 1) / kTileChannels;
  int64_t* shift = sdk::scratch<int64_t>(ctx, taps);
  shifts(g, line, shift);
  for (int64_t k = depth; k < taps; ++k) shift[k] = 0;
  const int64_t image = g.big_channels * line.length() + kTileSlack;
  const int64_t pitch = line.length() + kTileSlack;  // the last vector of a row reads zeros
  const int64_t big_image = g.groups * g.big_channels * g.big_plane();
  const int64_t small_image = g.groups * g.small_channels * g.small_plane();
  // A fixed number of parts of the batch, summed in order: the same bits on any number of threads.
  const int64_t parts = std::min<int64_t>(line.chunks, g.groups >= 16 ? 1 : 16 / g.groups);
  const int64_t sums_of_task = tiles * kTileChannels * taps;
  T* sums = sdk::scratch<T>(ctx, parts * g.groups * sums_of_task);
  parallel_with_scratch<T>(
      ctx, parts * g.groups, 1, image + kTileChannels * pitch + kTileSlack,
      [&](T* buffer, int64_t begin, int64_t end) {
        T* grad = buffer + image;
        for (int64_t task = begin; task < end; ++task) {
          const int64_t group = task % g.groups;
          const int64_t part = task / g.groups;
          T* own = sums + task * sums_of_task;
          std::fill(own, own + sums_of_task, T{});
          for (int64_t chunk = line.chunks * part / parts; chunk < line.chunks * (part + 1) / parts;
               ++chunk) {
            const int64_t first = chunk * line.together;
            const int64_t images = std::min(line.together, g.batch - first);
            lay_out(line, big + first * big_image + group * g.big_channels * g.big_plane(),
                    big_image, images, g.big_channels, g.big, g.padding, buffer, line.length());
            for (int64_t t = 0; t < tiles; ++t) {
              const int64_t channels =
                  std::min(kTileChannels, g.small_channels - t * kTileChannels);
              lay_out(line,
                      small + first * small_image +
                          (group * g.small_channels + t * kTileChannels) * g.small_plane(),
                      small_image, images, channels, g.small, {0, 0, 0}, grad, pitch);
              if (channels < kTileChannels) {
                std::fill(grad + channels * pitch, grad + kTileChannels * pitch + kTileSlack, T{});
              }
              accumulate(grad, pitch, buffer, shift, taps, line.positions(g, images),
                         own + t * kTileChannels * taps);
            }
          }
        }
      });
  const int64_t rows = g.groups * g.small_channels;
  bool plain = true;
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t group = row / g.small_channels;
    for (int64_t k = 0; k < depth; ++k) {
      T sum{};
      for (int64_t part = 0; part < parts; ++part) {
        sum += sums[(part * g.groups + group) * sums_of_task + row % g.small_channels * taps + k];
      }
      weight[row * depth + k] = sum;
      plain = plain && sum == sum;
    }
  }
  // Between rows a zero meets elements of other windows, and zero times infinity would be NaN.
  return plain;
}

}  // namespace

#define MYTORCH_CPU_DIRECT(T)                                                          \
  template <>                                                                          \
  bool direct_small<T>(mt_ctx & ctx, const Geometry& g, const T* big, const T* weight, \
                       const T* bias, T* small) {                                      \
    return forward(ctx, g, big, weight, bias, small);                                  \
  }                                                                                    \
  template <>                                                                          \
  bool direct_big<T>(mt_ctx & ctx, const Geometry& g, const T* small, const T* weight, \
                     const T* bias, T* big) {                                          \
    return backward(ctx, g, small, weight, bias, big);                                 \
  }                                                                                    \
  template <>                                                                          \
  bool direct_weight<T>(mt_ctx & ctx, const Geometry& g, const T* big, const T* small, \
                        T* weight) {                                                   \
    return gradient(ctx, g, big, small, weight);                                       \
  }
MYTORCH_CPU_DIRECT(float)
MYTORCH_CPU_DIRECT(double)
#undef MYTORCH_CPU_DIRECT

}  // namespace mytorch::cpu
