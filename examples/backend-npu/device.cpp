// Implements mt_device_ops for the chip.
#include "device.h"

#include <cstdio>
#include <cstring>

#include "chip.h"
#include "mytorch/backend.h"

namespace npu {

namespace sdk = mytorch::sdk;

namespace {

// Runs f and returns its status. If f throws, passes the message to the host.
template <class F>
int guarded(F&& f) {
  return sdk::status_of(f, [](int status, const char* message) {
    if (sdk::host() != nullptr) sdk::host()->set_error(status, message);
  });
}

// Queues work. Without a stream, waits for all streams and runs the work synchronously.
void run_on(void* stream, std::function<void()> work) {
  if (stream != nullptr) return static_cast<Stream*>(stream)->queue(std::move(work));
  drain_all_streams();
  work();
}

int device_count(void*) { return 1; }

void* allocate(void*, int32_t, size_t bytes, void*) {
  void* data = nullptr;
  guarded([&] {
    data = memory().allocate(bytes);
    if (data != nullptr) return;
    drain_all_streams();  // may run queued releases
    data = memory().allocate(bytes);
  });
  return data;
}

// Releases the memory after the queued work, which may still use it.
void release(void*, int32_t, void* data, size_t, void* stream) {
  if (data == nullptr) return;
  guarded([&] { run_on(stream, [data] { memory().release(data); }); });
}

int copy(void*, int32_t, int32_t kind, void* to, const void* from, size_t bytes, void* stream) {
  return guarded([&] {
    if (bytes == 0) return;
    char* target = kind == MT_COPY_TO_HOST ? static_cast<char*>(to) : memory().view(to);
    const char* source =
        kind == MT_COPY_TO_DEVICE ? static_cast<const char*>(from) : memory().view(from);
    run_on(stream, [=] { std::memmove(target, source, bytes); });
  });
}

void* create_stream(void*, int32_t, int32_t) {
  void* stream = nullptr;
  guarded([&] { stream = new Stream; });
  return stream;
}

void destroy_stream(void*, int32_t, void* stream) { delete static_cast<Stream*>(stream); }

int synchronize(void*, int32_t, void* stream) {
  return guarded([&] {
    if (stream == nullptr) return drain_all_streams();
    std::string message;
    const int status = static_cast<Stream*>(stream)->wait(&message);
    if (status != MT_OK) throw sdk::Error(status, message);
  });
}

// An event handle points to a shared pointer, because a queued wait may outlive destroy_event.
void* record_event(void*, int32_t, void* stream) {
  void* event = nullptr;
  guarded([&] { event = new EventPointer(static_cast<Stream*>(stream)->record()); });
  return event;
}

int wait_event(void*, int32_t, void* stream, void* event) {
  return guarded([&] {
    const EventPointer& state = *static_cast<EventPointer*>(event);
    if (stream == nullptr) return state->wait();
    static_cast<Stream*>(stream)->queue([state] { state->wait(); });
  });
}

int query_event(void*, void* event) { return (*static_cast<EventPointer*>(event))->is_set(); }
void destroy_event(void*, void* event) { delete static_cast<EventPointer*>(event); }

int memory_info(void*, int32_t, uint64_t* free_bytes, uint64_t* total_bytes) {
  *free_bytes = memory().free_bytes();
  *total_bytes = memory().total();
  return MT_OK;
}

int device_name(void*, int32_t, char* buffer, size_t bytes) {
  std::snprintf(buffer, bytes, "simulated accelerator");
  return MT_OK;
}

}  // namespace

const mt_device_ops& device_ops() {
  static const mt_device_ops ops = {.size = sizeof(mt_device_ops),
                                    .type = 0,
                                    .host_accessible = 0,
                                    .device_count = device_count,
                                    .allocate = allocate,
                                    .release = release,
                                    .copy = copy,
                                    .create_stream = create_stream,
                                    .synchronize = synchronize,
                                    .record_event = record_event,
                                    .wait_event = wait_event,
                                    .query_event = query_event,
                                    .destroy_event = destroy_event,
                                    .destroy_stream = destroy_stream,
                                    .memory_info = memory_info,
                                    .device_name = device_name};
  return ops;
}

}  // namespace npu
