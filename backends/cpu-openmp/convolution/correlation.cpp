// small from big, and big from small.
#include <algorithm>

#include "backends/cpu-openmp/convolution/implicit.h"
#include "backends/cpu-openmp/convolution/layout.h"
#include "backends/cpu-openmp/scan/lines.h"

namespace mytorch::cpu {
namespace {

// Elements between weights of neighbours; those of a tap are its index apart.
struct WeightStrides {
  int64_t group, out, in;
};

// target = source seen through windows, times weight, + bias.
template <class T>
struct Correlation {
  mt_ctx& ctx;
  const Windows& w;
  int64_t batch, groups, in, out;  // channels in a group
  int64_t kernel;                  // taps of the weight
  const T* source;
  const T* weight;
  WeightStrides strides;
  const T* bias;
  T* target;

  // False, and nothing done, where a piece of the image is too large to be copied.
  bool run() const;

 private:
  struct Plan;

  int64_t taps() const { return static_cast<int64_t>(w.taps.size()); }
  // Of channels [c0, c1), a block.
  T* panel_weights(const Plan& plan, int64_t group, int64_t panel, int64_t c0, int64_t c1) const {
    return plan.weights +
           ((group * in + c0) * plan.panels.padded() + (c1 - c0) * plan.panels.first(panel)) *
               taps();
  }
  const T* panel_start(const Plan& plan, int64_t group, int64_t panel) const {
    return plan.starts + group * plan.panels.padded() + plan.panels.first(panel);
  }
  T* panel_target(const Plan& plan, int64_t image, int64_t group, int64_t panel) const {
    return target + ((image * groups + group) * out + plan.panels.first(panel)) * volume(w.target);
  }

  void pack(const Plan& plan, int64_t group, int64_t panel) const;
  void run_rows(const Plan& plan, const Chunks::Chunk& chunk, int64_t group, int64_t panel,
                const T* image) const;
  void store(const Plan& plan, const Chunks::Chunk& chunk, int64_t group, int64_t panel,
             const T* sums) const;
};

template <class T>
struct Correlation<T>::Plan {
  const Layout& layout;
  const Panels& panels;
  // (group, block, panel, c, tap, lane); what sums begin with, NULL for zeros; (c, tap).
  T* weights;
  T* starts;
  int32_t* steps;
};

// A panel's weights as the kernel reads them.
template <class T>
void Correlation<T>::pack(const Plan& plan, int64_t group, int64_t panel) const {
  const int64_t real = plan.panels.real(panel), width = plan.panels.width(panel);
  const int64_t first = plan.panels.first(panel);
  // Where all taps are there, they are in their order.
  const bool whole = taps() == kernel;
  for (int64_t c0 = 0; c0 < in; c0 += plan.layout.block) {
    const int64_t c1 = std::min(c0 + plan.layout.block, in);
    T* to = panel_weights(plan, group, panel, c0, c1);
    const T* from = weight + group * strides.group + first * strides.out + c0 * strides.in;
    if (real < width) std::fill(to, to + (c1 - c0) * taps() * width, T{});
    if (whole && strides.in == kernel) {
      transpose(from, strides.out, real, (c1 - c0) * kernel, to, width);
      continue;
    }
    for (int64_t c = c0; c < c1; ++c, from += strides.in, to += taps() * width) {
      if (whole) {
        transpose(from, strides.out, real, kernel, to, width);
        continue;
      }
      for (int64_t t = 0; t < taps(); ++t) {
        const T* tap = from + w.taps[static_cast<size_t>(t)].index;
        for (int64_t o = 0; o < real; ++o) to[t * width + o] = tap[o * strides.out];
      }
    }
  }
}

template <class T>
void Correlation<T>::run_rows(const Plan& plan, const Chunks::Chunk& chunk, int64_t group,
                              int64_t panel, const T* image) const {
  const Chunks& chunks = plan.layout.chunks;
  RowsProduct<T> p;
  p.image_pitch = chunks.window[2] * w.step[1];
  p.step = plan.steps;
  p.steps = in * taps();
  p.panel = panel_weights(plan, group, panel, 0, in);
  p.panel_pitch = plan.panels.width(panel);
  p.start = panel_start(plan, group, panel);
  p.channels = plan.panels.real(panel);
  p.rows = chunk.size[1];
  p.width = chunk.size[2];
  p.out_plane = volume(w.target);
  p.out_pitch = w.target[2] * w.apart[1];
  for (int64_t j = 0; j < chunk.images; ++j) {
    for (int64_t z = 0; z < chunk.size[0]; ++z) {
      p.image =
          image + (j * chunks.window[0] + z * w.step[0]) * chunks.window[1] * chunks.window[2];
      p.out = panel_target(plan, chunk.image + j, group, panel) +
              w.place({chunk.begin[0] + z, chunk.begin[1], chunk.begin[2]});
      rows_product(p);
    }
  }
}

// Sums of all positions of a chunk, (position, lane), to where they belong.
template <class T>
void Correlation<T>::store(const Plan& plan, const Chunks::Chunk& chunk, int64_t group,
                           int64_t panel, const T* sums) const {
  const int64_t plane = volume(w.target);
  const int64_t width = plan.panels.width(panel), real = plan.panels.real(panel);
  plan.layout.chunks.for_each_run(
      w, chunk, [&](int64_t position, int64_t place, int64_t length, int64_t image) {
        T* to = panel_target(plan, chunk.image + image, group, panel) + place;
        const T* from = sums + position * width;
        if (w.apart[2] == 1) {
          transpose(from, width, length, real, to, plane);
          return;
        }
        for (int64_t o = 0; o < real; ++o) {
          for (int64_t i = 0; i < length; ++i) to[o * plane + i * w.apart[2]] = from[i * width + o];
        }
      });
}

template <class T>
bool Correlation<T>::run() const {
  const int64_t item = sizeof(T);
  const Layout layout(w, batch, in, out, item);
  if (!layout.fits(item)) return false;
  const Chunks& chunks = layout.chunks;
  const Panels panels{out, layout.rows ? kRowChannels / 2 : vector_lanes(T{})};
  Plan plan{layout, panels, nullptr, nullptr, nullptr};
  const int64_t padded = panels.padded();

  plan.weights = sdk::scratch<T>(ctx, groups * padded * in * taps());
  sdk::parallel_for(ctx, 0, groups * panels.count,
                    1 + 65536 / (1 + in * taps() * padded / panels.count),
                    [&](int64_t begin, int64_t end) {
                      for (int64_t i = begin; i < end; ++i) {
                        pack(plan, i / panels.count, i % panels.count);
                      }
                    });
  plan.starts = sdk::scratch<T>(ctx, groups * padded);
  std::fill(plan.starts, plan.starts + groups * padded, T{});
  for (int64_t group = 0; group < groups && bias != nullptr; ++group) {
    std::copy_n(bias + group * out, out, plan.starts + group * padded);
  }
  plan.steps = sdk::scratch<int32_t>(ctx, layout.block * taps());
  chunks.taps(w, layout.block, plan.steps);

  // Panels are shared, too, where chunks are few or partial sums many.
  const bool parts = layout.block < in;
  const int64_t whole = chunks.count() * groups;
  int64_t shares = parts ? divide_up(panels.count, 8) : 1;
  if (whole < kTasks) shares = std::max(shares, std::min(divide_up(kTasks, whole), panels.count));
  const int64_t share = divide_up(panels.count, shares);
  shares = divide_up(panels.count, share);
  const int64_t image_size = layout.block * chunks.pitch + kRowSlack;
  const int64_t sums_size = chunks.most_positions() * 2 * panels.unit;  // of a panel
  const int64_t kept = layout.rows ? 0 : parts ? share : 1;             // panels
  const int64_t table =
      layout.rows ? 0 : divide_up(chunks.most_positions() * int64_t{sizeof(int32_t)}, item);
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
          for (int64_t c0 = 0; c0 < in; c0 += layout.block) {
            const int64_t c1 = std::min(c0 + layout.block, in);
            lay_out(w, chunks, chunk, from, groups * in * plane, c0, c1, image);
            for (int64_t panel = first; panel < last; ++panel) {
              if (layout.rows) {
                run_rows(plan, chunk, group, panel, image);
                continue;
              }
              Gathered<T> p;
              p.image = image;
              p.place = positions.of(chunk);
              p.rows = chunk.positions();
              p.step = plan.steps;
              p.steps = (c1 - c0) * taps();
              p.panel = panel_weights(plan, group, panel, c0, c1);
              p.vectors = panels.units(panel);
              p.start = panel_start(plan, group, panel);
              p.accumulate = c0 > 0;
              p.out = sums + (panel - first) % kept * sums_size;
              gathered_product(p);
              if (c1 == in) store(plan, chunk, group, panel, p.out);
            }
          }
        }
      });
  return true;
}

