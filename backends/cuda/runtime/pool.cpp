#include "backends/cuda/runtime/pool.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <stdexcept>

namespace mytorch::cuda {

PoolSettings PoolSettings::parse(const char* text) {
  PoolSettings settings;
  const std::string given = text != nullptr ? text : "";
  constexpr char kSplit[] = "max_split_size=";
  if (given.empty()) return settings;
  if (given == "off") {
    settings.caching = false;
    return settings;
  }
  if (given.starts_with(kSplit)) {
    char* end = nullptr;
    const unsigned long long mib = std::strtoull(given.c_str() + std::strlen(kSplit), &end, 10);
    if (*end == '\0' && mib >= 20 && mib <= SIZE_MAX >> 20) {
      settings.max_split_size = static_cast<size_t>(mib) << 20;
      return settings;
    }
  }
  throw std::invalid_argument("MYTORCH_CUDA_ALLOC is '" + given +
                              "'; it can be off, or max_split_size=MIB with at least 20 MiB");
}

void* Pool::allocate(size_t bytes, void* stream) {
  if (bytes == 0 || bytes > SIZE_MAX / 2) return nullptr;
  const std::lock_guard<std::mutex> lock(mutex_);
  bytes = (bytes + kGranule - 1) / kGranule * kGranule;
  Arena& arena = arena_of(stream);
  if (!pending_.empty()) [[unlikely]]
    collect(false);
  Block* block = find_free(arena, bytes);
  if (block != nullptr) {
    remove(block);
  } else {
    block = new_segment(arena, bytes);
    if (block == nullptr) {
      ++stats_.failures;
      return nullptr;
    }
  }
  cut(block, bytes);
  block->free = false;
  stats_.used += block->bytes;
  stats_.used_peak = std::max(stats_.used_peak, stats_.used);
  ++stats_.blocks;
  return block->data;
}

void Pool::release(void* data, void* stream) {
  if (data == nullptr) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  Block* block = by_address_.find(data);
  if (block == nullptr || block->free) return;  // not from here
  stats_.used -= block->bytes;
  --stats_.blocks;
  if (block->arena->stream != stream) [[unlikely]] {
    // The stream that had it first may go on at once, the one that used it last has not come so
    // far.
    pending_.push_back({block, source_.record(source_.self, stream)});
    return;
  }
  merge_and_insert(block);
  if (!settings_.caching) [[unlikely]]
    give_back_free();
}

void Pool::trim() {
  const std::lock_guard<std::mutex> lock(mutex_);
  collect(true);
  give_back_free();
}

PoolStats Pool::stats() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return stats_;
}

size_t Pool::cached() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return stats_.reserved - stats_.used;
}

std::string Pool::summary() {
  const PoolStats s = stats();
  const auto mib = [](size_t bytes) { return std::to_string(bytes >> 20) + " MiB"; };
  return mib(s.used) + " in use in " + std::to_string(s.blocks) + " blocks (at most " +
         mib(s.used_peak) + "), " + mib(s.reserved - s.used) + " cached, " +
         std::to_string(s.segments) + " segments taken, " + std::to_string(s.retries) +
         " times given back for a request";
}

Pool::Arena& Pool::arena_of(void* stream) {
  if (last_ != nullptr && last_->stream == stream) [[likely]]
    return *last_;
  for (const auto& arena : arenas_) {
    if (arena->stream == stream) return *(last_ = arena.get());
  }
  arenas_.push_back(std::make_unique<Arena>());
  arenas_.back()->stream = stream;
  return *(last_ = arenas_.back().get());
}

Pool::Block* Pool::new_block() {
  if (unused_ == nullptr) {
    constexpr size_t kSlab = 128;
    block_slabs_.push_back(std::make_unique<Block[]>(kSlab));
    for (size_t i = 0; i < kSlab; ++i) delete_block(&block_slabs_.back()[i]);
  }
  Block* block = unused_;
  unused_ = block->next;
  *block = {};
  return block;
}

void Pool::delete_block(Block* block) {
  block->next = unused_;
  unused_ = block;
}

// The best fit: the smallest free block that is large enough.
Pool::Block* Pool::find_free(Arena& arena, size_t bytes) {
  if (bytes <= kSmall) {
    const size_t bin = bytes / kGranule;
    size_t word = bin / 64;
    const uint64_t here = arena.filled[word] & ~uint64_t{0} << bin % 64;
    if (here != 0) return arena.bins[word * 64 + static_cast<size_t>(std::countr_zero(here))];
    ++word;
    size_t group = word / 64;
    uint64_t words = arena.words[group] & ~uint64_t{0} << word % 64;
    while (words == 0) {
      if (++group == arena.words.size()) return nullptr;
      words = arena.words[group];
    }
    word = group * 64 + static_cast<size_t>(std::countr_zero(words));
    return arena.bins[word * 64 + static_cast<size_t>(std::countr_zero(arena.filled[word]))];
  }
  Block wanted{};
  wanted.bytes = bytes;
  wanted.data = nullptr;
  const auto found = arena.large.lower_bound(&wanted);
  if (found == arena.large.end()) return nullptr;
  Block* block = *found;
  // What is not cut must not be wasted on a request that leaves much of it.
  if (block->bytes >= settings_.max_split_size) {
    if (bytes < settings_.max_split_size || block->bytes - bytes >= kMediumSegment) return nullptr;
  }
  return block;
}

