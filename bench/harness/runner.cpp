#include "bench/harness/runner.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <memory>
#include <set>

#include "bench/harness/device_runner.h"
#include "bench/harness/limits.h"
#include "bench/harness/probe.h"
#include "bench/harness/subject.h"
#include "core/runtime/device_registry.h"
#include "mytorch/abi_threads.h"
#include "mytorch/backends.h"
#include "mytorch/error.h"
#include "mytorch/grad_mode.h"
#include "mytorch/thread_state.h"
#include "mytorch/threads.h"

namespace mytorch::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kBatch = 1e-3;       // seconds of a batch of repetitions
constexpr double kSkipBatch = 50e-6;  // seconds of a batch without kernels
constexpr int kLeastRounds = 7, kMostRounds = 401;
constexpr int kColdRuns = 2;  // per round

double seconds_of_batch(Subject& subject, int64_t times) {
  return seconds_of([&] { subject.run(times); }) / static_cast<double>(times);
}

// Returns the number of repetitions that take about `seconds`.
int64_t repetitions(Subject& subject, double seconds) {
  subject.run(1);
  for (int64_t times = 1;; times *= 4) {
    const double spent = seconds_of([&] { subject.run(times); });
    if (spent > seconds / 8 || times > 100'000'000) {
      const double one = std::max(spent / static_cast<double>(times), 1e-10);
      return std::max<int64_t>(1, static_cast<int64_t>(seconds / one));
    }
  }
}

// A case on one backend.
struct Contender {
  std::string backend;  // "" if no backend is pinned
  std::string label;
  std::unique_ptr<Probe> probe;
  std::string kernels;
  double flops = 0;  // of the kernels
  int64_t batch = 1;
  int64_t skip_batch = 0;  // 0: the case cannot run without its kernels
  bool direct = false;     // no operator has a choice of kernels
  std::vector<double> warm, cold, kernel, skipped, direct_times;
};

std::unique_ptr<Prefer> pin(const Contender& c) {
  return c.backend.empty() ? nullptr : std::make_unique<Prefer>("cpu", c.backend);
}

std::vector<KernelRun> traced(const std::vector<OpRecord>& catalog, Subject& subject) {
  Probe probe(catalog, kCpuSlot, {});
  probe.begin(Probe::Mode::kTrace);
  subject.run(1);
  probe.end();
  return probe.trace();
}

// Prepares the contender. Returns "", or the reason why the backend does not run the case.
std::string prepare(const std::vector<OpRecord>& catalog, const Case& what, Subject& subject,
                    Contender& c) {
  // Only products and convolutions count as the work of a composite, because its other operators
  // differ between backends.
  const bool counts_all = what.record != nullptr &&
                          (what.record->meaning == "pointwise" || what.record->meaning == "reduce");
  std::vector<KernelRun> runs;
  try {
    runs = traced(catalog, subject);
  } catch (const Error& error) {
    if (c.backend.empty()) throw;
    return error.what();
  }
  std::set<std::string> kernels, backends;
  std::vector<const OpEntry*> entries;
  bool dynamic = false;
  for (const KernelRun& run : runs) {
    kernels.insert(run.backend + "/" + run.kernel);
    backends.insert(run.backend);
    entries.push_back(run.entry);
    dynamic |= run.entry->info->dynamic;
    if (run.has_cost || counts_all) c.flops += run.flops;
  }
  for (const std::string& name : kernels) c.kernels += (c.kernels.empty() ? "" : ", ") + name;
  if (!c.backend.empty() && !backends.contains(c.backend)) {
    return runs.empty() ? "no kernel runs" : "the call runs " + c.kernels + " instead";
  }
  if (runs.empty()) return "";
  c.probe = std::make_unique<Probe>(catalog, kCpuSlot, entries);
  if (dynamic) return "";
  c.probe->begin(Probe::Mode::kSkip);
  c.direct = c.probe->all_direct();
  try {
    c.skip_batch = repetitions(subject, kSkipBatch);
  } catch (const std::exception&) {
    c.skip_batch = 0;  // the call depends on values that the kernels did not compute
  }
  c.probe->end();
  return "";
}

double without_kernels(Subject& subject, Contender& c, Probe::Mode mode) {
  c.probe->begin(mode);
  const double seconds = seconds_of_batch(subject, c.skip_batch);
  c.probe->end();
  return seconds;
}

