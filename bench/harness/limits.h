// The machine's own limits, measured: how fast threads copy, read and write memory, and how fast
// they multiply and add. Clocks and neighbours move from minute to minute, so a limit is measured
// beside what it limits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace mytorch::bench {

// Runs body(thread) on so many threads and waits for them.
void on_threads(int threads, const std::function<void(int)>& body);

// Seconds that a call takes.
double seconds_of(const std::function<void()>& run);

// Loops over `n` floats, on `threads` threads: copies with vectors, past the caches, and the C
// library's; what only reads, over two streams; and two that only write. Which is fastest depends
// on the machine and on where the memory lies, so a limit is the best of a list.
using Loops = std::vector<std::function<void()>>;
Loops copy_loops(const float* from, float* to, int64_t n, int threads);
Loops read_loops(const float* from, int64_t n, int threads);
Loops write_loops(float* to, int64_t n, int threads);

// Float32 operations of independent multiply-adds in registers on every thread, a few hundred
// microseconds of them. Returns operations per second.
double multiply_add_rate(int threads);
// The best of ten, in GFLOP/s.
double measure_peak(int threads);

enum class Resource { kCopy, kRead, kWrite, kMultiplyAdd };
const char* resource_name(Resource resource);

// Memory as the framework allocates it: large blocks lie on huge pages.
class Buffer {
 public:
  explicit Buffer(size_t bytes);
  float* data() const { return memory_.get(); }

 private:
  std::unique_ptr<float, void (*)(void*)> memory_;
};

// One limit, for work that touches `bytes` of memory: a copy reads half of them and writes the
// other half. Below the size of a cache that is the cache's bandwidth.
class Limit {
 public:
  Limit(Resource resource, double bytes, int threads);
  Resource resource() const { return resource_; }
  // Measures once more: bytes or operations per second.
  double sample();

 private:
  Resource resource_;
  double bytes_ = 0;
  int threads_;
  std::vector<Buffer> buffers_;
  std::function<void()> loop_;  // the fastest of its list
};

// Bytes that lie in no cache of the machine: twice the last level's, at least 64 MiB.
size_t beyond_caches();

// Drives everything else out of the caches of every thread's core.
class CacheFlush {
 public:
  explicit CacheFlush(int threads);
  void run();

 private:
  int threads_;
  Buffer buffer_;
};

}  // namespace mytorch::bench
