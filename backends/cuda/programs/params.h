// Parameters of generated kernels.
#pragma once

#include <cstdint>
#include <cstring>

#include "backends/cuda/common/divisor.h"

namespace mytorch::cuda {

// The single struct parameter of a generated kernel, assembled from 8-byte fields.
class Params {
 public:
  Params() {}  // NOLINT: the bytes stay uninitialized
  void word(uint64_t value) {
    std::memcpy(bytes_ + size_, &value, 8);
    size_ += 8;
  }
  void number(int64_t value) { word(static_cast<uint64_t>(value)); }
  void pointer(const void* value) { word(reinterpret_cast<uintptr_t>(value)); }
  void divisor(int64_t by) {
    // Wide loops do not use the factor, and loops without elements never divide.
    const bool fits = by > 0 && by <= INT32_MAX;
    const Divisor d(fits ? static_cast<uint32_t>(by) : 1);
    word((static_cast<uint64_t>(by) & UINT32_MAX) | static_cast<uint64_t>(d.factor) << 32);
    word(d.shift | static_cast<uint64_t>(by) >> 32 << 32);
  }
  void* data() { return bytes_; }
  int size() const { return size_; }

 private:
  alignas(16) char bytes_[8192];
  int size_ = 0;
};

}  // namespace mytorch::cuda
