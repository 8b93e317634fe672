#include "graph/breaks/segment.h"

#include <algorithm>
#include <utility>

#include "graph/ir/uses.h"
#include "graph/run/check_mode.h"
#include "graph/run/checked_run.h"
#include "graph/steps/plan_parts.h"
#include "mytorch/tensor_impl.h"
#include "mytorch/thread_state.h"

namespace mytorch::graph {
namespace {

// Versions of memory and numbers of generators, which already count the calls that wait.
class KeepCounts {
 public:
  KeepCounts(const Deferral& waiting, size_t buffers) : waiting_(waiting) {
    for (size_t b = 0; b < buffers; ++b) {
      Storage* const storage = waiting.bound(static_cast<int32_t>(b)).storage;
      if (storage != nullptr) versions_.emplace_back(storage, storage->abi.version);
    }
    for (const Deferral::Draws& draws : waiting.draws()) {
      Generator generator = draws.generator;
      now_.emplace_back(generator.seed(), generator.call());
      generator.set_seed(draws.seed);
      generator.set_call(draws.first);
    }
  }
  ~KeepCounts() {
    for (const auto& [storage, version] : versions_) storage->abi.version = version;
    for (size_t i = 0; i < now_.size(); ++i) {
      Generator generator = waiting_.draws()[i].generator;
      generator.set_seed(now_[i].first);
      generator.set_call(now_[i].second);
    }
  }
  KeepCounts(const KeepCounts&) = delete;
  KeepCounts& operator=(const KeepCounts&) = delete;

