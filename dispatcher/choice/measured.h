// Measurements of how long each kernel takes for a kind of call.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "mytorch/choice.h"

namespace mytorch {

struct Timing {
  std::string kernel;  // kernel_id()
  double seconds;
};

struct Measurement {
  std::string op;      // "addmm"
  std::string device;  // "cpu", or a device type and its model
  uint64_t signature = 0;
  std::string call;             // describe_call() of the measured call
  std::vector<Timing> timings;  // fastest first
};

// The table of measurements of this machine, shared by all threads. Read from its file on first
// use.
class MeasuredTable {
 public:
  static MeasuredTable& get();

  // Returns the current measurements of one operator on one device.
  std::vector<Measurement> of(const std::string& op, const std::string& device);
  void add(Measurement measurement);  // replaces an older one
  void save();                        // merges the table into its file; throws Error(kIo)
  void clear();                       // in memory and in the file
  ChoiceTable describe();

 private:
  MeasuredTable() = default;
  struct State;
  static State& state();
};

}  // namespace mytorch
