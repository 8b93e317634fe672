#include "core/runtime/context.h"

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <mutex>

#include "core/runtime/cpu_pool.h"
#include "core/runtime/device_registry.h"
#include "core/runtime/parallel.h"
#include "core/runtime/processors.h"
#include "core/runtime/stream_capture.h"
#include "core/types/errors.h"
#include "mytorch/check.h"
#include "mytorch/version.h"

namespace mytorch {

thread_local constinit ThreadState thread_state __attribute__((tls_model("initial-exec"))) = {};

namespace {

int default_threads() {
  for (const char* name : {"MYTORCH_NUM_THREADS", "OMP_NUM_THREADS"}) {
    const char* text = std::getenv(name);
    if (text != nullptr && std::atoi(text) > 0) return std::min(std::atoi(text), 1024);
  }
  return available_processors();
}

thread_local int thread_count = 0;  // 0: not determined yet
thread_local std::string host_error;

void ctx_set_error(mt_ctx* ctx, int status, const char* message) {
  auto* context = static_cast<ThreadContext*>(ctx);
  context->error_status = status;
  context->error = message != nullptr ? message : "";
}

void* ctx_scratch(mt_ctx* ctx, size_t bytes) {
  auto* context = static_cast<ThreadContext*>(ctx);
  if (bytes > SIZE_MAX - 63) return nullptr;
  bytes = (std::max<size_t>(bytes, 1) + 63) / 64 * 64;
  const uint64_t capture = capture_of(*ctx);
  if (context->stream != context->scratch_stream || capture != context->scratch_capture)
      [[unlikely]] {
    context->move_scratch(capture);
  }
  while (context->block < context->blocks.size()) {
    auto& block = context->blocks[context->block];
    if (context->used + bytes <= block.bytes) {
      char* data = block.data + context->used;
      context->used += bytes;
      context->taken += bytes;
      return data;
    }
    ++context->block;
    context->used = 0;
  }
  const size_t fresh =
      std::max<size_t>({bytes, context->blocks.empty() ? context->wanted : 0, 1 << 20});
  char* data = nullptr;
  if (context->device.type == MT_DEVICE_CPU) {
    data = static_cast<char*>(std::aligned_alloc(64, fresh));
  } else {
    const DeviceType& type = device_type(device_slot(context->device.type));
    data = static_cast<char*>(
        type.ops->allocate(type.self, context->device.index, fresh, context->stream));
  }
  if (data == nullptr) return nullptr;
  context->blocks.push_back({data, fresh});
  context->block = context->blocks.size() - 1;
  context->used = bytes;
  context->taken += bytes;
  return data;
}

const mt_tensor* ctx_make_output(mt_ctx* ctx, int32_t index, const int64_t* shape, int32_t ndim) {
  auto* context = static_cast<ThreadContext*>(ctx);
  if (context->dynamic_output == nullptr) {
    ctx_set_error(ctx, MT_ERROR_INTERNAL, "make_output is for records marked `dynamic` only");
    return nullptr;
  }
  return context->dynamic_output(context->dynamic_user, index, shape, ndim);
}

void host_set_error(int, const char* message) { host_error = message != nullptr ? message : ""; }

void host_log(int level, const char* message) {
  if (level > 0) detail::warn(message != nullptr ? message : "");
}

const mt_host kHost = {sizeof(mt_host),        MT_ABI_MAJOR,   MT_ABI_MINOR,
                       MYTORCH_VERSION_STRING, host_set_error, host_log};

// Streams of ended threads, reused by new threads. Autograd graphs may refer to a stream after its
// thread has ended, so streams are never destroyed.
struct IdleStreams {
  struct Stream {
    Device device;
    void* stream;
  };
  std::mutex mutex;
  std::vector<Stream> all;

  void* take(Device device) {
    const std::lock_guard<std::mutex> lock(mutex);
    for (size_t i = 0; i < all.size(); ++i) {
      if (!(all[i].device == device)) continue;
      void* stream = all[i].stream;
      all.erase(all.begin() + static_cast<std::ptrdiff_t>(i));
      return stream;
    }
    return nullptr;
  }
  void give(Device device, void* stream) {
    const std::lock_guard<std::mutex> lock(mutex);
    all.push_back({device, stream});
  }
};
IdleStreams& idle_streams() {
  // Never destroyed: threads may outlive main.
  static IdleStreams* const instance = new IdleStreams;
  return *instance;
}

// Owns this thread's contexts, one per device that it uses.
struct ThreadContexts {
  std::vector<std::unique_ptr<ThreadContext>> all;
  ~ThreadContexts() {
    std::fill_n(thread_state.contexts, kMaxDeviceTypes, nullptr);
    for (auto& context : all) retire(std::move(context));
  }
};
thread_local ThreadContexts contexts;

}  // namespace

namespace {

void free_block(const ThreadContext& context, const ThreadContext::ScratchBlock& block) {
  if (context.device.type == MT_DEVICE_CPU) {
    std::free(block.data);
    return;
  }
  const DeviceType& type = device_type(device_slot(context.device.type));
  type.ops->release(type.self, context.device.index, block.data, block.bytes,
                    context.scratch_stream);
}

}  // namespace

void ThreadContext::join_blocks() {
  for (const ScratchBlock& each : blocks) free_block(*this, each);
  blocks.clear();
  wanted = taken;
}

void ThreadContext::move_scratch(uint64_t capture) {
  for (const ScratchBlock& each : blocks) free_block(*this, each);
  blocks.clear();
  block = 0;
  used = 0;
  scratch_stream = stream;
  scratch_capture = capture;
}

ThreadContext::~ThreadContext() {
  for (const ScratchBlock& block : blocks) free_block(*this, block);
}

void retire(std::unique_ptr<ThreadContext> context) {
  const Device device(context->device.type, context->device.index);
  void* stream = context->stream;
  context.reset();  // free its memory first
  if (stream != nullptr) idle_streams().give(device, stream);
}

std::unique_ptr<ThreadContext> new_context(int slot, Device device) {
  auto context = std::make_unique<ThreadContext>();
  mt_ctx& ctx = *context;
  ctx = {};
  ctx.size = sizeof(mt_ctx);
  ctx.device = {device.type, device.index};
  ctx.host = &kHost;
  ctx.num_threads = num_threads();
  ctx.parallel_for = parallel_for;
  ctx.scratch = ctx_scratch;
  ctx.set_error = ctx_set_error;
  ctx.make_output = ctx_make_output;
  if (slot != kCpuSlot) {
    const DeviceType& type = device_type(slot);
    if (type.ops->create_stream != nullptr) {
      ctx.stream = idle_streams().take(device);
      if (ctx.stream == nullptr) {
        ctx.stream = type.ops->create_stream(type.self, device.index, 0);
      }
    }
  }
  return context;
}

mt_ctx* make_context(int slot, Device device) {
  for (auto& known : contexts.all) {
    if (known->device.type == device.type && known->device.index == device.index) {
      return thread_state.contexts[slot] = known.get();
    }
  }
  contexts.all.push_back(new_context(slot, device));
  return thread_state.contexts[slot] = contexts.all.back().get();
}

const mt_host* host() { return &kHost; }

std::string take_host_error() { return std::exchange(host_error, {}); }

int num_threads() {
  if (thread_count == 0) thread_count = default_threads();
  return thread_count;
}

void set_num_threads(int n) {
  if (n < 1) fail(ErrorCode::kValue, "[set_num_threads] ", n, " threads: give at least 1");
  thread_count = n;
  for (auto& context : contexts.all) context->num_threads = n;
}

}  // namespace mytorch
