// N consecutive elements of an operand, loaded and stored with one access.
#pragma once

#include <cstdint>

namespace mytorch::cuda {

template <class T, int N>
struct alignas(sizeof(T) * N) Pack {
  T at[N];
};

// The number of elements of T in 16 bytes.
template <class T>
inline constexpr int kPack = 16 / static_cast<int>(sizeof(T));

inline bool aligned(const void* data, size_t bytes = 16) {
  return reinterpret_cast<uintptr_t>(data) % bytes == 0;
}

}  // namespace mytorch::cuda
