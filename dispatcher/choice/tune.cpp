// Measures the kernels of a call. Kernels run alternately, so that slow drift affects all of them.
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/runtime/context.h"
#include "core/runtime/device_registry.h"
#include "core/types/errors.h"
#include "dispatcher/choice/measured.h"
#include "dispatcher/choice/state.h"
#include "dispatcher/table/args_copy.h"
#include "dispatcher/table/fields.h"
#include "mytorch/check.h"
#include "mytorch/choice.h"
#include "mytorch/tensor.h"

namespace mytorch {
namespace {

// Per kind of call. A call too long for this runs kMinRounds times with each kernel.
constexpr double kBudgetSeconds = 0.05;
constexpr int kMinRounds = 3;
constexpr int kMaxRounds = 25;
constexpr double kMinSampleSeconds = 20e-6;  // the clock resolves this well
constexpr double kHopeless = 4;              // times the best; slower kernels are not timed further

thread_local bool measuring = false;

// A copy of a call's argument struct whose outputs can be written repeatedly: outputs that are also
// read are replaced by copies.
class RepeatableCall {
 public:
  RepeatableCall(const OpInfo& op, int slot, mt_ctx* ctx, const void* args) : args_(op, args) {
    for_each_input(op, args_.get(), [&](const mt_tensor*& t, const ArgInfo& arg) {
      if (arg.written) t = stand_in(*t, slot, ctx, true);
    });
    for_each_output(op, args_.get(), [&](const mt_tensor*& t, const OutputInfo&) {
      bool read = false;
      for_each_input(op, args, [&](const mt_tensor*& input, const ArgInfo&) {
        read = read || overlap(*input, *t) != Overlap::kNone;
      });
      if (read) t = stand_in(*t, slot, ctx, false);
    });
  }
  RepeatableCall(const RepeatableCall&) = delete;
  RepeatableCall& operator=(const RepeatableCall&) = delete;
  void* args() { return args_.get(); }

 private:
  struct StandIn {
    mt_tensor tensor;
    Tensor memory;
  };

  // Returns a tensor of the same geometry in new memory, with the same elements if `filled`.
  const mt_tensor* stand_in(const mt_tensor& of, int slot, mt_ctx* ctx, bool filled) {
    const Extent extent = mytorch::extent(of);
    if (extent.bytes() == 0) return &of;
    const int64_t bytes[] = {static_cast<int64_t>(extent.bytes())};
    auto one = std::make_unique<StandIn>();
    one->memory = Tensor::adopt(
        new_tensor(bytes, 1, kUInt8, Device(of.dl.device.type, of.dl.device.index), slot));
    one->tensor = of;
    char* memory = static_cast<char*>(one->memory.impl()->abi.dl.data);
    one->tensor.dl.data = memory + extent.offset(of);
    one->tensor.storage = one->memory.impl()->abi.storage;
    if (filled) {
      const DeviceType& type = device_type(slot);
      if (type.ops == nullptr) {
        std::memcpy(memory, extent.begin, extent.bytes());
      } else {
        type.ops->copy(type.self, of.dl.device.index, MT_COPY_ON_DEVICE, memory, extent.begin,
                       extent.bytes(), ctx->stream);
      }
    }
    kept_.push_back(std::move(one));
    return &kept_.back()->tensor;
  }

  ArgsCopy args_;
  std::vector<std::unique_ptr<StandIn>> kept_;
};

double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

class Stopwatch {
 public:
  Stopwatch(OpState& state, int slot, mt_ctx* ctx, void* args)
      : state_(state), slot_(slot), ctx_(ctx), args_(args) {}

  // Returns the mean seconds of `repeats` runs, or nothing if the kernel declines or fails.
  std::optional<double> run(const KernelEntry& kernel, int repeats) {
    synchronize();
    const double begin = tuning_clock();
    for (int i = 0; i < repeats; ++i) {
      int status;
      try {
        status = run_one(state_, slot_, kernel, ctx_, args_);
      } catch (const Error&) {
        status = MT_ERROR_INTERNAL;
      }
      release_scratch(ctx_);
      if (status != MT_OK) {
        static_cast<ThreadContext*>(ctx_)->error.clear();  // the actual call will report it again
        return std::nullopt;
      }
    }
    synchronize();
    return std::max((tuning_clock() - begin) / repeats, 1e-9);
  }

