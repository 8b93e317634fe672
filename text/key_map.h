// A hash map from 64-bit keys, for many more lookups than insertions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace mytorch::text {

template <class Value>
class KeyMap {
 public:
  // Returns null if the key is absent.
  const Value* find(uint64_t key) const {
    if (entries_.empty()) return nullptr;
    for (size_t i = place(key);; i = (i + 1) & mask_) {
      if (!entries_[i].used) return nullptr;
      if (entries_[i].key == key) return &entries_[i].value;
    }
  }
  // Returns the value of the key, which is new if the key was absent.
  Value& operator[](uint64_t key) {
    if (2 * (size_ + 1) > entries_.size()) grow();
    for (size_t i = place(key);; i = (i + 1) & mask_) {
      if (!entries_[i].used) {
        entries_[i].used = true;
        entries_[i].key = key;
        ++size_;
      }
      if (entries_[i].key == key) return entries_[i].value;
    }
  }
  size_t size() const { return size_; }

 private:
  struct Entry {
    uint64_t key = 0;
    Value value{};
    bool used = false;
  };

  size_t place(uint64_t key) const {
    const uint64_t mixed = (key ^ key >> 32) * 0x9e3779b97f4a7c15u;
    return (mixed ^ mixed >> 29) & mask_;
  }
  void grow() {
    std::vector<Entry> old(entries_.empty() ? 16 : 2 * entries_.size());
    old.swap(entries_);
    mask_ = entries_.size() - 1;
    size_ = 0;
    for (const Entry& entry : old) {
      if (entry.used) (*this)[entry.key] = entry.value;
    }
  }

  std::vector<Entry> entries_;
  size_t mask_ = 0;
  size_t size_ = 0;
};

}  // namespace mytorch::text
