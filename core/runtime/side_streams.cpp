#include "core/runtime/side_streams.h"

#include "core/runtime/device_registry.h"
#include "core/runtime/stream_capture.h"
#include "core/types/errors.h"

namespace mytorch {

SideStreams::SideStreams(int slot, Device device, int count)
    : slot_(slot),
      device_(device),
      type_(device_type(slot)),
      own_(context(slot, {device.type, device.index})) {
  StreamCapture* capture = find_capture(*own_);
  for (int i = 0; i < count; ++i) {
    side_.push_back(new_context(slot, device));
    if (capture != nullptr) capture->side_streams.push_back(side_.back()->stream);
  }
}

SideStreams::~SideStreams() {
  use(0);
  for (void* mark : marks_) type_.ops->destroy_event(type_.self, mark);
  if (StreamCapture* capture = find_capture(*own_); capture != nullptr)
    capture->side_streams.clear();
  for (auto& each : side_) retire(std::move(each));
}

void SideStreams::use(int stream) {
  thread_state.contexts[slot_] = stream == 0 ? own_ : side_[static_cast<size_t>(stream - 1)].get();
}

void* SideStreams::mark() {
  void* stream = thread_state.contexts[slot_]->stream;
  void* made = type_.ops->record_event(type_.self, device_.index, stream);
  if (made == nullptr) {
    fail(ErrorCode::kDevice, "[Graph] ", device_.str(),
         " cannot record an event: ", take_host_error());
  }
  marks_.push_back(made);
  return made;
}

void SideStreams::wait(void* mark) {
  void* stream = thread_state.contexts[slot_]->stream;
  const int status = type_.ops->wait_event(type_.self, device_.index, stream, mark);
  if (status == MT_OK) return;
  fail(static_cast<ErrorCode>(status), "[Graph] ", device_.str(),
       " cannot wait for an event: ", take_host_error());
}

}  // namespace mytorch
