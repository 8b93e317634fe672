// Sorting keys: each element is mapped to an unsigned integer with the same order. All NaNs are one
// largest key, and -0 and 0 are one key. A descending sort uses the complement. Ties are ordered by
// position.
#pragma once

#include <cstdint>

#include "backends/cuda/common/element.cuh"

namespace mytorch::cuda {

// Returns the number of bits of a type's keys, the lowest of a uint32_t or uint64_t.
inline int key_bits(mt_dtype dtype) { return dtype.bits; }

#ifdef __CUDACC__

__device__ __forceinline__ uint32_t float_key(uint32_t bits, int width, bool nan) {
  const uint32_t top = 1u << (width - 1);
  const uint32_t all = width == 32 ? ~0u : (1u << width) - 1;
  if (nan) return all;
  if (bits == top) bits = 0;  // -0
  return (bits & top) != 0 ? ~bits & all : bits | top;
}

// Returns the key, in ascending order, of an element whose type is known only at run time.
template <class K>
__device__ __forceinline__ K key_of(const void* data, int64_t at, uint32_t dtype);

template <>
__device__ __forceinline__ uint32_t key_of<uint32_t>(const void* data, int64_t at, uint32_t dtype) {
  switch (dtype) {
    case sdk::dtype_key(sdk::dtype_of<int8_t>):
      return static_cast<const uint8_t*>(data)[at] ^ 0x80u;
    case sdk::dtype_key(sdk::dtype_of<int16_t>):
      return static_cast<const uint16_t*>(data)[at] ^ 0x8000u;
    case sdk::dtype_key(sdk::dtype_of<int32_t>):
      return static_cast<const uint32_t*>(data)[at] ^ 0x80000000u;
    case sdk::dtype_key(sdk::dtype_of<sdk::Half>): {
      const uint32_t bits = static_cast<const uint16_t*>(data)[at];
      return float_key(bits, 16, (bits & 0x7FFFu) > 0x7C00u);
    }
    case sdk::dtype_key(sdk::dtype_of<sdk::BFloat16>): {
      const uint32_t bits = static_cast<const uint16_t*>(data)[at];
      return float_key(bits, 16, (bits & 0x7FFFu) > 0x7F80u);
    }
    case sdk::dtype_key(sdk::dtype_of<float>): {
      const uint32_t bits = static_cast<const uint32_t*>(data)[at];
      return float_key(bits, 32, (bits & 0x7FFFFFFFu) > 0x7F800000u);
    }
    default:  // bool, uint8
      return static_cast<const uint8_t*>(data)[at];
  }
}

template <>
__device__ __forceinline__ uint64_t key_of<uint64_t>(const void* data, int64_t at, uint32_t dtype) {
  constexpr uint64_t kTop = uint64_t{1} << 63;
  const uint64_t bits = static_cast<const uint64_t*>(data)[at];
  if (dtype == sdk::dtype_key(sdk::dtype_of<int64_t>)) return bits ^ kTop;
  if ((bits & ~kTop) > 0x7FF0000000000000u) return ~uint64_t{0};
  if (bits == kTop) return kTop;  // -0 as 0
  return (bits & kTop) != 0 ? ~bits : bits | kTop;
}

// Complements the lowest `bits` of a key if the sort is descending.
template <class K>
__device__ __forceinline__ K ordered(K key, int bits, bool descending) {
  const K all = bits == 8 * static_cast<int>(sizeof(K)) ? ~K(0) : (K(1) << bits) - 1;
  return descending ? key ^ all : key;
}

#endif  // __CUDACC__

}  // namespace mytorch::cuda
