// A failed check, with the information to act on it: the call, the difference, a likely cause and
// the command that repeats it. docs/contributing.md explains how to read one.
#pragma once

#include <ostream>
#include <string>

namespace mytorch::conformance {

struct Options;

// How a call computed its result, from the fastest to the slowest.
enum class Route {
  kNone,       // the call was refused, or failed before a kernel ran
  kView,       // no kernel was necessary
  kNative,     // a kernel of the operator
  kComposite,  // kernels of the operators into which it decomposes
  kFallback,   // at least one kernel of the CPU
};
const char* route_name(Route route);

struct Failure {
  std::string op;
  int number = -1;        // of the case; -1 if the failure concerns the operator as a whole
  std::string check;      // "functional", "out=", "in-place", "composite", "gradcheck", ...
  std::string arguments;  // in words; empty if the process ended before they were made
  std::string what;
  Route route = Route::kNone;
};

// Returns the most frequent cause of failures of this check, or "".
std::string likely_cause(const Failure& failure);

// Returns the command that runs one case again, or all cases of the operator if `number` is -1.
std::string reproducer(const Options& options, const std::string& op, int number);

void print_failure(const Failure& failure, const std::string& reproducer, std::ostream& out);

}  // namespace mytorch::conformance
