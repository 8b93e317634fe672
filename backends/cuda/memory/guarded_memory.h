// Memory blocks beside unmapped addresses: an access beyond a block, which usually reads or writes
// another block unnoticed, is an error of the device. Nothing else is checked, so kernels run at
// full speed.
//
// A block ends where unmapped addresses begin, but for up to 15 bytes; the next one begins where
// they end, so that both sides are checked in turn. Each takes memory in units of 2 MiB.
#pragma once

#include <cstddef>
#include <deque>
#include <map>
#include <unordered_map>

namespace mytorch::cuda {

class GuardedMemory {
 public:
  static constexpr size_t kUnit = size_t{2} << 20;
  static constexpr size_t kAlignment = 16;

  // The driver, or a fake in tests.
  struct Source {
    void* (*reserve)(void* self);  // `span` addresses without memory; NULL if there are none
    bool (*map)(void* self, void* at, size_t bytes);  // false if out of memory
    bool (*unmap)(void* self, void* at, size_t bytes);
    // Waits until the device has done all work; false if it cannot wait, during a capture.
    bool (*wait)(void* self);
    size_t span;
    void* self;
  };

  explicit GuardedMemory(const Source& source) : source_(source) {}
  GuardedMemory(const GuardedMemory&) = delete;
  GuardedMemory& operator=(const GuardedMemory&) = delete;

  // Returns a block, aligned to 16 bytes if it ends at the unmapped addresses, else to 2 MiB. NULL
  // if out of memory.
  void* take(size_t bytes);
  // Gives a block back. It stays mapped, and is reused, the oldest first, once the device has done
  // all work.
  void give_back(void* data);

 private:
  struct Slot {
    char* begin;
    size_t bytes;  // a multiple of kUnit; behind it, a unit is never mapped
  };
  using Slots = std::map<size_t, std::deque<Slot>>;  // by size

  static bool pop(Slots* slots, size_t bytes, Slot* slot);
  bool find(size_t bytes, Slot* slot);
  bool mapped(const Slot& slot);
  char* addresses(size_t bytes);
  void settle();
  void unmap_free();

  const Source source_;
  std::unordered_map<void*, Slot> used_;  // by the address of the block
  std::deque<Slot> returned_;             // which work on the device may still use
  Slots free_;
  Slots bare_;            // slots without memory
  char* next_ = nullptr;  // the first address that no slot has, and the end of those reserved
  char* end_ = nullptr;
  bool at_end_ = false;
};

}  // namespace mytorch::cuda
