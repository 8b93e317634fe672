// Seeded random damage to files, as by disks, networks and attackers.
#pragma once

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>

namespace mytorch::testing {

class Mutator {
 public:
  explicit Mutator(uint64_t seed) : random_(seed) {}

  // Makes one to four changes, most of them in the first `header` bytes.
  std::string mutate(std::string bytes, size_t header) {
    for (uint64_t n = 1 + below(4); n > 0; --n) change(bytes, header);
    return bytes;
  }

 private:
  uint64_t below(uint64_t n) { return n == 0 ? 0 : random_() % n; }

  void change(std::string& bytes, size_t header) {
    const size_t range = below(3) != 0 ? std::min(header, bytes.size()) : bytes.size();
    const size_t at = below(range);
    const size_t n = std::min<size_t>(1 + below(16), bytes.size() - at);
    switch (below(8)) {
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
      case 5:
        bytes.insert(at, bytes.substr(below(bytes.size()), n));
        break;
      case 6:
        std::fill_n(bytes.begin() + static_cast<std::ptrdiff_t>(at), n,
                    below(2) != 0 ? '\xff' : '\0');
        break;
      case 7: {
        // Insert a digit or a bracket, the building blocks of JSON.
        static constexpr char kTelling[] = "0123456789-,:[]{}\"eE. \\";
        if (!bytes.empty()) bytes[at] = kTelling[below(sizeof(kTelling) - 1)];
        break;
      }
    }
  }

  std::mt19937_64 random_;
};

}  // namespace mytorch::testing
