// The output of a convolution, and the gradient of its input.
#include "backends/cpu-openmp/convolution/implicit_gemm.h"

#include <algorithm>
#include <type_traits>

#include "backends/cpu-openmp/common/lines.h"
#include "backends/cpu-openmp/convolution/blocking.h"
#include "backends/cpu-openmp/convolution/winograd.h"

namespace mytorch::cpu {
namespace {

// The weight's strides; taps are contiguous.
struct WeightStrides {
  int64_t group, out, in;
};

// target = windows of the source times the weight, plus the bias.
template <class T>
struct ImplicitGemm {
  mt_ctx& ctx;
  const Windows& w;
  int64_t batch, groups, in, out;  // channels in a group
  int64_t kernel;                  // taps of the weight
  const T* source;
  const T* weight;
  WeightStrides strides;
  const T* bias;
  T* target;
  bool tiles;  // sdk::gains_by_tiles

  // Returns false if a piece of the source is too large to be copied.
  bool run() const;

 private:
  struct Plan;

  int64_t taps() const { return static_cast<int64_t>(w.taps.size()); }
  // The weights of a panel for a block of channels [c0, c1).
  T* panel_weights(const Plan& plan, int64_t group, int64_t panel, int64_t c0, int64_t c1) const {
    return plan.weights +
           ((group * in + c0) * plan.panels.padded() + (c1 - c0) * plan.panels.first(panel)) *
               taps();
  }
  const T* panel_start(const Plan& plan, int64_t group, int64_t panel) const {
    return plan.starts + group * plan.panels.padded() + plan.panels.first(panel);
  }
  T* panel_target(const Plan& plan, int64_t sample, int64_t group, int64_t panel) const {
    return target + ((sample * groups + group) * out + plan.panels.first(panel)) * volume(w.target);
  }

