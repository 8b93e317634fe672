// A hash map from addresses to objects: open addressing, linear probing, backward-shift deletion.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace mytorch::cuda {

template <class T>
class AddressMap {
 public:
  AddressMap() : slots_(256) {}

  T* find(const void* address) const {
    for (size_t i = home(address);; i = next(i)) {
      if (slots_[i].first == address) return slots_[i].second;
      if (slots_[i].first == nullptr) return nullptr;
    }
  }

  void insert(const void* address, T* object) {  // neither NULL nor present
    if (++size_ * 2 > slots_.size()) grow();
    place(address, object);
  }

  void erase(const void* address) {
    size_t hole = home(address);
    while (slots_[hole].first != address) hole = next(hole);
    --size_;
    for (size_t i = next(hole); slots_[i].first != nullptr; i = next(i)) {
      // Entries that probing would no longer reach across the hole move into it.
      const size_t wanted = home(slots_[i].first);
      if (((i - wanted) & mask()) >= ((i - hole) & mask())) {
        slots_[hole] = slots_[i];
        hole = i;
      }
    }
    slots_[hole] = {};
  }

  size_t size() const { return size_; }

 private:
  size_t mask() const { return slots_.size() - 1; }
  size_t next(size_t i) const { return (i + 1) & mask(); }
  size_t home(const void* address) const {
    return (reinterpret_cast<uintptr_t>(address) * 0x9e3779b97f4a7c15u >> 32) & mask();
  }
  void place(const void* address, T* object) {
    size_t i = home(address);
    while (slots_[i].first != nullptr) i = next(i);
    slots_[i] = {address, object};
  }
  void grow() {
    std::vector<std::pair<const void*, T*>> old(slots_.size() * 2);
    old.swap(slots_);
    for (const auto& [address, object] : old) {
      if (address != nullptr) place(address, object);
    }
  }

  std::vector<std::pair<const void*, T*>> slots_;
  size_t size_ = 0;
};

}  // namespace mytorch::cuda
