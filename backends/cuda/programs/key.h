// What a generated kernel is specialized for.
#pragma once

#include <array>
#include <cstdint>

#include "backends/cuda/programs/program.h"

namespace mytorch::cuda {

// The specialization of a kernel: one byte for each operand, and settings.
class Key {
 public:
  static constexpr int kWords = 4;
  // The first 8 bytes hold settings, the others operands.
  void set(int byte, uint8_t value) {
    words_[byte / 8] |= static_cast<uint64_t>(value) << (byte % 8 * 8);
  }
  uint8_t get(int byte) const { return static_cast<uint8_t>(words_[byte / 8] >> (byte % 8 * 8)); }
  bool operator==(const Key&) const = default;

 private:
  std::array<uint64_t, kWords> words_{};
};

// How a kernel accesses an operand; stored in the upper half of its byte in the key, above its
// dtype.
enum class Kind : uint8_t {
  kAbsent,
  kElements,   // one element, or one run of consecutive elements, per output element or run
  kNumber,     // a scalar parameter
  kSingle,     // one element in memory
  kRepeated,   // strided, one element for each run
  kTransposed  // kTiled: contiguous along the outputs' other dimension
};

inline uint8_t operand_key(Kind kind, Code type) {
  return static_cast<uint8_t>(static_cast<int>(kind) << 4 | type);
}

}  // namespace mytorch::cuda
