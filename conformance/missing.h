// Which kernels a backend lacks, and what each would gain: measured on a network that trains.
#pragma once

#include <cstdint>
#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include "conformance/catalog.h"

namespace mytorch::conformance {

// A kernel that the backend has not, or `compile`; times are of one step of the network.
struct Missing {
  std::string entry;  // an operator, or "compile"
  std::string way;    // how its calls ran: "fallback", "composite", "by cpu-openmp"
  double calls = 0;
  double seconds = 0;  // that they took, with all that they led to
  // What a kernel saves at most. In place of the CPU, with its copies, or of another backend's
  // kernel: all of it; in place of other kernels of the device: all but the longest of those, since
  // that one's work is still to be done.
  double gain = 0;
};

struct Ranking {
  std::string model;
  int64_t batch = 0;
  int steps = 0;                 // that were measured
  double step = 0;               // seconds of one, each kernel waited for
  std::vector<Missing> missing;  // the largest gain first
};

// Trains the network on the device, where `backend` is to do the work, in this process. The
// fallback is allowed from here on. `alive` is called now and then. Throws what the network throws.
Ranking rank_missing(const std::string& model, const std::string& device,
                     const std::string& backend, const std::function<void()>& alive);

// The same in a process of its own, in which `prepare` loads the backend. Throws
// Error(kUnsupported) that says why, where the network does not run there.
Ranking rank_in_child(const std::string& model, const std::string& device,
                      const std::string& backend, const std::function<void()>& prepare,
                      double seconds);

void print_ranking(const Ranking& ranking, std::ostream& out);
Json to_json(const Ranking& ranking);

}  // namespace mytorch::conformance
