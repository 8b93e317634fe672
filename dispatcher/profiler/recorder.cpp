#include "dispatcher/profiler/recorder.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/runtime/cpu_pool.h"
#include "core/runtime/device_registry.h"
#include "dispatcher/table/fields.h"
#include "mytorch/dtype.h"

namespace mytorch::profiler {
namespace {

// Members are set up before `active` is incremented.
struct ProfileRecording {
  std::mutex mutex;
  std::atomic<int> active{0};
  std::atomic<int> waiting{0};
  std::atomic<size_t> room{0};  // number of events that may still be kept
  int threads = 0;
  std::vector<std::shared_ptr<ThreadLog>> logs;
};
ProfileRecording& recording_state() {
  static auto* state =
      new ProfileRecording;  // never freed: threads may record while the process ends
  return *state;
}

ThreadLog& log_of_thread() {
  thread_local const std::shared_ptr<ThreadLog> mine = [] {
    ProfileRecording& all = recording_state();
    auto log = std::make_shared<ThreadLog>();
    std::lock_guard<std::mutex> lock(all.mutex);
    log->kept.thread = ++all.threads;
    all.logs.push_back(log);
    return log;
  }();
  return *mine;
}

bool takes_one_more(ThreadLog& log) {
  std::atomic<size_t>& room = recording_state().room;
  size_t left = room.load(std::memory_order_relaxed);
  while (left != 0) {
    if (room.compare_exchange_weak(left, left - 1, std::memory_order_relaxed)) return true;
  }
  ++log.kept.dropped;
  return false;
}

void pack(const mt_tensor* t, std::vector<int64_t>* out) {
  if (t == nullptr) {
    out->insert(out->end(), {0, -1});
    return;
  }
  out->push_back(dtype_bits(t->dl.dtype));
  out->push_back(t->dl.ndim);
  out->insert(out->end(), t->dl.shape, t->dl.shape + t->dl.ndim);
}

// Packs the inputs, including absent ones, and then the outputs.
void pack_operands(const OpInfo& op, const void* args, std::vector<int64_t>* out) {
  const size_t counts = out->size();
  out->insert(out->end(), {0, 0});
  const auto add = [&](const mt_tensor* t, int which) {
    pack(t, out);
    ++(*out)[counts + which];
  };
  for (int i = 0; i < op.num_args; ++i) {
    const ArgInfo& arg = op.args[i];
    if (arg.offset == kNoField) continue;
    if (arg.type == ArgType::kTensor || arg.type == ArgType::kOperand) {
      add(field<const mt_tensor*>(args, arg.offset), 0);
    } else if (arg.type == ArgType::kTensorList) {
      const auto& list = field<mt_tensor_list>(args, arg.offset);
      for (int64_t k = 0; k < list.size; ++k) add(list.data[k], 0);
    }
  }
  for_each_output(op, args, [&](const mt_tensor*& t, const OutputInfo&) { add(t, 1); });
}

// Reads the output of pack_operands: f(present, dtype, shape, is_output).
template <class F>
void for_each_operand(const Events& of, const ProfileEvent& event, F&& f) {
  if (event.op == nullptr) return;
  const int64_t* at = of.operands.data() + event.details;
  const int64_t inputs = at[0];
  const int64_t all = inputs + at[1];
  at += 2;
  for (int64_t i = 0; i < all; ++i) {
    const auto bits = static_cast<uint32_t>(at[0]);
    mt_dtype dtype;
    std::memcpy(&dtype, &bits, sizeof(dtype));
    const bool present = at[1] >= 0;
    const IntList shape(at + 2, static_cast<size_t>(std::max<int64_t>(at[1], 0)));
    f(present, dtype, shape, i >= inputs);
    at += 2 + shape.size();
  }
}

void close(ThreadLog& log, ProfileEvent event) {
  const ThreadLog::Open opened = log.open.back();
  log.open.pop_back();
  event.begin = opened.begin;
  event.details = opened.details;
  const uint64_t whole = event.end - event.begin;
  event.self = whole - std::min(whole, opened.inside);
  if (!log.open.empty()) log.open.back().inside += whole;
  if (takes_one_more(log)) log.kept.events.push_back(event);
}

class KernelRecorder final : public Watcher {
 public:
  void before(const KernelCall& call) noexcept override {
    ThreadLog& log = log_of_thread();
    std::lock_guard<std::mutex> lock(log.mutex);
    const size_t details = log.kept.operands.size();
    pack_operands(*call.entry->info, call.args, &log.kept.operands);
    log.open.push_back({now(), 0, details});
  }

