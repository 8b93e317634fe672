// Running checks in processes of their own, so that a backend that crashes or hangs fails the case
// that made it do so and no other.
#pragma once

#include <functional>
#include <string>

#include "conformance/check.h"

namespace mytorch::conformance {

// What the child tells: one line of text at a time.
using Tell = std::function<void(const std::string& line)>;

// How a child ended.
struct Ended {
  bool well = false;
  std::string how;  // "crashed: Segmentation fault", "did not end within 60 s", ...
};

// Runs work(tell) in a forked child; `line` gets what it tells, here, as it comes. The child is
// ended when it tells nothing for `seconds`. What it writes to stderr passes through, except for
// the fallback's warnings, which the report counts. The caller must not have other threads.
Ended run_in_child(const std::function<void(const Tell& tell)>& work,
                   const std::function<void(const std::string& line)>& line, double seconds);

// As check(), in children: `prepare` runs first in each, and loads the backend. The caller's
// process loads nothing and has no threads. A case that takes longer than `seconds` fails.
Report check_in_children(const std::vector<OpRecord>& catalog, const Options& options,
                         const std::function<void()>& prepare, double seconds, std::ostream& out);

}  // namespace mytorch::conformance
