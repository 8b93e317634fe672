// Max pooling of channels-last tensors: vectors run along the channels, which are contiguous.
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <string>

#include "backends/cpu-openmp/common/lines.h"
#include "backends/cpu-openmp/pooling/planes.h"
#include "backends/cpu-openmp/pooling/rows.h"
#include "backends/cpu-openmp/pooling/separable.h"
#include "mytorch/backend.h"
#include "mytorch/backend/layout.h"

namespace mytorch::cpu {

// Returns whether these tensors, some of which may be absent, are channels-last, and the first of
// them is not also row-major.
inline bool all_channels_last(std::initializer_list<sdk::TensorView> tensors) {
  if (tensors.begin()->is_contiguous()) return false;
  return std::all_of(tensors.begin(), tensors.end(), [](const sdk::TensorView& tensor) {
    return !tensor || (tensor.ndim() == 4 && sdk::is_channels_last(tensor));
  });
}

// Either result may be absent.
template <class T>
void max_channels_last(mt_ctx& ctx, const sdk::TensorView& self, const Window& wh, const Window& ww,
                       const sdk::TensorView& out, const sdk::TensorView& indices) {
  const int64_t channels = self.size(1), h = self.size(2), w = self.size(3);
  const sdk::TensorView pooled = out ? out : indices;
  const int64_t oh = pooled.size(2), ow = pooled.size(3);
  const int64_t taps = wh.kernel * ww.kernel;
  // Per worker: the taps inside the plane, and the channels of an absent result.
  const int64_t words = 2 * taps + 2 * channels;
  const auto max_channels = pooling_kernels<T>().max_channels;
  parallel_with_scratch<int64_t>(
      ctx, self.size(0) * oh, 1 + 8192 / std::max<int64_t>(1, ow * taps * channels), words,
      [&](int64_t* part, int64_t begin, int64_t end) {
        int64_t* at = part;
        int32_t* which = reinterpret_cast<int32_t*>(at + taps);
        T* no_best = reinterpret_cast<T*>(part + 2 * taps);
        int64_t* no_places = part + 2 * taps + channels;
        for (int64_t row = begin; row < end; ++row) {
          const T* plane = self.data<const T>() + row / oh * h * w * channels;
          const int64_t oy = row % oh;
          for (int64_t ox = 0; ox < ow; ++ox) {
            int64_t inside = 0;
            for (int64_t ky = 0; ky < wh.kernel; ++ky) {
              const int64_t y = wh.place(oy, ky);
              if (y < 0 || y >= h) continue;
              for (int64_t kx = 0; kx < ww.kernel; ++kx) {
                const int64_t x = ww.place(ox, kx);
                if (x < 0 || x >= w) continue;
                at[inside] = (y * w + x) * channels;
                which[inside++] = static_cast<int32_t>(y * w + x);
              }
            }
            const int64_t to = (row * ow + ox) * channels;
            max_channels(plane, at, which, inside,
                         static_cast<int32_t>(wh.first(oy) * w + ww.first(ox)), channels,
                         out ? out.data<T>() + to : no_best,
                         indices ? indices.data<int64_t>() + to : no_places);
          }
        }
      });
}

// A work item is a sample or, if there are few samples, some of its channels, so no two work items
// write the same element.
template <class T>
void max_backward_channels_last(mt_ctx& ctx, const sdk::TensorView& grad,
                                const sdk::TensorView& indices, const sdk::TensorView& out) {
  constexpr int64_t kLine = 16;
  const int64_t batch = out.size(0), channels = out.size(1), size = out.size(2) * out.size(3);
  const int64_t pooled = grad.size(2) * grad.size(3);
  const int64_t lines = (channels + kLine - 1) / kLine;
  const int64_t pieces = std::clamp<int64_t>((ctx.num_threads + batch - 1) / batch, 1, lines);
  sdk::parallel_for(ctx, 0, batch * pieces, 1, [&](int64_t begin, int64_t end) {
    for (int64_t task = begin; task < end; ++task) {
      const int64_t n = task / pieces, piece = task % pieces;
      const int64_t c0 = lines * piece / pieces * kLine;
      const int64_t c1 = std::min(channels, lines * (piece + 1) / pieces * kLine);
      T* to = out.data<T>() + n * size * channels;
      const T* from = grad.data<const T>() + n * pooled * channels;
      const int64_t* which = indices.data<const int64_t>() + n * pooled * channels;
      for (int64_t i = 0; i < size; ++i)
        std::fill(to + i * channels + c0, to + i * channels + c1, T{});
      for (int64_t i = 0; i < pooled; ++i) {
        for (int64_t c = c0; c < c1; ++c) {
          T& sum = to[checked_place(which[i * channels + c], size) * channels + c];
          sum = sdk::wrapping_add(sum, from[i * channels + c]);
        }
      }
    }
  });
}

}  // namespace mytorch::cpu
