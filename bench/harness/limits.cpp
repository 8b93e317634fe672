#include "bench/harness/limits.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "bench/harness/limits.cpp"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// After foreach_target.h, which includes this file once per instruction set.
#include "hwy/cache_control.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace mytorch::bench::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

void copy_vectors(const float* from, float* to, int64_t n) {
  const hn::ScalableTag<float> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    const auto a = hn::LoadU(d, from + i), b = hn::LoadU(d, from + i + lanes);
    hn::StoreU(a, d, to + i);
    hn::StoreU(b, d, to + i + lanes);
  }
  for (; i < n; ++i) to[i] = from[i];
}

// `to` is aligned to a cache line.
void copy_non_temporal(const float* from, float* to, int64_t n) {
  const hn::ScalableTag<float> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    const auto a = hn::LoadU(d, from + i), b = hn::LoadU(d, from + i + lanes);
    hn::Stream(a, d, to + i);
    hn::Stream(b, d, to + i + lanes);
  }
  for (; i < n; ++i) to[i] = from[i];
  hwy::FlushStream();
}

// `to` is aligned to a cache line.
void fill_non_temporal(float* to, int64_t n) {
  const hn::ScalableTag<float> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto one = hn::Set(d, 1.0f);
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) hn::Stream(one, d, to + i);
  for (; i < n; ++i) to[i] = 1;
  hwy::FlushStream();
}

float sum_one_stream(const float* from, int64_t n) {
  const hn::ScalableTag<float> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  auto sum = hn::Zero(d);
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) sum = hn::Add(sum, hn::LoadU(d, from + i));
  float total = hn::GetLane(hn::SumOfLanes(d, sum));
  for (; i < n; ++i) total += from[i];
  return total;
}

// Reads two streams at once, because a hardware prefetcher stops at the end of a page. The second
// stream starts a cache line later, so that the two do not reach the ends of their pages together.
float sum_two_streams(const float* from, int64_t n) {
  const hn::ScalableTag<float> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  constexpr int64_t kPage = 1024, kLine = 16;  // in floats
  const bool small = n < 4 * kPage;
  const int64_t length = small ? n / 2 : (n / 2 - kLine) / kPage * kPage;
  const int64_t second = small ? length : length + kLine;
  auto a = hn::Zero(d), b = a, c = a, e = a, f = a, g = a, h = a, k = a;
  const float *p = from, *q = from + second;
  int64_t i = 0;
  for (; i + 4 * lanes <= length; i += 4 * lanes) {
    a = hn::Add(a, hn::LoadU(d, p + i));
    b = hn::Add(b, hn::LoadU(d, p + i + lanes));
    c = hn::Add(c, hn::LoadU(d, q + i));
    e = hn::Add(e, hn::LoadU(d, q + i + lanes));
    f = hn::Add(f, hn::LoadU(d, p + i + 2 * lanes));
    g = hn::Add(g, hn::LoadU(d, p + i + 3 * lanes));
    h = hn::Add(h, hn::LoadU(d, q + i + 2 * lanes));
    k = hn::Add(k, hn::LoadU(d, q + i + 3 * lanes));
  }
  a = hn::Add(hn::Add(hn::Add(a, b), hn::Add(c, e)), hn::Add(hn::Add(f, g), hn::Add(h, k)));
  return hn::GetLane(hn::SumOfLanes(d, a)) + sum_one_stream(p + i, second - i) +
         sum_one_stream(q + i, n - second - i);
}