void split_round(Subject& subject, Contender& c) {
  c.probe->begin(Probe::Mode::kTime);
  subject.run(1);
  c.probe->end();
  c.kernel.push_back(c.probe->seconds());
  if (c.skip_batch == 0) return;
  c.skipped.push_back(without_kernels(subject, c, Probe::Mode::kSkip));
  c.direct_times.push_back(without_kernels(subject, c, Probe::Mode::kSkipDirect));
}

// The limit that binds a case, and the time at that limit.
class Bound {
 public:
  Bound(const Bytes& bytes, double flops, const std::string& dtype, int threads, bool cold)
      : bytes_(bytes.total()), flops_(flops * (dtype == "float64" ? 2 : 1)) {
    if (bytes_ == 0 && flops_ == 0) return;
    const Resource resource = 8 * bytes.written < bytes.read   ? Resource::kRead
                              : 8 * bytes.read < bytes.written ? Resource::kWrite
                                                               : Resource::kCopy;
    const double footprint = cold ? std::max(bytes_, static_cast<double>(beyond_caches())) : bytes_;
    Limit memory(resource, footprint, threads);
    Limit arithmetic(Resource::kMultiplyAdd, 0, threads);
    double operations = 0, rate = 0;
    for (int i = 0; i < 3; ++i) {
      operations = std::max(operations, arithmetic.sample());
      if (bytes_ != 0) rate = std::max(rate, memory.sample());
    }
    const bool by_arithmetic = flops_ / operations > (bytes_ == 0 ? 0 : bytes_ / rate);
    limit_ = std::make_unique<Limit>(std::move(by_arithmetic ? arithmetic : memory));
  }
  void sample() {
    if (limit_ != nullptr) rates_.push_back(limit_->sample());
  }
  void fill(Row& row) const {
    if (limit_ == nullptr) return;
    const bool arithmetic = limit_->resource() == Resource::kMultiplyAdd;
    row.limit = resource_name(limit_->resource());
    row.limit_seconds = (arithmetic ? flops_ : bytes_) / median(rates_);
  }

 private:
  double bytes_, flops_;
  std::unique_ptr<Limit> limit_;
  std::vector<double> rates_;
};

class Rounds {
 public:
  explicit Rounds(double seconds)
      : end_(Clock::now() +
             std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds))) {}
  bool next() {
    ++done_;
    return done_ <= kLeastRounds || (done_ <= kMostRounds && Clock::now() < end_);
  }
  bool is_odd() const { return done_ % 2 != 0; }

 private:
  Clock::time_point end_;
  int done_ = 0;
};

// Alternates the order of the contenders (A B, then B A), so that none always runs after the same
// one.
template <class Turn>
void in_turns(std::vector<Contender>& contenders, const Rounds& rounds, Turn&& turn) {
  for (size_t i = 0; i < contenders.size(); ++i) {
    Contender& c = contenders[rounds.is_odd() ? i : contenders.size() - 1 - i];
    const auto pinned = pin(c);
    turn(c);
  }
}

void warm_rounds(Subject& subject, std::vector<Contender>& contenders, Bound& bound,
                 double seconds) {
  for (Contender& c : contenders) {
    const auto pinned = pin(c);
    c.batch = std::min(repetitions(subject, kBatch), subject.most());
  }
  for (Rounds rounds(seconds * static_cast<double>(contenders.size())); rounds.next();) {
    bound.sample();
    in_turns(contenders, rounds, [&](Contender& c) {
      subject.renew();
      subject.run(c.batch);  // warms caches, allocator and branch predictor up again
      subject.renew();
      c.warm.push_back(seconds_of_batch(subject, c.batch));
    });
    in_turns(contenders, rounds, [&](Contender& c) {
      if (c.probe == nullptr) return;
      subject.renew();
      split_round(subject, c);
    });
  }
}

void cold_rounds(Subject& subject, std::vector<Contender>& contenders, Bound& bound, int threads,
                 double seconds) {
  CacheFlush flush(threads);
  for (Rounds rounds(seconds * static_cast<double>(contenders.size())); rounds.next();) {
    bound.sample();
    in_turns(contenders, rounds, [&](Contender& c) {
      subject.renew();
      for (int i = 0; i < kColdRuns; ++i) {
        flush.run();
        c.cold.push_back(seconds_of_batch(subject, 1));
      }
    });
  }
}

