#include "backends/cuda/memory/guarded_memory.h"

namespace mytorch::cuda {

void* GuardedMemory::take(size_t bytes) {
  if (bytes == 0 || bytes > source_.span - 2 * kUnit) return nullptr;
  Slot slot{};
  if (!find((bytes + kUnit - 1) / kUnit * kUnit, &slot)) return nullptr;
  at_end_ = !at_end_;
  const size_t rounded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  void* data = at_end_ ? slot.begin + (slot.bytes - rounded) : slot.begin;
  used_.emplace(data, slot);
  return data;
}

void GuardedMemory::give_back(void* data) {
  const auto found = used_.find(data);
  if (found == used_.end()) return;
  returned_.push_back(found->second);
  used_.erase(found);
}

bool GuardedMemory::pop(Slots* slots, size_t bytes, Slot* slot) {
  const auto found = slots->find(bytes);
  if (found == slots->end() || found->second.empty()) return false;
  *slot = found->second.front();
  found->second.pop_front();
  return true;
}

bool GuardedMemory::find(size_t bytes, Slot* slot) {
  if (!returned_.empty()) settle();
  if (pop(&free_, bytes, slot)) return true;
  if (!pop(&bare_, bytes, slot)) {
    slot->begin = addresses(bytes);
    slot->bytes = bytes;
    if (slot->begin == nullptr) return false;
  }
  if (mapped(*slot)) return true;
  bare_[bytes].push_front(*slot);
  return false;
}

// Gives a slot memory; if there is none, that of free slots.
bool GuardedMemory::mapped(const Slot& slot) {
  if (source_.map(source_.self, slot.begin, slot.bytes)) return true;
  unmap_free();
  return source_.map(source_.self, slot.begin, slot.bytes);
}

// Returns addresses for a slot. The unit before them and that behind them stay unmapped.
char* GuardedMemory::addresses(size_t bytes) {
  if (static_cast<size_t>(end_ - next_) < bytes + kUnit) {
    next_ = static_cast<char*>(source_.reserve(source_.self));
    end_ = next_ == nullptr ? nullptr : next_ + source_.span;
    if (next_ == nullptr) return nullptr;
    next_ += kUnit;
  }
  char* begin = next_;
  next_ += bytes + kUnit;
  return begin;
}

void GuardedMemory::settle() {
  if (!source_.wait(source_.self)) return;
  for (const Slot& slot : returned_) free_[slot.bytes].push_back(slot);
  returned_.clear();
}

void GuardedMemory::unmap_free() {
  for (auto& [bytes, slots] : free_) {
    std::deque<Slot> kept;
    for (const Slot& slot : slots) {
      const bool done = source_.unmap(source_.self, slot.begin, slot.bytes);
      (done ? bare_[bytes] : kept).push_back(slot);
    }
    slots = kept;
  }
}

}  // namespace mytorch::cuda
