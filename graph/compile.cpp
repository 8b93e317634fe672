#include "mytorch/compile.h"

#include <chrono>
#include <list>
#include <mutex>
#include <utility>

#include "absl/strings/str_cat.h"
#include "autograd/access.h"
#include "autograd/vmap/batched.h"
#include "core/types/call_site.h"
#include "core/types/errors.h"
#include "graph/breaks/session.h"
#include "graph/capture/capture.h"
#include "graph/capture/guards.h"
#include "graph/formats/saved.h"
#include "graph/passes/passes.h"
#include "graph/run/check_mode.h"
#include "graph/run/dynamic.h"
#include "graph/run/joint.h"
#include "graph/run/plan.h"
#include "mytorch/autograd/record.h"
#include "mytorch/check.h"

namespace mytorch::graph {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

constexpr const char* kKeepsState =
    "the function keeps what it computes in variables that outlive it: it then runs in each call";

// The histories of arguments before a call.
class Histories {
 public:
  explicit Histories(const std::vector<Tensor>& arguments) {
    for (const Tensor& argument : arguments) {
      edges_.emplace_back(argument.requires_grad() ? autograd::edge_of(argument.impl())
                                                   : autograd::Edge());
    }
  }

  // Throws Error(kUnsupported) if the function has written an argument with a history, or given it
  // one: a replay would not, and gradients would take another way.
  void check(const std::vector<Tensor>& arguments) const {
    for (size_t i = 0; i < arguments.size(); ++i) {
      if (!arguments[i].requires_grad() || arguments[i].is_leaf()) continue;
      const autograd::Edge now = autograd::edge_of(arguments[i].impl());
      const autograd::Edge before = edges_[i].get();
      if (now.node == before.node && now.input == before.input) continue;
      fail(ErrorCode::kUnsupported, "[compile] the function writes argument ", i, ", of shape ",
           shape_str(arguments[i].sizes()),
           ", in place and records the write for gradients, which a replay cannot: write a clone() "
           "of it, and return that",
           called_from());
    }
  }

 private:
  std::vector<autograd::CountedEdge> edges_;
};

}  // namespace

struct Cache::Impl {
  // A graph, the conditions under which it holds, and its plan after the second call.
  struct CachedRecording {
    Guards guards;
    Recorded recorded;
    std::shared_ptr<Joint> joint;  // of a function whose results have history
    Recorded planned;              // what the plan runs
    std::unique_ptr<ReplayPlan> plan;

    const Recorded& forward() const { return joint != nullptr ? joint->forward() : recorded; }
  };

  explicit Impl(const CompileOptions& given) : options(given) {
    if (options.cache_size < 1) {
      fail(ErrorCode::kValue, "[compile] cache_size is ", options.cache_size, ": give at least 1");
    }
    if (!(options.memory_budget >= 0 && options.memory_budget <= 1)) {
      fail(ErrorCode::kValue, "[compile] memory_budget is ", options.memory_budget,
           ": give a part, from 0 to 1");
    }
    tree.most_children = options.cache_size;
    tree.verbose = options.verbose;
    tree.check = allowed == CompileSwitch::kCheck;
    tree.passes = &passes;
  }

  std::vector<Tensor> run(const std::vector<Tensor>& arguments,
                          const std::vector<uint64_t>& constants, const Function& function) {
    // Inside another recording, the function becomes a part of it.
    if ((thread_state.wanted & kLayerCapture) != 0 || allowed == CompileSwitch::kOff)
      return function();
    // A graph knows no examples of a batch.
    if (autograd::batch::inside()) return function();
    const char* reason = "this is the first call";
    for (auto each = recordings.begin(); each != recordings.end(); ++each) {
      const char* differs = each->guards.mismatch(arguments, constants, each->forward());
      if (differs == nullptr) {
        if (each != recordings.begin()) recordings.splice(recordings.begin(), recordings, each);
        return replay(recordings.front(), arguments, function);
      }
      if (each == recordings.begin()) reason = differs;
    }
    if (breaks) return run_in_parts(arguments, function);
    Guards call = guards_of_call(arguments, constants);
    if (dynamic.any()) {
      stats.dynamic_reason.clear();
      auto made = dynamic.instance(call, arguments, &stats.dynamic_reason);
      if (made && !has_changed(made->joint != nullptr ? made->joint->forward() : made->recorded)) {
        ++stats.instantiated;
        keep({std::move(made->guards), std::move(made->recorded), std::move(made->joint), {}, {}});
        return replay(recordings.front(), arguments, function);
      }
    }
    if (rests()) {
      stats.reason = absl::StrCat(
          "recordings were not used again, so that calls run the function as it is: ", reason);
      return function();
    }
    return record(arguments, std::move(call), function, reason);
  }

