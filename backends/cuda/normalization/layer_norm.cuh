// Operands of layer and root-mean-square normalization, forward and backward.
#pragma once

#include <cstdint>

#include "backends/cuda/common/element.cuh"
#include "backends/cuda/common/pack.cuh"
#include "backends/cuda/common/rows.cuh"
#include "backends/cuda/runtime/sdk.h"

namespace mytorch::cuda {

// A contiguous parameter of type T or of the compute type of T; optional. Throws sdk::Declined for
// others.
struct Vector {
  const void* data = nullptr;
  bool wide = false;

  Vector(const mt_tensor* tensor, mt_dtype dtype, mt_dtype wide_dtype) {
    if (tensor == nullptr) return;
    const sdk::TensorView x = tensor;
    const bool same = sdk::same_dtype(x.dtype(), dtype);
    if (!x.is_contiguous() || x.is_host() || !aligned(x.raw()) ||
        (!same && !sdk::same_dtype(x.dtype(), wide_dtype))) {
      throw sdk::Declined{};
    }
    data = x.raw();
    wide = !same;
  }
  // Whether the parameter is present and of type T.
  bool plain() const { return data != nullptr && !wide; }
};

#ifdef __CUDACC__

// A pack of a present parameter. `kPlain`: the parameter is plain(), and the pack keeps its type.
template <bool kPlain, class T, int kWidth>
struct Factors {
  Wide<T> at[kWidth];

  __device__ __forceinline__ void load(const Vector& from, int place) {
    if (is_half<T> && from.wide) {
#pragma unroll
      for (int k = 0; k < kWidth; ++k) at[k] = static_cast<const Wide<T>*>(from.data)[place + k];
    } else {
      Factors<true, T, kWidth> plain;
      plain.load(from, place);
#pragma unroll
      for (int k = 0; k < kWidth; ++k) at[k] = plain[k];
    }
  }
  __device__ __forceinline__ Wide<T> operator[](int k) const { return at[k]; }
};
template <class T, int kWidth>
struct Factors<true, T, kWidth> {
  Pack<T, kWidth> pack;

  __device__ __forceinline__ void load(const Vector& from, int place) {
    pack = *reinterpret_cast<const Pack<T, kWidth>*>(static_cast<const T*>(from.data) + place);
  }
  __device__ __forceinline__ Wide<T> operator[](int k) const { return widen(pack.at[k]); }
};

#endif  // __CUDACC__

using sdk::product;

inline mt_dtype wide_of(mt_dtype dtype) { return dtype.bits == 16 ? sdk::dtype_of<float> : dtype; }

// Whether rows of n elements fill the packs of all threads.
inline bool is_full(const RowShape& shape, int64_t n) {
  return n == int64_t{shape.grid.threads.x} * shape.packs * shape.width;
}

inline void check_contiguous(const sdk::TensorView& x) {
  if (x && !x.is_contiguous()) throw sdk::Declined{};
}

}  // namespace mytorch::cuda
