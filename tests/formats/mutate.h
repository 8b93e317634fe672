// Seeded random damage to files and texts, as by disks, networks and attackers.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <random>
#include <string>
#include <vector>

namespace mytorch::testing {

class Mutator {
 public:
  explicit Mutator(uint64_t seed) : random_(seed) {}

  uint64_t below(uint64_t n) { return n == 0 ? 0 : random_() % n; }

  // Returns one of the samples with one to four changes, most of them in the first `header` bytes.
  std::string mutate(const std::vector<std::string>& samples, size_t header) {
    std::string bytes = samples[below(samples.size())];
    for (uint64_t n = 1 + below(4); n > 0; --n) {
      change(bytes, samples[below(samples.size())], header);
    }
    return bytes;
  }

 private:
  void change(std::string& bytes, const std::string& other, size_t header) {
    const size_t range = below(3) != 0 ? std::min(header, bytes.size()) : bytes.size();
    const size_t at = below(range);
    const size_t n = std::min<size_t>(1 + below(16), bytes.size() - at);
    switch (below(10)) {
      case 0:
        if (!bytes.empty()) bytes[at] ^= static_cast<char>(1 << below(8));
        break;
      case 1:
        if (!bytes.empty()) bytes[at] = static_cast<char>(random_());
        break;
      case 2:
        bytes.resize(at);
        break;
      case 3:
        bytes.append(1 + below(1000), static_cast<char>(random_()));
        break;
      case 4:
        bytes.erase(at, n);
        break;
      case 5:  // a piece of a valid file, at most half of it
        bytes.insert(at, other.substr(below(other.size()), 1 + below(other.size() / 2)));
        break;
      case 6:
        std::fill_n(bytes.begin() + static_cast<std::ptrdiff_t>(at), n,
                    below(2) != 0 ? '\xff' : '\0');
        break;
      case 7: {  // the building blocks of JSON and of schemas
        static constexpr char kTelling[] = "0123456789-,:[]{}()\"eE. \\\t\n*?=>";
        if (!bytes.empty()) bytes[at] = kTelling[below(sizeof(kTelling) - 1)];
        break;
      }
      case 8: {
        static const char* const kNumbers[] = {
            "9223372036854775807", "-9223372036854775808", "18446744073709551616", "1e999", "-1",
            "4294967296"};
        bytes.insert(at, kNumbers[below(std::size(kNumbers))]);
        break;
      }
      case 9: {  // a binary number
        static constexpr uint64_t kNumbers[] = {0,          1,          UINT32_MAX,
                                                UINT64_MAX, INT64_MAX,  1ull << 63,
                                                1ull << 31, 1ull << 40, INT64_MAX - 7};
        const uint64_t number = kNumbers[below(std::size(kNumbers))];
        const size_t width = std::min(size_t{1} << below(4), bytes.size() - at);
        for (size_t i = 0; i < width; ++i) bytes[at + i] = static_cast<char>(number >> 8 * i);
        break;
      }
    }
  }

  std::mt19937_64 random_;
};

}  // namespace mytorch::testing
