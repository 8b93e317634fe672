// Aligned memory of one thread for the work on its lines.
#pragma once

#include <cstddef>
#include <cstdint>
#include <new>

#include "backends/cpu-fftw/common/library.h"

namespace mytorch::fftw {

// Bytes for an array that the next one follows at an aligned address.
template <class T>
constexpr int64_t padded_bytes(int64_t count) {
  return (count * static_cast<int64_t>(sizeof(T)) + static_cast<int64_t>(kAligned) - 1) /
         static_cast<int64_t>(kAligned) * static_cast<int64_t>(kAligned);
}

// Memory from which arrays are taken one after the other.
class Memory {
 public:
  explicit Memory(int64_t bytes)
      : memory_(static_cast<char*>(
            ::operator new(static_cast<size_t>(bytes), std::align_val_t(kAligned)))),
        owned_(true) {}
  // Memory of somebody else, which is aligned.
  explicit Memory(char* memory) : memory_(memory), owned_(false) {}
  ~Memory() {
    if (owned_) ::operator delete(memory_, std::align_val_t(kAligned));
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  template <class T>
  T* take(int64_t count) {
    T* const array = reinterpret_cast<T*>(memory_ + used_);
    used_ += padded_bytes<T>(count);
    return array;
  }

 private:
  char* const memory_;
  const bool owned_;
  int64_t used_ = 0;
};

}  // namespace mytorch::fftw
