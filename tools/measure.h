// What `mytorch plan` is calibrated on: measured times of this machine.
#pragma once

#include <string>
#include <vector>

#include "mytorch/distributed.h"
#include "plan/calibrate.h"

namespace mytorch::tools {

// Returns products, attention, copies, kernels and what the host needs, on one device, each
// measured for about so many seconds without a pause: a GPU's clock falls under load. On the CPU
// sizes are smaller.
std::vector<plan::Point> measure_device_points(Device device, double seconds);

// The same for the collectives of a group, from 8 bytes on in powers of 8, up to `most`. Each rank
// of the group calls this, and gets the times of the slowest one.
std::vector<plan::Point> measure_collective_points(const distributed::Group& group, double most,
                                                   double seconds);
// The same, in so many processes that `mytorch launch` starts; `most` 0 is its default. Throws
// Error(kInternal) if they fail.
std::vector<plan::Point> launch_collectives(Device device, int ranks, double most, double seconds);
// A line of a table: time, the bytes over it ("algorithm bandwidth"), and the bytes that each rank
// must send over it ("bus bandwidth"), both as nccl-tests define them.
std::string collective_line(const plan::Point& point);
std::string collective_header();

// The machine before it is calibrated: a known GPU, by the name that its driver gives or `gpu` if
// that is not empty; or, for any other device, peaks as measured, and its memory.
plan::Machine machine_of_device(Device device, const std::string& gpu, const std::string& network,
                                const std::vector<plan::Point>& points);

// `mytorch bench --suite machine` and `--suite comm`: measure, print tables and write points.
inline bool is_machine_suite(const std::string& suite) {
  return suite == "machine" || suite == "comm";
}
struct SuiteOptions {
  std::string suite;
  Device device;
  double seconds = 0.2;  // of each point
  int ranks = 0;         // of threads that form a group; 0: the processes that a launcher started
  double most = 0;       // bytes of a collective; 0: 1 GiB, on the CPU 64 MiB
  std::string out;       // file for the points, or ""
};
void run_machine_suite(const SuiteOptions& options);

// Writes points for `mytorch plan --calibrate`. Throws Error(kIo).
void write_points(const std::vector<plan::Point>& points, const std::string& path);

}  // namespace mytorch::tools
