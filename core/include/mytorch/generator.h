// Sources of random numbers.
#pragma once

#include <cstdint>
#include <memory>

#include "mytorch/abi.h"

namespace mytorch {

// A counter-based generator: a seed, and the number of the next call. Each random operator takes
// one call number, and every element of its result is a function of (seed, call, index) alone
// (Philox 4x32-10, Salmon et al., SC 2011), so results do not depend on threads, vector width or
// backend. Copies share the state. Thread-safe.
class Generator {
 public:
  explicit Generator(uint64_t seed);
  uint64_t seed() const;
  void set_seed(uint64_t seed);  // and starts again at call 0
  // The state is (seed, next call), for checkpoints.
  uint64_t call() const;
  void set_call(uint64_t call);
  // Takes the next call number.
  mt_random next() const;
  // Takes so many; gives the first.
  uint64_t take(uint64_t calls) const;
  bool shares_state(const Generator& other) const { return state_ == other.state_; }

 private:
  struct State;
  std::shared_ptr<State> state_;
};

// The generator used where none is given. Seeded with 0 unless manual_seed was called.
Generator& default_generator();
void manual_seed(uint64_t seed);

}  // namespace mytorch