std::vector<std::string> all_backends() {
  std::vector<std::string> names;
  for (const Backend* backend : backends()) {
    const bool ref = (backend->abi.flags & MT_BACKEND_REFERENCE) != 0;
    if (backend->device_slot == kCpuSlot && !ref) names.push_back(backend->name);
  }
  return names;
}

std::vector<Contender> contenders_of(const std::vector<OpRecord>& catalog, const Case& c,
                                     Subject& subject, const Options& options,
                                     std::ostream& notes) {
  std::vector<Contender> found;
  std::vector<std::string> wanted = options.backends;
  if (traced(catalog, subject).empty()) wanted = {""};
  if (wanted.empty()) wanted = all_backends();
  for (const std::string& name : wanted) {
    Contender contender;
    contender.label = name.empty() ? "-" : name;
    contender.backend = name == "chosen" ? "" : name;
    const auto pinned = pin(contender);
    const std::string why = prepare(catalog, c, subject, contender);
    if (why.empty()) {
      found.push_back(std::move(contender));
    } else if (!options.backends.empty()) {
      notes << c.name << ": not on " << name << ": " << why << "\n";
    }
  }
  return found;
}

// The limits are measured on the threads that kernels run on.
void use_kernel_threads() {
  set_thread_runner([](int threads, const std::function<void(int)>& body) {
    using Body = const std::function<void(int)>;
    mt_ctx* const ctx = context(kCpuSlot, {MT_DEVICE_CPU, 0});
    ctx->parallel_for(
        ctx, 0, threads, MT_TOGETHER,
        [](void* user, int64_t begin, int64_t end) {
          for (int64_t t = begin; t < end; ++t) (*static_cast<Body*>(user))(static_cast<int>(t));
        },
        const_cast<void*>(static_cast<const void*>(&body)));
  });
}

}  // namespace

std::vector<Row> measure(const std::vector<OpRecord>& catalog, const Case& c,
                         const Options& options, std::ostream& notes) {
  const NoGradGuard no_grad;
  set_num_threads(options.threads);
  use_kernel_threads();
  if (!options.device.is_cpu()) return measure_on_device(catalog, c, options, notes);
  const auto subject = make_subject(c);
  std::vector<Contender> contenders = contenders_of(catalog, c, *subject, options, notes);
  std::vector<Row> rows;
  if (contenders.empty()) return rows;
  double flops = subject->flops();
  if (flops == 0 && c.record != nullptr) flops = contenders.front().flops;
  const double calls = subject->calls();
  // Without a kernel, no bytes move.
  const Bytes bytes = contenders.front().label == "-" ? Bytes() : subject->bytes();
  for (const bool cold : {false, true}) {
    if (cold ? !options.cold : !options.warm) continue;
    Bound bound(bytes, flops, c.dtype, options.threads, cold);
    if (cold) {
      cold_rounds(*subject, contenders, bound, options.threads, options.seconds);
    } else {
      warm_rounds(*subject, contenders, bound, options.seconds);
    }
    for (const Contender& contender : contenders) {
      Row row;
      row.what = c;
      row.backend = contender.label;
      row.cache = cold ? "cold" : "warm";
      row.threads = options.threads;
      row.time = summarize(cold ? contender.cold : contender.warm);
      for (double* part : {&row.time.median, &row.time.mad, &row.time.least}) *part /= calls;
      row.bytes = bytes.total();
      row.flops = flops;
      row.kernels = contender.kernels;
      bound.fill(row);
      if (!cold && !contender.kernel.empty() && !contender.skipped.empty()) {
        const double direct = median(contender.direct_times);
        const double selection =
            contender.direct ? 0 : std::max(0.0, median(contender.skipped) - direct);
        row.split = {direct / calls, selection / calls, median(contender.kernel) / calls};
      }
      rows.push_back(std::move(row));
    }
  }
  return rows;
}

Machine measure_machine(int threads) {
  use_kernel_threads();
  const auto best = [](Limit limit) {
    double rate = 0;
    for (int i = 0; i < 9; ++i) rate = std::max(rate, limit.sample());
    return rate;
  };
  const double bytes = 2 * static_cast<double>(beyond_caches());
  return {best(Limit(Resource::kCopy, bytes, threads)),
          best(Limit(Resource::kRead, bytes, threads)),
          best(Limit(Resource::kMultiplyAdd, 0, threads))};
}

}  // namespace mytorch::bench
