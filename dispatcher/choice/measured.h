// What was measured: how long each kernel took for a kind of call.
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
  std::string call;             // describe_call() of the call that was measured
  std::vector<Timing> timings;  // fastest first
};

// The machine's table, for all threads. Read from its file when first used.
class MeasuredTable {
 public:
  static MeasuredTable& get();

  // Of one op on one device, as they are now.
  std::vector<Measurement> of(const std::string& op, const std::string& device);
  void add(Measurement measurement);  // in place of an older one
  void save();                        // merged into the file; throws Error(kIo)
  void clear();                       // in memory and in the file
  ChoiceTable describe();

 private:
  MeasuredTable() = default;
  struct State;
  static State& state();
};

}  // namespace mytorch
