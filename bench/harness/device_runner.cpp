#include "bench/harness/device_runner.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <utility>

#include "bench/harness/limits.h"
#include "bench/harness/probe.h"
#include "bench/harness/subject.h"
#include "core/runtime/device_registry.h"
#include "mytorch/backends.h"
#include "mytorch/call.h"
#include "mytorch/device_memory.h"
#include "mytorch/error.h"
#include "mytorch/graph.h"
#include "mytorch/timed_event.h"

namespace mytorch::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kBeyondCaches = 256 << 20;  // bytes; the largest L2 cache has 60 MB
constexpr size_t kMostSets = 16;
constexpr double kDeviceBatch = 4e-3;  // seconds of queued calls
constexpr int kHostCalls = 64;         // fit into any device's queue
constexpr int kDeviceLeastRounds = 5, kDeviceMostRounds = 101;

// Cycles through sets of arguments: each call uses the next one.
class Turns {
 public:
  explicit Turns(const Case& c) {
    subjects_.push_back(make_subject(c));
    const double bytes = std::max(subjects_[0]->bytes().total(), 1.0);
    const auto sets = static_cast<size_t>(
        std::clamp(kBeyondCaches / bytes + 1, 1.0, static_cast<double>(kMostSets)));
    while (subjects_.size() < sets) subjects_.push_back(make_subject(c));
  }
  void run(int64_t times) {
    for (int64_t i = 0; i < times; ++i) subjects_[next_++ % subjects_.size()]->run(1);
  }
  void renew() {
    for (const auto& each : subjects_) each->renew();
  }
  int64_t most() const {
    const int64_t each = subjects_[0]->most();
    const auto sets = static_cast<int64_t>(subjects_.size());
    return each > INT64_MAX / sets ? INT64_MAX : each * sets;
  }
  Subject& first() { return *subjects_[0]; }

 private:
  std::vector<std::unique_ptr<Subject>> subjects_;
  size_t next_ = 0;
};

// Returns the seconds that an idle device needs for the queued work, by the device's clock if it
// has one.
double device_seconds(Device device, const std::function<void()>& queue) {
  synchronize(device);
  if (TimedEvent::known_by(device)) {
    const TimedEvent begin(device);
    queue();
    return TimedEvent(device).seconds_since(begin);
  }
  return seconds_of([&] {
    queue();
    synchronize(device);
  });
}

// Returns the seconds per call of `times` calls that are queued together.
double queued_seconds(Turns& turns, Device device, int64_t times) {
  return device_seconds(device, [&] { turns.run(times); }) / static_cast<double>(times);
}

Tensor numbers(std::vector<int64_t> shape, ScalarType dtype, Device device) {
  Tensor made =
      call("empty", {std::move(shape)}, {{"dtype", Value(dtype)}, {"device", Value(device)}})[0]
          .tensor();
  call("uniform_", {made, -1.0, 1.0});
  return made;
}

// Returns the seconds per call in the best of several rounds of `repetitions` calls.
double best_seconds(Device device, int repetitions, const std::function<void()>& run) {
  run();
  double best = 1e9;
  for (int round = 0; round < 7; ++round) {
    const double spent = device_seconds(device, [&] {
      for (int i = 0; i < repetitions; ++i) run();
    });
    best = std::min(best, spent / repetitions);
  }
  return best;
}

// Returns the work per second at the largest size up to `most` that fits into the device's memory
// and takes at most about 20 ms. make(n) returns the call and its work.
struct Sized {
  std::function<void()> run;
  double work;
};
double rate_of(Device device, int64_t least, int64_t most, int repetitions,
               const std::function<Sized(int64_t n)>& make) {
  constexpr double kLong = 20e-3;  // seconds
  double rate = 0;
  for (int64_t n = least; n <= most; n *= 2) {
    try {
      const Sized sized = make(n);
      sized.run();
      const double once = device_seconds(device, sized.run);
      rate = sized.work / once;
      if (once > kLong) break;
      if (n == most) rate = sized.work / best_seconds(device, repetitions, sized.run);
    } catch (const Error& error) {
      if (rate == 0 || error.code() != ErrorCode::kOutOfMemory) throw;
      break;
    }
  }
  return rate;
}

// Returns the bytes per second of a copy within the device.
double copy_rate(Device device) {
  return rate_of(device, 1 << 16, int64_t{128} << 20, 10, [&](int64_t n) -> Sized {
    const Tensor from = numbers({n}, kFloat32, device);
    const Tensor to = numbers({n}, kFloat32, device);
    return {[from, to] { call("copy_", {to, from}); }, 8.0 * static_cast<double>(n)};
  });
}

// Returns the operations per second of a large matrix product, which uses tensor cores if they
// support the type.
double product_rate(Device device, ScalarType dtype) {
  return rate_of(device, 64, dtype == kFloat64 ? 4096 : 8192, 3, [&](int64_t n) -> Sized {
    const Tensor a = numbers({n, n}, dtype, device), b = numbers({n, n}, dtype, device);
    const Tensor c = numbers({n, n}, dtype, device);
    return {[a, b, c] {
              call("mm", {a, b}, {{"out", Value(c)}});
            },
            2.0 * static_cast<double>(n * n * n)};
  });
}

