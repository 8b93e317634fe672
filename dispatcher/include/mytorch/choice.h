// The choice between the kernels that can run a call (docs/choice.md). A pin takes precedence over
// measurements, and measurements over the kernels' priorities.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "mytorch/call.h"

namespace mytorch {

// How calls without a pin choose a kernel, in all threads. Initially set by MYTORCH_CHOICE
// (`priority` or `measured`); the default is kPriority.
enum class Choice {
  kPriority,
  kMeasured,  // by the table of measurements; by priority for calls that it lacks
};
void set_choice(Choice choice);
Choice choice();

// Enables tuning and measured choice for the lifetime of this object, in all threads. A call of a
// kind not yet measured runs with each kernel that takes it, one such call at a time, and the
// fastest kernel is remembered. Tensors for which repeated writes would change the result are
// replaced by copies. The destructor saves the table to its file and warns if that fails; call
// save() to get an exception instead.
class Tuning {
 public:
  Tuning();
  ~Tuning();
  Tuning(const Tuning&) = delete;
  Tuning& operator=(const Tuning&) = delete;
  // Writes the table to its file. Throws Error(kIo).
  void save();

 private:
  Choice saved_;
};

// The table of measurements for this machine and these backends. Its file is in MYTORCH_CACHE or,
// if that is not set, in the user's cache directory; several processes may write it concurrently.
struct ChoiceTable {
  std::string path;
  size_t entries = 0;
  uint64_t hash = 0;    // of the contents: equal tables choose equally
  std::string problem;  // why (part of) the file was not used, or ""
};
ChoiceTable choice_table();
// Discards all measurements, in memory and in the file.
void clear_choice_table();

// One kernel's part in the choice for a call.
struct ExplainedKernel {
  std::string backend;
  std::string kernel;
  int32_t priority = 0;
  std::string reason;   // why it does not take the call; "" if it does
  double seconds = -1;  // measured time; negative if not measured
  bool chosen = false;
};
struct Explanation {
  std::string op;    // "addmm"
  std::string call;  // dtypes and shapes of the operands
  std::string by;    // "pin", "measured" or "priority"
  std::vector<ExplainedKernel> kernels;
};
// Calls an operator by name and returns an explanation of each kernel call that results: one for
// the operator itself, or one for each operator that it decomposes into. Rethrows any error of the
// call.
std::vector<Explanation> explain(const std::string& op, const std::vector<Value>& args,
                                 const std::vector<NamedValue>& named = {});

}  // namespace mytorch
