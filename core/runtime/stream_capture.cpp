#include "core/runtime/stream_capture.h"

#include <algorithm>
#include <mutex>

#include "core/runtime/context.h"
#include "core/runtime/device_registry.h"
#include "core/types/errors.h"

namespace mytorch {

namespace detail {
std::atomic<int> captures{0};
}

namespace {

struct CaptureRegistry {
  std::mutex mutex;
  std::vector<StreamCapture*> all;
  uint64_t next_id = 1;
};
CaptureRegistry& registry() {
  static CaptureRegistry* const instance =
      new CaptureRegistry;  // never destroyed: threads may outlive main
  return *instance;
}

StreamCapture* find(const CaptureRegistry& s, Device device, void* stream) {
  for (StreamCapture* each : s.all) {
    if (!(each->device == device)) continue;
    const auto& side = each->side_streams;
    if (each->stream == stream || std::find(side.begin(), side.end(), stream) != side.end()) {
      return each;
    }
  }
  return nullptr;
}

}  // namespace

void add_capture(StreamCapture* capture) {
  CaptureRegistry& s = registry();
  const std::lock_guard<std::mutex> lock(s.mutex);
  if (find(s, capture->device, capture->stream) != nullptr) {
    fail(ErrorCode::kValue, "[Graph] this thread's work on ", capture->device.str(),
         " is being captured already");
  }
  capture->id = s.next_id++;
  s.all.push_back(capture);
  detail::captures.store(static_cast<int>(s.all.size()));
}

void remove_capture(StreamCapture* capture) {
  CaptureRegistry& s = registry();
  const std::lock_guard<std::mutex> lock(s.mutex);
  std::erase(s.all, capture);
  detail::captures.store(static_cast<int>(s.all.size()));
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

StreamCapture* find_capture(const mt_ctx& ctx) {
  if (num_captures() == 0 || ctx.device.type == MT_DEVICE_CPU) return nullptr;
  CaptureRegistry& s = registry();
  const std::lock_guard<std::mutex> lock(s.mutex);
  return find(s, Device(ctx.device.type, ctx.device.index), ctx.stream);
}

StreamCapture* find_capture(Device device) {
  if (num_captures() == 0 || device.is_cpu()) return nullptr;
  return find_capture(*context(device_slot(device.type), {device.type, device.index}));
}

mt_random captured_draw(const Generator& generator, Device device) {
  StreamCapture* capture = find_capture(device);
  if (capture == nullptr) return generator.next();
  // All users of a captured stream are serialized, as on any stream.
  auto known = std::find_if(
      capture->draws.begin(), capture->draws.end(),
      [&](const GraphDraws& draws) { return draws.generator.shares_state(generator); });
  if (known == capture->draws.end()) {
    const DeviceType& type = device_type(capture->slot);
    // Not in the graph's memory, which earlier captured calls may have used for other data.
    void* word =
        type.ops->allocate(type.self, device.index, sizeof(uint64_t), side_stream(type, device));
    if (word == nullptr) {
      fail(ErrorCode::kOutOfMemory, "[Graph] ", device.str(),
           " is out of memory: ", take_host_error());
    }
    capture->draws.push_back({generator, generator.seed(), generator.call(), 0, word});
    known = capture->draws.end() - 1;
  }
  mt_random random = generator.next();
  random.call -= known->first;
  random.call_on_device = static_cast<const uint64_t*>(known->word);
  return random;
}

void check_not_captured(const char* op, const char* needs, Device device) {
  if (find_capture(device) == nullptr) return;
  fail(ErrorCode::kUnsupported, "[", op, "] ", needs, ", but work on ", device.str(),
       " is being captured into a graph and has not run: do this before the capture or after a "
       "replay");
}

}  // namespace mytorch
