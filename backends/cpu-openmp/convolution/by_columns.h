// The three computations as matrix products with tiles of columns: for integers, for infinite
// weights, whose products with the padding must not be in `big`, and for windows so large that
// implicit.h does not copy what they see. Tiles depend on the geometry alone, so results do not
// depend on the number of threads.
#pragma once

#include <algorithm>
#include <cstdint>

#include "backends/cpu-openmp/convolution/columns.h"
#include "backends/cpu-openmp/convolution/geometry.h"
#include "backends/cpu-openmp/convolution/nested.h"
#include "backends/cpu-openmp/scan/lines.h"
#include "mytorch/backend.h"

namespace mytorch::cpu {

// Rows of `small` whose columns are made at a time: half of a typical L2 full of them.
struct Tiles {
  int64_t rows;   // in a tile
  int64_t count;  // of tiles

  Tiles(const Geometry& g, int64_t item) {
    const int64_t all = g.small[0] * g.small[1];
    const int64_t width = g.small[2];
    const int64_t fit = (int64_t{384} << 10) / (std::max<int64_t>(g.depth(), 1) * width * item);
    // Products of fewer columns than this cannot use their weights well.
    const int64_t least = (96 + width - 1) / width;
    rows = std::clamp<int64_t>(fit, std::min(least, all), all);
    count = (all + rows - 1) / rows;
    rows = (all + count - 1) / count;
    count = (all + rows - 1) / rows;
  }
};

// Scratch of a worker: its columns, then what its products need.
inline int64_t columns_bytes(int64_t elements, int64_t item) {
  return (elements * item + 63) / 64 * 64;
}

// small = weight * columns(big) + bias.
template <class T>
void small_by_columns(mt_ctx& ctx, const Geometry& g, const T* big, const T* weight, const T* bias,
                      T* small) {
  const Tiles tiles(g, sizeof(T));
  const int64_t depth = g.depth();
  const int64_t plane = g.small_plane();
  const int64_t most = tiles.rows * g.small[2];
  const int64_t columns = g.pointwise() ? 0 : columns_bytes(depth * most, sizeof(T));
  const int64_t product = NestedGemm::bytes(g.small_channels, most, depth);
  const int64_t tasks = g.batch * g.groups * tiles.count;
  parallel_with_scratch<char>(
      ctx, tasks, 1, columns + product, [&](char* part, int64_t begin, int64_t end) {
        T* buffer = reinterpret_cast<T*>(part);
        NestedGemm gemm(ctx, part + columns, product);
        for (int64_t task = begin; task < end; ++task) {
          const int64_t r0 = task % tiles.count * tiles.rows;
          const int64_t r1 = std::min(r0 + tiles.rows, g.small[0] * g.small[1]);
          const int64_t image = task / tiles.count;  // (n, group)
          const int64_t group = image % g.groups;
          const int64_t n = (r1 - r0) * g.small[2];
          const T* from = big + image * g.big_channels * g.big_plane();
          // Columns times weights, transposed, so that the bias is one per column.
          GemmProblem p;
          p.dtype = sdk::dtype_of<T>;
          p.m = n;
          p.n = g.small_channels;
          p.k = depth;
          if (g.pointwise()) {
            p.a = {from + r0 * g.small[2], 1, plane};
          } else {
            gather_columns(g, from, 0, g.big_channels, r0, r1, buffer);
            p.a = {buffer, 1, n};
          }
          p.b = {weight + group * g.small_channels * depth, 1, depth};
          p.c = {small + image * g.small_channels * plane + r0 * g.small[2], 1, plane};
          p.bias = bias == nullptr ? nullptr : bias + group * g.small_channels;
          gemm.run(p);
        }
      });
}

// big = the sum of weight^T * small over the taps, + bias.
template <class T>
void big_by_columns(mt_ctx& ctx, const Geometry& g, const T* small, const T* weight, const T* bias,
                    T* big) {
  const Tiles tiles(g, sizeof(T));
  const int64_t plane = g.small_plane();
  const int64_t big_plane = g.big_plane();
  const int64_t most = tiles.rows * g.small[2];
  // Images are shared, and their channels where there are few of them.
  const int64_t parts = std::clamp<int64_t>(8 / (g.batch * g.groups), 1, g.big_channels);
  const int64_t channels = (g.big_channels + parts - 1) / parts;
  const int64_t depth = channels * g.taps();
  const int64_t columns = columns_bytes(depth * most, sizeof(T));
  const int64_t product = NestedGemm::bytes(depth, most, g.small_channels);
  parallel_with_scratch<char>(
      ctx, g.batch * g.groups * parts, 1, columns + product,
      [&](char* part, int64_t begin, int64_t end) {
        T* buffer = reinterpret_cast<T*>(part);
        NestedGemm gemm(ctx, part + columns, product);
        for (int64_t task = begin; task < end; ++task) {
          const int64_t image = task / parts;
          const int64_t group = image % g.groups;
          const int64_t c0 = std::min(task % parts * channels, g.big_channels);
          const int64_t c1 = std::min(c0 + channels, g.big_channels);
          T* to = big + image * g.big_channels * big_plane;
          for (int64_t c = c0; c < c1; ++c) {
            const T start = bias == nullptr ? T{} : bias[group * g.big_channels + c];
            std::fill(to + c * big_plane, to + (c + 1) * big_plane, start);
          }
          if (c0 == c1) continue;
          for (int64_t r0 = 0; r0 < g.small[0] * g.small[1]; r0 += tiles.rows) {
            const int64_t r1 = std::min(r0 + tiles.rows, g.small[0] * g.small[1]);
            const int64_t n = (r1 - r0) * g.small[2];
            GemmProblem p;
            p.dtype = sdk::dtype_of<T>;
            p.m = (c1 - c0) * g.taps();
            p.n = n;
            p.k = g.small_channels;
            p.a = {weight + group * g.small_channels * g.depth() + c0 * g.taps(), 1, g.depth()};
            p.b = {small + image * g.small_channels * plane + r0 * g.small[2], plane, 1};
            p.c = {buffer, n, 1};
            if (g.pointwise()) {
              p.c = {to + c0 * big_plane + r0 * g.small[2], big_plane, 1};
              p.accumulate = true;
            }
            gemm.run(p);
            if (!g.pointwise()) add_columns(g, buffer, c0, c1, r0, r1, to);
          }
        }
      });
}

// weight = the sum over images of small * columns(big)^T. Images are summed in a fixed number of
// parts, and the parts in order.
template <class T>
void weight_by_columns(mt_ctx& ctx, const Geometry& g, const T* big, const T* small, T* weight) {
  const Tiles tiles(g, sizeof(T));
  const int64_t depth = g.depth();
  const int64_t plane = g.small_plane();
  const int64_t most = tiles.rows * g.small[2];
  const int64_t per_group = g.small_channels * depth;
  const int64_t pieces = g.batch * tiles.count;  // of a group
  // Partial sums cost memory and an addition each: none where groups are enough work to share.
  const int64_t parts = std::min<int64_t>(pieces, g.groups >= 16 ? 1 : 16 / g.groups);
  const int64_t columns = g.pointwise() ? 0 : columns_bytes(depth * most, sizeof(T));
  const int64_t product = NestedGemm::bytes(g.small_channels, depth, most);
  const int64_t total = per_group * g.groups;
  T* sums = parts == 1 ? weight : sdk::scratch<T>(ctx, parts * total);
  parallel_with_scratch<char>(
      ctx, parts * g.groups, 1, columns + product, [&](char* memory, int64_t begin, int64_t end) {
        T* buffer = reinterpret_cast<T*>(memory);
        NestedGemm gemm(ctx, memory + columns, product);
        for (int64_t task = begin; task < end; ++task) {
          const int64_t group = task % g.groups;
          const int64_t part = task / g.groups;
          const int64_t first = pieces * part / parts;
          const int64_t last = pieces * (part + 1) / parts;
          for (int64_t piece = first; piece < last; ++piece) {
            const int64_t image = piece / tiles.count * g.groups + group;
            const int64_t r0 = piece % tiles.count * tiles.rows;
            const int64_t r1 = std::min(r0 + tiles.rows, g.small[0] * g.small[1]);
            const int64_t n = (r1 - r0) * g.small[2];
            const T* from = big + image * g.big_channels * g.big_plane();
            GemmProblem p;
            p.dtype = sdk::dtype_of<T>;
            p.m = g.small_channels;
            p.n = depth;
            p.k = n;
            p.a = {small + image * g.small_channels * plane + r0 * g.small[2], plane, 1};
            if (g.pointwise()) {
              p.b = {from + r0 * g.small[2], 1, plane};
            } else {
              gather_columns(g, from, 0, g.big_channels, r0, r1, buffer);
              p.b = {buffer, 1, n};
            }
            p.c = {sums + part * total + group * per_group, depth, 1};
            p.accumulate = piece > first;
            gemm.run(p);
          }
        }
      });
  if (parts == 1) return;
  sdk::parallel_for(ctx, 0, total, 4096, [&](int64_t begin, int64_t end) noexcept {
    std::copy(sums + begin, sums + end, weight + begin);
    for (int64_t part = 1; part < parts; ++part) {
      const T* more = sums + part * total;
      for (int64_t i = begin; i < end; ++i) weight[i] = static_cast<T>(weight[i] + more[i]);
    }
  });
}

}  // namespace mytorch::cpu
