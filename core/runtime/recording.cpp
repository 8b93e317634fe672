#include "core/runtime/recording.h"

#include <algorithm>
#include <mutex>

#include "core/runtime/context.h"
#include "core/runtime/device_registry.h"
#include "core/types/errors.h"

namespace mytorch {

namespace detail {
std::atomic<int> recordings{0};
}

namespace {

struct State {
  std::mutex mutex;
  std::vector<Recording*> all;
  uint64_t next_id = 1;
};
State& state() {
  static State* const instance = new State;  // never destroyed: threads may outlive main
  return *instance;
}

Recording* find(const State& s, Device device, void* stream) {
  for (Recording* each : s.all) {
    if (each->device == device && each->stream == stream) return each;
  }
  return nullptr;
}

}  // namespace

void add_recording(Recording* recording) {
  State& s = state();
  const std::lock_guard<std::mutex> lock(s.mutex);
  if (find(s, recording->device, recording->stream) != nullptr) {
    fail(ErrorCode::kValue, "[Graph] this thread's work on ", recording->device.str(),
         " is being captured already");
  }
  recording->id = s.next_id++;
  s.all.push_back(recording);
  detail::recordings.store(static_cast<int>(s.all.size()));
}

void remove_recording(Recording* recording) {
  State& s = state();
  const std::lock_guard<std::mutex> lock(s.mutex);
  std::erase(s.all, recording);
  detail::recordings.store(static_cast<int>(s.all.size()));
}

void* side_stream(const DeviceType& type, Device device) {
  struct Known {
    Device device;
    void* stream;
  };
  thread_local std::vector<Known> all;
  for (const Known& known : all) {
    if (known.device == device) return known.stream;
  }
  void* stream = type.ops->create_stream(type.self, device.index, 0);
  if (stream == nullptr) {
    fail(ErrorCode::kDevice, "[Graph] ", device.str(),
         " cannot create a stream: ", take_host_error());
  }
  all.push_back({device, stream});
  return stream;
}

Recording* find_recording(const mt_ctx& ctx) {
  if (num_recordings() == 0 || ctx.device.type == MT_DEVICE_CPU) return nullptr;
  State& s = state();
  const std::lock_guard<std::mutex> lock(s.mutex);
  return find(s, Device(ctx.device.type, ctx.device.index), ctx.stream);
}

Recording* find_recording(Device device) {
  if (num_recordings() == 0 || device.is_cpu()) return nullptr;
  return find_recording(*context(device_slot(device.type), {device.type, device.index}));
}

mt_random recorded_draw(const Generator& generator, Device device) {
  Recording* recording = find_recording(device);
  if (recording == nullptr) return generator.next();
  // All users of a captured stream are serialized, as on any stream.
  auto known = std::find_if(
      recording->draws.begin(), recording->draws.end(),
      [&](const GraphDraws& draws) { return draws.generator.shares_state(generator); });
  if (known == recording->draws.end()) {
    const DeviceType& type = device_type(recording->slot);
    // Not in the graph's memory, which earlier captured calls may have used for other data.
    void* word =
        type.ops->allocate(type.self, device.index, sizeof(uint64_t), side_stream(type, device));
    if (word == nullptr) {
      fail(ErrorCode::kOutOfMemory, "[Graph] ", device.str(),
           " is out of memory: ", take_host_error());
    }
    recording->draws.push_back({generator, generator.seed(), generator.call(), 0, word});
    known = recording->draws.end() - 1;
  }
  mt_random random = generator.next();
  random.call -= known->first;
  random.call_on_device = static_cast<const uint64_t*>(known->word);
  return random;
}

void check_not_recorded(const char* op, const char* needs, Device device) {
  if (find_recording(device) == nullptr) return;
  fail(ErrorCode::kUnsupported, "[", op, "] ", needs, ", but work on ", device.str(),
       " is being captured into a graph and has not run: do this before the capture or after a "
       "replay");
}

}  // namespace mytorch
