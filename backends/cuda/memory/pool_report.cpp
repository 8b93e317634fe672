// Statistics and reports of the allocator.
#include <algorithm>
#include <cstdio>

#include "backends/cuda/memory/pool.h"

namespace mytorch::cuda {
namespace {

std::string mib(size_t bytes) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.1f MiB", static_cast<double>(bytes) / (1 << 20));
  return text;
}

}  // namespace

PoolStats Pool::stats() {
  const std::lock_guard<std::mutex> lock(mutex_);
  PoolStats all = stats_;
  for (const auto& arena : arenas_) {
    if (arena->lasts()) continue;
    if (!arena->large.empty()) {
      all.largest_free = std::max(all.largest_free, (*arena->large.rbegin())->bytes);
    }
    for (size_t bin = kBins; bin > 0; --bin) {
      if (arena->bins[bin] == nullptr) continue;
      all.largest_free = std::max(all.largest_free, bin * kGranule);
      break;
    }
  }
  return all;
}

void Pool::reset_peaks() {
  const std::lock_guard<std::mutex> lock(mutex_);
  stats_.used_peak = stats_.used;
  stats_.reserved_peak = stats_.reserved;
  for (const auto& arena : arenas_) arena->used_peak = arena->used;
}

size_t Pool::cached() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return stats_.reserved - stats_.used;
}

std::string Pool::line() {
  const PoolStats s = stats();
  return mib(s.used) + " in use in " + std::to_string(s.blocks) + " blocks (at most " +
         mib(s.used_peak) + "), " + mib(s.reserved - s.used) +
         " cached, of which the largest free block has " + mib(s.largest_free) + ", " +
         std::to_string(s.segments) + " segments, " + std::to_string(s.retries) +
         " requests after which segments were returned";
}

std::string Pool::summary() {
  const PoolStats s = stats();
  const size_t free = s.reserved - s.used;
  std::string text = "  in use      " + mib(s.used) + " in " + std::to_string(s.blocks) +
                     " blocks, at most " + mib(s.used_peak) + "\n  reserved    " + mib(s.reserved) +
                     " in " + std::to_string(s.segments) + " segments, at most " +
                     mib(s.reserved_peak) + "\n  cached      " + mib(free) +
                     ", the largest free block " + mib(s.largest_free) + "\n";
  // The fraction of the free memory that a single request could not get.
  const double apart =
      free == 0 ? 0 : 1 - static_cast<double>(s.largest_free) / static_cast<double>(free);
  char line[200];
  std::snprintf(
      line, sizeof(line),
      "  fragmented  %.0f %% of the cached memory\n  requests    %llu segments taken, %llu "
      "times after returning others, %llu refused\n",
      100 * std::max(apart, 0.0), static_cast<unsigned long long>(s.taken),
      static_cast<unsigned long long>(s.retries), static_cast<unsigned long long>(s.failures));
  text += line;
  const std::lock_guard<std::mutex> lock(mutex_);
  size_t stranded = 0;
  for (const auto& arena : arenas_) {
    for (const Block* block : arena->large) stranded += block->whole() ? 0 : block->bytes;
    for (const Block* block : arena->bins) {
      for (; block != nullptr; block = block->next) stranded += block->whole() ? 0 : block->bytes;
    }
  }
  text += "  stranded    " + mib(stranded) + " free in segments in use\n";
  int number = 0;
  for (const auto& arena : arenas_) {
    if (arena->graph != 0) {
      std::snprintf(line, sizeof(line), "  graph %-5llu",
                    static_cast<unsigned long long>(arena->graph));
    } else {
      std::snprintf(line, sizeof(line), "  stream %-4d", number++);
    }
    text += std::string(line) + " " + mib(arena->used) + " in " + std::to_string(arena->blocks) +
            " blocks (at most " + mib(arena->used_peak) + ") of " + mib(arena->reserved) + " in " +
            std::to_string(arena->segments) + " segments" +
            (arena->ended ? ", held by tensors that outlive it\n" : "\n");
  }
  if (!pending_.empty()) {
    text += "  " + std::to_string(pending_.size()) + " blocks wait for another stream\n";
  }
  return text;
}

}  // namespace mytorch::cuda
