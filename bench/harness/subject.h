// A case with its arguments, ready for repeated calls.
#pragma once

#include <cstdint>
#include <memory>

#include "bench/harness/cases.h"
#include "bench/harness/cost.h"

namespace mytorch::bench {

class Subject {
 public:
  virtual ~Subject() = default;
  virtual void run(int64_t times) = 0;
  // Restores the arguments that calls write. Called before each timed batch.
  virtual void renew() {}
  // The largest number of repetitions between two calls of renew().
  virtual int64_t most() const { return INT64_MAX; }
  virtual int calls() const { return 1; }  // calls per repetition
  virtual Bytes bytes() = 0;
  virtual double flops() = 0;  // 0: unknown
};

// Makes the arguments and runs the case once. Throws the errors of the call.
std::unique_ptr<Subject> make_subject(const Case& c);

}  // namespace mytorch::bench
