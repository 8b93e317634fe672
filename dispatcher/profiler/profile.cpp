#include "dispatcher/profiler/profile.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/runtime/device_registry.h"
#include "core/types/errors.h"
#include "dispatcher/choice/choice.h"
#include "mytorch/backends.h"
#include "mytorch/check.h"

namespace mytorch::profiler {

Profile::Profile(Options options) : state_(std::make_unique<State>()) {
  load_default_backends();
  state_->options = options;
  begin(options.wait, options.limit);
  state_->since = now();
}

Profile::~Profile() {
  if (state_->running) end(state_->options.wait);
}

void Profile::stop() {
  if (!std::exchange(state_->running, false)) return;
  state_->until = now();
  state_->threads = recorded(state_->since);
  end(state_->options.wait);
}

std::vector<KernelTime> Profile::times() {
  stop();
  using Key = std::tuple<std::string, std::string, std::string, std::string>;
  std::map<Key, KernelTime> found;
  for (const Events& of : state_->threads) {
    for (const ProfileEvent& event : of.events) {
      // Reported by its substitution, or by another kernel.
      if (event.status == MT_DECLINED) continue;
      const EventNames named = names_of(of, event);
      KernelTime& t = found[{named.op, named.device, named.backend, named.kernel}];
      if (t.calls++ == 0) {
        t.op = named.op;
        t.device = named.device;
        t.backend = named.backend;
        t.kernel = named.kernel;
      }
      const double seconds = 1e-9 * static_cast<double>(event.end - event.begin);
      t.seconds += seconds;
      t.self_seconds += 1e-9 * static_cast<double>(event.self);
      t.longest = std::max(t.longest, seconds);
      t.bytes += of.operand_bytes(event);
    }
  }
  std::vector<KernelTime> result;
  result.reserve(found.size());
  for (auto& [key, time] : found) result.push_back(std::move(time));
  std::sort(result.begin(), result.end(), [](const KernelTime& a, const KernelTime& b) {
    return a.self_seconds > b.self_seconds;
  });
  return result;
}

std::string Profile::table(size_t rows) {
  const std::vector<KernelTime> all = times();
  double kernels = 0;
  uint64_t calls = 0;
  for (const KernelTime& t : all) {
    if (t.backend.empty())
      continue;  // a range, or a substitution, whose kernels have rows of their own
    kernels += t.self_seconds;
    calls += t.calls;
  }
  std::string text =
      absl::StrFormat("%-34s %-8s %-26s %9s %11s %6s %10s %10s %8s\n", "operator", "device",
                      "kernel", "calls", "self ms", "%", "mean us", "longest us", "GB/s");
  for (size_t i = 0; i < std::min(rows, all.size()); ++i) {
    const KernelTime& t = all[i];
    const auto n = static_cast<double>(t.calls);
    const bool range = t.device.empty();
    const bool kernel = !t.backend.empty();
    absl::StrAppendFormat(
        &text, "%-34s %-8s %-26s %9d %11.3f %6s %10.2f %10.2f %8s\n", t.op, t.device,
        kernel ? absl::StrCat(t.backend, "/", t.kernel) : t.kernel, t.calls, 1e3 * t.self_seconds,
        !kernel || kernels == 0 ? "" : absl::StrFormat("%.1f", 100 * t.self_seconds / kernels),
        1e6 * t.seconds / n, 1e6 * t.longest,
        range || t.seconds == 0
            ? ""
            : absl::StrFormat("%.1f", 1e-9 * static_cast<double>(t.bytes) / t.seconds));
  }
  if (all.size() > rows) absl::StrAppend(&text, "(and ", all.size() - rows, " more)\n");
  absl::StrAppendFormat(&text, "%d kernel calls, %.3f ms in kernels, of %.3f ms\n", calls,
                        1e3 * kernels, 1e-6 * static_cast<double>(state_->until - state_->since));
  if (state_->dropped() != 0) {
    absl::StrAppend(&text, state_->dropped(), " more were not kept: the limit is ",
                    state_->options.limit, "\n");
  }
  return text;
}

uint64_t Profile::State::dropped() const {
  uint64_t sum = 0;
  for (const Events& of : threads) sum += of.dropped;
  return sum;
}

EventNames names_of(const Events& of, const ProfileEvent& event) {
  if (event.op == nullptr) return {of.names[event.details], "", "", ""};
  const DeviceType& type = device_type(event.slot);
  EventNames named{event.op->name, type.name, "", ""};
  if (type.count > 1) absl::StrAppend(&named.device, ":", event.device_index);
  if (const KernelEntry* kernel = event.kernel; kernel != nullptr) {
    const char* name = kernel->abi.name;
    named.backend = kernel->backend->name;
    named.kernel = kernel->compiled ? "program" : name != nullptr ? name : "?";
  }
  if (event.status == MT_DECLINED) named.kernel = "(declined)";
  if (event.status == kDecomposed) named.kernel = "(decomposed)";
  if (event.status == kFellBack) named.kernel = "(fallback)";
  if (event.status > MT_DECLINED) named.kernel += " (failed)";
  return named;
}

Range::Range(const char* name) : recorded_(recording()) {
  if (recorded_) begin_range(name);
}

Range::~Range() {
  if (recorded_) end_range();
}

// ---- MYTORCH_TRACE and MYTORCH_PROFILE

namespace {

// Records from the first kernel to the end of the process.
struct WholeProcess {
  const char* trace;
  bool table;
  Profile profile;

  ~WholeProcess() {
    try {
      if (trace != nullptr) profile.save_trace(trace);
      if (table) std::fputs(profile.table().c_str(), stderr);
    } catch (const std::exception& error) {
      detail::tell(error.what());
    }
  }
};

}  // namespace

void profile_as_environment_says() {
  const char* trace = std::getenv("MYTORCH_TRACE");
  if (trace != nullptr && *trace == '\0') trace = nullptr;
  const char* table = std::getenv("MYTORCH_PROFILE");
  const bool wants_table = table != nullptr && *table != '\0' && *table != '0';
  if (trace == nullptr && !wants_table) return;
  static WholeProcess process{trace, wants_table, Profile()};
}

}  // namespace mytorch::profiler
