// Ranks the kernels that a backend lacks by the most time each could save while a network trains.
#pragma once

#include <cstdint>
#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include "conformance/catalog.h"

namespace mytorch::conformance {

// A missing kernel, or a missing `compile`. Times are per training step.
struct Missing {
  std::string entry;  // an operator, or "compile"
  std::string way;    // how the calls run now: "fallback", "composite", "by cpu-openmp"
  double calls = 0;
  double seconds = 0;  // of the calls, including the calls that they make
  // The most time that a kernel could save. If the calls run on the CPU or by another backend, that
  // is all of their time. If they decompose, it is their time without the longest kernel, because
  // that kernel's work remains.
  double gain = 0;
};

struct Ranking {
  std::string model;
  int64_t batch = 0;
  int steps = 0;                 // number of measured steps
  double step = 0;               // seconds per step, with a wait after each kernel
  std::vector<Missing> missing;  // in descending order of gain
};

// Trains the network on the device with `backend` preferred, in this process, and calls `alive`
// after each step. Allows the fallback for the rest of the process. Throws the errors of the
// network.
Ranking rank_missing(const std::string& model, const std::string& device,
                     const std::string& backend, const std::function<void()>& alive);

// Runs rank_missing in a child process in which `prepare` loads the backend. Throws
// Error(kUnsupported) with the reason if the network does not run on the device.
Ranking rank_in_child(const std::string& model, const std::string& device,
                      const std::string& backend, const std::function<void()>& prepare,
                      double seconds);

void print_ranking(const Ranking& ranking, std::ostream& out);
Json to_json(const Ranking& ranking);

}  // namespace mytorch::conformance
