// Attention of a few query rows (decode.cuh) in 16-bit types, with matrix products. A warp
// multiplies 16 keys with 8 * kTiles rows: scores^T = K Q^T and out^T = V^T P^T, in both of which
// the keys or values are the larger factor (m16n8k16). Each warp copies its keys and values to a
// ring in shared memory, kStages steps of 16 keys. Whole rows arrive in the background, which reads
// memory faster than loads of the fragments. Sums over columns may take them in any order, and so
// may the columns of the output, so that each thread reads packs of 16 bytes.
#pragma once

#include <cmath>
#include <cstdint>

#include "backends/cuda/attention/decode.cuh"
#include "backends/cuda/common/mma.cuh"

namespace mytorch::cuda::decode {

// Reduces over the lanes of equal lane % 4.
__device__ __forceinline__ float max_of_rows(float x) {
#pragma unroll
  for (int step = 4; step < 32; step *= 2) x = fmaxf(x, __shfl_xor_sync(0xFFFFFFFFu, x, step));
  return x;
}
__device__ __forceinline__ float sum_of_rows(float x) {
#pragma unroll
  for (int step = 4; step < 32; step *= 2) x += __shfl_xor_sync(0xFFFFFFFFu, x, step);
  return x;
}

// The ring of a warp. A row's packs are permuted, so that the lanes that read at once use all
// banks.
template <class T, int kWidth>
struct Ring {
  static constexpr int kPacks = kWidth / 8;  // of a row
  static constexpr int kRowsAtOnce = 32 / kPacks;
  static constexpr int kStages = kWidth == 128 ? 3 : 4;
  static constexpr int kBytes = kStages * 2 * kStep * kWidth * static_cast<int>(sizeof(T));

  T* data;

  static __device__ int key_place(int row, int pack) { return pack ^ ((row & 1) << 2); }
  static __device__ int value_place(int row, int pack) { return pack ^ ((row & 6)); }
  __device__ T* keys(int stage) const { return data + stage * (2 * kStep * kWidth); }
  __device__ T* values(int stage) const { return keys(stage) + kStep * kWidth; }
  __device__ uint4 key(int stage, int row, int pack) const {
    return *reinterpret_cast<const uint4*>(keys(stage) + row * kWidth + 8 * key_place(row, pack));
  }
  __device__ uint4 value(int stage, int row, int pack) const {
    return *reinterpret_cast<const uint4*>(values(stage) + row * kWidth +
                                           8 * value_place(row, pack));
  }
  // Starts copies of 16 keys and values, of which lane % 16 has the offsets.
  __device__ void load(const DecodeCall& p, int stage, int64_t key_offset,
                       int64_t value_offset) const {
    const int lane = threadIdx.x % 32, pack = lane % kPacks;
#pragma unroll
    for (int first = 0; first < kStep; first += kRowsAtOnce) {
      const int row = first + lane / kPacks;
      const T* const from =
          static_cast<const T*>(p.key) + __shfl_sync(0xFFFFFFFFu, key_offset, row) + 8 * pack;
      copy_async(keys(stage) + row * kWidth + 8 * key_place(row, pack), from, false);
    }
#pragma unroll
    for (int first = 0; first < kStep; first += kRowsAtOnce) {
      const int row = first + lane / kPacks;
      const T* const from =
          static_cast<const T*>(p.value) + __shfl_sync(0xFFFFFFFFu, value_offset, row) + 8 * pack;
      copy_async(values(stage) + row * kWidth + 8 * value_place(row, pack), from, false);
    }
  }
};

// The dynamic shared memory of decode_products.
template <class T, int kWidth>
constexpr size_t kProductsShared = kWarps* Ring<T, kWidth>::kBytes;

template <class T, int kWidth, int kTiles>
__global__ void __launch_bounds__(kThreads, kWidth* kTiles <= 64 ? 3 : 2)
    decode_products(const __grid_constant__ DecodeCall p) {
  constexpr int kKeyPacks = kWidth / 32, kValuePacks = kWidth / 64;
  constexpr int kStages = Ring<T, kWidth>::kStages;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int group = lane / 4, quad = lane % 4;  // names of the fragments' layouts
  const Part part = Part::of_block<8 * kTiles>(p);
  const Ring<T, kWidth> ring{
      reinterpret_cast<T*>(shared_memory() + warp * Ring<T, kWidth>::kBytes)};

  // The slot of key lane % 16 of a step. Only keys that some query sees are read.
  const auto find = [&](int step) {
    const int j = step * kStep + lane % kStep;
    return Slot::of(p, part, min(max(j, part.seen.begin), part.seen.end - 1));
  };
  const auto load = [&](const Slot& slot, int stage) {
    ring.load(p, stage, slot.offset(p.key_stride) + part.key_head * p.key_stride[2],
              slot.offset(p.value_stride) + part.key_head * p.value_stride[2]);
  };

  int step = part.own.begin / kStep + warp;
  const int end = part.own.begin < part.own.end ? (part.own.end + kStep - 1) / kStep : 0;
  Slot next;
  if (step < end) next = find(step);
#pragma unroll
  for (int stage = 0; stage < kStages - 1; ++stage) {
    if (step + stage * kWarps < end) {
      load(next, stage);
      next = find(step + (stage + 1) * kWarps);
    }
    commit_copies();
  }
  // Row `group` of each tile.
  uint4 query[kTiles][kKeyPacks];
  __shared__ Row rows[8 * kTiles];
  if (threadIdx.x < 8 * kTiles) rows[threadIdx.x] = Row::of(p, part, part.first_row + threadIdx.x);
  __syncthreads();
  // Of rows 2 quad and 2 quad + 1 of each tile: the maximum of the scores * log2(e), which may lag
  // behind, and the sum of this thread's weights.
  float most[kTiles][2], total[kTiles][2];
  // Of tile u: values c = 0 to 3 of pack h and pair e are column 64 h + 8 group + 2 e + c / 2 of
  // row 2 quad + c % 2.
  float out[kTiles][kValuePacks * 4][4];
#pragma unroll
  for (int u = 0; u < kTiles; ++u) {
    const int own = part.first_row + 8 * u + group;
    const T* const from = static_cast<const T*>(p.query) + part.batch * p.query_stride[0] +
                          part.head_of(p, own) * p.query_stride[1] +
                          own % p.queries * p.query_stride[2];
#pragma unroll
    for (int c = 0; c < kKeyPacks; ++c) {
      query[u][c] = own < p.rows ? *reinterpret_cast<const uint4*>(from + 8 * (quad + 4 * c))
                                 : uint4{0, 0, 0, 0};
    }
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      most[u][r] = -INFINITY;
      total[u][r] = 0;
    }
#pragma unroll
    for (auto& values : out[u]) values[0] = values[1] = values[2] = values[3] = 0;
  }

