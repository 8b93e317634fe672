// Elements in device code, beyond runtime/number.h: of a type known only when a kernel runs, and
// the types that sums are kept in.
#pragma once

#include <cstdint>
#include <type_traits>

#include "backends/cuda/runtime/number.h"

namespace mytorch::cuda {

template <class T>
inline constexpr bool is_float = std::is_floating_point_v<T> || is_half<T>;

#ifdef __CUDACC__

// An element whose type is known when the kernel runs; `key` is its dtype_key. For operands that
// are a small part of what a kernel reads.
template <class To>
__device__ __forceinline__ To load_any(const void* data, int64_t at, uint32_t key) {
  switch (key) {
#define MYTORCH_CUDA_LOAD(T)             \
  case sdk::dtype_key(sdk::dtype_of<T>): \
    return convert<To>(static_cast<const on_device<T>*>(data)[at])
    MYTORCH_CUDA_LOAD(bool);
    MYTORCH_CUDA_LOAD(uint8_t);
    MYTORCH_CUDA_LOAD(int8_t);
    MYTORCH_CUDA_LOAD(int16_t);
    MYTORCH_CUDA_LOAD(int32_t);
    MYTORCH_CUDA_LOAD(int64_t);
    MYTORCH_CUDA_LOAD(sdk::Half);
    MYTORCH_CUDA_LOAD(sdk::BFloat16);
    MYTORCH_CUDA_LOAD(float);
    MYTORCH_CUDA_LOAD(double);
#undef MYTORCH_CUDA_LOAD
  }
  return To();
}
// The same of a floating element that is written.
template <class From>
__device__ __forceinline__ void store_any(void* data, int64_t at, uint32_t key, From value) {
  switch (key) {
#define MYTORCH_CUDA_STORE(T)                                            \
  case sdk::dtype_key(sdk::dtype_of<T>):                                 \
    static_cast<on_device<T>*>(data)[at] = convert<on_device<T>>(value); \
    return
    MYTORCH_CUDA_STORE(sdk::Half);
    MYTORCH_CUDA_STORE(sdk::BFloat16);
    MYTORCH_CUDA_STORE(float);
    MYTORCH_CUDA_STORE(double);
#undef MYTORCH_CUDA_STORE
  }
}

// An index of any integer type.
__device__ __forceinline__ int64_t load_index(const void* data, int64_t at, uint32_t key) {
  switch (key) {
    case sdk::dtype_key(sdk::dtype_of<int64_t>):
      return static_cast<const int64_t*>(data)[at];
    case sdk::dtype_key(sdk::dtype_of<int32_t>):
      return static_cast<const int32_t*>(data)[at];
    case sdk::dtype_key(sdk::dtype_of<int16_t>):
      return static_cast<const int16_t*>(data)[at];
    case sdk::dtype_key(sdk::dtype_of<int8_t>):
      return static_cast<const int8_t*>(data)[at];
    default:
      return static_cast<const uint8_t*>(data)[at];
  }
}

// The elements that a thread goes over, the grid striding over them.
__device__ __forceinline__ int64_t first_element() {
  return static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}
__device__ __forceinline__ int64_t grid_step() {
  return static_cast<int64_t>(gridDim.x) * blockDim.x;
}

// The type of sums: float for the 16-bit floats; unsigned for integers, so that they wrap; bools
// are counted.
template <class T>
using Sum = std::conditional_t<is_float<T>, Wide<T>,
                               std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>>;

// A sum as an element. Any count makes a bool true.
template <class T>
__device__ __forceinline__ T sum_as(Sum<T> sum) {
  if constexpr (std::is_same_v<T, bool>) {
    return sum != 0;
  } else if constexpr (is_float<T>) {
    return convert<T>(sum);
  } else {
    return static_cast<T>(sum);
  }
}
template <class T>
__device__ __forceinline__ Sum<T> as_sum(T value) {
  if constexpr (is_float<T>) {
    return widen(value);
  } else {
    return static_cast<Sum<T>>(value);
  }
}

#endif  // __CUDACC__

}  // namespace mytorch::cuda
