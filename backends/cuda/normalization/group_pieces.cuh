// Group normalization by pieces, for groups that are too long for a block, too few for the device,
// or channels-last (NHWC). One kernel computes the statistics of pieces of channels, one merges
// those of a group, and one normalizes the elements.
#pragma once

#include <algorithm>
#include <cstdint>

#include "backends/cuda/normalization/group_held.cuh"
#include "backends/cuda/runtime/launch.h"

namespace mytorch::cuda {

inline constexpr int kPieceThreads = 256, kMergeThreads = 128;

// How a tensor is split. A thread has one pack at each of its positions: of one channel (`kLast`
// false: a position is a pack of a plane), or of neighbouring channels (a position is an element of
// the plane). A block has the positions [piece * length, (piece + 1) * length) of the channels of
// its columns, in one sample.
struct Pieces {
  int64_t positions, length;
  int64_t columns;  // of one sample: channels, or packs of channels
  int pieces;

  // `across` is the number of columns of a block.
  static Pieces of(const mt_ctx& ctx, const Groups& groups, bool last, int width, Grid& grid) {
    Pieces cut{};
    cut.positions = last ? groups.plane : groups.plane / width;
    cut.columns = last ? groups.channels() / width : groups.channels();
    unsigned across = 1;
    while (last && across < 32 && across < cut.columns) across *= 2;
    grid.threads = dim3(across, kPieceThreads / across);
    const int64_t tiles = groups.samples * ((cut.columns + across - 1) / across);
    const int64_t busy = 4 * int64_t{properties(ctx.device.index).multiprocessors};
    const int64_t most = std::max<int64_t>(1, cut.positions / (4 * grid.threads.y));
    const int64_t pieces = std::clamp<int64_t>(busy / tiles, 1, std::min<int64_t>(most, 64));
    cut.length = (cut.positions + pieces - 1) / pieces;
    cut.pieces = static_cast<int>((cut.positions + cut.length - 1) / cut.length);
    grid.blocks = dim3(static_cast<unsigned>(tiles), static_cast<unsigned>(cut.pieces));
    return cut;
  }
};

#ifdef __CUDACC__

// The position of a thread.
template <bool kLast, int kWidth>
struct Own {
  int64_t sample, channel;  // the first channel of the pack
  bool there;
  int64_t begin, end;  // positions of the block
  int64_t base, step;  // the pack at position p is at base + p * step

  __device__ __forceinline__ Own(const Pieces& cut, const Groups& groups) {
    const int64_t tiles = (cut.columns + blockDim.x - 1) / blockDim.x;
    sample = blockIdx.x / tiles;
    const int64_t column = (blockIdx.x - sample * tiles) * blockDim.x + threadIdx.x;
    there = column < cut.columns;
    channel = kLast ? column * kWidth : column;
    begin = blockIdx.y * cut.length;
    end = min(begin + cut.length, cut.positions);
    const int64_t channels = groups.groups * groups.each;
    base = (sample * channels) * groups.plane + channel * (kLast ? 1 : groups.plane);
    step = kLast ? channels : kWidth;
  }
  // Calls f(offset) for each pack of the thread.
  template <class F>
  __device__ __forceinline__ void for_each(F&& f) const {
    if (!there) return;
#pragma unroll 4
    for (int64_t p = begin + threadIdx.y; p < end; p += blockDim.y) f(base + p * step);
  }
};

template <class W>
struct Moments {
  W count, mean, spread;  // spread: the sum of (x - mean)^2

