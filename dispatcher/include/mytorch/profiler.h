// Where the time goes: docs/profiling.md. Without a Profile alive none of this costs a call
// anything.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace mytorch::profiler {

struct Options {
  // Each kernel is waited for, so that its time is the device's and not that of queueing it. Calls
  // of a device then do not overlap any more. The CPU's kernels have ended when they return.
  bool wait = false;
  // So many calls are kept; later ones are counted only.
  size_t limit = 1'000'000;
};

// The calls of one kernel for one operator; or, for an operator that no kernel took, what ran in
// its place as a whole: the calls that it led to lie inside, and are told by themselves, too.
struct KernelTime {
  std::string op;       // "add.Tensor", or the name of a Range
  std::string device;   // "cpu", "cuda:1"; "" for a Range
  std::string backend;  // "cpu-openmp"; "" for a Range, and where no kernel took the call
  std::string kernel;   // "packed_gemm"; "packed_gemm (failed)" of calls that did; "(decomposed)",
                        // "(fallback)" in place of one
  uint64_t calls = 0;
  double seconds = 0;       // from call to return, all calls together
  double self_seconds = 0;  // without the calls that it made itself, of conversions for example
  double longest = 0;       // one call, in seconds
  uint64_t bytes = 0;       // of its operands, each counted once a call
};

// While it lives, the kernel calls of all threads are recorded, with their operands, kernel, stream
// and times, and so are ranges. Several may live at once; each has what happened in its time.
class Profile {
 public:
  explicit Profile(Options options = {});
  ~Profile();
  Profile(const Profile&) = delete;
  Profile& operator=(const Profile&) = delete;

  // Ends the recording; what was recorded stays. The others do so first.
  void stop();
  // Those with the most time of their own first.
  std::vector<KernelTime> times();
  // The same, for people: `rows` lines at most, and the sum.
  std::string table(size_t rows = 30);
  // A timeline in the Trace Event Format, which Perfetto (ui.perfetto.dev) opens. Throws
  // Error(kIo).
  void save_trace(const std::string& path);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// A stretch of the program, by name, in the profiles that are alive when it begins: Range
// r("epoch").
class Range {
 public:
  explicit Range(const char* name);
  ~Range();
  Range(const Range&) = delete;
  Range& operator=(const Range&) = delete;

 private:
  bool recorded_;
};

}  // namespace mytorch::profiler