  for (int stage = 0; step < end; step += kWarps, stage = (stage + 1) % kStages) {
    wait_for_copies<kStages - 2>();
    __syncwarp();
    float score[kTiles][4];
#pragma unroll
    for (auto& scores : score) scores[0] = scores[1] = scores[2] = scores[3] = 0;
#pragma unroll
    for (int c = 0; c < kKeyPacks; ++c) {
      const uint4 low = ring.key(stage, group, quad + 4 * c);
      const uint4 high = ring.key(stage, group + 8, quad + 4 * c);
#pragma unroll
      for (int u = 0; u < kTiles; ++u) {
        multiply<T>(score[u], low.x, high.x, low.y, high.y, query[u][c].x, query[u][c].y);
        multiply<T>(score[u], low.z, high.z, low.w, high.w, query[u][c].z, query[u][c].w);
      }
    }
    // Into the stage before this one, which all lanes have read.
    if (const int ahead = step + (kStages - 1) * kWarps; ahead < end) {
      load(next, (stage + kStages - 1) % kStages);
      next = find(ahead + kWarps);
    }
    commit_copies();

    uint32_t weights[kTiles][2];
#pragma unroll
    for (int u = 0; u < kTiles; ++u) {
      bool rises = false;
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        const int j = step * kStep + group + 8 * (c / 2);
        score[u][c] = rows[8 * u + 2 * quad + c % 2].score(p, score[u][c], j) * kLog2e;
        rises |= score[u][c] > most[u][c % 2] + 8.0F;
      }
      if (__any_sync(0xFFFFFFFFu, rises)) {
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          const float now = fmaxf(most[u][r], max_of_rows(fmaxf(score[u][r], score[u][r + 2])));
          const float factor = power_of_2(most[u][r] - finite(now));
          most[u][r] = now;
          total[u][r] *= factor;
#pragma unroll
          for (auto& values : out[u]) {
            values[r] *= factor;
            values[r + 2] *= factor;
          }
        }
      }
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        score[u][c] = power_of_2(score[u][c] - finite(most[u][c % 2]));
        total[u][c % 2] += score[u][c];
      }
      weights[u][0] = transposed(pack<T>(score[u][0], score[u][1]));
      weights[u][1] = transposed(pack<T>(score[u][2], score[u][3]));
    }

#pragma unroll
    for (int h = 0; h < kValuePacks; ++h) {
      uint4 value[4];  // of keys 2 quad, 2 quad + 1, 2 quad + 8, 2 quad + 9
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        value[i] = ring.value(stage, 2 * quad + i % 2 + i / 2 * 8, group + 8 * h);
      }
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const auto part_of = [&](int i) {
          return e == 0 ? value[i].x : e == 1 ? value[i].y : e == 2 ? value[i].z : value[i].w;
        };
        const uint32_t low0 = __byte_perm(part_of(0), part_of(1), 0x5410);
        const uint32_t high0 = __byte_perm(part_of(0), part_of(1), 0x7632);
        const uint32_t low1 = __byte_perm(part_of(2), part_of(3), 0x5410);
        const uint32_t high1 = __byte_perm(part_of(2), part_of(3), 0x7632);
#pragma unroll
        for (int u = 0; u < kTiles; ++u) {
          multiply<T>(out[u][4 * h + e], low0, high0, low1, high1, weights[u][0], weights[u][1]);
        }
      }
    }
    __syncwarp();
  }

  // The sums replace the rings, of which every copy has ended.
  wait_for_copies<0>();
  using Sums = Merge<T, kWarps, 8, kWidth>;
  static_assert(sizeof(Sums) <= kProductsShared<T, kWidth>);
  auto& merge = *reinterpret_cast<Sums*>(shared_memory());
#pragma unroll
  for (int u = 0; u < kTiles; ++u) {
    __syncthreads();
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const float sum = sum_of_rows(total[u][r]);
      if (group == 0) {
        merge.mosts[warp][2 * quad + r] = most[u][r] * kLn2;
        merge.totals[warp][2 * quad + r] = sum;
      }
    }
#pragma unroll
    for (int i = 0; i < kValuePacks * 4; ++i) {
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        const int column = 64 * (i / 4) + 8 * group + 2 * (i % 4) + c / 2;
        merge.sums[warp][2 * quad + c % 2][column] = out[u][i][c];
      }
    }
    __syncthreads();
    merge.write(p, part, part.first_row + 8 * u);
  }
}

}  // namespace mytorch::cuda::decode
