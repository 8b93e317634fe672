// Records where time is spent (docs/profiling.md). Costs nothing while no Profile exists.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace mytorch::profiler {

struct Options {
  // Waits for each kernel, so that its time is the device's execution time rather than the time to
  // queue it. Calls on a device then no longer overlap. CPU kernels always finish before they
  // return.
  bool wait = false;
  // The number of calls to keep; later calls are only counted.
  size_t limit = 1'000'000;
};

// All calls of one kernel for one operator. An operator that no kernel takes has an entry for its
// substitution as a whole; the calls made inside the substitution also have entries of their own.
struct KernelTime {
  std::string op;       // "add.Tensor", or the name of a Range
  std::string device;   // "cpu", "cuda:1"; "" for a Range
  std::string backend;  // "cpu-openmp"; "" for a Range and if no kernel took the call
  // "packed_gemm"; "packed_gemm (failed)" for calls that failed; "(decomposed)" or "(fallback)" if
  // no kernel took the call.
  std::string kernel;
  uint64_t calls = 0;
  double seconds = 0;       // from call to return, summed over all calls
  double self_seconds = 0;  // without nested calls, such as conversions
  double longest = 0;       // the longest call, in seconds
  uint64_t bytes = 0;       // size of the operands, each counted once per call
};

// Records the kernel calls of all threads, with operands, kernel, stream and times, and all ranges,
// for the lifetime of this object. Several may exist at once; each holds the events of its own
// lifetime.
class Profile {
 public:
  explicit Profile(Options options = {});
  ~Profile();
  Profile(const Profile&) = delete;
  Profile& operator=(const Profile&) = delete;

  // Stops recording and keeps the recorded events. The functions below stop first.
  void stop();
  // Returns one entry per operator and kernel, sorted by self_seconds, largest first.
  std::vector<KernelTime> times();
  // Returns a formatted table of at most `rows` entries and the total.
  std::string table(size_t rows = 30);
  // Writes a timeline in the Trace Event Format, which Perfetto (ui.perfetto.dev) opens. Throws
  // Error(kIo).
  void save_trace(const std::string& path);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// A named section of the program, recorded in the profiles that exist when it begins: Range
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
