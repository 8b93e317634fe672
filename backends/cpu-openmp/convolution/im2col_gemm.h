// The three computations as matrix products with tiles of the im2col matrix: for integers, for
// infinite weights, whose products with the padding must not reach the gradient of the input, and
// for windows too large for implicit GEMM to copy. Tiles depend on the geometry alone, so results
// do not depend on the number of threads.
#pragma once

#include <algorithm>
#include <cstdint>

#include "backends/cpu-openmp/common/lines.h"
#include "backends/cpu-openmp/convolution/im2col.h"
#include "backends/cpu-openmp/convolution/nested_gemm.h"
#include "mytorch/backend.h"

namespace mytorch::cpu {

// The output rows of a tile, whose columns fill half of a typical L2.
struct Tiles {
  int64_t rows;   // in a tile
  int64_t count;  // of tiles

  Tiles(const sdk::ConvolutionGeometry& g, int64_t item) {
    const int64_t all = g.output[0] * g.output[1];
    const int64_t width = g.output[2];
    const int64_t fit = (int64_t{384} << 10) / (std::max<int64_t>(g.depth(), 1) * width * item);
    // With fewer columns, products hardly reuse the weight.
    const int64_t least = (96 + width - 1) / width;
    rows = std::clamp<int64_t>(fit, std::min(least, all), all);
    count = (all + rows - 1) / rows;
    rows = (all + count - 1) / count;
    count = (all + rows - 1) / rows;
  }
};

// A worker's scratch memory contains its columns, then the workspace of its products.
inline int64_t columns_bytes(int64_t elements, int64_t item) {
  return (elements * item + 63) / 64 * 64;
}

// output = weight * im2col(input) + bias.
template <class T>
void im2col_forward(mt_ctx& ctx, const sdk::ConvolutionGeometry& g, const T* input, const T* weight,
                    const T* bias, T* output) {
  const Tiles tiles(g, sizeof(T));
  const int64_t depth = g.depth();
  const int64_t plane = g.output_plane();
  const int64_t most = tiles.rows * g.output[2];
  const int64_t columns = g.pointwise() ? 0 : columns_bytes(depth * most, sizeof(T));
  const int64_t product = NestedGemm::bytes(g.out_channels, most, depth);
  const int64_t tasks = g.batch * g.groups * tiles.count;
  parallel_with_scratch<char>(
      ctx, tasks, 1, columns + product, [&](char* part, int64_t begin, int64_t end) {
        T* buffer = reinterpret_cast<T*>(part);
        NestedGemm gemm(ctx, part + columns, product);
        for (int64_t task = begin; task < end; ++task) {
          const int64_t r0 = task % tiles.count * tiles.rows;
          const int64_t r1 = std::min(r0 + tiles.rows, g.output[0] * g.output[1]);
          const int64_t sample_group = task / tiles.count;  // (n, group)
          const int64_t group = sample_group % g.groups;
          const int64_t n = (r1 - r0) * g.output[2];
          const T* from = input + sample_group * g.in_channels * g.input_plane();
          // The transposed product, so that the bias belongs to columns.
          GemmProblem p;
          p.dtype = sdk::dtype_of<T>;
          p.m = n;
          p.n = g.out_channels;
          p.k = depth;
          if (g.pointwise()) {
            p.a = {from + r0 * g.output[2], 1, plane};
          } else {
            im2col(g, from, 0, g.in_channels, r0, r1, buffer);
            p.a = {buffer, 1, n};
          }
          p.b = {weight + group * g.out_channels * depth, 1, depth};
          p.c = {output + sample_group * g.out_channels * plane + r0 * g.output[2], 1, plane};
          p.bias = bias == nullptr ? nullptr : bias + group * g.out_channels;
          gemm.run(p);
        }
      });
}

// input = col2im(weight^T * output) + bias.
template <class T>
void im2col_backward_input(mt_ctx& ctx, const sdk::ConvolutionGeometry& g, const T* output,
                           const T* weight, const T* bias, T* input) {
  const Tiles tiles(g, sizeof(T));
  const int64_t plane = g.output_plane();
  const int64_t input_plane = g.input_plane();
  const int64_t most = tiles.rows * g.output[2];
  // A task is a sample and a group or, if these are few, some of its channels.
  const int64_t parts = std::clamp<int64_t>(8 / (g.batch * g.groups), 1, g.in_channels);
  const int64_t channels = (g.in_channels + parts - 1) / parts;
  const int64_t depth = channels * g.taps();
  const int64_t columns = columns_bytes(depth * most, sizeof(T));
  const int64_t product = NestedGemm::bytes(depth, most, g.out_channels);
  parallel_with_scratch<char>(
      ctx, g.batch * g.groups * parts, 1, columns + product,
      [&](char* part, int64_t begin, int64_t end) {
        T* buffer = reinterpret_cast<T*>(part);
        NestedGemm gemm(ctx, part + columns, product);
        for (int64_t task = begin; task < end; ++task) {
          const int64_t sample_group = task / parts;
          const int64_t group = sample_group % g.groups;
          const int64_t c0 = std::min(task % parts * channels, g.in_channels);
          const int64_t c1 = std::min(c0 + channels, g.in_channels);
          T* to = input + sample_group * g.in_channels * input_plane;
          for (int64_t c = c0; c < c1; ++c) {
            const T start = bias == nullptr ? T{} : bias[group * g.in_channels + c];
            std::fill(to + c * input_plane, to + (c + 1) * input_plane, start);
          }
          if (c0 == c1) continue;
          for (int64_t r0 = 0; r0 < g.output[0] * g.output[1]; r0 += tiles.rows) {
            const int64_t r1 = std::min(r0 + tiles.rows, g.output[0] * g.output[1]);
            const int64_t n = (r1 - r0) * g.output[2];
            GemmProblem p;
            p.dtype = sdk::dtype_of<T>;
            p.m = (c1 - c0) * g.taps();
            p.n = n;
            p.k = g.out_channels;
            p.a = {weight + group * g.out_channels * g.depth() + c0 * g.taps(), 1, g.depth()};
            p.b = {output + sample_group * g.out_channels * plane + r0 * g.output[2], plane, 1};
            p.c = {buffer, n, 1};
            if (g.pointwise()) {
              p.c = {to + c0 * input_plane + r0 * g.output[2], input_plane, 1};
              p.accumulate = true;
            }
            gemm.run(p);
            if (!g.pointwise()) col2im(g, buffer, c0, c1, r0, r1, to);
          }
        }
      });
}

// weight = the sum over samples of output * im2col(input)^T, in a fixed number of partial sums that
// are added in order.
template <class T>
void im2col_backward_weight(mt_ctx& ctx, const sdk::ConvolutionGeometry& g, const T* input,
                            const T* output, T* weight) {
  const Tiles tiles(g, sizeof(T));
  const int64_t depth = g.depth();
  const int64_t plane = g.output_plane();
  const int64_t most = tiles.rows * g.output[2];
  const int64_t per_group = g.out_channels * depth;
  const int64_t pieces = g.batch * tiles.count;  // of one group
  // Partial sums cost memory and additions, so there are none if groups are enough work to share.
  const int64_t parts = std::min<int64_t>(pieces, g.groups >= 16 ? 1 : 16 / g.groups);
  const int64_t columns = g.pointwise() ? 0 : columns_bytes(depth * most, sizeof(T));
  const int64_t product = NestedGemm::bytes(g.out_channels, depth, most);
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
            const int64_t sample_group = piece / tiles.count * g.groups + group;
            const int64_t r0 = piece % tiles.count * tiles.rows;
            const int64_t r1 = std::min(r0 + tiles.rows, g.output[0] * g.output[1]);
            const int64_t n = (r1 - r0) * g.output[2];
            const T* from = input + sample_group * g.in_channels * g.input_plane();
            GemmProblem p;
            p.dtype = sdk::dtype_of<T>;
            p.m = g.out_channels;
            p.n = depth;
            p.k = n;
            p.a = {output + sample_group * g.out_channels * plane + r0 * g.output[2], plane, 1};
            if (g.pointwise()) {
              p.b = {from + r0 * g.output[2], 1, plane};
            } else {
              im2col(g, from, 0, g.in_channels, r0, r1, buffer);
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
      for (int64_t i = begin; i < end; ++i) weight[i] = sdk::wrapping_add(weight[i], more[i]);
    }
  });
}

}  // namespace mytorch::cpu
