// Staging of lines (sdk::Lines): kernels that work along a dimension load a few lines at a time as
// contiguous rows of their compute type, so that one case serves all strides and dtypes.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "mytorch/backend.h"

namespace mytorch::cpu {

// The number of lines staged together: neighbors in memory share cache lines.
inline constexpr int64_t kLinesTogether = 16;

// Calls f(offsets, n) for groups of n <= kLinesTogether lines that cover [begin, end). Line i of
// operand k begins at offsets[k] + i * lines.loop.inner_stride(k).
template <int N, class F>
void for_each_group(const sdk::Lines<N>& lines, int64_t begin, int64_t end, F&& f) {
  lines.loop.for_each_run(begin, end, [&](std::array<int64_t, N> at, int64_t n) {
    for (int64_t i = 0; i < n; i += kLinesTogether) {
      f(static_cast<const std::array<int64_t, N>&>(at), std::min(kLinesTogether, n - i));
      for (int k = 0; k < N; ++k) at[k] += kLinesTogether * lines.loop.inner_stride(k);
    }
  });
}

// Loads `count` lines of `size` elements into rows of `to`, which are `pitch` apart. Elements of a
// line are `step` apart, lines are `next` apart.
template <class T, class W>
void load_lines(const T* from, int64_t step, int64_t next, int64_t size, int64_t count, W* to,
                int64_t pitch) {
  if (count > 1 && std::abs(next) < std::abs(step)) {
    for (int64_t k = 0; k < size; ++k) {
      for (int64_t i = 0; i < count; ++i) {
        to[i * pitch + k] = sdk::convert<W>(from[k * step + i * next]);
      }
    }
    return;
  }
  for (int64_t i = 0; i < count; ++i) {
    const T* line = from + i * next;
    W* row = to + i * pitch;
    for (int64_t k = 0; k < size; ++k) row[k] = sdk::convert<W>(line[k * step]);
  }
}

// The inverse of load_lines.
template <class W, class T>
void store_lines(const W* from, int64_t pitch, T* to, int64_t step, int64_t next, int64_t size,
                 int64_t count) {
  if (count > 1 && std::abs(next) < std::abs(step)) {
    for (int64_t k = 0; k < size; ++k) {
      for (int64_t i = 0; i < count; ++i) {
        to[k * step + i * next] = sdk::convert<T>(from[i * pitch + k]);
      }
    }
    return;
  }
  for (int64_t i = 0; i < count; ++i) {
    T* line = to + i * next;
    const W* row = from + i * pitch;
    for (int64_t k = 0; k < size; ++k) line[k * step] = sdk::convert<T>(row[k]);
  }
}

// Calls body(part, begin, end) over [0, n) in parallel. `part` is scratch memory of `elements` of T
// for the worker, allocated before the loop because workers cannot allocate.
template <class T, class F>
void parallel_with_scratch(mt_ctx& ctx, int64_t n, int64_t grain, int64_t elements, F&& body) {
  if (n <= 0) return;
  const int64_t workers =
      std::clamp<int64_t>(n / std::max<int64_t>(grain, 1), 1, std::max(ctx.num_threads, 1));
  constexpr int64_t kLine = 64 / static_cast<int64_t>(sizeof(T));
  const int64_t part = (elements + kLine - 1) / kLine * kLine + kLine;
  T* memory = sdk::scratch<T>(ctx, part * workers);
  sdk::parallel_for(ctx, 0, workers, 1, [&](int64_t first, int64_t last) {
    body(memory + first * part, n * first / workers, n * last / workers);
  });
}

}  // namespace mytorch::cpu
