// Measuring a case on several backends in turns.
#pragma once

#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "bench/harness/cases.h"
#include "bench/harness/statistics.h"

namespace mytorch::bench {

struct Options {
  // Backends to pin; "chosen" is whatever the dispatcher takes. Empty: every one that has a kernel,
  // apart from the reference.
  std::vector<std::string> backends;
  int threads = 1;
  bool warm = true;
  bool cold = false;
  double seconds = 0.4;  // for each backend of a case and state of the caches
  Device device;         // other than the CPU: as device_runner.cpp says
};

// Where the time of a call goes, each part measured by itself: docs/bench.md.
struct Split {
  double frontend = 0;
  double selection = 0;
  double kernel = 0;
};

struct Row {
  Case what;
  std::string backend;  // "-" where no kernel runs
  std::string cache;    // "warm", "cold"
  int threads = 1;
  Summary time;  // seconds of a call
  double bytes = 0;
  double flops = 0;
  std::string limit;  // what binds: "copy", "read", "write", "multiply-add"; "" where nothing does
  double limit_seconds = 0;  // that the limit alone would take
  std::optional<Split> split;
  std::string kernels;  // that ran: "cpu-openmp/vector_loop"
  double share() const { return time.median > 0 ? limit_seconds / time.median : 0; }
};

// Measures a case on each backend. A backend that takes no part in it gets no row, but a line of
// `notes` with the reason where it was asked for by name. Throws what the call throws on its own.
std::vector<Row> measure(const std::vector<OpRecord>& catalog, const Case& c,
                         const Options& options, std::ostream& notes);

// Of the machine, in bytes and operations a second.
struct Machine {
  double copy = 0;
  double read = 0;
  double multiply_add = 0;
};
Machine measure_machine(int threads);
// Of a device: copies within it, and products of bfloat16 matrices; `read` stays 0.
Machine measure_device(Device device);

}  // namespace mytorch::bench
