// A case made ready to be repeated.
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
  // Before a batch that is timed, and how many repetitions one may have at most: what a call writes
  // is made as it was.
  virtual void renew() {}
  virtual int64_t most() const { return INT64_MAX; }
  virtual int calls() const { return 1; }  // that a repetition stands for
  virtual Bytes bytes() = 0;
  virtual double flops() = 0;  // 0: unknown
};

// Makes the arguments, and makes the call once. Throws what that throws.
std::unique_ptr<Subject> make_subject(const Case& c);

}  // namespace mytorch::bench
