// Separable pooling: along rows and then across them, so that a window of h x w costs h + w steps
// rather than h * w. Unlike running sums, no result depends on elements outside of its window, such
// as infinities and NaNs.
#pragma once

#include <algorithm>
#include <cstdint>

#include "backends/cpu-openmp/pooling/planes.h"
#include "backends/cpu-openmp/pooling/rows.h"

namespace mytorch::cpu {

// The sizes of a plane and of its pooled plane, and the windows.
struct Pool {
  Window wh, ww;
  int64_t h, w, oh, ow;

  Phases phases() const { return Phases(ww, w, ow); }
  // Returns the length of intermediate rows.
  int64_t pitch() const { return ow + kRoom; }
  // Returns the number of rows that a window covers.
  int64_t ring() const { return std::min(h, (wh.kernel - 1) * wh.dilation + 1); }
  // Returns the words of memory for the functions below.
  int64_t max_words() const {
    return phases().size() + ww.kernel + 2 * wh.kernel + (2 * ring() + 1) * pitch() + 8;
  }
  int64_t mean_words() const { return phases().size() + ww.kernel + w + kRoom + 8; }
  int64_t gradient_words() const { return phases().size() + pitch() + oh * w + 8; }
};

// Divides a block of memory into arrays of any type.
class Carver {
 public:
  explicit Carver(int64_t* memory) : memory_(memory) {}
  template <class T>
  T* take(int64_t n) {
    T* piece = reinterpret_cast<T*>(memory_);
    memory_ += (n * static_cast<int64_t>(sizeof(T)) + 7) / 8;
    return piece;
  }