// Computes 12 independent sums: enough to hide a latency of 6 cycles on two pipes, and few enough
// for 16 registers. Returns the number of floating-point operations; `result` depends on all of
// them.
double multiply_adds(long steps, float* result) {
  const hn::ScalableTag<float> d;
  constexpr int kSums = 12;
  using V = hn::VFromD<decltype(d)>;
  const V factor = hn::Set(d, 0.5f + result[0]);
  const V term = hn::Set(d, 1.0f + result[0]);
  // The sums start at different values: a compiler would merge equal ones, and the measured peak
  // would be several times too high.
  const auto start = [&](int i) HWY_ATTR { return hn::Set(d, static_cast<float>(i) + result[0]); };
  V s0 = start(0), s1 = start(1), s2 = start(2), s3 = start(3), s4 = start(4), s5 = start(5);
  V s6 = start(6), s7 = start(7), s8 = start(8), s9 = start(9), s10 = start(10), s11 = start(11);
  for (long i = 0; i < steps; ++i) {
    s0 = hn::MulAdd(s0, factor, term);
    s1 = hn::MulAdd(s1, factor, term);
    s2 = hn::MulAdd(s2, factor, term);
    s3 = hn::MulAdd(s3, factor, term);
    s4 = hn::MulAdd(s4, factor, term);
    s5 = hn::MulAdd(s5, factor, term);
    s6 = hn::MulAdd(s6, factor, term);
    s7 = hn::MulAdd(s7, factor, term);
    s8 = hn::MulAdd(s8, factor, term);
    s9 = hn::MulAdd(s9, factor, term);
    s10 = hn::MulAdd(s10, factor, term);
    s11 = hn::MulAdd(s11, factor, term);
  }
  const V low = hn::Add(hn::Add(hn::Add(s0, s1), hn::Add(s2, s3)), hn::Add(s4, s5));
  const V high = hn::Add(hn::Add(hn::Add(s6, s7), hn::Add(s8, s9)), hn::Add(s10, s11));
  result[0] = hn::GetLane(hn::SumOfLanes(d, hn::Add(low, high)));
  return 2.0 * kSums * static_cast<double>(steps) * static_cast<double>(hn::Lanes(d));
}

}  // namespace mytorch::bench::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

#include <sys/mman.h>
#include <time.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <new>
#include <set>
#include <string>
#include <thread>

