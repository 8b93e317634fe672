// The internals of a Profile, shared by the functions that format it.
#pragma once

#include <string>
#include <vector>

#include "dispatcher/profiler/recorder.h"
#include "mytorch/profiler.h"

namespace mytorch::profiler {

struct Profile::State {
  Options options;
  bool running = true;
  uint64_t since = 0, until = 0;  // nanoseconds
  std::vector<Events> threads;    // set by stop()
  uint64_t dropped() const;
};

struct EventNames {
  std::string op, device, backend, kernel;  // as in KernelTime
};
EventNames names_of(const Events& of, const ProfileEvent& event);

// Applies MYTORCH_TRACE=FILE and MYTORCH_PROFILE=1: records from now to the end of the process.
// Called once, after the default backends have been loaded.
void profile_as_environment_says();

}  // namespace mytorch::profiler