template <class T>
bool small_from_big(mt_ctx& ctx, const Geometry& g, const T* big, const T* weight, const T* bias,
                    T* small) {
  const Windows w = windows_on_big(g);
  const int64_t depth = g.depth();
  return Correlation<T>{ctx,
                        w,
                        g.batch,
                        g.groups,
                        g.big_channels,
                        g.small_channels,
                        g.taps(),
                        big,
                        weight,
                        {g.small_channels * depth, depth, g.taps()},
                        bias,
                        small}
      .run();
}

template <class T>
bool big_from_small(mt_ctx& ctx, const Geometry& g, const T* small, const T* weight, const T* bias,
                    T* big) {
  const int64_t depth = g.depth();
  // A few channels apart from each other are better scattered.
  if (g.big_channels < kFewChannels && g.stride[2] != 1) return false;
  // The zeros around `small` are no terms of the sums.
  if (!all_finite(weight, g.groups * g.small_channels * depth)) return false;
  for (int64_t i = 0; i < volume(g.stride); ++i) {
    const Windows w = windows_on_small(
        g, {i / (g.stride[1] * g.stride[2]), i / g.stride[2] % g.stride[1], i % g.stride[2]});
    if (volume(w.grid) == 0) continue;
    const bool done = Correlation<T>{ctx,
                                     w,
                                     g.batch,
                                     g.groups,
                                     g.small_channels,
                                     g.big_channels,
                                     g.taps(),
                                     small,
                                     weight,
                                     {g.small_channels * depth, g.taps(), depth},
                                     bias,
                                     big}
                          .run();
    if (!done) return false;
  }
  return true;
}

}  // namespace

template <class T>
bool implicit_small(mt_ctx& ctx, const Geometry& g, const T* big, const T* weight, const T* bias,
                    T* small) {
  return small_from_big(ctx, g, big, weight, bias, small);
}
template <class T>
bool implicit_big(mt_ctx& ctx, const Geometry& g, const T* small, const T* weight, const T* bias,
                  T* big) {
  return big_from_small(ctx, g, small, weight, bias, big);
}

#define MYTORCH_CPU_IMPLICIT(T)                                                                \
  template bool implicit_small<T>(mt_ctx&, const Geometry&, const T*, const T*, const T*, T*); \
  template bool implicit_big<T>(mt_ctx&, const Geometry&, const T*, const T*, const T*, T*)
MYTORCH_CPU_IMPLICIT(float);
MYTORCH_CPU_IMPLICIT(double);
#undef MYTORCH_CPU_IMPLICIT

}  // namespace mytorch::cpu
