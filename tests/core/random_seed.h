// The seed of tests that draw their cases: MYTORCH_TEST_SEED, or 1. A change is judged by the same
// cases as the change before; `scripts/ci --seeds N` draws others.
#pragma once

#include <cstdint>
#include <cstdlib>

namespace mytorch::testing {

inline uint64_t random_seed() {
  const char* const given = std::getenv("MYTORCH_TEST_SEED");
  return given != nullptr ? std::strtoull(given, nullptr, 10) : 1;
}

}  // namespace mytorch::testing