  // Chan, Golub and LeVeque, 1979.
  __device__ __forceinline__ void merge(const Moments& other) {
    const W all = count + other.count;
    if (other.count == W(0)) return;
    const W off = other.mean - mean, share = other.count / all;
    mean += off * share;
    spread += other.spread + off * off * count * share;
    count = all;
  }
};

// Merges the values of the threads of a column in a fixed order; the result is in row 0.
template <class Part, int kParts, class Merge>
__device__ __forceinline__ void merge_rows(Part (&own)[kParts], Merge&& merge) {
  __shared__ Part storage[kParts][kPieceThreads];
  const unsigned at = threadIdx.y * blockDim.x + threadIdx.x;
#pragma unroll
  for (int k = 0; k < kParts; ++k) storage[k][at] = own[k];
  __syncthreads();
  for (unsigned half = blockDim.y / 2; half > 0; half /= 2) {
    if (threadIdx.y < half) {
#pragma unroll
      for (int k = 0; k < kParts; ++k) {
        merge(own[k], storage[k][at + half * blockDim.x]);
        storage[k][at] = own[k];
      }
    }
    __syncthreads();
  }
}

// Merges the values of the threads of a block of kMergeThreads in a fixed order, for all of them.
template <class Part, class Merge>
__device__ __forceinline__ Part merge_block(Part own, Merge&& merge) {
  __shared__ Part storage[kMergeThreads];
  __syncthreads();  // all threads have read the result of an earlier call
  storage[threadIdx.x] = own;
  __syncthreads();
  for (unsigned half = kMergeThreads / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) {
      merge(own, storage[threadIdx.x + half]);
      storage[threadIdx.x] = own;
    }
    __syncthreads();
  }
  return storage[0];
}

// Stores what merge_rows() left in row 0, for each sample, channel and piece.
template <class Part, int kParts, class Own>
__device__ __forceinline__ void put_parts(const Part (&parts)[kParts], const Groups& groups,
                                          const Pieces& cut, const Own& own, Part* found) {
  if (threadIdx.y != 0 || !own.there) return;
#pragma unroll
  for (int k = 0; k < kParts; ++k) {
    const int64_t channel = own.sample * groups.groups * groups.each + own.channel + k;
    found[channel * cut.pieces + blockIdx.y] = parts[k];
  }
}

// `found`: moments of each sample, channel and piece.
template <bool kLast, class T, int kWidth>
__global__ void __launch_bounds__(kPieceThreads)
    moments_of_pieces(Groups groups, Pieces cut, const T* x, Moments<Wide<T>>* found) {
  using W = Wide<T>;
  constexpr int kParts = kLast ? kWidth : 1;
  const Own<kLast, kWidth> own(cut, groups);
  W count = 0, mean[kWidth] = {}, spread[kWidth] = {};
  own.for_each([&](int64_t at) {  // Welford, 1962
    const auto pack = *reinterpret_cast<const Pack<T, kWidth>*>(x + at);
    count += W(1);
    const W share = W(1) / count;
#pragma unroll
    for (int k = 0; k < kWidth; ++k) {
      const W value = widen(pack.at[k]), off = value - mean[k];
      mean[k] += off * share;
      spread[k] += off * (value - mean[k]);
    }
  });
  Moments<W> parts[kParts];
#pragma unroll
  for (int k = 0; k < kParts; ++k) parts[k] = {count, mean[k], spread[k]};
  if constexpr (!kLast) {
#pragma unroll
    for (int k = 1; k < kWidth; ++k) parts[0].merge({count, mean[k], spread[k]});
  }
  merge_rows(parts, [](Moments<W>& a, const Moments<W>& b) { a.merge(b); });
  put_parts(parts, groups, cut, own, found);
}

