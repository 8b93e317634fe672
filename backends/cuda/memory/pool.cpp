#include "backends/cuda/memory/pool.h"

#include <algorithm>
#include <bit>
#include <cstdlib>

namespace mytorch::cuda {

void* Pool::allocate(size_t bytes, void* stream) {
  if (bytes == 0 || bytes > SIZE_MAX / 2) return nullptr;
  const std::lock_guard<std::mutex> lock(mutex_);
  bytes = (bytes + round_ - 1) / round_ * round_;
  if (!pending_.empty()) [[unlikely]]
    collect(false);
  Arena& arena = arena_of(stream);
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
  arena.used += block->bytes;
  arena.used_peak = std::max(arena.used_peak, arena.used);
  ++arena.blocks;
  return block->data;
}

bool Pool::release(void* data, void* stream) {
  if (data == nullptr) return false;
  const std::lock_guard<std::mutex> lock(mutex_);
  Block* block = by_address_.find(data);
  if (block == nullptr || block->free) return false;
  Arena& arena = *block->arena;
  stats_.used -= block->bytes;
  --stats_.blocks;
  arena.used -= block->bytes;
  --arena.blocks;
  if (arena.stream != stream) [[unlikely]] {
    if (captures_ != 0 && source_.graph_of(source_.self, stream) != 0) {
      deferred_.push_back({block, stream});
      return true;
    }
    // The stream that used the block last may be behind the stream that reuses it. The stream of a
    // thread that only took part in a backward pass is idle.
    if (!source_.idle(source_.self, stream)) {
      pending_.push_back({block, source_.record(source_.self, stream)});
      return true;
    }
  }
  merge_and_insert(block);
  if (arena.ended) [[unlikely]] {
    give_back_free(arena);
    drop_ended();
  }
  if (!settings_.caching) [[unlikely]]
    give_back_free();
  return true;
}

void Pool::trim() {
  const std::lock_guard<std::mutex> lock(mutex_);
  collect(true);
  give_back_free();
}

// ---- graphs

void Pool::begin_capture() {
  const std::lock_guard<std::mutex> lock(mutex_);
  ++captures_;
}

void Pool::end_capture() {
  const std::lock_guard<std::mutex> lock(mutex_);
  --captures_;
  for (const Deferred& each : deferred_) {
    pending_.push_back({each.block, source_.record(source_.self, each.stream)});
  }
  deferred_.clear();
}

void Pool::end_of_graph(uint64_t graph) {
  end([graph](const Arena& arena) { return arena.graph == graph; });
}

void Pool::end_of_stream(void* stream) {
  end([stream](const Arena& arena) { return arena.stream == stream && arena.graph == 0; });
}

template <class Which>
void Pool::end(Which&& which) {
  const std::lock_guard<std::mutex> lock(mutex_);
  collect(false);
  for (const auto& arena : arenas_) {
    if (arena->ended || !which(*arena)) continue;
    arena->ended = true;
    give_back_free(*arena);
  }
  drop_ended();
}

void Pool::drop_ended() {
  last_ = nullptr;
  for (const auto& arena : arenas_) {
    if (!arena->ended || arena->reserved != 0) continue;
    for (const Growing& growing : arena->growing) {
      if (growing.base != nullptr) source_.unreserve(source_.self, growing.base);
    }
  }
  std::erase_if(arenas_, [](const auto& arena) { return arena->ended && arena->reserved == 0; });
}

Pool::Arena& Pool::arena_of(void* stream) {
  uint64_t graph = 0;
  if (captures_ != 0) [[unlikely]]
    graph = source_.graph_of(source_.self, stream);
  if (last_ != nullptr && last_->stream == stream && last_->graph == graph) [[likely]]
    return *last_;
  for (const auto& arena : arenas_) {
    if (!arena->ended && arena->stream == stream && arena->graph == graph) {
      return *(last_ = arena.get());
    }
  }
  arenas_.push_back(std::make_unique<Arena>());
  arenas_.back()->stream = stream;
  arenas_.back()->graph = graph;
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

// Best fit: the smallest free block that is large enough.
Pool::Block* Pool::find_free(Arena& arena, size_t bytes) {
  if (settings_.guarded) return nullptr;
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
  // A block that is not split must not be spent on a request that leaves much of it unused.
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
  if (settings_.collect_above < 1) [[unlikely]] {
    const auto most =
        static_cast<size_t>(settings_.collect_above * static_cast<double>(source_.total));
    if (stats_.reserved + whole > most) give_back_oldest(stats_.reserved + whole - most);
  }
  const auto take = [&] {
    return settings_.expandable ? grow(arena, bytes, small) : from_source(arena, whole, small);
  };
  if (Block* block = take(); block != nullptr) return block;
  // Try again with blocks that other streams have released, then without cached segments.
  ++stats_.retries;
  collect(true);
  if (Block* found = find_free(arena, bytes); found != nullptr) {
    remove(found);
    return found;
  }
  give_back_free();
  return take();
}

// Returns whether the limit allows another `bytes`.
bool Pool::may_hold(size_t bytes) const {
  return stats_.reserved <= settings_.limit && bytes <= settings_.limit - stats_.reserved;
}

Pool::Block* Pool::from_source(Arena& arena, size_t bytes, bool small) {
  if (!may_hold(bytes)) return nullptr;
  void* data = source_.take(source_.self, bytes);
  if (data == nullptr) return nullptr;
  Block* block = new_block();
  block->data = static_cast<char*>(data);
  block->bytes = bytes;
  block->arena = &arena;
  block->small = small;
  by_address_.insert(data, block);
  count_segment(arena, bytes);
  return block;
}

void Pool::count_segment(Arena& arena, size_t bytes) {
  ++stats_.segments;
  ++stats_.taken;
  stats_.reserved += bytes;
  stats_.reserved_peak = std::max(stats_.reserved_peak, stats_.reserved);
  ++arena.segments;
  arena.reserved += bytes;
}

// Returns a block of at least `bytes` at the end of the expandable segment: the free block there,
// extended by as much memory as is missing.
Pool::Block* Pool::grow(Arena& arena, size_t bytes, bool small) {
  Growing& growing = arena.growing[small];
  if (growing.base == nullptr) {
    growing.base = static_cast<char*>(source_.reserve(source_.self));
    if (growing.base == nullptr) return nullptr;
  }
  Block* last = growing.last;
  const bool extends = last != nullptr && last->free;
  const size_t missing = extends && last->bytes < bytes ? bytes - last->bytes : bytes;
  const size_t unit = small ? kSmallSegment : kMediumSegment;
  const size_t more = (missing + unit - 1) / unit * unit;
  if (more > source_.total || growing.mapped > source_.total - more) return nullptr;
  if (!may_hold(more)) return nullptr;
  if (!source_.map(source_.self, growing.base, growing.mapped, more)) return nullptr;
  Block* block = new_block();
  block->data = growing.base + growing.mapped;
  block->bytes = more;
  block->arena = &arena;
  block->small = small;
  block->grown = true;
  block->before = last;
  if (last != nullptr) last->after = block;
  growing.last = block;
  growing.mapped += more;
  growing.pieces.push_back(more);
  by_address_.insert(block->data, block);
  count_segment(arena, more);
  if (!extends) return block;
  remove(last);
  absorb(last, block);
  return last;
}

void Pool::shrink(Arena& arena, Growing& growing) {
  while (!growing.pieces.empty()) {
    const size_t piece = growing.pieces.back();
    Block* last = growing.last;
    if (last == nullptr || !last->free || last->bytes < piece) return;
    if (!source_.unmap(source_.self, growing.base, growing.mapped - piece, piece)) return;
    remove(last);
    growing.pieces.pop_back();
    growing.mapped -= piece;
    stats_.reserved -= piece;
    --stats_.segments;
    arena.reserved -= piece;
    --arena.segments;
    last->bytes -= piece;
    if (last->bytes != 0) {
      insert(last);
      continue;
    }
    growing.last = last->before;
    if (growing.last != nullptr) growing.last->after = nullptr;
    by_address_.erase(last->data);
    delete_block(last);
  }
}

// Splits the block after `bytes` and frees the rest, if the rest is large enough.
void Pool::cut(Block* block, size_t bytes) {
  const size_t rest = block->bytes - bytes;
  if (block->small ? rest < kGranule : rest <= kSmall) return;
  if (!block->small && block->bytes >= settings_.max_split_size) return;
  Block* other = new_block();
  other->data = block->data + bytes;
  other->bytes = rest;
  other->arena = block->arena;
  other->small = block->small;
  other->grown = block->grown;
  other->before = block;
  other->after = block->after;
  if (other->after != nullptr) {
    other->after->before = other;
  } else if (other->grown) {
    other->arena->growing[other->small].last = other;
  }
  block->after = other;
  block->bytes = bytes;
  by_address_.insert(other->data, other);
  insert(other);
}

void Pool::insert(Block* block) {
  block->free = true;
  block->released = ++releases_;
  Arena& arena = *block->arena;
  if (!block->small) {
    arena.large.insert(block);
    return;
  }
  const size_t bin = bin_of(block);
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
  const size_t bin = bin_of(block);
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

// Merges `right`, the next neighbour of `left`, which is in no list, into `left`.
void Pool::absorb(Block* left, Block* right) {
  left->bytes += right->bytes;
  left->after = right->after;
  if (left->after != nullptr) {
    left->after->before = left;
  } else if (left->grown) {
    left->arena->growing[left->small].last = left;
  }
  by_address_.erase(right->data);
  delete_block(right);
}

void Pool::merge_and_insert(Block* block) {
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

// Takes back blocks whose streams have passed their events. The events are tested in order, so that
// many pending blocks cost one query.
void Pool::collect(bool wait) {
  bool ended = false;
  while (!pending_.empty() && source_.passed(source_.self, pending_.front().event, wait)) {
    Arena& arena = *pending_.front().block->arena;
    merge_and_insert(pending_.front().block);
    pending_.pop_front();
    if (!arena.ended) continue;
    give_back_free(arena);
    ended = true;
  }
  if (ended) drop_ended();
}

void Pool::give_back(Block* block) {
  remove(block);
  by_address_.erase(block->data);
  stats_.reserved -= block->bytes;
  --stats_.segments;
  block->arena->reserved -= block->bytes;
  --block->arena->segments;
  source_.give_back(source_.self, block->data);
  delete_block(block);
}

// Segments of graphs stay: replays use them.
void Pool::give_back_free() {
  for (const auto& arena : arenas_) {
    if (!arena->lasts()) give_back_free(*arena);
  }
}

void Pool::give_back_free(Arena& arena) {
  for (Growing& growing : arena.growing) shrink(arena, growing);
  for (auto next = arena.large.begin(); next != arena.large.end();) {
    Block* block = *next++;
    if (block->whole()) give_back(block);
  }
  // An entirely free small segment lies in the last bin; without caching, in any bin.
  for (size_t bin = settings_.caching ? kBins : 0; bin <= kBins; ++bin) {
    for (Block* block = arena.bins[bin]; block != nullptr;) {
      Block* next = block->next;
      if (block->whole()) give_back(block);
      block = next;
    }
  }
}

// Returns large segments, oldest first, until `bytes` have been returned or none is left.
void Pool::give_back_oldest(size_t bytes) {
  std::vector<Block*> whole;
  for (const auto& arena : arenas_) {
    if (arena->lasts()) continue;
    for (Block* block : arena->large) {
      if (block->whole()) whole.push_back(block);
    }
  }
  std::sort(whole.begin(), whole.end(),
            [](const Block* a, const Block* b) { return a->released < b->released; });
  size_t given = 0;
  for (Block* block : whole) {
    if (given >= bytes) return;
    given += block->bytes;
    give_back(block);
  }
}

}  // namespace mytorch::cuda
