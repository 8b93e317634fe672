// What every thread did while anybody recorded: one log a thread, appended to under its own mutex,
// which nobody else wants until the log is read.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "dispatcher/choice/observe.h"

namespace mytorch::profiler {

// A kernel call, a detour or a range that ended. Times are nanoseconds of the steady clock.
struct Event {
  const OpInfo* op;           // null: a range
  const KernelEntry* kernel;  // null for a range, and where no kernel took the call or it threw
  uint64_t begin, end;
  uint64_t self;    // without the calls that the same thread made meanwhile
  uint64_t memory;  // large host blocks in use at its end, bytes
  void* stream;
  size_t details;  // where its operands begin in `operands`; of a range, its place in `names`
  int32_t device_index;
  int16_t slot;    // of the device type
  int16_t status;  // MT_OK, MT_DECLINED, the error, or of a detour kDecomposed or kFellBack
};

// What a thread recorded.
struct Events {
  int thread = 0;             // from 1, in the order in which they came
  std::vector<Event> events;  // in the order of their ends
  // Of each call the numbers of its inputs and outputs, then for each its type as bits, rank and
  // shape. An absent operand has rank -1.
  std::vector<int64_t> operands;
  std::vector<std::string> names;
  uint64_t dropped = 0;  // beyond the limit

  // "float32[64,784] float32[784,32] -> float32[64,32]"; "" for a range.
  std::string operands_text(const Event& event) const;
  uint64_t operand_bytes(const Event& event) const;
};

struct ThreadLog {
  std::mutex mutex;
  Events kept;
  // Calls and ranges under way, the innermost last.
  struct Open {
    uint64_t begin;
    uint64_t inside;  // time of the calls made meanwhile
    size_t details;
  };
  std::vector<Open> open;
};

// The time now, in nanoseconds.
uint64_t now();

// From begin() to the matching end() calls are recorded. `wait`: kernels are waited for. The
// default backends must have been loaded.
void begin(bool wait, size_t limit);
void end(bool wait);
bool recording();
// What began at `since` or later, and has ended by now, of each thread.
std::vector<Events> recorded(uint64_t since);

void begin_range(const char* name);
void end_range();

}  // namespace mytorch::profiler
