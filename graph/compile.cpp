#include "mytorch/compile.h"

#include <cstdio>
#include <list>
#include <utility>

#include "core/types/errors.h"
#include "graph/capture.h"
#include "graph/guards.h"
#include "graph/plan.h"

namespace mytorch::graph {

struct Cache::Impl {
  // A graph, the conditions under which it holds, and its plan after the second call.
  struct Recording {
    Guards guards;
    Recorded recorded;
    std::unique_ptr<Plan> plan;
  };

  explicit Impl(const CompileOptions& given) : options(given) {
    if (options.cache_size < 1) {
      fail(ErrorCode::kValue, "[compile] cache_size is ", options.cache_size, ": give at least 1");
    }
  }

  std::vector<Tensor> run(const std::vector<Tensor>& arguments,
                          const std::vector<double>& constants, const Function& function) {
    for (const Tensor& argument : arguments) {
      if (!argument.defined()) {
        fail(ErrorCode::kValue, "[compile] an argument is undefined: give a tensor");
      }
    }
    // Inside another recording, the function becomes a part of it.
    if ((thread_state.wanted & kLayerCapture) != 0) return function();
    Guards call = guards_of_call(arguments, constants);
    const char* reason = "this is the first call";
    for (auto each = recordings.begin(); each != recordings.end(); ++each) {
      const char* found = each->guards.mismatch(call, each->recorded, arguments);
      if (found == nullptr) {
        recordings.splice(recordings.begin(), recordings, each);
        return replay(recordings.front(), arguments);
      }
      if (each == recordings.begin()) reason = found;
    }
    return record(arguments, std::move(call), function, reason);
  }

  std::vector<Tensor> replay(Recording& recording, const std::vector<Tensor>& arguments) {
    ++stats.replayed;
    if (recording.plan != nullptr) return recording.plan->run(arguments);
    std::vector<Tensor> results;
    recording.plan = std::make_unique<Plan>(recording.recorded, arguments, &results);
    stats.kernel_calls = static_cast<int64_t>(recording.plan->kernel_calls());
    stats.interpreted = static_cast<int64_t>(recording.plan->interpreted());
    stats.planned_bytes = static_cast<int64_t>(recording.plan->arena_bytes());
    stats.intermediate_bytes = static_cast<int64_t>(recording.plan->intermediate_bytes());
    return results;
  }

  std::vector<Tensor> record(const std::vector<Tensor>& arguments, Guards guards,
                             const Function& function, const char* reason) {
    ++stats.recorded;
    stats.reason = reason;
    if (options.verbose) {
      std::fprintf(stderr, "mytorch: [compile] recording, because %s\n", reason);
    }
    Recording recording;
    std::vector<Tensor> results;
    {
      Capture capture(arguments);
      results = function();
      recording.recorded = capture.finish(results);
    }
    guards.finish(recording.recorded, arguments);
    recording.guards = std::move(guards);
    recordings.push_front(std::move(recording));
    if (static_cast<int64_t>(recordings.size()) > options.cache_size) recordings.pop_back();
    return results;
  }

  const CompileOptions options;
  std::list<Recording> recordings;  // the last used first
  CompileStats stats;
};

Cache::Cache(const CompileOptions& options) : impl_(std::make_unique<Impl>(options)) {}
Cache::~Cache() = default;

std::vector<Tensor> Cache::run(const std::vector<Tensor>& arguments,
                               const std::vector<double>& constants, const Function& function) {
  return impl_->run(arguments, constants, function);
}

CompileStats Cache::stats() const { return impl_->stats; }

std::string Cache::text() const {
  return impl_->recordings.empty() ? "" : to_text(impl_->recordings.front().recorded.graph);
}

}  // namespace mytorch::graph