  void after(const KernelCall& call, const KernelRan& ran) noexcept override {
    int status = ran.status;
    const DeviceType& type = device_type(call.slot);
    const int32_t index = call.ctx->device.index;
    if (status == MT_OK && type.ops != nullptr && type.ops->synchronize != nullptr && waiting()) {
      // The next call that waits for the device reports errors.
      type.ops->synchronize(type.self, index, call.ctx->stream);
    }
    ProfileEvent event{};
    event.end = now();
    event.op = call.entry->info;
    event.kernel = ran.kernel;
    event.memory = cpu_pool::stats().large_in_use;
    event.stream = call.ctx->stream;
    event.device_index = index;
    event.slot = static_cast<int16_t>(call.slot);
    event.status = static_cast<int16_t>(status);
    ThreadLog& log = log_of_thread();
    std::lock_guard<std::mutex> lock(log.mutex);
    close(log, event);
  }
};

}  // namespace

uint64_t now() {
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                   std::chrono::steady_clock::now().time_since_epoch())
                                   .count());
}

void begin(bool wait, size_t limit) {
  static auto* recorder = new KernelRecorder;
  ProfileRecording& all = recording_state();
  std::lock_guard<std::mutex> lock(all.mutex);
  if (wait) all.waiting.fetch_add(1);
  if (all.active.load() == 0) {
    all.room.store(0);
    for (const auto& log : all.logs) {
      std::lock_guard<std::mutex> own(log->mutex);
      log->kept.events.clear();
      log->kept.dropped = 0;
      if (!log->open.empty()) continue;  // calls in progress refer to them
      log->kept.operands.clear();
      log->kept.names.clear();
    }
    // Remove the logs of threads that have ended.
    std::erase_if(all.logs, [](const auto& log) { return log.use_count() == 1; });
  }
  all.room.fetch_add(limit);
  if (all.active.fetch_add(1) == 0) set_watcher(recorder);
}

void end(bool wait) {
  ProfileRecording& all = recording_state();
  std::lock_guard<std::mutex> lock(all.mutex);
  if (all.active.fetch_sub(1) == 1) set_watcher(nullptr);
  if (wait) all.waiting.fetch_sub(1);
}

bool recording() { return recording_state().active.load(std::memory_order_relaxed) > 0; }

bool waiting() { return recording_state().waiting.load(std::memory_order_relaxed) > 0; }

std::vector<Events> recorded(uint64_t since) {
  ProfileRecording& all = recording_state();
  std::lock_guard<std::mutex> lock(all.mutex);
  std::vector<Events> result;
  for (const auto& log : all.logs) {
    std::lock_guard<std::mutex> own(log->mutex);
    result.push_back(log->kept);
    std::erase_if(result.back().events, [&](const ProfileEvent& e) { return e.begin < since; });
  }
  return result;
}

void begin_range(const char* name) {
  ThreadLog& log = log_of_thread();
  std::lock_guard<std::mutex> lock(log.mutex);
  log.kept.names.emplace_back(name);
  log.open.push_back({now(), 0, log.kept.names.size() - 1});
}

void end_range() {
  ProfileEvent event{};
  event.end = now();
  event.memory = cpu_pool::stats().large_in_use;
  ThreadLog& log = log_of_thread();
  std::lock_guard<std::mutex> lock(log.mutex);
  close(log, event);
}

std::string Events::operands_text(const ProfileEvent& event) const {
  std::string text;
  bool arrow = false;
  for_each_operand(*this, event, [&](bool present, mt_dtype dtype, IntList shape, bool output) {
    if (!text.empty()) text += " ";
    if (output && !std::exchange(arrow, true)) text += "-> ";
    text += present ? absl::StrCat(dtype_name(from_abi(dtype)), "[", absl::StrJoin(shape, ","), "]")
                    : "None";
  });
  return text;
}

uint64_t Events::operand_bytes(const ProfileEvent& event) const {
  uint64_t bytes = 0;
  for_each_operand(*this, event, [&](bool present, mt_dtype dtype, IntList shape, bool) {
    if (!present) return;
    uint64_t n = dtype.bits / 8;
    for (const int64_t size : shape) n *= static_cast<uint64_t>(size);
    bytes += n;
  });
  return bytes;
}

}  // namespace mytorch::profiler