  void keep(CachedRecording recording) {
    recordings.push_front(std::move(recording));
    if (static_cast<int64_t>(recordings.size()) <= options.cache_size) return;
    if (recordings.back().plan == nullptr) ++unused;
    recordings.pop_back();
  }

  // Returns whether to run the function as it is, which takes less time than recording it in vain:
  // once kMostUnused recordings in a row were dropped without a replay, between further trials,
  // which become rarer.
  bool rests() {
    constexpr int64_t kMostUnused = 8, kLongestRest = 256;
    if (unused < kMostUnused) return false;
    if (rested < rest) {
      ++rested;
      ++stats.unrecorded;
      return true;
    }
    rested = 0;
    rest = std::min(2 * rest, kLongestRest);
    return false;
  }

  // Runs the plan; the values that a backward outside needs are behind the results.
  std::vector<Tensor> run_plan(CachedRecording& recording, const std::vector<Tensor>& arguments) {
    return recording.plan != nullptr ? recording.plan->run(arguments)
                                     : make_plan(recording, arguments);
  }

  std::vector<Tensor> replay(CachedRecording& recording, const std::vector<Tensor>& arguments,
                             const Function& function) {
    ++stats.replayed;
    unused = rested = 0;
    rest = kFirstRest;
    if (allowed == CompileSwitch::kCheck) return replay_beside(recording, arguments, function);
    std::vector<Tensor> results = run_plan(recording, arguments);
    if (recording.joint != nullptr) Joint::attach(recording.joint, arguments, &results);
    for (const std::shared_ptr<RecordedState>& state : recording.forward().states) {
      state->replayed();
    }
    return results;
  }

  // The function makes what the replay would make of the library's state.
  std::vector<Tensor> replay_beside(CachedRecording& recording,
                                    const std::vector<Tensor>& arguments,
                                    const Function& function) {
    std::vector<Tensor> saved;
    std::vector<Tensor> results =
        run_beside({recording.forward(), arguments, options.mode,
                    [&] { return run_plan(recording, arguments); }, function},
                   recording.joint != nullptr ? &saved : nullptr);
    if (recording.joint != nullptr) {
      Joint::attach_beside(recording.joint, arguments, saved, &results);
    }
    recording.guards.note_replaced(recording.forward());
    return results;
  }

  std::vector<Tensor> make_plan(CachedRecording& recording, const std::vector<Tensor>& arguments) {
    std::vector<Tensor> results;
    stats.rewritten.clear();
    recording.planned = optimized(recording.forward(), passes, &stats.rewritten, &stats.seconds);
    const auto begin = Clock::now();
    recording.plan =
        std::make_unique<ReplayPlan>(recording.planned, options.mode, arguments, &results);
    stats.seconds["plan"] = seconds_since(begin);
    stats.kernel_calls = stats.fused = stats.kept = stats.kept_bytes = stats.regions = 0;
    stats.planned_bytes = stats.intermediate_bytes = stats.recorded_peak_bytes = 0;
    stats.device_graph = false;
    stats.region_report.clear();
    stats.fusion_report.clear();
    stats.interpreted_operators.clear();
    note(*recording.plan, &stats);
    return results;
  }

  std::vector<Tensor> record(const std::vector<Tensor>& arguments, Guards guards,
                             const Function& function, const char* reason) {
    ++stats.recorded;
    stats.reason = reason;
    if (options.verbose) {
      detail::tell(absl::StrCat("[compile] recording, because ", reason));
    }
    const auto begin = Clock::now();
    CachedRecording recording;
    const Histories histories(arguments);
    std::vector<Tensor> results;
    if (!options.allow_breaks) {
      OperatorCapture capture(arguments, __builtin_frame_address(0));
      results = function();
      if (keeps_state(&capture, guards, results)) return results;
      finish(&recording, &capture, arguments, results);
    } else if (!record_whole(&recording, guards, arguments, function, &results)) {
      return results;
    }
    histories.check(arguments);
    run_passes(&recording.recorded);
    guards.finish(recording.forward(), arguments);
    recording.guards = std::move(guards);
    if (dynamic.any()) note_sizes(recording);
    keep(std::move(recording));
    stats.seconds = {{"record", seconds_since(begin)}};
    return results;
  }

