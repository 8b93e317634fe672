#include "mytorch/timed_event.h"

#include <chrono>
#include <utility>

#include "core/runtime/context.h"
#include "core/runtime/device_registry.h"
#include "core/runtime/stream_capture.h"
#include "core/types/errors.h"

namespace mytorch {
namespace {

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

const DeviceType& type_of(Device device) { return device_type(checked_device_slot(device)); }

[[noreturn]] void fail_here(Device device) {
  fail(ErrorCode::kInternal, "[timed_event] ", device.str(), ": ", take_host_error());
}

}  // namespace

bool TimedEvent::known_by(Device device) {
  const mt_device_ops* ops = type_of(device).ops;
  return ops == nullptr || (ops->record_timed_event != nullptr && ops->event_elapsed != nullptr &&
                            ops->wait_event != nullptr && ops->destroy_event != nullptr);
}

TimedEvent::TimedEvent(Device device) : device_(device) {
  const int slot = checked_device_slot(device);
  const DeviceType& type = device_type(slot);
  if (type.ops == nullptr) {
    time_ = now();
    return;
  }
  if (!known_by(device)) {
    fail(ErrorCode::kUnsupported, "[timed_event] ", device.str(), " has no timing events");
  }
  const mt_ctx* ctx = context(slot, {device.type, device.index});
  if (capture_of(*ctx) != 0) {
    fail(ErrorCode::kUnsupported, "[timed_event] the stream on ", device.str(),
         " is being captured into a graph, and nothing on it has run: measure the time of a "
         "replay");
  }
  event_ = type.ops->record_timed_event(type.self, device.index, ctx->stream);
  if (event_ == nullptr) fail_here(device);
}

TimedEvent::TimedEvent(TimedEvent&& other) noexcept
    : device_(other.device_), event_(std::exchange(other.event_, nullptr)), time_(other.time_) {}

TimedEvent& TimedEvent::operator=(TimedEvent&& other) noexcept {
  std::swap(device_, other.device_);
  std::swap(event_, other.event_);
  std::swap(time_, other.time_);
  return *this;
}

TimedEvent::~TimedEvent() {
  if (event_ == nullptr) return;
  const DeviceType& type = type_of(device_);
  type.ops->destroy_event(type.self, event_);
}

void TimedEvent::wait() const {
  const DeviceType& type = type_of(device_);
  if (type.ops->wait_event(type.self, device_.index, nullptr, event_) != MT_OK) fail_here(device_);
}

double TimedEvent::seconds_since(const TimedEvent& begin) const {
  if (!(device_ == begin.device_)) {
    fail(ErrorCode::kDevice, "[timed_event] the events belong to ", begin.device_.str(), " and ",
         device_.str(), ": both must be of one device");
  }
  const DeviceType& type = type_of(device_);
  if (type.ops == nullptr) return time_ - begin.time_;
  begin.wait();
  wait();
  double seconds = 0;
  if (type.ops->event_elapsed(type.self, begin.event_, event_, &seconds) != MT_OK) {
    fail_here(device_);
  }
  return seconds;
}

}  // namespace mytorch
