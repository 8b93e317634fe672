// The recorded events of every thread. Each thread appends to its own log under its own mutex,
// which is uncontended until the log is read.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "dispatcher/choice/observe.h"

namespace mytorch::profiler {

// A finished kernel call, substitution or range. Times are nanoseconds of the steady clock.
struct ProfileEvent {
  const OpInfo* op;           // null for a range
  const KernelEntry* kernel;  // null for a range, a substitution, and a call that threw
  uint64_t begin, end;
  uint64_t self;    // without nested calls of the same thread
  uint64_t memory;  // bytes of large host blocks in use at the end
  void* stream;
  size_t details;  // index of its operands in `operands`, or for a range, of its name in `names`
  int32_t device_index;
  int16_t slot;    // of the device type
  int16_t status;  // MT_OK, MT_DECLINED or an error; for a substitution, kDecomposed or kFellBack
};

// The events of one thread.
struct Events {
  int thread = 0;                    // from 1, in order of appearance
  std::vector<ProfileEvent> events;  // sorted by end
  // Per call: the number of inputs, the number of outputs, and for each operand the bits of its
  // dtype, its rank and its shape. An absent operand has rank -1.
  std::vector<int64_t> operands;
  std::vector<std::string> names;
  uint64_t dropped = 0;  // number of events beyond the limit

  // "float32[64,784] float32[784,32] -> float32[64,32]"; "" for a range.
  std::string operands_text(const ProfileEvent& event) const;
  uint64_t operand_bytes(const ProfileEvent& event) const;
};

struct ThreadLog {
  std::mutex mutex;
  Events kept;
  // Calls and ranges in progress, the innermost last.
  struct Open {
    uint64_t begin;
    uint64_t inside;  // time of nested calls
    size_t details;
  };
  std::vector<Open> open;
};

// Returns the current time in nanoseconds.
uint64_t now();

// Calls are recorded between begin() and the matching end(). With `wait`, each kernel is waited
// for. The default backends must have been loaded.
void begin(bool wait, size_t limit);
void end(bool wait);
bool recording();
bool waiting();  // for the device, after each call
// Returns, per thread, the events that began at or after `since` and have ended.
std::vector<Events> recorded(uint64_t since);

void begin_range(const char* name);
void end_range();

}  // namespace mytorch::profiler