  // Returns whether the function keeps what it computes beyond the call, otherwise than as results
  // and grads: no graph can do that. Functions may keep something in their first call alone, so it
  // counts if it happens twice in a row for arguments of one kind.
  bool keeps_state(OperatorCapture* capture, const Guards& call,
                   const std::vector<Tensor>& results) {
    // A history may refer to what is computed, as a variable does.
    const bool keeps = capture->assigns_variables() ||
                       (!Joint::has_history(results) && capture->leaves_memory(results));
    if (!keeps) {
      kept.reset();
      return false;
    }
    breaks = breaks || kept == call.arguments;
    kept = call.arguments;
    stats.reason = kKeepsState;
    return true;
  }

  // Makes a recording of a function that has returned.
  void finish(CachedRecording* recording, OperatorCapture* capture,
              const std::vector<Tensor>& arguments, const std::vector<Tensor>& results) {
    if (Joint::has_history(results)) {
      recording->joint = std::make_shared<Joint>(capture, arguments, results, passes);
    } else {
      recording->recorded = capture->finish(results);
    }
  }

  // Records the function. Returns false if there is no recording to keep. If no single graph can
  // hold the function, it has segments from then on.
  bool record_whole(CachedRecording* recording, const Guards& call,
                    const std::vector<Tensor>& arguments, const Function& function,
                    std::vector<Tensor>* results) {
    BreakSession session(&tree, arguments, __builtin_frame_address(0));
    *results = function();
    std::unique_ptr<OperatorCapture> capture = session.take_whole();
    if (capture == nullptr) {
      session.finish();
      breaks = true;
      return false;
    }
    const size_t nodes = capture->size();
    if (keeps_state(capture.get(), call, *results)) return false;
    try {
      finish(recording, capture.get(), arguments, *results);
      return true;
    } catch (const Error& error) {
      // A backward that no graph can hold runs outside; tensors that the host makes are arguments
      // of segments, which may write them.
      if (error.code() != ErrorCode::kUnsupported || capture->size() < nodes) throw;
      session.take_back(std::move(capture), nodes);
      breaks = true;
      return false;
    }
  }

  // Runs a function that has breaks.
  std::vector<Tensor> run_in_parts(const std::vector<Tensor>& arguments, const Function& function) {
    const auto begin = Clock::now();
    BreakSession session(&tree, arguments, nullptr);
    std::vector<Tensor> results = function();
    session.finish();
    if (session.has_recorded()) {
      ++stats.recorded;
      stats.reason = "the function, which has breaks, went on in a new way";
      stats.seconds = {{"record", seconds_since(begin)}};
      if (options.verbose) {
        detail::tell(absl::StrCat("[compile] recorded a part, because ", stats.reason));
      }
    } else {
      ++stats.replayed;
    }
    return results;
  }

  // Adds what the plans of the last call's segments are.
  void add_segments(CompileStats* to) const {
    to->segments = static_cast<int64_t>(tree.path.size());
    to->recorded_segments = tree.recorded;
    to->replayed_segments = tree.replayed;
    for (const Break& each : tree.breaks)
      to->breaks.push_back({each.op, each.reason, each.site.text()});
    for (const Segment* segment : tree.path) {
      const ReplayPlan* plan = segment->plan();
      for (const auto& [name, count] : segment->rewritten()) to->rewritten[name] += count;
      if (plan != nullptr) note(*plan, to);
    }
  }

  static void note(const ReplayPlan& plan, CompileStats* to) {
    to->kernel_calls += static_cast<int64_t>(plan.kernel_calls());
    to->fused += static_cast<int64_t>(plan.fused());
    to->kept += static_cast<int64_t>(plan.kept());
    to->kept_bytes += static_cast<int64_t>(plan.kept_bytes());
    to->regions += static_cast<int64_t>(plan.regions());
    to->region_report.insert(to->region_report.end(), plan.region_report().begin(),
                             plan.region_report().end());
    to->fusion_report.insert(to->fusion_report.end(), plan.fusion_report().begin(),
                             plan.fusion_report().end());
    to->device_graph = to->device_graph || plan.has_device_graph();
    const std::vector<std::string> interpreted = plan.interpreted();
    to->interpreted_operators.insert(to->interpreted_operators.end(), interpreted.begin(),
                                     interpreted.end());
    to->interpreted = static_cast<int64_t>(to->interpreted_operators.size());
    to->planned_bytes += static_cast<int64_t>(plan.arena_bytes());
    to->intermediate_bytes += static_cast<int64_t>(plan.intermediate_bytes());
    to->recorded_peak_bytes += static_cast<int64_t>(plan.recorded_peak_bytes());
  }

