#include "autograd/engine/streams.h"

#include "core/runtime/context.h"
#include "core/runtime/device_registry.h"
#include "core/types/errors.h"

namespace mytorch::autograd {
namespace {

// Makes stream `after` wait for stream `before`, both of the device of `info`.
void wait(const GradInfo& info, void* before, void* after) {
  if (before == after) return;
  const DeviceType& type = device_type(info.device_slot);
  if (type.ops == nullptr || type.ops->record_event == nullptr) return;  // a single ordered queue
  void* event = type.ops->record_event(type.self, info.device.index, before);
  const bool waits =
      event != nullptr && type.ops->wait_event(type.self, info.device.index, after, event) == MT_OK;
  if (event != nullptr) type.ops->destroy_event(type.self, event);
  if (!waits) {
    const std::string reason = take_host_error();
    fail(ErrorCode::kDevice, "[backward] cannot order the streams of ", type.name, ":",
         info.device.index, reason.empty() ? "" : ": ", reason);
  }
}

}  // namespace

void StreamScope::enter(const GradInfo& info) {
  mt_ctx* ctx = context(info.device_slot, info.device);
  if (ctx->stream == info.stream) return;
  ctx_ = ctx;
  saved_ = std::exchange(ctx->stream, info.stream);
}

void wait_for_current(const Node& node) {
  if (!has_stream(node)) return;
  const GradInfo& info = node.infos()[0];
  wait(info, context(info.device_slot, info.device)->stream, info.stream);
}

void StreamSet::add(const Node& node) {
  if (!has_stream(node)) return;
  const GradInfo& info = node.infos()[0];
  for (const GradInfo* known : infos_) {
    if (known->device.type == info.device.type && known->device.index == info.device.index &&
        known->stream == info.stream) {
      return;
    }
  }
  infos_.push_back(&info);
}

void StreamSet::join() const {
  for (const GradInfo* info : infos_) {
    wait(*info, info->stream, context(info->device_slot, info->device)->stream);
  }
}

}  // namespace mytorch::autograd
