#include "mytorch/device_graph.h"

#include <functional>
#include <utility>
#include <vector>

#include "core/runtime/context.h"
#include "core/runtime/device_registry.h"
#include "core/runtime/stream_capture.h"
#include "core/types/errors.h"

namespace mytorch {
namespace {

void check(int status, Device device, const char* what) {
  if (status == MT_OK) return;
  fail(static_cast<ErrorCode>(status), "[Graph] ", what, " on ", device.str(),
       " failed: ", take_host_error());
}

}  // namespace

struct DeviceGraph::Impl {
  explicit Impl(Device where)
      : device(where), slot(checked_device_slot(where)), type(device_type(slot)) {}
  ~Impl() { forget(); }

  mt_ctx* ctx() const { return context(slot, {device.type, device.index}); }

  void forget() {
    for (const GraphDraws& each : draws) {
      type.ops->release(type.self, device.index, each.word, sizeof(uint64_t), used);
    }
    draws.clear();
    around_replay.clear();
    if (graph != nullptr) type.ops->destroy_graph(type.self, device.index, graph);
    graph = nullptr;
  }

  void capture(const std::function<void()>& function) {
    if (device.is_cpu() || type.ops->begin_graph == nullptr || type.ops->end_graph == nullptr ||
        type.ops->launch_graph == nullptr || type.ops->destroy_graph == nullptr) {
      fail(ErrorCode::kUnsupported, "[Graph] ", device.str(), " does not support graphs");
    }
    forget();
    StreamCapture capture;
    capture.device = device;
    capture.slot = slot;
    capture.stream = stream = used = ctx()->stream;
    add_capture(&capture);
    bool begun = false;
    try {
      // Finish queued work first, so that its errors are not attributed to the capture.
      check(type.ops->synchronize(type.self, device.index, stream), device, "waiting");
      check(type.ops->begin_graph(type.self, device.index, stream), device, "capture");
      begun = true;
      function();
    } catch (...) {
      if (begun) graph = type.ops->end_graph(type.self, device.index, stream);
      finish(capture);
      forget();
      throw;
    }
    graph = type.ops->end_graph(type.self, device.index, stream);
    finish(capture);
    if (graph == nullptr) {
      forget();
      fail(ErrorCode::kInternal, "[Graph] the work captured on ", device.str(),
           " does not form a graph: ", take_host_error());
    }
  }

  // Reset the generators, because capture drew no numbers.
  void finish(StreamCapture& capture) {
    remove_capture(&capture);
    draws = std::move(capture.draws);
    around_replay = std::move(capture.around_replay);
    for (GraphDraws& each : draws) {
      each.calls = each.generator.call() - each.first;
      each.generator.set_call(each.first);
    }
  }

  void replay() {
    if (graph == nullptr) {
      fail(ErrorCode::kValue, "[Graph] the graph is empty: call capture() first");
    }
    const mt_ctx& on = *ctx();
    if (find_capture(on) != nullptr) {
      fail(ErrorCode::kUnsupported,
           "[Graph] a graph cannot be replayed while another one is captured");
    }
    for (const GraphDraws& each : draws) {
      if (each.generator.seed() != each.seed) {
        fail(ErrorCode::kValue, "[Graph] the generator had seed ", each.seed,
             " during capture and has ", each.generator.seed(), " now: record the graph again");
      }
    }
    for (const GraphDraws& each : draws) {
      const uint64_t call = each.generator.take(each.calls);
      check(type.ops->copy(type.self, device.index, MT_COPY_TO_DEVICE, each.word, &call,
                           sizeof(call), on.stream),
            device, "setting the number of random calls");
    }
    used = on.stream;
    std::vector<std::function<void()>> afterwards;
    for (const auto& [whose, before] : around_replay) afterwards.push_back(before(on.stream));
    check(type.ops->launch_graph(type.self, device.index, graph, on.stream), device, "the replay");
    for (const auto& after : afterwards) after();
  }

  const Device device;
  const int slot;
  const DeviceType& type;
  void* stream = nullptr;  // the captured stream
  void* used = nullptr;    // the stream of the last replay
  void* graph = nullptr;
  std::vector<GraphDraws> draws;
  AroundReplay around_replay;
};

DeviceGraph::DeviceGraph(Device device) : impl_(new Impl(device)) {}
DeviceGraph::~DeviceGraph() = default;
DeviceGraph::DeviceGraph(DeviceGraph&&) noexcept = default;
DeviceGraph& DeviceGraph::operator=(DeviceGraph&&) noexcept = default;
void DeviceGraph::capture(const std::function<void()>& function) { impl_->capture(function); }
void DeviceGraph::replay() { impl_->replay(); }
bool DeviceGraph::captured() const { return impl_->graph != nullptr; }

// ---- work outside a capture

bool is_capturing(Device device) {
  return (thread_state.wanted & kLayerCapture) != 0 || find_capture(device) != nullptr;
}

void (*before_uncaptured)() = [] {};
void (*before_effect)(const char* op, const char* what) = [](const char*, const char*) {};
void (*around_unrecorded)(bool begins) = [](bool) {};

void run_uncaptured(Device device, const std::function<void()>& function) {
  if (recording_graph()) before_uncaptured();
  const UnrecordedTensors unrecorded;
  const StreamCapture* capture = find_capture(device);
  if (capture == nullptr) return function();
  const DeviceType& type = device_type(capture->slot);
  mt_ctx* ctx = context(capture->slot, {device.type, device.index});
  struct Restore {
    mt_ctx* ctx;
    void* stream;
    ~Restore() { ctx->stream = stream; }
  } restore{ctx, ctx->stream};
  ctx->stream = side_stream(type, device);
  function();
  check(type.ops->synchronize(type.self, device.index, ctx->stream), device, "waiting");
}

}  // namespace mytorch
