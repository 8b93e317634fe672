// Elements in device code: the ten dtypes, the conversions between them, elements whose type is
// known only when a kernel runs, and the types in which sums are accumulated.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <limits>
#include <type_traits>

#include "mytorch/backend/dtype.h"

namespace mytorch::cuda {

// The device's type for an element of an SDK type: __half for sdk::Half.
template <class T>
struct OnDevice {
  using type = T;
};
template <>
struct OnDevice<sdk::Half> {
  using type = __half;
};
template <>
struct OnDevice<sdk::BFloat16> {
  using type = __nv_bfloat16;
};
template <class T>
using on_device = typename OnDevice<T>::type;

template <class T>
inline constexpr bool is_half = std::is_same_v<T, __half> || std::is_same_v<T, __nv_bfloat16>;

// Calls f(sdk::TypeTag<T>{}) with the device's type of a dtype, like sdk::visit_dtype.
template <class F>
decltype(auto) visit_type(mt_dtype dtype, F&& f) {
  return sdk::visit_dtype(dtype, [&](auto tag) -> decltype(auto) {
    return f(sdk::TypeTag<on_device<typename decltype(tag)::type>>{});
  });
}
template <class F>
decltype(auto) visit_floating(mt_dtype dtype, F&& f) {
  return sdk::visit_floating(dtype, [&](auto tag) -> decltype(auto) {
    return f(sdk::TypeTag<on_device<typename decltype(tag)::type>>{});
  });
}

template <class T>
inline constexpr bool is_float = std::is_floating_point_v<T> || is_half<T>;

#ifdef __CUDACC__

__device__ inline float widen(__half x) { return __half2float(x); }
__device__ inline float widen(__nv_bfloat16 x) { return __bfloat162float(x); }
template <class T>
__device__ inline T widen(T x) {
  return x;
}
// The type in which elements of T are computed.
template <class T>
using Wide = std::conditional_t<is_half<T>, float, T>;

// Converts as ATen does; see sdk::convert for the rules.
template <class To, class From>
__device__ inline To convert(From from) {
  if constexpr (std::is_same_v<To, From>) {
    return from;
  } else if constexpr (is_half<From>) {
    return convert<To>(widen(from));
  } else if constexpr (std::is_same_v<To, __half>) {
    return __float2half_rn(static_cast<float>(from));
  } else if constexpr (std::is_same_v<To, __nv_bfloat16>) {
    return __float2bfloat16_rn(static_cast<float>(from));
  } else if constexpr (std::is_same_v<To, bool>) {
    return from != From(0);
  } else if constexpr (std::is_floating_point_v<From> && std::is_integral_v<To>) {
    const bool fits = from >= From(-0x1p63) && from < From(0x1p63);
    const int64_t whole = fits ? static_cast<int64_t>(from) : INT64_MIN;
    return static_cast<To>(whole);
  } else {
    return static_cast<To>(from);
  }
}

// Loads an element whose type is known only at run time; `key` is its dtype_key. For operands that
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
// Stores an element whose floating-point type is known only at run time.
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

// Loads an index of any integer type.
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

// First element and step of a grid-stride loop.
__device__ __forceinline__ int64_t first_element() {
  return static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}
__device__ __forceinline__ int64_t grid_step() {
  return static_cast<int64_t>(gridDim.x) * blockDim.x;
}

// The accumulator type: float for the 16-bit floats; unsigned for integers, so that sums wrap;
// bools are counted.
template <class T>
using Sum = std::conditional_t<is_float<T>, Wide<T>,
                               std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>>;

// Converts a sum to an element. Any nonzero count makes a bool true.
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
