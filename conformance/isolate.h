// Runs checks in child processes, so that a crash or a hang of a backend fails only the case that
// caused it.
#pragma once

#include <functional>
#include <string>

#include "conformance/check.h"

namespace mytorch::conformance {

// Sends one line of text from the child to its parent.
using Tell = std::function<void(const std::string& line)>;

// The end of a child process.
struct Ended {
  bool well = false;  // exited with status 0
  std::string how;    // "crashed: Segmentation fault", "did not end within 60 s", ...
};

// Runs work(tell) in a forked child and calls `line` in the parent for each line that the child
// sends. Kills the child if it sends nothing for `seconds`, or for a minute before its first line,
// if that is longer. Forwards the child's stderr, except for warnings about the fallback, which the
// report counts. The caller must not have other threads. The child ends with the caller.
Ended run_in_child(const std::function<void(const Tell& tell)>& work,
                   const std::function<void(const std::string& line)>& line, double seconds);

// Runs check() in child processes, each of which first calls `prepare` to load the backend. The
// caller must not have loaded a backend or started threads. A case that takes longer than `seconds`
// fails.
Report check_in_children(const std::vector<OpRecord>& catalog, const Options& options,
                         const std::function<void()>& prepare, double seconds, std::ostream& out);

}  // namespace mytorch::conformance
