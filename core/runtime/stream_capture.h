// Streams whose work is being captured into a graph (mytorch/device_graph.h), and the operations
// that behave differently during capture: random operators, reads on the host, and work that must
// run immediately.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "mytorch/abi.h"
#include "mytorch/device.h"
#include "mytorch/generator.h"
#include "mytorch/thread_state.h"

namespace mytorch {

struct DeviceType;

// The call numbers that a graph takes from a generator. A kernel reads the number of the first from
// device memory and adds the number of captured calls before its own.
struct GraphDraws {
  Generator generator;
  uint64_t seed;
  uint64_t first;  // during capture
  uint64_t calls;  // per replay
  void* word;      // in device memory
};

// By whose they are: called with the stream before a replay is queued, they return what is to be
// called afterwards.
using AroundReplay = std::map<const void*, std::function<std::function<void()>(void* stream)>>;

struct StreamCapture {
  uint64_t id = 0;  // never reused
  Device device;
  int slot = 0;
  void* stream = nullptr;
  std::vector<void*> side_streams;  // on which a part of the work is queued (side_streams.h)
  std::vector<GraphDraws> draws;
  AroundReplay around_replay;
};

namespace detail {
extern std::atomic<int> captures;
}
inline int num_captures() { return detail::captures.load(std::memory_order_relaxed); }

// Registers a capture whose device, slot and stream are set. Throws Error(kValue) if its stream is
// being captured already.
void add_capture(StreamCapture* capture);
void remove_capture(StreamCapture* capture);
// Returns the capture on this thread's stream of a device, or null.
StreamCapture* find_capture(const mt_ctx& ctx);
StreamCapture* find_capture(Device device);

// Returns the id of that capture, or 0.
inline uint64_t capture_of(const mt_ctx& ctx) {
  if (num_captures() == 0) [[likely]]
    return 0;
  const StreamCapture* capture = find_capture(ctx);
  return capture != nullptr ? capture->id : 0;
}

// Returns a stream of this thread that is never captured. It persists, as does its memory.
void* side_stream(const DeviceType& type, Device device);

// Returns the next call of a generator for work on a device, captured or not.
mt_random captured_draw(const Generator& generator, Device device);

// Throws Error(kUnsupported) "[op] needs ..." if work on the device is being captured, so that the
// host cannot wait for it. `needs` begins with a verb.
void check_not_captured(const char* op, const char* needs, Device device);

// Called by run_uncaptured() while the thread records a graph: what the function reads must be
// there. Set by the graph library.
extern void (*before_uncaptured)();

// Returns whether this thread records a graph (graph/capture/capture.h), and no operator that it
// records is running.
inline bool recording_graph() {
  return (thread_state.wanted & thread_state.layers & kLayerCapture) != 0;
}

// What a recording is told besides core/tensor/capture_layer.h. Set by the graph library.
//
// The function does something that a graph cannot repeat, such as seeding a generator. Throws
// Error(kUnsupported), or ends the graph where breaks are allowed.
extern void (*before_effect)(const char* op, const char* what);
// A part that is not recorded begins or ends.
extern void (*around_unrecorded)(bool begins);

// Called before a change of state that a graph does not hold. `what` completes "op() ...".
inline void check_effect(const char* op, const char* what) {
  if (recording_graph()) [[unlikely]]
    before_effect(op, what);
}

// In its scope, nothing is recorded. What is made in it is made once, and the recording refers to
// it as to other tensors from outside.
class UnrecordedTensors {
 public:
  UnrecordedTensors() : recording_(recording_graph()), mask_(kLayerCapture) {
    if (recording_) [[unlikely]]
      around_unrecorded(true);
  }
  ~UnrecordedTensors() {
    if (recording_) [[unlikely]]
      around_unrecorded(false);
  }
  UnrecordedTensors(const UnrecordedTensors&) = delete;
  UnrecordedTensors& operator=(const UnrecordedTensors&) = delete;

 private:
  const bool recording_;
  const LayerMask mask_;
};

}  // namespace mytorch
