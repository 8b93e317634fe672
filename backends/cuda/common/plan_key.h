// Keys of the library plans that threads cache by shape.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace mytorch::cuda {

template <size_t kWords>
struct PlanKey {
  std::array<int64_t, kWords> words{};
  bool operator==(const PlanKey&) const = default;
};

struct PlanKeyHash {
  template <size_t kWords>
  size_t operator()(const PlanKey<kWords>& key) const {
    uint64_t hash = 0x9E3779B97F4A7C15u;
    for (const int64_t word : key.words) {
      hash = (hash ^ static_cast<uint64_t>(word)) * 0xFF51AFD7ED558CCDu;
      hash ^= hash >> 32;
    }
    return static_cast<size_t>(hash);
  }
};

}  // namespace mytorch::cuda
