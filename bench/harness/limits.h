// The machine's limits: how fast threads copy, read and write memory, and how fast they multiply
// and add. Clock frequencies and the load of other programs change from minute to minute, so a
// limit is measured beside the kernel that it bounds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace mytorch::bench {

// Runs body(thread) on each of `threads` threads and waits for them.
void on_threads(int threads, const std::function<void(int)>& body);
// Makes on_threads call `run`. By default it creates threads, which takes tens of microseconds.
void set_thread_runner(void (*run)(int threads, const std::function<void(int)>& body));

// Returns the wall-clock seconds that run() takes.
double seconds_of(const std::function<void()>& run);

// Loops over `n` floats on `threads` threads. Which one is fastest depends on the machine and on
// the size of the memory, so a limit is the best of a list.
using Loops = std::vector<std::function<void()>>;
// Copy with vectors, with non-temporal vector stores, and with memcpy. `to` is aligned to a cache
// line.
Loops copy_loops(const float* from, float* to, int64_t n, int threads);
// Read with sum_floats.
Loops read_loops(const float* from, int64_t n, int threads);
// Fill with ones: with non-temporal vector stores, and with std::fill. `to` is aligned to a cache
// line.
Loops write_loops(float* to, int64_t n, int threads);

// Returns the sum of `n` floats, which it reads as two streams.
float sum_floats(const float* from, int64_t n);

// Runs independent float32 multiply-adds in registers on every thread for a few hundred
// microseconds. Returns floating-point operations per second.
double multiply_add_rate(int threads);
// Returns the best of ten multiply_add_rate(), in GFLOP/s.
double measure_peak(int threads);

enum class Resource { kCopy, kRead, kWrite, kMultiplyAdd };
const char* resource_name(Resource resource);

// Memory on huge pages, as the framework allocates large blocks.
class Buffer {
 public:
  explicit Buffer(size_t bytes);
  float* data() const { return memory_.get(); }

 private:
  std::unique_ptr<float, void (*)(void*)> memory_;
};

// One limit, for work that touches `bytes` of memory; a copy reads one half and writes the other.
// If the bytes fit into a cache, the limit is that cache's bandwidth.
class Limit {
 public:
  Limit(Resource resource, double bytes, int threads);
  Resource resource() const { return resource_; }
  // Measures again and returns bytes or operations per second.
  double sample();

 private:
  Resource resource_;
  double bytes_ = 0;
  int threads_;
  std::vector<Buffer> buffers_;
  std::function<void()> loop_;  // the fastest of the resource's loops
};

// Returns a size that exceeds every cache: twice the last level, and at least 64 MiB.
size_t beyond_caches();

// Evicts all other data from the caches of every thread's core.
class CacheFlush {
 public:
  explicit CacheFlush(int threads);
  void run();

 private:
  int threads_;
  Buffer buffer_;
};

}  // namespace mytorch::bench
