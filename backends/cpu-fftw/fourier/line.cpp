#include "backends/cpu-fftw/fourier/line.h"

#include <algorithm>
#include <cstddef>
#include <list>
#include <mutex>

#include "mytorch/backend/fourier.h"

namespace mytorch::fftw {
namespace {

// Lengths up to this are one call of FFTW, if it has code for their factors.
constexpr int64_t kShort = 8192;
constexpr int64_t kLargestFactor = 13;
// Primes between the two are left to FFTW, too.
constexpr int64_t kLargestShortPrime = 31;
// Lines of fewer points than kShortest are transformed together: about kTogether points, and so
// many lines that vectors of any size have a lane for each.
constexpr int64_t kTogether = 1024, kShortest = 64, kLanes = 16;

// How many lengths are kept.
constexpr size_t kKept = 64;

// Returns the largest divisor of n up to its root.
int64_t lower_divisor(int64_t n) {
  int64_t found = 1;
  for (int64_t d = 1; d * d <= n; ++d) {
    if (n % d == 0) found = d;
  }
  return found;
}

template <class T>
class ShortLine : public Line<T> {
 public:
  ShortLine(int64_t n, bool forward)
      : together_(n < kShortest ? kTogether / n / kLanes * kLanes : 1),
        plan_(n, 1, forward),
        many_(n, together_, forward),
        batch_(Batch<T>::of(n, forward)) {}
  void run(const Team& /*team*/, const Complex<T>* from, Complex<T>* to,
           Complex<T>* /*work*/) const override {
    plan_.run(from, to);
  }
  int64_t together() const override { return together_; }
  void run_together(const Complex<T>* from, Complex<T>* to) const override { many_.run(from, to); }
  const Batch<T>* batch() const override { return batch_.get(); }

 private:
  const int64_t together_;
  FftwPlan<T> plan_, many_;
  std::shared_ptr<const Batch<T>> batch_;
};

template <class T>
std::shared_ptr<const Line<T>> make_line(int64_t n, bool forward) {
  const int64_t largest = sdk::largest_factor(n);
  if (largest <= kLargestFactor) {
    if (n > kShort) {
      const int64_t n1 = lower_divisor(n);
      if (n1 * 16 > n / n1) return long_line<T>(n1, n / n1, forward);
    }
    return std::make_shared<ShortLine<T>>(n, forward);
  }
  if (n <= kShort && largest <= kLargestShortPrime) {
    return std::make_shared<ShortLine<T>>(n, forward);
  }
  if (largest == n && sdk::largest_factor(n - 1) <= kLargestFactor)
    return prime_line<T>(n, forward);
  return any_line<T>(n, forward);
}

}  // namespace

template <class T>
std::shared_ptr<const Line<T>> line_of(int64_t n, bool forward) {
  struct Kept {
    int64_t n;
    bool forward;
    std::shared_ptr<const Line<T>> line;
  };
  // Never destroyed: kernels may run until the end.
  static auto* const mutex = new std::mutex;
  static auto* const lines = new std::list<Kept>;  // the last used is the first
  const auto find = [&]() -> std::shared_ptr<const Line<T>> {
    const std::scoped_lock lock(*mutex);
    const auto found = std::find_if(lines->begin(), lines->end(), [&](const Kept& each) {
      return each.n == n && each.forward == forward;
    });
    if (found == lines->end()) return nullptr;
    lines->splice(lines->begin(), *lines, found);
    return lines->front().line;
  };
  if (auto line = find()) return line;
  // Not under the lock, because lines consist of lines. Another thread may have made it meanwhile.
  auto made = make_line<T>(n, forward);
  if (auto line = find()) return line;
  std::shared_ptr<const Line<T>> last;  // destroyed after the lock
  const std::scoped_lock lock(*mutex);
  lines->push_front({n, forward, made});
  if (lines->size() > kKept) {
    last = std::move(lines->back().line);
    lines->pop_back();
  }
  return made;
}

template std::shared_ptr<const Line<float>> line_of(int64_t n, bool forward);
template std::shared_ptr<const Line<double>> line_of(int64_t n, bool forward);

}  // namespace mytorch::fftw
