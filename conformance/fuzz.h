// The library behind `mytorch fuzz`: calls operators with hostile arguments.
//
// Whatever the arguments, a call returns or throws Error. Anything else is a finding: a crash, a
// hang, a sanitizer's report, another exception, or a result whose memory cannot be read. Calls run
// in child processes, which a crash ends without ending the fuzzer.
#pragma once

#include <cstdint>
#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include "conformance/catalog.h"

namespace mytorch::conformance {

struct FuzzOptions {
  std::string backend;  // "": the one that the dispatcher chooses on `device`
  std::string device = "cpu";
  std::string plugin;             // path of the backend's library, if it was given as one
  std::vector<std::string> only;  // full or base names of operators; empty: all
  uint64_t seed = 0;
  uint64_t first = 0;        // number of the first call
  uint64_t calls = 0;        // 0: no limit
  double seconds = 0;        // 0: no limit
  double call_seconds = 30;  // a call that takes longer hangs
  int64_t memory = 0;        // bytes that a child may allocate; 0: no limit
};

struct Finding {
  uint64_t call = 0;
  std::string op;
  std::string arguments;
  std::string what;  // "crashed: Segmentation fault", "threw std::bad_alloc", ...
};

struct FuzzReport {
  uint64_t calls = 0;
  uint64_t refused = 0;  // calls that threw Error
  std::vector<Finding> findings;
};

// Makes the calls `options.first`, `options.first` + 1, ... until a limit. A call depends only on
// the seed and its number, so that a finding is repeated by its number. Each child first calls
// `prepare` to load the backend; the caller must not have loaded a backend or started threads.
// Prints findings as they occur. An operator with three findings is left out from then on.
FuzzReport fuzz(const std::vector<OpRecord>& catalog, const FuzzOptions& options,
                const std::function<void()>& prepare, std::ostream& out);

}  // namespace mytorch::conformance