// Measured once, because a device's clock frequency varies little compared with the host's.
struct Limits {
  double copy = 0;
  std::map<ScalarType, double> products;
};
Limits& limits_of(Device device) {
  static std::map<std::pair<int32_t, int32_t>, Limits> all;
  Limits& limits = all[{device.type, device.index}];
  if (limits.copy == 0) limits.copy = copy_rate(device);
  return limits;
}

void fill_limit(Row& row, const Case& c) {
  if (row.bytes == 0 && row.flops == 0) return;
  Limits& limits = limits_of(c.device);
  row.limit = "copy";
  row.limit_seconds = row.bytes / limits.copy;
  const ScalarType dtype = dtype_from_name(c.dtype.c_str());
  if (row.flops == 0 || !is_floating_point(dtype)) return;
  double& rate = limits.products[dtype];
  if (rate == 0) rate = product_rate(c.device, dtype);
  if (row.flops / rate <= row.limit_seconds) return;
  row.limit = "multiply-add";
  row.limit_seconds = row.flops / rate;
}

// The kernels that a call runs, and their known operations.
struct Traced {
  std::string kernels;
  double flops = 0;
  bool any = false;
};
Traced trace(const std::vector<OpRecord>& catalog, const Case& c, int slot, Subject& subject) {
  const bool counts_all =
      c.record != nullptr && (c.record->meaning == "pointwise" || c.record->meaning == "reduce");
  Probe probe(catalog, slot, {});
  probe.begin(Probe::Mode::kTrace);
  subject.run(1);
  probe.end();
  Traced traced;
  std::set<std::string> names;
  for (const KernelRun& run : probe.trace()) {
    names.insert(run.backend + "/" + run.kernel);
    traced.any = true;
    if (run.has_cost || counts_all) traced.flops += run.flops;
  }
  for (const std::string& name : names)
    traced.kernels += (traced.kernels.empty() ? "" : ", ") + name;
  return traced;
}

// Returns the seconds per call in a replayed graph of `times` calls, or 0 if they cannot be
// captured.
double replayed_seconds(Turns& turns, Device device, int64_t times, int rounds) {
  Graph graph(device);
  try {
    graph.capture([&] { turns.run(times); });
  } catch (const Error&) {
    return 0;
  }
  std::vector<double> all;
  graph.replay();
  for (int i = 0; i < rounds; ++i) {
    all.push_back(device_seconds(device, [&] { graph.replay(); }) / static_cast<double>(times));
  }
  return median(all);
}

}  // namespace

std::vector<Row> measure_on_device(const std::vector<OpRecord>& catalog, const Case& c,
                                   const Options& options, std::ostream& notes) {
  const int slot = checked_device_slot(c.device);
  const std::string pinned =
      options.backends.empty() || options.backends[0] == "chosen" ? "" : options.backends[0];
  std::unique_ptr<Prefer> pin;
  if (!pinned.empty()) pin = std::make_unique<Prefer>(device_type(slot).name, pinned);
  if (options.cold) notes << c.name << ": caches are always cold on " << c.device.str() << "\n";
  Turns turns(c);
  const Traced traced = trace(catalog, c, slot, turns.first());
  Row row;
  row.what = c;
  row.backend = traced.any ? traced.kernels.substr(0, traced.kernels.find('/')) : "-";
  row.cache = "cold";
  row.threads = options.threads;
  row.kernels = traced.kernels;
  if (traced.any) row.bytes = turns.first().bytes().total();
  row.flops = turns.first().flops();
  if (row.flops == 0 && c.record != nullptr) row.flops = traced.flops;
  const double calls = turns.first().calls();

  turns.run(2);
  const double one = std::max(queued_seconds(turns, c.device, 4), 1e-7);
  const int64_t batch = std::min(
      std::clamp<int64_t>(static_cast<int64_t>(kDeviceBatch / one), 4, 1000), turns.most());
  std::vector<double> queued, host;
  const auto end = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                      std::chrono::duration<double>(options.seconds));
  for (int round = 0;
       round < kDeviceLeastRounds || (round < kDeviceMostRounds && Clock::now() < end); ++round) {
    turns.renew();
    queued.push_back(queued_seconds(turns, c.device, batch) / calls);
    const int64_t few = std::min<int64_t>(batch, kHostCalls);
    host.push_back(seconds_of([&] { turns.run(few); }) / static_cast<double>(few) / calls);
  }
  row.time = summarize(queued);
  turns.renew();
  if (traced.any) {
    const double replayed = replayed_seconds(turns, c.device, std::min<int64_t>(batch, 64), 9);
    if (replayed > 0)
      row.split = {*std::min_element(host.begin(), host.end()), 0, replayed / calls};
  }
  fill_limit(row, c);
  synchronize(c.device);
  return {row};
}

Machine measure_device(Device device) {
  return {limits_of(device).copy, 0, product_rate(device, kBFloat16)};
}

}  // namespace mytorch::bench
