// Numbers that depend on a seed alone.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "mytorch/generator.h"

namespace mytorch::nn::data {

// SplitMix64 (Steele, Lea and Flood, OOPSLA 2014): small, and the same on every platform, unlike
// std::shuffle.
class SplitMix64 {
 public:
  explicit SplitMix64(uint64_t state) : state_(state) {}

  uint64_t operator()() {
    uint64_t z = state_ += 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }

  // Uniform in [0, n), without bias (Lemire, ACM TOMACS 29, 2019).
  uint64_t below(uint64_t n) {
    unsigned __int128 product = static_cast<unsigned __int128>((*this)()) * n;
    if (static_cast<uint64_t>(product) < n) {
      const uint64_t threshold = (0 - n) % n;
      while (static_cast<uint64_t>(product) < threshold) {
        product = static_cast<unsigned __int128>((*this)()) * n;
      }
    }
    return static_cast<uint64_t>(product >> 64);
  }

  // Uniform in [0, 1), a multiple of 2^-53.
  double uniform() { return static_cast<double>((*this)() >> 11) * 0x1p-53; }
  double uniform(double low, double high) { return low + (high - low) * uniform(); }

 private:
  uint64_t state_;
};

// Returns numbers that depend on one draw from a generator.
inline SplitMix64 drawn_from(const Generator& generator) {
  const mt_random draw = generator.next();
  return SplitMix64(SplitMix64(SplitMix64(draw.seed)() ^ draw.call)());
}

// Permutes the elements uniformly.
template <class T>
void shuffle(std::vector<T>& elements, SplitMix64& random) {
  for (size_t i = elements.size(); i > 1; --i) {
    std::swap(elements[i - 1], elements[random.below(i)]);
  }
}

}  // namespace mytorch::nn::data