  void note_sizes(const CachedRecording& recording) {
    std::string reason = dynamic.add(recording.guards, recording.recorded, recording.joint);
    if (reason.empty()) return;
    stats.dynamic_reason = std::move(reason);
    if (!options.verbose) return;
    detail::tell(absl::StrCat("[compile] dynamic_dims: ", stats.dynamic_reason));
  }

  const CompileOptions options;
  DynamicShapes dynamic{options.dynamic_dims, options.cache_size};
  const CompileSwitch allowed = compile_switch();
  const PassOptions passes{options.mode, options.memory_budget};
  std::list<CachedRecording> recordings;  // the last used first
  // The arguments of the last recorded call if it has kept what it computed.
  std::optional<std::vector<TensorGuard>> kept;
  SegmentTree tree;
  bool breaks = false;  // whether the function has had one, or keeps state
  static constexpr int64_t kFirstRest = 16;
  int64_t unused = 0;         // recordings that were dropped since the last replay, none replayed
  int64_t rest = kFirstRest;  // calls between two trials to record, if too many were
  int64_t rested = 0;         // of them, those that are over
  CompileStats stats;
  std::recursive_mutex calls;
};

Cache::Cache(const CompileOptions& options) : impl_(std::make_unique<Impl>(options)) {}
Cache::~Cache() = default;

std::vector<Tensor> Cache::run(const std::vector<Tensor>& arguments,
                               const std::vector<uint64_t>& constants, const Function& function) {
  // Recordings and plans have memory of their own, so calls of several threads follow each other.
  // The function may call itself.
  const std::lock_guard<std::recursive_mutex> lock(impl_->calls);
  return impl_->run(arguments, constants, function);
}

CompileStats Cache::stats() const {
  CompileStats stats = impl_->stats;
  if (impl_->breaks) impl_->add_segments(&stats);
  if (!impl_->recordings.empty() && impl_->recordings.front().plan != nullptr) {
    stats.streams = impl_->recordings.front().plan->streams();
  }
  if (!impl_->recordings.empty() && impl_->recordings.front().joint != nullptr) {
    for (const auto& [name, count] : impl_->recordings.front().joint->rewritten()) {
      stats.rewritten[name] += count;
    }
  }
  return stats;
}

std::string Cache::text() const {
  if (impl_->breaks) {
    std::string text;
    for (const Segment* segment : impl_->tree.path) {
      text += to_text(segment->graph());
      if (!segment->end.op.empty()) {
        text += "break " + segment->end.op + ": " + segment->end.reason + "\n";
      }
    }
    return text;
  }
  if (impl_->recordings.empty()) return "";
  const Impl::CachedRecording& newest = impl_->recordings.front();
  if (const auto symbolic = impl_->dynamic.symbolic(newest.guards)) return symbolic->text;
  return to_text((newest.plan != nullptr ? newest.planned : newest.forward()).graph);
}

void Cache::save(const std::string& path, const SaveOptions& options) const {
  if (impl_->breaks) {
    const Break* first = impl_->tree.breaks.empty() ? nullptr : &impl_->tree.breaks.front();
    fail(ErrorCode::kUnsupported, "[save] the function has breaks, and a file holds one graph",
         first != nullptr ? ": the first is at " + first->op + "(), because " + first->reason +
                                called_from(first->site)
         : impl_->kept.has_value() ? std::string(": ") + kKeepsState
                                   : "");
  }
  if (impl_->recordings.empty()) {
    fail(ErrorCode::kValue, "[save] nothing is recorded yet: call the compiled function first");
  }
  if (impl_->recordings.front().joint != nullptr) {
    fail(ErrorCode::kUnsupported,
         "[save] a result requires gradients, and a program has none: call the compiled function "
         "under NoGradGuard, and save it then");
  }
  const Impl::CachedRecording& newest = impl_->recordings.front();
  if (!impl_->dynamic.any()) return save_program(newest.recorded, options, path);
  const auto symbolic = impl_->dynamic.symbolic(newest.guards);
  if (!symbolic) {
    fail(ErrorCode::kValue,
         "[save] the dimensions of dynamic_dims are not open yet: call the compiled function with "
         "three sizes above 1 first",
         impl_->stats.dynamic_reason.empty() ? "" : "; ", impl_->stats.dynamic_reason);
  }
  save_program(*symbolic->recorded, options, path, symbolic->text);
}

}  // namespace mytorch::graph