 private:
  int64_t* memory_;
};

// The first of equal maxima, or the last NaN, as in ATen. The same rule holds along rows and among
// the rows of a window.
template <class Ops, class W>
void max_plane_by(const Pool& pool, const W* x, W* best, int64_t* which, int64_t* memory) {
  const Phases phases = pool.phases();
  const int64_t pitch = pool.pitch(), ring = pool.ring(), kernel = pool.ww.kernel;
  Carver carver(memory);
  W* apart = carver.take<W>(phases.size());
  int64_t* taps = carver.take<int64_t>(kernel);
  const W** values = carver.take<const W*>(pool.wh.kernel);
  const int32_t** places = carver.take<const int32_t*>(pool.wh.kernel);
  int32_t* start = carver.take<int32_t>(pitch);  // the beginnings of the windows
  W* row_best = carver.take<W>(ring * pitch);
  int32_t* row_which = carver.take<int32_t>(ring * pitch);
  std::fill(apart, apart + phases.size(), lowest<W>());
  for (int64_t k = 0; k < kernel; ++k) taps[k] = phases.tap(k);
  for (int64_t i = 0; i < pitch; ++i) {
    start[i] = i < pool.ow ? static_cast<int32_t>(pool.ww.first(i)) : 0;
  }
  int64_t done = 0;  // the row after the last completed one
  for (int64_t oy = 0; oy < pool.oh; ++oy) {
    int64_t count = 0;
    for (int64_t ky = 0; ky < pool.wh.kernel; ++ky) {
      const int64_t y = pool.wh.place(oy, ky);
      if (y < 0 || y >= pool.h) continue;
      // No later window reads a row above this window's first, which may lie in the padding.
      for (done = std::max(done, pool.wh.place(oy, 0)); done <= y; ++done) {
        Ops::split(phases, x + done * pool.w, apart);
        const int64_t to = done % ring * pitch;
        Ops::max_taps(apart, taps, pool.ww, done * pool.w, start, pool.ow, row_best + to,
                      row_which + to);
      }
      values[count] = row_best + y % ring * pitch;
      places[count++] = row_which + y % ring * pitch;
    }
    W* to = best + oy * pool.ow;
    int64_t* to_which = which + oy * pool.ow;
    if (count > 0) {
      Ops::max_rows(values, places, count, pool.ow, to, to_which);
      continue;
    }
    std::fill(to, to + pool.ow, lowest<W>());
    for (int64_t i = 0; i < pool.ow; ++i) to_which[i] = pool.wh.first(oy) * pool.w + start[i];
  }
}

// A window counts counts[ox] * row_counts[oy] elements.
template <class Ops, class W>
void mean_plane_by(const Pool& pool, const W* x, W* mean, const W* counts, const W* row_counts,
                   int64_t* memory) {
  const Phases phases = pool.phases();
  const int64_t kernel = pool.ww.kernel;
  Carver carver(memory);
  W* apart = carver.take<W>(phases.size());
  int64_t* taps = carver.take<int64_t>(kernel);
  W* columns = carver.take<W>(pool.w + kRoom);
  std::fill(apart, apart + phases.size(), W{});
  for (int64_t k = 0; k < kernel; ++k) taps[k] = phases.tap(k);
  // For a few long windows, vectors along each window are longer than vectors across them.
  const bool few = pool.ow < 8 && kernel >= 16;
  for (int64_t oy = 0; oy < pool.oh; ++oy) {
    const int64_t y = std::max<int64_t>(pool.wh.place(oy, 0), 0);
    const int64_t end = std::min(pool.wh.place(oy, pool.wh.kernel), pool.h);
    Ops::sum_rows(x + y * pool.w, pool.w, end - y, pool.w, columns);
    W* to = mean + oy * pool.ow;
    if (few) {
      for (int64_t ox = 0; ox < pool.ow; ++ox) {
        const int64_t first = std::max<int64_t>(pool.ww.place(ox, 0), 0);
        const int64_t last = std::min(pool.ww.place(ox, kernel), pool.w);
        to[ox] = Ops::sum(columns + first, last - first);
      }
    } else {
      Ops::split(phases, columns, apart);
      Ops::sum_taps(apart, taps, kernel, pool.ow, to);
    }
    Ops::divide(to, counts, row_counts[oy], pool.ow, to);
  }
}

template <class Ops, class W>
void mean_gradient_plane_by(const Pool& pool, const W* grad, W* to, const W* counts,
                            const W* row_counts, int64_t* memory) {
  const Phases phases = pool.phases();
  Carver carver(memory);
  W* apart = carver.take<W>(phases.size());
  W* share = carver.take<W>(pool.pitch());
  W* rows = carver.take<W>(pool.oh * pool.w);
  for (int64_t oy = 0; oy < pool.oh; ++oy) {
    Ops::divide(grad + oy * pool.ow, counts, row_counts[oy], pool.ow, share);
    std::fill(apart, apart + phases.size(), W{});
    for (int64_t k = 0; k < pool.ww.kernel; ++k) {
      Ops::add(share, pool.ow, apart + phases.tap(k));
    }
    phases.join(apart, rows + oy * pool.w);
  }
  for (int64_t y = 0; y < pool.h; ++y) {
    const auto [first, last] = pool.wh.containing(y, pool.oh);
    Ops::sum_rows(rows + first * pool.w, pool.w, last - first, pool.w, to + y * pool.w);
  }
}

template <class W>
struct PoolingKernels {
  // For windows with any geometry; `memory` has the words that `pool` requires.
  void (*max_plane)(const Pool& pool, const W* x, W* best, int64_t* which, int64_t* memory);
  void (*mean_plane)(const Pool& pool, const W* x, W* mean, const W* counts, const W* row_counts,
                     int64_t* memory);
  void (*mean_gradient_plane)(const Pool& pool, const W* grad, W* to, const W* counts,
                              const W* row_counts, int64_t* memory);
  // For 2 x 2 windows with stride 2: max_2x2_plane() of rows.h.
  void (*max_2x2_plane)(const W* x, int64_t pitch, int64_t size, int64_t rows, int64_t n, W* best,
                        int64_t* which);
  // For one window in a channels-last plane: max_channels() of rows.h.
  void (*max_channels)(const W* input, const int64_t* at, const int32_t* which, int64_t taps,
                       int32_t start, int64_t n, W* best, int64_t* places);
};

// For any type; for float, vector code for the best instruction set of this CPU.
template <class W>
const PoolingKernels<W>& pooling_kernels() {
  static constexpr PoolingKernels<W> kernels = {
      &max_plane_by<PlainRows<W>, W>, &mean_plane_by<PlainRows<W>, W>,
      &mean_gradient_plane_by<PlainRows<W>, W>, &max_2x2_plane<W>, &max_channels<W>};
  return kernels;
}
template <>
const PoolingKernels<float>& pooling_kernels();

}  // namespace mytorch::cpu