 private:
  void synchronize() {
    const DeviceType& type = device_type(slot_);
    if (type.ops != nullptr && type.ops->synchronize != nullptr) {
      type.ops->synchronize(type.self, ctx_->device.index, ctx_->stream);
    }
  }
  OpState& state_;
  int slot_;
  mt_ctx* ctx_;
  void* args_;
};

struct Runner {
  const KernelEntry* kernel;
  double guess;
  std::vector<double> seconds = {};
};

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<int64_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

std::vector<Timing> measure(OpState& state, int slot, mt_ctx* ctx, const void* args) {
  RepeatableCall repeatable(*state.entry->info, slot, ctx, args);
  Stopwatch watch(state, slot, ctx, repeatable.args());
  std::vector<Runner> runners;
  double best = std::numeric_limits<double>::infinity();
  for (const KernelEntry& kernel : state.lists[slot].load(std::memory_order_acquire)->ordered) {
    // The first run warms up caches, including the kernel's own.
    if (kernel.is_reference() || !watch.run(kernel, 1)) continue;
    const std::optional<double> guess = watch.run(kernel, 1);
    if (!guess) continue;
    runners.push_back({&kernel, *guess});
    best = std::min(best, *guess);
  }
  double round = 0;
  std::vector<Timing> timings;
  for (const Runner& r : runners) {
    if (r.guess > kHopeless * best) {
      timings.push_back({kernel_id(*r.kernel), r.guess});
    } else {
      round += std::max(r.guess, kMinSampleSeconds);
    }
  }
  runners.erase(std::remove_if(runners.begin(), runners.end(),
                               [&](const Runner& r) { return r.guess > kHopeless * best; }),
                runners.end());
  const int rounds =
      std::clamp(static_cast<int>(kBudgetSeconds / std::max(round, 1e-9)), kMinRounds, kMaxRounds);
  for (int i = 0; i < rounds; ++i) {
    for (Runner& r : runners) {
      const int repeats = std::max(1, static_cast<int>(kMinSampleSeconds / r.guess));
      if (const auto s = watch.run(*r.kernel, repeats)) r.seconds.push_back(*s);
    }
  }
  for (const Runner& r : runners) {
    if (!r.seconds.empty()) timings.push_back({kernel_id(*r.kernel), median(r.seconds)});
  }
  std::sort(timings.begin(), timings.end(),
            [](const Timing& a, const Timing& b) { return a.seconds < b.seconds; });
  return timings;
}

}  // namespace

double (*tuning_clock)() = steady_seconds;

std::string device_label(int slot) {
  const DeviceType& type = device_type(slot);
  char model[128] = {};
  if (type.ops == nullptr || type.ops->device_name == nullptr ||
      type.ops->device_name(type.self, 0, model, sizeof(model) - 1) != MT_OK) {
    return type.name;
  }
  return absl::StrCat(type.name, " ", model);
}

void tune(OpState& state, int slot, mt_ctx* ctx, const void* args, uint64_t key) {
  // Nested calls are not measured. Dynamic outputs cannot be created twice.
  const OpInfo& op = *state.entry->info;
  if (measuring || op.dynamic) return;
  static std::mutex one_at_a_time;
  std::lock_guard<std::mutex> lock(one_at_a_time);
  measuring = true;
  Measurement m{op.name, device_label(slot), key, describe_call(op, *ctx, args), {}};
  try {
    m.timings = measure(state, slot, ctx, args);
  } catch (const Error&) {
    // Out of memory for copies: this kind of call stays unmeasured.
  }
  measuring = false;
  if (m.timings.empty()) return;
  MeasuredTable::get().add(std::move(m));
  std::lock_guard<std::mutex> state_lock(state.mutex);
  resolve(state, slot);
}

void set_choice(Choice choice) {
  choice_mode.store(choice);
  resolve_all();
}

Choice choice() { return choice_mode.load(); }

Tuning::Tuning() {
  load_default_backends();
  saved_ = choice_mode.exchange(Choice::kMeasured);
  tunings.fetch_add(1);
  resolve_all();
}

void Tuning::save() { MeasuredTable::get().save(); }

Tuning::~Tuning() {
  tunings.fetch_sub(1);
  choice_mode.store(saved_);
  resolve_all();
  try {
    save();
  } catch (const Error& error) {
    detail::warn(error.what());
  }
}

ChoiceTable choice_table() { return MeasuredTable::get().describe(); }

void clear_choice_table() {
  MeasuredTable::get().clear();
  resolve_all();
}

void choose_as_environment_says() {
  const char* text = std::getenv("MYTORCH_CHOICE");
  if (text == nullptr || *text == '\0' || std::strcmp(text, "priority") == 0) return;
  if (std::strcmp(text, "measured") == 0) {
    choice_mode.store(Choice::kMeasured);
  } else {
    detail::warn(absl::StrCat("MYTORCH_CHOICE=", text,
                              " is neither priority nor measured and has no effect"));
  }
}

}  // namespace mytorch