// A block for each group of each sample.
template <bool kLast, class T, class W = Wide<T>>
__global__ void __launch_bounds__(kMergeThreads)
    merge_moments(Groups groups, int64_t parts, W eps, const T* x, const Moments<W>* found,
                  W* means, W* rstds) {
  Moments<W> own{};
  for (int64_t p = threadIdx.x; p < parts; p += kMergeThreads) {
    own.merge(found[blockIdx.x * parts + p]);
  }
  own = merge_block(own, [](Moments<W>& a, const Moments<W>& b) { a.merge(b); });
  W rstd = W(1) / root(own.spread / own.count + eps);
  if constexpr (sizeof(W) == 4) {  // squares exceed the range of float32, or vanish in it
    if (!holds_square(own.spread / own.count + eps)) {
      const int64_t n = groups.each * groups.plane, channels = groups.groups * groups.each;
      const int64_t sample = blockIdx.x / groups.groups, group = blockIdx.x % groups.groups;
      const auto for_each_own = [&](auto&& f) {
        for (int64_t i = threadIdx.x; i < n; i += kMergeThreads) {
          const int64_t channel = group * groups.each + i / groups.plane, place = i % groups.plane;
          f(static_cast<double>(widen(x[kLast ? (sample * groups.plane + place) * channels + channel
                                              : blockIdx.x * n + i])));
        }
      };
      const auto sum_of_block = [](double x) {
        return merge_block(x, [](double& a, double b) { a += b; });
      };
      double sum = 0, spread = 0;
      for_each_own([&](double value) { sum += value; });
      const double mean = sum_of_block(sum) / static_cast<double>(n);
      for_each_own([&](double value) { spread += (value - mean) * (value - mean); });
      spread = sum_of_block(spread) / static_cast<double>(n);
      own.mean = static_cast<W>(mean);
      rstd = static_cast<W>(1 / sqrt(spread + static_cast<double>(eps)));
    }
  }
  if (threadIdx.x != 0) return;
  means[blockIdx.x] = own.mean;
  rstds[blockIdx.x] = rstd;
}

template <bool kLast, class T, int kWidth>
__global__ void __launch_bounds__(kPieceThreads)
    normalize_pieces(Groups groups, Pieces cut, const T* x, const Wide<T>* means,
                     const Wide<T>* rstds, PerChannel weight, PerChannel bias, T* y) {
  using W = Wide<T>;
  constexpr int kParts = kLast ? kWidth : 1;
  const Own<kLast, kWidth> own(cut, groups);
  if (!own.there) return;
  W mean[kParts], factor[kParts], shift[kParts];
#pragma unroll
  for (int k = 0; k < kParts; ++k) {
    const int64_t channel = own.channel + k;
    const int64_t row = own.sample * groups.groups + channel / groups.each;
    mean[k] = means[row];
    factor[k] = rstds[row] * weight.get<W>(channel, W(1));
    shift[k] = bias.get<W>(channel, W(0));
  }
  own.for_each([&](int64_t at) {
    auto pack = *reinterpret_cast<const Pack<T, kWidth>*>(x + at);
#pragma unroll
    for (int k = 0; k < kWidth; ++k) {
      const int c = kLast ? k : 0;
      pack.at[k] = convert<T>((widen(pack.at[k]) - mean[c]) * factor[c] + shift[c]);
    }
    *reinterpret_cast<Pack<T, kWidth>*>(y + at) = pack;
  });
}

// The sums of grad * normal and of grad.
template <class W>
struct TwoSums {
  W along, sum;

  __device__ __forceinline__ void add(const TwoSums& other) {
    along += other.along;
    sum += other.sum;
  }
};

