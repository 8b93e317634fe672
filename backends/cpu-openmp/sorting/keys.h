// Sorting keys: unsigned integers that sort in the order of the elements. All NaNs have the largest
// key, -0 and 0 have one key, and a descending sort takes the complement. Ties are broken by
// position: a key followed by its position is unique, so any sort is stable.
#pragma once

#include <bit>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "mytorch/backend.h"

namespace mytorch::cpu {

template <class T>
using SortKey = std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>;

template <class T>
inline SortKey<T> sort_key(T value, bool descending) {
  using K = SortKey<T>;
  constexpr K kTop = K{1} << (sizeof(K) * 8 - 1);
  K key;
  if constexpr (sdk::is_float_type<T>) {
    using W = sdk::Widened<T>;
    const W wide = static_cast<W>(value);
    const K bits = std::bit_cast<K>(wide + W(0));  // -0 + 0 = 0
    key = wide != wide ? std::numeric_limits<K>::max() : (bits & kTop) != 0 ? ~bits : bits | kTop;
  } else if constexpr (std::is_signed_v<T>) {
    using S = std::make_signed_t<K>;
    key = static_cast<K>(static_cast<S>(value)) ^ kTop;
  } else {
    key = static_cast<K>(value);
  }
  return descending ? ~key : key;
}

// A key and its position. 32-bit keys of lines below 2^32 elements share a word with it.
struct Packed {
  uint64_t word;

  Packed() = default;
  Packed(uint32_t key, int64_t position)
      : word(uint64_t{key} << 32 | static_cast<uint64_t>(position)) {}
  int64_t position() const { return static_cast<int64_t>(word & 0xFFFFFFFFu); }
  uint64_t key() const { return word >> 32; }
  bool operator<(const Packed& other) const { return word < other.word; }
};
struct Wide {
  uint64_t word;
  int64_t index;

  Wide() = default;
  Wide(uint64_t key, int64_t position) : word(key), index(position) {}
  int64_t position() const { return index; }
  uint64_t key() const { return word; }
  bool operator<(const Wide& other) const {
    return word != other.word ? word < other.word : index < other.index;
  }
};

}  // namespace mytorch::cpu
