// Measures a case on several backends alternately.
#pragma once

#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "bench/harness/cases.h"
#include "bench/harness/statistics.h"

namespace mytorch::bench {

struct Options {
  // Backends to pin; "chosen" is the dispatcher's choice. Empty: every backend with a kernel for
  // the case, except the reference.
  std::vector<std::string> backends;
  int threads = 1;
  bool warm = true;
  bool cold = false;
  double seconds = 0.4;  // per case, backend and state of the caches
  Device device;         // for devices other than the CPU see device_runner.h
};

// The seconds of a call by part, each measured separately (docs/bench.md).
struct Split {
  double frontend = 0;
  double selection = 0;
  double kernel = 0;
};

struct Row {
  Case what;
  std::string backend;  // "-" if no kernel runs
  std::string cache;    // "warm", "cold"
  int threads = 1;
  Summary time;  // seconds of a call
  double bytes = 0;
  double flops = 0;
  std::string limit;         // the binding limit: "copy", "read", "write", "multiply-add", or ""
  double limit_seconds = 0;  // the time at the limit
  std::optional<Split> split;
  std::string kernels;  // the kernels that ran: "cpu-openmp/vector_loop"
  double share() const { return time.median > 0 ? limit_seconds / time.median : 0; }
};

// Measures a case on each backend. A backend that does not run the case gets no row; if it was
// requested by name, `notes` gets a line with the reason. Throws the errors of the call.
std::vector<Row> measure(const std::vector<OpRecord>& catalog, const Case& c,
                         const Options& options, std::ostream& notes);

// The limits of the machine, in bytes and operations per second.
struct Machine {
  double copy = 0;
  double read = 0;
  double multiply_add = 0;
};
Machine measure_machine(int threads);
// Measures copies within a device and products of bfloat16 matrices; `read` is 0.
Machine measure_device(Device device);

}  // namespace mytorch::bench
