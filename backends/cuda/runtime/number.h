// The ten dtypes in device code, and the conversions between them: those of
// mytorch/backend/dtype.h.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <limits>
#include <type_traits>

#include "mytorch/backend/dtype.h"

namespace mytorch::cuda {

// What the device computes with where an element is an SDK type: __half for sdk::Half.
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

// Calls f(sdk::TypeTag<T>{}) with the device's type of a dtype, as sdk::visit_dtype does.
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

#ifdef __CUDACC__

__device__ inline float widen(__half x) { return __half2float(x); }
__device__ inline float widen(__nv_bfloat16 x) { return __bfloat162float(x); }
template <class T>
__device__ inline T widen(T x) {
  return x;
}
// The type in which elements of T are computed with.
template <class T>
using Wide = std::conditional_t<is_half<T>, float, T>;

// ATen's conversion: see sdk::convert for the rules.
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

#endif  // __CUDACC__

}  // namespace mytorch::cuda
