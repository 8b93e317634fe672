// Attention of a few query rows (decode.cuh) in any type, width and strides. kLanes threads hold
// the columns of a key, kPerLane each.
#pragma once

#include <cmath>
#include <cstdint>

#include "backends/cuda/attention/decode.cuh"
#include "backends/cuda/common/mma.cuh"

namespace mytorch::cuda::decode {

constexpr int kPerLane = 8;

template <class T, bool kWhole>
__device__ __forceinline__ void load_columns(const T* row, int64_t step, int first, int width,
                                             T (&to)[kPerLane]) {
  if constexpr (kWhole) {
    constexpr int kEach = 16 / sizeof(T);
#pragma unroll
    for (int c = 0; c < kPerLane; c += kEach) {
      const uint4 x = first + c < width ? load_once(row + first + c) : uint4{0, 0, 0, 0};
      *reinterpret_cast<uint4*>(&to[c]) = x;
    }
  } else {
#pragma unroll
    for (int c = 0; c < kPerLane; ++c) {
      to[c] = first + c < width ? row[(first + c) * step] : convert<T>(0.0F);
    }
  }
}

template <class T, int kLanes, int kRows, bool kWhole>
__global__ void __launch_bounds__(kThreads) decode_columns(const __grid_constant__ DecodeCall p) {
  constexpr int kGroups = kThreads / kLanes;
  constexpr int kAtOnce = 2;  // keys that a group of threads loads at a time
  const int lane = threadIdx.x % kLanes, group = threadIdx.x / kLanes, first = lane * kPerLane;
  const Part part = Part::of_block<kRows>(p);
  float query[kRows][kPerLane], out[kRows][kPerLane], most[kRows], total[kRows];
  __shared__ Row rows[kRows];
  if (threadIdx.x < kRows) rows[threadIdx.x] = Row::of(p, part, part.first_row + threadIdx.x);
  __syncthreads();
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const int own = min(part.first_row + r, p.rows - 1);
    const T* const from = static_cast<const T*>(p.query) + part.batch * p.query_stride[0] +
                          part.head_of(p, own) * p.query_stride[1] +
                          own % p.queries * p.query_stride[2];
#pragma unroll
    for (int c = 0; c < kPerLane; ++c) {
      query[r][c] = first + c < p.width ? widen(from[(first + c) * p.query_stride[3]]) : 0.0F;
      out[r][c] = 0;
    }
    most[r] = -INFINITY;
    total[r] = 0;
  }

  alignas(16) T key[kAtOnce][kPerLane], value[kAtOnce][kPerLane];
  Slot next[kAtOnce];
  const auto find = [&](int from) {
#pragma unroll
    for (int a = 0; a < kAtOnce; ++a) {
      const int j = from + a * kGroups + group;
      next[a] = Slot::of(p, part, min(max(j, part.seen.begin), part.seen.end - 1));
    }
  };
  const auto load = [&](auto& to, const void* data, const int64_t(&stride)[4], int width) {
#pragma unroll
    for (int a = 0; a < kAtOnce; ++a) {
      load_columns<T, kWhole>(
          static_cast<const T*>(data) + next[a].offset(stride) + part.key_head * stride[2],
          stride[3], first, width, to[a]);
    }
  };
  int from = part.own.begin;
  if (from < part.own.end) {
    find(from);
    load(key, p.key, p.key_stride, p.width);
    load(value, p.value, p.value_stride, p.value_width);
    find(from + kGroups * kAtOnce);
  }
  for (; from < part.own.end; from += kGroups * kAtOnce) {
    const bool more = from + kGroups * kAtOnce < part.own.end;
    float score[kRows][kAtOnce];
#pragma unroll
    for (int a = 0; a < kAtOnce; ++a) {
#pragma unroll
      for (int r = 0; r < kRows; ++r) score[r][a] = 0;
#pragma unroll
      for (int c = 0; c < kPerLane; ++c) {
        const float k = widen(key[a][c]);
#pragma unroll
        for (int r = 0; r < kRows; ++r) score[r][a] = fmaf(query[r][c], k, score[r][a]);
      }
    }
    if (more) load(key, p.key, p.key_stride, p.width);
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      float highest = most[r];
#pragma unroll
      for (int a = 0; a < kAtOnce; ++a) {
#pragma unroll
        for (int step = kLanes / 2; step > 0; step /= 2) {
          score[r][a] += __shfl_xor_sync(0xFFFFFFFFu, score[r][a], step);
        }
        const int j = from + a * kGroups + group;
        score[r][a] = j < part.own.end ? rows[r].score(p, score[r][a], j) : -INFINITY;
        highest = fmaxf(highest, score[r][a]);
      }
      if (highest > most[r]) {
        const float factor = expf(most[r] - finite(highest));
        most[r] = highest;
        total[r] *= factor;
#pragma unroll
        for (int c = 0; c < kPerLane; ++c) out[r][c] *= factor;
      }
#pragma unroll
      for (int a = 0; a < kAtOnce; ++a) {
        score[r][a] = expf(score[r][a] - finite(most[r]));
        total[r] += score[r][a];
      }
    }
#pragma unroll
    for (int a = 0; a < kAtOnce; ++a) {
#pragma unroll
      for (int c = 0; c < kPerLane; ++c) {
        const float v = widen(value[a][c]);
#pragma unroll
        for (int r = 0; r < kRows; ++r) out[r][c] = fmaf(score[r][a], v, out[r][c]);
      }
    }
    if (more) {
      load(value, p.value, p.value_stride, p.value_width);
      find(from + 2 * kGroups * kAtOnce);
    }
  }

  __shared__ Merge<T, kGroups, 1, kLanes * kPerLane> merge;
  // Row 0 is written, and the others move up: unrolled, the code for all rows would be longer than
  // the rest of the kernel.
#pragma unroll 1
  for (int row = 0; row < kRows; ++row) {
    __syncthreads();
    merge.mosts[group][0] = most[0];
    merge.totals[group][0] = total[0];
#pragma unroll
    for (int c = 0; c < kPerLane; ++c) merge.sums[group][0][first + c] = out[0][c];
    __syncthreads();
    merge.write(p, part, part.first_row + row);
#pragma unroll
    for (int r = 1; r < kRows; ++r) {
      most[r - 1] = most[r];
      total[r - 1] = total[r];
#pragma unroll
      for (int c = 0; c < kPerLane; ++c) out[r - 1][c] = out[r][c];
    }
  }
}

}  // namespace mytorch::cuda::decode
