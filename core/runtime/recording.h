// Streams whose work is being recorded into a graph (mytorch/graph.h), and what must be done
// differently meanwhile: by random operators, by whoever needs a value on the host, and by whatever
// must run at once.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "mytorch/abi.h"
#include "mytorch/device.h"
#include "mytorch/generator.h"

namespace mytorch {

struct DeviceType;

// The call numbers that a graph takes from a generator. Kernels read the number of the first from
// device memory and add how many calls came before theirs.
struct GraphDraws {
  Generator generator;
  uint64_t seed;
  uint64_t first;  // while it is recorded
  uint64_t calls;  // of one replay
  void* word;      // in device memory
};

struct Recording {
  uint64_t id = 0;  // never reused
  Device device;
  int slot = 0;
  void* stream = nullptr;
  std::vector<GraphDraws> draws;
};

namespace detail {
extern std::atomic<int> recordings;
}
inline int num_recordings() { return detail::recordings.load(std::memory_order_relaxed); }

// Adds one whose device, slot and stream are set; throws Error(kValue) where the stream has one.
void add_recording(Recording* recording);
void remove_recording(Recording* recording);
// That of the stream which the thread uses on a device, or NULL.
Recording* find_recording(const mt_ctx& ctx);
Recording* find_recording(Device device);

// Its id, 0 where there is none.
inline uint64_t recording_of(const mt_ctx& ctx) {
  if (num_recordings() == 0) [[likely]]
    return 0;
  const Recording* recording = find_recording(ctx);
  return recording != nullptr ? recording->id : 0;
}

// A stream of this thread beside those that may be recorded. Kept: memory of its own stays.
void* side_stream(const DeviceType& type, Device device);

// The next call of a generator for work on a device, whether that is recorded or not.
mt_random recorded_draw(const Generator& generator, Device device);

// Throws Error(kUnsupported) "[op] needs ..." where the device's work is being recorded, so that
// the host cannot wait for it. `needs` begins with a verb.
void check_not_recorded(const char* op, const char* needs, Device device);

}  // namespace mytorch