Pool::Block* Pool::new_segment(Arena& arena, size_t bytes) {
  const bool small = bytes <= kSmall;
  const size_t whole = !settings_.caching ? bytes
                       : small            ? kSmallSegment
                       : bytes <= kMedium ? kMediumSegment
                                          : (bytes + kRound - 1) / kRound * kRound;
  Block* block = from_source(arena, whole, small);
  if (block != nullptr) return block;
  // Once more, with what other streams no longer use and without what is cached.
  ++stats_.retries;
  collect(true);
  if (Block* found = find_free(arena, bytes); found != nullptr) {
    remove(found);
    return found;
  }
  give_back_free();
  return from_source(arena, whole, small);
}

Pool::Block* Pool::from_source(Arena& arena, size_t bytes, bool small) {
  void* data = source_.take(source_.self, bytes);
  if (data == nullptr) return nullptr;
  Block* block = new_block();
  block->data = static_cast<char*>(data);
  block->bytes = bytes;
  block->arena = &arena;
  block->small = small;
  by_address_.insert(data, block);
  ++stats_.segments;
  stats_.reserved += bytes;
  stats_.reserved_peak = std::max(stats_.reserved_peak, stats_.reserved);
  return block;
}

// Leaves `bytes` of the block and frees the rest, where that is worth it.
void Pool::cut(Block* block, size_t bytes) {
  const size_t rest = block->bytes - bytes;
  if (block->small ? rest < kGranule : rest <= kSmall) return;
  if (!block->small && block->bytes >= settings_.max_split_size) return;
  Block* other = new_block();
  other->data = block->data + bytes;
  other->bytes = rest;
  other->arena = block->arena;
  other->small = block->small;
  other->before = block;
  other->after = block->after;
  if (other->after != nullptr) other->after->before = other;
  block->after = other;
  block->bytes = bytes;
  by_address_.insert(other->data, other);
  insert(other);
}

void Pool::insert(Block* block) {
  block->free = true;
  Arena& arena = *block->arena;
  if (!block->small) {
    arena.large.insert(block);
    return;
  }
  const size_t bin = block->bytes / kGranule;
  block->previous = nullptr;
  block->next = arena.bins[bin];
  if (block->next != nullptr) block->next->previous = block;
  arena.bins[bin] = block;
  arena.filled[bin / 64] |= uint64_t{1} << bin % 64;
  arena.words[bin / 64 / 64] |= uint64_t{1} << bin / 64 % 64;
}

void Pool::remove(Block* block) {
  Arena& arena = *block->arena;
  if (!block->small) {
    arena.large.erase(block);
    return;
  }
  const size_t bin = block->bytes / kGranule;
  if (block->next != nullptr) block->next->previous = block->previous;
  if (block->previous != nullptr) {
    block->previous->next = block->next;
    return;
  }
  arena.bins[bin] = block->next;
  if (block->next != nullptr) return;
  arena.filled[bin / 64] &= ~(uint64_t{1} << bin % 64);
  if (arena.filled[bin / 64] == 0) {
    arena.words[bin / 64 / 64] &= ~(uint64_t{1} << bin / 64 % 64);
  }
}

void Pool::merge_and_insert(Block* block) {
  const auto absorb = [this](Block* left, Block* right) {  // `right` is in no list
    left->bytes += right->bytes;
    left->after = right->after;
    if (left->after != nullptr) left->after->before = left;
    by_address_.erase(right->data);
    delete_block(right);
  };
  if (Block* after = block->after; after != nullptr && after->free) {
    remove(after);
    absorb(block, after);
  }
  if (Block* before = block->before; before != nullptr && before->free) {
    remove(before);
    absorb(before, block);
    block = before;
  }
  insert(block);
}

// Takes back what streams have come past. Those still to come are asked again at the next request,
// and in order, so that many of them cost one question.
void Pool::collect(bool wait) {
  while (!pending_.empty() && source_.passed(source_.self, pending_.front().event, wait)) {
    merge_and_insert(pending_.front().block);
    pending_.pop_front();
  }
}

void Pool::give_back_free() {
  const auto give = [this](Block* block) {
    remove(block);
    by_address_.erase(block->data);
    stats_.reserved -= block->bytes;
    source_.give_back(source_.self, block->data);
    delete_block(block);
  };
  for (const auto& arena : arenas_) {
    for (auto next = arena->large.begin(); next != arena->large.end();) {
      Block* block = *next++;
      if (block->whole()) give(block);
    }
    // A segment that is free as a whole has its own size; without caching, any.
    for (size_t bin = settings_.caching ? kBins : 1; bin <= kBins; ++bin) {
      for (Block* block = arena->bins[bin]; block != nullptr;) {
        Block* next = block->next;
        if (block->whole()) give(block);
        block = next;
      }
    }
  }
}

}  // namespace mytorch::cuda
