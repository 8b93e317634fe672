// Which of several kernels runs a call: docs/choice.md. A pin goes before what was measured, and
// that before the kernels' own priorities.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "mytorch/call.h"

namespace mytorch {

// How calls without a pin choose, for all threads. At first as MYTORCH_CHOICE says (`priority` or
// `measured`), else by priority.
enum class Choice {
  kPriority,
  kMeasured,  // by the table of measurements, where it knows this kind of call
};
void set_choice(Choice choice);
Choice choice();

// While it lives, a call of a kind that was not measured yet is run with each kernel that takes it,
// the best of them is remembered, and measured choice is on: for all threads, which then wait for
// each other. Tensors that a kernel would write twice to another effect are replaced by copies.
// Ends by saving what was learned to the table's file; a failure to do so is an Error of save(),
// and a warning of the destructor.
class Tuning {
 public:
  Tuning();
  ~Tuning();
  Tuning(const Tuning&) = delete;
  Tuning& operator=(const Tuning&) = delete;
  // Throws Error(kIo).
  void save();

 private:
  Choice saved_;
};

// The table of measurements of this machine and these backends. Its file lies in MYTORCH_CACHE,
// else in the user's cache directory; several processes may write it at once.
struct ChoiceTable {
  std::string path;
  size_t entries = 0;
  uint64_t hash = 0;    // of what it says: equal tables choose equally
  std::string problem;  // why (a part of) the file was not used, else ""
};
ChoiceTable choice_table();
// Forgets what was measured, in memory and in the file.
void clear_choice_table();

// What an operator's call came to.
struct ConsideredKernel {
  std::string backend;
  std::string kernel;
  int32_t priority = 0;
  std::string reason;   // why it does not take the call; "" where it does
  double seconds = -1;  // as measured; negative: not measured
  bool chosen = false;
};
struct Explanation {
  std::string op;    // "addmm"
  std::string call;  // types and shapes of its operands
  std::string by;    // "pin", "measured" or "priority"
  std::vector<ConsideredKernel> kernels;
};
// Calls an operator by name, and tells of every kernel call that this led to: of the operator
// itself, or of those that it consists of. Throws what the call throws.
std::vector<Explanation> explain(const std::string& op, const std::vector<Value>& args,
                                 const std::vector<NamedValue>& named = {});

}  // namespace mytorch
