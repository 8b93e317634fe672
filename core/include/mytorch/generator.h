// Random number generators.
#pragma once

#include <cstdint>
#include <memory>

#include "mytorch/abi.h"

namespace mytorch {

class Tensor;

// A counter-based generator: a seed and the number of the next call. Each random operator takes one
// call number, and every element of its result is a function of (seed, call, index) alone (Philox
// 4x32-10, Salmon et al., SC 2011), so results do not depend on the number of threads, the vector
// width or the backend. Copies share state. Thread-safe.
class Generator {
 public:
  explicit Generator(uint64_t seed);
  uint64_t seed() const;
  void set_seed(uint64_t seed);  // also resets the call number to 0
  // The state is (seed, call), where `call` is the next call number; save both in checkpoints.
  uint64_t call() const;
  void set_call(uint64_t call);
  // The state as 16 bytes, a tensor of type uint8 on the CPU. set_state throws Error(kValue) for
  // one that get_state did not make.
  Tensor get_state() const;
  void set_state(const Tensor& state);
  // Returns the next call number and advances the state.
  mt_random next() const;
  // Advances the state by `calls` call numbers and returns the first.
  uint64_t take(uint64_t calls) const;
  bool shares_state(const Generator& other) const { return state_ == other.state_; }

 private:
  struct State;
  std::shared_ptr<State> state_;
};

// Returns the generator used by operators that are given none: that of the thread's innermost
// GeneratorGuard, or the global one, whose seed is 0 until manual_seed is called.
Generator& default_generator();
void manual_seed(uint64_t seed);

// Makes a generator the default of this thread while the guard exists.
class GeneratorGuard {
 public:
  explicit GeneratorGuard(Generator generator);
  ~GeneratorGuard();
  GeneratorGuard(const GeneratorGuard&) = delete;
  GeneratorGuard& operator=(const GeneratorGuard&) = delete;

 private:
  Generator generator_;
  Generator* outer_;
};

}  // namespace mytorch
