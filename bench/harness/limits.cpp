#include "bench/harness/limits.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "bench/harness/limits.cpp"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
// After foreach_target.h, which includes this file once for each instruction set.
#include "hwy/cache_control.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace mytorch::bench {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

void copy_vectors(const float* from, float* to, int64_t n) {
  const hn::ScalableTag<float> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t i = 0; i + 2 * lanes <= n; i += 2 * lanes) {
    const auto a = hn::LoadU(d, from + i), b = hn::LoadU(d, from + i + lanes);
    hn::StoreU(a, d, to + i);
    hn::StoreU(b, d, to + i + lanes);
  }
}

// `to` lies at the beginning of a cache line.
void copy_past_caches(const float* from, float* to, int64_t n) {
  const hn::ScalableTag<float> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t i = 0; i + 2 * lanes <= n; i += 2 * lanes) {
    const auto a = hn::LoadU(d, from + i), b = hn::LoadU(d, from + i + lanes);
    hn::Stream(a, d, to + i);
    hn::Stream(b, d, to + i + lanes);
  }
  hwy::FlushStream();
}

void fill_past_caches(float* to, int64_t n) {
  const hn::ScalableTag<float> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto one = hn::Set(d, 1.0f);
  for (int64_t i = 0; i + lanes <= n; i += lanes) hn::Stream(one, d, to + i);
  hwy::FlushStream();
}

// Two streams, because the prefetchers of one stop at the end of a page, and not at the same place
// of their pages.
float read_vectors(const float* from, int64_t n) {
  const hn::ScalableTag<float> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t part = n < 4096 ? n / 2 : (n / 2 - 16) / 1024 * 1024;
  auto a = hn::Zero(d), b = a, c = a, e = a, f = a, g = a, h = a, k = a;
  const float *p = from, *q = p + (n < 4096 ? part : part + 16);
  for (int64_t i = 0; i + 4 * lanes <= part; i += 4 * lanes) {
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
  return hn::GetLane(hn::SumOfLanes(d, a));
}

// Runs 12 independent sums, enough for any latency up to 6 cycles on two pipes and few enough to
// stay in 16 registers. Returns the floating-point operations done, and a value that depends on
// them all.
double multiply_adds(long steps, float* result) {
  const hn::ScalableTag<float> d;
  constexpr int kSums = 12;
  using V = hn::VFromD<decltype(d)>;
  const V factor = hn::Set(d, 0.5f + result[0]);
  const V term = hn::Set(d, 1.0f + result[0]);
  // Equal sums would be the same sum to a compiler, and the peak would come out several times too
  // high.
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

}  // namespace HWY_NAMESPACE
}  // namespace mytorch::bench
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
#ifndef _OPENMP
#include <thread>
#endif

namespace mytorch::bench {
namespace {

HWY_EXPORT(copy_vectors);
HWY_EXPORT(copy_past_caches);
HWY_EXPORT(fill_past_caches);
HWY_EXPORT(read_vectors);
HWY_EXPORT(multiply_adds);

volatile float sink;  // where results go that nobody wants

constexpr int64_t kLine = 16;  // floats of a cache line

// body(begin, end) for pieces of [0, n) that begin at cache lines.
template <class Body>
std::function<void()> in_pieces(int64_t n, int threads, Body body) {
  return [=] {
    on_threads(threads, [=](int t) {
      body(n / kLine * t / threads * kLine, n / kLine * (t + 1) / threads * kLine);
    });
  };
}

// One thread is timed by its processor time, which other programs cannot stretch; several by the
// clock on the wall, since they wait for each other.
double clock_seconds(int threads) {
  timespec now;
  clock_gettime(threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// Of a millisecond or so. How often that is shows only meanwhile: threads that have to wait for a
// processor take a thousand times longer to meet than others.
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
#ifdef _OPENMP
    // The threads of the kernels' own loops, which are warm.
#pragma omp parallel for schedule(static, 1) num_threads(threads)
  for (int t = 0; t < threads; ++t) body(t);
#else
  std::vector<std::jthread> others;
  for (int t = 1; t < threads; ++t) others.emplace_back(body, t);
  body(0);
#endif
}

double seconds_of(const std::function<void()>& run) {
  const auto start = std::chrono::steady_clock::now();
  run();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

Loops copy_loops(const float* from, float* to, int64_t n, int threads) {
  return {in_pieces(n, threads,
                    [=](int64_t b, int64_t e) {
                      HWY_DYNAMIC_DISPATCH(copy_vectors)(from + b, to + b, e - b);
                    }),
          in_pieces(n, threads,
                    [=](int64_t b, int64_t e) {
                      HWY_DYNAMIC_DISPATCH(copy_past_caches)(from + b, to + b, e - b);
                    }),
          in_pieces(n, threads, [=](int64_t b, int64_t e) {
            std::memcpy(to + b, from + b, static_cast<size_t>(e - b) * sizeof(float));
          })};
}

Loops read_loops(const float* from, int64_t n, int threads) {
  return {in_pieces(n, threads, [=](int64_t b, int64_t e) {
    sink = HWY_DYNAMIC_DISPATCH(read_vectors)(from + b, e - b);
  })};
}

Loops write_loops(float* to, int64_t n, int threads) {
  return {in_pieces(n, threads,
                    [=](int64_t b, int64_t e) {
                      HWY_DYNAMIC_DISPATCH(fill_past_caches)(to + b, e - b);
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
  const size_t room = static_cast<size_t>(n) * sizeof(float);
  buffers_.emplace_back(room);
  if (copy) buffers_.emplace_back(room);
  float* const first = buffers_.front().data();
  Loops loops;
  // Of little work one thread does more than several that first have to meet.
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
  // What the kernel tells, not sysconf, which on virtual machines may know the whole socket's.
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
  // Written, not only read: lines that others hold are taken from them, too.
  const auto n = static_cast<int64_t>(beyond_caches() / sizeof(float));
  float* const data = buffer_.data();
  in_pieces(n, threads_, [=](int64_t b, int64_t e) {
    for (int64_t i = b; i < e; i += kLine) data[i] += 1;
  })();
}

}  // namespace mytorch::bench
#endif  // HWY_ONCE
