#include "nn/parallel/side_copies.h"

#include <utility>

#include "core/runtime/device_registry.h"
#include "core/runtime/stream_capture.h"
#include "core/types/errors.h"
#include "mytorch/device_memory.h"
#include "mytorch/ops/empty.h"

namespace mytorch::nn::sharded {
namespace {

constexpr const char* kName = "FullyShardedDataParallel";

// Has this thread queue its work on the stream of another context.
class ContextGuard {
 public:
  ContextGuard(int slot, mt_ctx* ctx)
      : slot_(slot), own_(std::exchange(thread_state.contexts[slot], ctx)) {}
  ~ContextGuard() { thread_state.contexts[slot_] = own_; }
  ContextGuard(const ContextGuard&) = delete;
  ContextGuard& operator=(const ContextGuard&) = delete;

 private:
  const int slot_;
  mt_ctx* const own_;
};

}  // namespace

SideCopies::SideCopies(Device device, bool pins)
    : device_(device),
      slot_(checked_device_slot(device)),
      type_(device_type(slot_)),
      pins_(pins && type_.ops != nullptr && type_.ops->allocate_pinned != nullptr) {
  if (type_.ops != nullptr && type_.ops->create_stream != nullptr) {
    side_ = new_context(slot_, device);
  }
}

SideCopies::~SideCopies() {
  if (side_ == nullptr) return;
  try {
    finish();
  } catch (const Error&) {  // the device has failed, and its next call says so
  }
  retire(std::move(side_));
}

SideCopies::Mark SideCopies::run(const std::function<void()>& work) {
  check_effect(kName, "copies shards between the host and the device");
  const LayerMask unrecorded(kLayerCapture);
  if (side_ == nullptr) {
    work();
    return nullptr;
  }
  check_not_captured(kName, "copies shards between the host and the device", device_);
  order(side_->stream, record(*context(slot_, {device_.type, device_.index})));
  {
    const ContextGuard guard(slot_, side_.get());
    work();
  }
  return last_ = record(*side_);
}

void SideCopies::wait(const Mark& mark) const {
  if (mark == nullptr) return;
  order(context(slot_, {device_.type, device_.index})->stream, mark);
}

void SideCopies::finish() {
  if (last_ == nullptr) return;
  const Mark mark = std::exchange(last_, nullptr);
  order(nullptr, mark);
}

Tensor SideCopies::host_tensor(int64_t size, ScalarType dtype) const {
  return pins_ ? empty_pinned({size}, dtype, device_) : mytorch::empty({size}, dtype, kCPU);
}

SideCopies::Mark SideCopies::record(const mt_ctx& ctx) const {
  void* const event = type_.ops->record_event(type_.self, device_.index, ctx.stream);
  if (event == nullptr) {
    fail(ErrorCode::kDevice, "[", kName, "] ", device_.str(),
         " cannot record an event: ", take_host_error());
  }
  return Mark(event, [&type = type_](void* e) { type.ops->destroy_event(type.self, e); });
}

// Without a stream, the host waits.
void SideCopies::order(void* stream, const Mark& mark) const {
  const int status = type_.ops->wait_event(type_.self, device_.index, stream, mark.get());
  if (status == MT_OK) return;
  fail(static_cast<ErrorCode>(status), "[", kName, "] ", device_.str(),
       " cannot wait for an event: ", take_host_error());
}

}  // namespace mytorch::nn::sharded