template <bool kLast, class T, int kWidth>
__global__ void __launch_bounds__(kPieceThreads)
    sums_of_pieces(Groups groups, Pieces cut, const T* grad, const T* x, const Wide<T>* means,
                   const Wide<T>* rstds, TwoSums<Wide<T>>* found) {
  using W = Wide<T>;
  constexpr int kParts = kLast ? kWidth : 1;
  const Own<kLast, kWidth> own(cut, groups);
  W mean[kParts] = {}, rstd[kParts] = {};
  if (own.there) {
#pragma unroll
    for (int k = 0; k < kParts; ++k) {
      const int64_t row = own.sample * groups.groups + (own.channel + k) / groups.each;
      mean[k] = means[row];
      rstd[k] = rstds[row];
    }
  }
  TwoSums<W> parts[kParts] = {};
  own.for_each([&](int64_t at) {
    const auto value = *reinterpret_cast<const Pack<T, kWidth>*>(x + at);
    const auto slope = *reinterpret_cast<const Pack<T, kWidth>*>(grad + at);
#pragma unroll
    for (int k = 0; k < kWidth; ++k) {
      const int c = kLast ? k : 0;
      const W g = widen(slope.at[k]);
      parts[c].along += g * (widen(value.at[k]) - mean[c]);
      parts[c].sum += g;
    }
  });
#pragma unroll
  for (int k = 0; k < kParts; ++k) parts[k].along *= rstd[k];
  merge_rows(parts, [](TwoSums<W>& a, const TwoSums<W>& b) { a.add(b); });
  put_parts(parts, groups, cut, own, found);
}

// One block for each group of each sample: stores the sums of its channels in `sums`, in the order
// of gradients_held, and the terms of combine_pieces() in `terms`.
template <class W>
__global__ void __launch_bounds__(kMergeThreads)
    merge_sums(Groups groups, int pieces, const TwoSums<W>* found, PerChannel weight, W* sums,
               TwoSums<W>* terms) {
  const int64_t sample = blockIdx.x / groups.groups, group = blockIdx.x % groups.groups;
  const int64_t channels = groups.groups * groups.each;
  TwoSums<W> own{};
  for (int64_t c = group * groups.each + threadIdx.x; c < (group + 1) * groups.each;
       c += kMergeThreads) {
    TwoSums<W> all{};
    for (int p = 0; p < pieces; ++p) all.add(found[(sample * channels + c) * pieces + p]);
    sums[sample * 2 * channels + c] = all.along;
    sums[sample * 2 * channels + channels + c] = all.sum;
    const W factor = weight.get<W>(c, W(1));
    own.add({factor * all.along, factor * all.sum});
  }
  own = merge_block(own, [](TwoSums<W>& a, const TwoSums<W>& b) { a.add(b); });
  const W n = static_cast<W>(groups.each * groups.plane);
  if (threadIdx.x == 0) terms[blockIdx.x] = {-own.along / n, -own.sum / n};
}

template <bool kLast, class T, int kWidth>
__global__ void __launch_bounds__(kPieceThreads)
    combine_pieces(Groups groups, Pieces cut, const T* grad, const T* x, const Wide<T>* means,
                   const Wide<T>* rstds, PerChannel weight, const TwoSums<Wide<T>>* terms, T* to) {
  using W = Wide<T>;
  constexpr int kParts = kLast ? kWidth : 1;
  const Own<kLast, kWidth> own(cut, groups);
  if (!own.there) return;
  W mean[kParts], factor[kParts], along[kParts], sum[kParts];
#pragma unroll
  for (int k = 0; k < kParts; ++k) {
    const int64_t channel = own.channel + k;
    const int64_t row = own.sample * groups.groups + channel / groups.each;
    const W rstd = rstds[row];
    mean[k] = means[row];
    factor[k] = rstd * weight.get<W>(channel, W(1));
    along[k] = rstd * rstd * terms[row].along;
    sum[k] = rstd * terms[row].sum;
  }
  own.for_each([&](int64_t at) {
    const auto value = *reinterpret_cast<const Pack<T, kWidth>*>(x + at);
    auto slope = *reinterpret_cast<const Pack<T, kWidth>*>(grad + at);
#pragma unroll
    for (int k = 0; k < kWidth; ++k) {
      const int c = kLast ? k : 0;
      slope.at[k] = convert<T>(widen(slope.at[k]) * factor[c] +
                               ((widen(value.at[k]) - mean[c]) * along[c] + sum[c]));
    }
    *reinterpret_cast<Pack<T, kWidth>*>(to + at) = slope;
  });
}

#endif  // __CUDACC__

}  // namespace mytorch::cuda