namespace mytorch::bench {
namespace {

HWY_EXPORT(copy_vectors);
HWY_EXPORT(copy_non_temporal);
HWY_EXPORT(fill_non_temporal);
HWY_EXPORT(sum_two_streams);
HWY_EXPORT(multiply_adds);

void (*thread_runner)(int, const std::function<void(int)>&) = nullptr;

volatile float sink;  // keeps results that nothing else reads

constexpr int64_t kLine = 16;  // floats of a cache line

// Returns a function that calls body(begin, end) on every thread, for pieces of [0, n) that begin
// at cache lines. The last piece also has the elements of a partial line.
template <class Body>
std::function<void()> in_pieces(int64_t n, int threads, Body body) {
  return [=] {
    on_threads(threads, [=](int t) {
      const int64_t begin = n / kLine * t / threads * kLine;
      body(begin, t + 1 == threads ? n : n / kLine * (t + 1) / threads * kLine);
    });
  };
}

// One thread is timed by its CPU time, which other programs do not lengthen; several threads, which
// wait for each other, by wall-clock time.
double clock_seconds(int threads) {
  timespec now;
  clock_gettime(threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// Measures for about a millisecond. The number of repetitions is not estimated beforehand: a
// barrier takes a thousand times longer when a thread waits for a processor.
double repetitions_per_second(const std::function<void()>& loop) {
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  double seconds = 0, done = 0;
  for (int64_t more = 1; seconds < 1e-3; more *= 2) {
    for (int64_t i = 0; i < more; ++i) loop();
    done += static_cast<double>(more);
    seconds = std::chrono::duration<double>(Clock::now() - start).count();
  }
  return done / seconds;
}

constexpr size_t kHugePage = size_t{2} << 20;

size_t rounded(size_t bytes) {
  return std::max(bytes + kHugePage - 1, kHugePage) / kHugePage * kHugePage;
}

}  // namespace

void on_threads(int threads, const std::function<void(int)>& body) {
  if (threads == 1) return body(0);
  if (thread_runner != nullptr) return thread_runner(threads, body);
  std::vector<std::jthread> others;
  for (int t = 1; t < threads; ++t) others.emplace_back(body, t);
  body(0);
}

void set_thread_runner(void (*run)(int threads, const std::function<void(int)>& body)) {
  thread_runner = run;
}

double seconds_of(const std::function<void()>& run) {
  const auto start = std::chrono::steady_clock::now();
  run();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

float sum_floats(const float* from, int64_t n) {
  return HWY_DYNAMIC_DISPATCH(sum_two_streams)(from, n);
}

Loops copy_loops(const float* from, float* to, int64_t n, int threads) {
  return {in_pieces(n, threads,
                    [=](int64_t b, int64_t e) {
                      HWY_DYNAMIC_DISPATCH(copy_vectors)(from + b, to + b, e - b);
                    }),
          in_pieces(n, threads,
                    [=](int64_t b, int64_t e) {
                      HWY_DYNAMIC_DISPATCH(copy_non_temporal)(from + b, to + b, e - b);
                    }),
          in_pieces(n, threads, [=](int64_t b, int64_t e) {
            if (b == e) return;  // the pointers may be null
            std::memcpy(to + b, from + b, static_cast<size_t>(e - b) * sizeof(float));
          })};
}

Loops read_loops(const float* from, int64_t n, int threads) {
  return {in_pieces(n, threads, [=](int64_t b, int64_t e) { sink = sum_floats(from + b, e - b); })};
}

Loops write_loops(float* to, int64_t n, int threads) {
  return {in_pieces(n, threads,
                    [=](int64_t b, int64_t e) {
                      HWY_DYNAMIC_DISPATCH(fill_non_temporal)(to + b, e - b);
                    }),
          in_pieces(n, threads, [=](int64_t b, int64_t e) { std::fill(to + b, to + e, 1.0f); })};
}

double multiply_add_rate(int threads) {
  constexpr long kSteps = 100'000;
  std::vector<double> flops(static_cast<size_t>(threads) * 16);  // a cache line or two each
  const double start = clock_seconds(threads);
  on_threads(threads, [&](int t) {
    float value = 0;
    flops[static_cast<size_t>(t) * 16] = HWY_DYNAMIC_DISPATCH(multiply_adds)(kSteps, &value);
    sink = value;
  });
  const double spent = clock_seconds(threads) - start;
  double all = 0;
  for (const double each : flops) all += each;
  return all / spent;
}

double measure_peak(int threads) {
  double best = 0;
  for (int round = 0; round < 10; ++round) best = std::max(best, multiply_add_rate(threads));
  return best * 1e-9;
}

const char* resource_name(Resource resource) {
  static constexpr const char* kNames[] = {"copy", "read", "write", "multiply-add"};
  return kNames[static_cast<int>(resource)];
}

Buffer::Buffer(size_t bytes)
    : memory_(static_cast<float*>(std::aligned_alloc(kHugePage, rounded(bytes))), std::free) {
  if (memory_ == nullptr) throw std::bad_alloc();
  madvise(memory_.get(), rounded(bytes), MADV_HUGEPAGE);
  std::fill_n(memory_.get(), rounded(bytes) / sizeof(float), 1.0f);
}

Limit::Limit(Resource resource, double bytes, int threads)
    : resource_(resource), threads_(threads) {
  if (resource == Resource::kMultiplyAdd) return;
  const bool copy = resource == Resource::kCopy;
  const auto n = static_cast<int64_t>(std::max(bytes, 4096.0) / (copy ? 8 : 4)) / kLine * kLine;
  bytes_ = static_cast<double>(n) * (copy ? 8 : 4);
  const size_t buffer_bytes = static_cast<size_t>(n) * sizeof(float);
  buffers_.emplace_back(buffer_bytes);
  if (copy) buffers_.emplace_back(buffer_bytes);
  float* const first = buffers_.front().data();
  Loops loops;
  // For little work, one thread is faster than several that wait for each other.
  for (const int t : std::set<int>{1, threads}) {
    Loops more = copy                          ? copy_loops(first, buffers_.back().data(), n, t)
                 : resource == Resource::kRead ? read_loops(first, n, t)
                                               : write_loops(first, n, t);
    loops.insert(loops.end(), more.begin(), more.end());
  }
  double best = 0;
  for (const auto& loop : loops) {
    loop();
    double rate = 0;
    for (int round = 0; round < 5; ++round) rate = std::max(rate, repetitions_per_second(loop));
    if (rate <= best) continue;
    best = rate;
    loop_ = loop;
  }
}

double Limit::sample() {
  if (resource_ == Resource::kMultiplyAdd) return multiply_add_rate(threads_);
  return bytes_ * repetitions_per_second(loop_);
}

size_t beyond_caches() {
  // Asks sysfs: on virtual machines sysconf may report the cache of the whole socket.
  size_t last = 0;
  for (const char* index : {"2", "3"}) {
    std::ifstream file(std::string("/sys/devices/system/cpu/cpu0/cache/index") + index + "/size");
    size_t kib = 0;
    if (file >> kib) last = std::max(last, kib << 10);
  }
  return std::clamp(2 * last, size_t{64} << 20, size_t{512} << 20);
}

CacheFlush::CacheFlush(int threads) : threads_(threads), buffer_(beyond_caches()) {}

void CacheFlush::run() {
  // Writes, because a read would leave copies of a line in other cores' caches.
  const auto n = static_cast<int64_t>(beyond_caches() / sizeof(float));
  float* const data = buffer_.data();
  in_pieces(n, threads_, [=](int64_t b, int64_t e) {
    for (int64_t i = b; i < e; i += kLine) data[i] += 1;
  })();
}

}  // namespace mytorch::bench
#endif  // HWY_ONCE