 private:
  const Deferral& waiting_;
  std::vector<std::pair<Storage*, uint64_t>> versions_;
  std::vector<std::pair<uint64_t, uint64_t>> now_;
};

}  // namespace

Segment::Segment(Trace given) : trace(std::move(given)) {
  const Graph& graph = trace.graph;
  whole_.assign(graph.buffers.size(), kNoValue);
  for (const GraphNode& node : graph.nodes) {
    node.for_each_result([&](ValueId id) {
      ValueId& whole = whole_[static_cast<size_t>(graph.values[id].buffer)];
      if (whole == kNoValue) whole = id;
    });
  }
}

void Segment::split(size_t nodes) {
  auto rest = std::make_unique<Segment>(slice(trace, nodes, trace.size()));
  rest->end = std::exchange(end, {});
  rest->children = std::exchange(children, {});
  rest->outside_graphs = std::exchange(outside_graphs, {});
  Segment first(slice(trace, 0, nodes));
  trace = std::move(first.trace);
  whole_ = std::move(first.whole_);
  plan_.reset();
  live_out_.clear();
  children.push_back(std::move(rest));
}

Tensor Segment::source(const Deferral& waiting, ValueId id) const {
  const ValueInfo& info = trace.graph.values[id];
  const Deferral::BoundMemory& bound = waiting.bound(info.buffer);
  return tensor_over(bound.storage, info, bound.begin);
}

bool Segment::suits(const Deferral& waiting, const std::vector<int32_t>& alive) const {
  if (plan_ == nullptr) return false;
  for (const ValueId id : outside_) {
    if (waiting.bound(trace.graph.values[id].buffer).begin != 0) return false;
  }
  return std::includes(live_out_.begin(), live_out_.end(), alive.begin(), alive.end());
}

void Segment::make_graph(const Deferral& waiting, const How& how,
                         const std::vector<int32_t>& alive) {
  all_change_ = all_change_ || plan_ != nullptr || how.check;
  plan_.reset();
  std::vector<int32_t> live_out;
  std::set_union(live_out_.begin(), live_out_.end(), alive.begin(), alive.end(),
                 std::back_inserter(live_out));
  live_out_ = std::move(live_out);
  recorded_ = {};
  Graph& graph = recorded_.graph;
  graph = trace.graph;
  graph.arguments.clear();
  arguments_.clear();
  outside_.clear();
  for (const ValueId id : trace.graph.arguments) {
    const auto b = static_cast<size_t>(graph.values[id].buffer);
    const Deferral::BoundMemory& bound = waiting.bound(static_cast<int32_t>(b));
    const bool stays =
        !all_change_ && bound.begin == 0 && bound.storage->abi.id == trace.storages[b] &&
        std::find(how.changing.begin(), how.changing.end(), bound.storage) == how.changing.end();
    std::vector<ValueId>& list = stays ? outside_ : arguments_;
    graph.buffers[b].origin = stays ? BufferOrigin::kOutside : BufferOrigin::kArgument;
    graph.buffers[b].index = static_cast<int32_t>(list.size());
    list.push_back(id);
    if (stays) recorded_.outside.push_back(source(waiting, id));
  }
  graph.arguments = arguments_;
  for (const int32_t b : live_out_) graph.results.push_back(whole_[static_cast<size_t>(b)]);
  rewritten_.clear();
  planned_ = optimized(recorded_, how.passes, &rewritten_);
  outside_places_.clear();
  for (const Tensor& tensor : recorded_.outside) {
    const auto found = std::find_if(planned_.outside.begin(), planned_.outside.end(),
                                    [&](const Tensor& each) { return each.is_same(tensor); });
    outside_places_.push_back(found == planned_.outside.end()
                                  ? -1
                                  : static_cast<int32_t>(found - planned_.outside.begin()));
  }
  direct_.clear();
  for (size_t i = 0; i < live_out_.size(); ++i) {
    const ValueId now = planned_.graph.results[i], whole = graph.results[i];
    const GraphBuffer& buffer = planned_.graph.buffer_of(now);
    const ValueInfo &a = planned_.graph.values[now], &b = graph.values[whole];
    direct_.push_back(buffer.origin == BufferOrigin::kInside &&
                      buffer.bytes == graph.buffer_of(whole).bytes && same_geometry(a, b) &&
                      a.offset == b.offset && a.dtype == b.dtype);
  }
}

void Segment::run(const Deferral& waiting, const How& how) {
  const LayerMask masked(~0u);
  const KeepCounts counts(waiting, trace.graph.buffers.size());
  const std::vector<int32_t> alive = waiting.alive();
  const bool first = !suits(waiting, alive);
  if (first) make_graph(waiting, how, alive);
  std::vector<Tensor> arguments;
  for (const ValueId id : arguments_) arguments.push_back(source(waiting, id));
  for (size_t i = 0; i < outside_.size(); ++i) {
    if (first || outside_places_[i] < 0) continue;
    Tensor& known = planned_.outside[static_cast<size_t>(outside_places_[i])];
    const Storage* const now = waiting.bound(trace.graph.values[outside_[i]].buffer).storage;
    if (known.impl()->storage != now) known = source(waiting, outside_[i]);
  }
  std::vector<Storage*> targets;
  std::vector<Storage*> into;
  for (size_t i = 0; i < live_out_.size(); ++i) {
    targets.push_back(waiting.bound(live_out_[i]).storage);
    into.push_back(direct_[i] ? targets.back() : nullptr);
  }
  const auto planned = [&] {
    if (plan_ != nullptr) return plan_->run(arguments, how.check ? std::vector<Storage*>() : into);
    std::vector<Tensor> results;
    plan_ = std::make_unique<ReplayPlan>(planned_, how.passes.mode, arguments, &results);
    return results;
  };
  std::vector<Tensor> results;
  if (how.check) {
    results = run_beside({recorded_, arguments, how.passes.mode, planned,
                          [&] { return run_checked(recorded_, arguments); }});
  } else {
    results = planned();
  }
  for (size_t i = 0; i < results.size(); ++i) {
    if (targets[i] == nullptr || results[i].impl()->storage == targets[i]) continue;
    const ValueInfo& info = trace.graph.values[whole_[static_cast<size_t>(live_out_[i])]];
    tensor_over(targets[i], info, 0).copy_(results[i]);
  }
}

}  // namespace mytorch::graph