  void pack(const Plan& plan, int64_t group, int64_t panel) const;
  void run_direct(const Plan& plan, const Chunks::Chunk& chunk, int64_t group, int64_t panel,
                  const T* padded) const;
  void store(const Plan& plan, const Chunks::Chunk& chunk, int64_t group, int64_t panel,
             const T* sums) const;
};

template <class T>
struct ImplicitGemm<T>::Plan {
  const Blocking& blocking;
  const Panels& panels;
  T* weights;      // [group][block][panel][c][tap][lane]
  T* starts;       // [group][padded channel]: the bias, or zeros
  int32_t* steps;  // [c][tap]
};

// Copies a panel's weights to the order in which the microkernel reads them.
template <class T>
void ImplicitGemm<T>::pack(const Plan& plan, int64_t group, int64_t panel) const {
  const int64_t real = plan.panels.real(panel), width = plan.panels.width(panel);
  const int64_t first = plan.panels.first(panel);
  const auto transpose = implicit_microkernels<T>().transpose;
  // If all taps contribute, they are already in order.
  const bool whole = taps() == kernel;
  for (int64_t c0 = 0; c0 < in; c0 += plan.blocking.block) {
    const int64_t c1 = std::min(c0 + plan.blocking.block, in);
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
void ImplicitGemm<T>::run_direct(const Plan& plan, const Chunks::Chunk& chunk, int64_t group,
                                 int64_t panel, const T* padded) const {
  const Chunks& chunks = plan.blocking.chunks;
  DirectProduct<T> p;
  p.input_pitch = chunks.window[2] * w.step[1];
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
  const auto product = direct_microkernels<T>().product;
  for (int64_t j = 0; j < chunk.samples; ++j) {
    for (int64_t z = 0; z < chunk.size[0]; ++z) {
      p.input =
          padded + (j * chunks.window[0] + z * w.step[0]) * chunks.window[1] * chunks.window[2];
      p.out = panel_target(plan, chunk.sample + j, group, panel) +
              w.place({chunk.begin[0] + z, chunk.begin[1], chunk.begin[2]});
      product(p);
    }
  }
}

// Copies the sums of a chunk, [position][lane], to the target.
template <class T>
void ImplicitGemm<T>::store(const Plan& plan, const Chunks::Chunk& chunk, int64_t group,
                            int64_t panel, const T* sums) const {
  const int64_t plane = volume(w.target);
  const int64_t width = plan.panels.width(panel), real = plan.panels.real(panel);
  const auto transpose = implicit_microkernels<T>().transpose;
  plan.blocking.chunks.for_each_run(
      w, chunk, [&](int64_t position, int64_t place, int64_t length, int64_t sample) {
        T* to = panel_target(plan, chunk.sample + sample, group, panel) + place;
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
bool ImplicitGemm<T>::run() const {
  if constexpr (std::is_same_v<T, float>) {
    const WinogradProblem problem{w,      batch,         groups,      in,         out,  source,
                                  weight, strides.group, strides.out, strides.in, bias, target};
    if (tiles && allows_winograd() && winograd(ctx, problem)) return true;
  }
  const int64_t item = sizeof(T);
  const ImplicitMicrokernels<T>& microkernels = implicit_microkernels<T>();
  const Blocking blocking(w, batch, in, out, item);
  if (!blocking.fits(blocking.block, item)) return false;
  const Chunks& chunks = blocking.chunks;
  const Panels panels{out, blocking.direct ? kDirectChannels / 2 : microkernels.lanes()};
  Plan plan{blocking, panels, nullptr, nullptr, nullptr};
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
  plan.steps = sdk::scratch<int32_t>(ctx, blocking.block * taps());
  chunks.taps(w, blocking.block, plan.steps);

  // Tasks are also split by panels if chunks are few or partial sums are many.
  const bool parts = blocking.block < in;
  const int64_t whole = chunks.count() * groups;
  int64_t shares = parts ? divide_up(panels.count, 8) : 1;
  if (whole < kTasks) shares = std::max(shares, std::min(divide_up(kTasks, whole), panels.count));
  const int64_t share = divide_up(panels.count, shares);
  shares = divide_up(panels.count, share);
  const int64_t padded_size = blocking.block * chunks.pitch + kDirectSlack;
  const int64_t sums_size = chunks.most_positions() * 2 * panels.unit;  // of a panel
  const int64_t kept = blocking.direct ? 0 : parts ? share : 1;         // panels
  const int64_t table =
      blocking.direct ? 0 : divide_up(chunks.most_positions() * int64_t{sizeof(int32_t)}, item);
  parallel_with_scratch<T>(
      ctx, whole * shares, 1, padded_size + kept * sums_size + table,
      [&](T* padded, int64_t begin, int64_t end) {
        T* const sums = padded + padded_size;
        Positions positions(w, chunks, reinterpret_cast<int32_t*>(sums + kept * sums_size));
        for (int64_t task = begin; task < end; ++task) {
          const int64_t first = task % shares * share;
          const int64_t last = std::min(first + share, panels.count);
          const int64_t group = task / shares % groups;
          const Chunks::Chunk chunk = chunks.chunk(w, task / shares / groups);
          const int64_t plane = volume(w.source);
          const T* from = source + (chunk.sample * groups + group) * in * plane;
          for (int64_t c0 = 0; c0 < in; c0 += blocking.block) {
            const int64_t c1 = std::min(c0 + blocking.block, in);
            copy_padded(w, chunks, chunk, from, groups * in * plane, c0, c1, padded);
            for (int64_t panel = first; panel < last; ++panel) {
              if (blocking.direct) {
                run_direct(plan, chunk, group, panel, padded);
                continue;
              }
              ImplicitProduct<T> p;
              p.input = padded;
              p.place = positions.of(chunk);
              p.rows = chunk.positions();
              p.step = plan.steps;
              p.steps = (c1 - c0) * taps();
              p.panel = panel_weights(plan, group, panel, c0, c1);
              p.vectors = panels.units(panel);
              p.start = panel_start(plan, group, panel);
              p.accumulate = c0 > 0;
              p.out = sums + (panel - first) % kept * sums_size;
              microkernels.product(p);
              if (c1 == in) store(plan, chunk, group, panel, p.out);
            }
          }
        }
      });
  return true;
}

}  // namespace

template <class T>
bool implicit_forward(mt_ctx& ctx, const sdk::ConvolutionGeometry& g, const T* input,
                      const T* weight, const T* bias, T* output) {
  const Windows w = windows_on_input(g);
  const int64_t depth = g.depth();
  return ImplicitGemm<T>{ctx,
                         w,
                         g.batch,
                         g.groups,
                         g.in_channels,
                         g.out_channels,
                         g.taps(),
                         input,
                         weight,
                         {g.out_channels * depth, depth, g.taps()},
                         bias,
                         output,
                         sdk::gains_by_tiles(g, g.output)}
      .run();
}

template <class T>
bool implicit_backward_input(mt_ctx& ctx, const sdk::ConvolutionGeometry& g, const T* output,
                             const T* weight, const T* bias, T* input) {
  const int64_t depth = g.depth();
  // For few channels with strided results, col2im is faster.
  if (g.in_channels < kFewChannels && g.stride[2] != 1) return false;
  // The zeros around `output` are not terms of the sums, but infinity times zero would give NaN.
  if (!implicit_microkernels<T>().all_finite(weight, g.groups * g.out_channels * depth))
    return false;
  Spatial phases;
  for (size_t d = 0; d < 3; ++d) phases[d] = std::min(g.stride[d], g.input[d]);
  for (int64_t i = 0; i < volume(phases); ++i) {
    const Windows w = windows_on_output(
        g, {i / (phases[1] * phases[2]), i / phases[2] % phases[1], i % phases[2]});
    const bool done = ImplicitGemm<T>{ctx,
                                      w,
                                      g.batch,
                                      g.groups,
                                      g.out_channels,
                                      g.in_channels,
                                      g.taps(),
                                      output,
                                      weight,
                                      {g.out_channels * depth, g.taps(), depth},
                                      bias,
                                      input,
                                      sdk::gains_by_tiles(g, g.input)}
                          .run();
    if (!done) return false;
  }
  return true;
}

#define MYTORCH_CPU_IMPLICIT(T)                                                                   \
  template bool implicit_forward<T>(mt_ctx&, const sdk::ConvolutionGeometry&, const T*, const T*, \
                                    const T*, T*);                                                \
  template bool implicit_backward_input<T>(mt_ctx&, const sdk::ConvolutionGeometry&, const T*,    \
                                           const T*, const T*, T*)
MYTORCH_CPU_IMPLICIT(float);
MYTORCH_CPU_IMPLICIT(double);
#undef MYTORCH_CPU_IMPLICIT

}  // namespace mytorch::cpu
