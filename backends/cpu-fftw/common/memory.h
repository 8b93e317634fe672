// Aligned memory of one thread for the work on its lines.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backends/cpu-fftw/common/library.h"

namespace mytorch::fftw {

// Bytes for an array that the next one follows at an aligned address.
template <class T>
constexpr int64_t padded_bytes(int64_t count) {
  return (count * static_cast<int64_t>(sizeof(T)) + static_cast<int64_t>(kAligned) - 1) /
         static_cast<int64_t>(kAligned) * static_cast<int64_t>(kAligned);
}

namespace internal {
// Returns memory of at least `bytes` bytes, which a thread keeps after its use for its next one.
char* take_memory(int64_t* bytes);
void give_memory(char* memory, int64_t bytes);
}  // namespace internal

// Memory from which arrays are taken one after the other.
class Memory {
 public:
  explicit Memory(int64_t bytes) : bytes_(bytes), memory_(internal::take_memory(&bytes_)) {}
  // Memory of somebody else, which is aligned.
  explicit Memory(char* memory) : bytes_(0), memory_(memory) {}
  ~Memory() {
    if (bytes_ != 0) internal::give_memory(memory_, bytes_);
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
  int64_t bytes_;
  char* const memory_;
  int64_t used_ = 0;
};

}  // namespace mytorch::fftw
