#include "graph/ir/flow.h"

#include <algorithm>
#include <utility>

namespace mytorch::graph {
namespace {

// Finds what a node depends on, node by node.
class FlowOrder {
 public:
  explicit FlowOrder(Flow* flow)
      : flow_(*flow),
        maker_(flow->graph.values.size(), -1),
        writer_(flow->memories.size(), -1),
        readers_(flow->memories.size()) {}

  void add(int32_t index, bool ordered) {
    const GraphNode& node = flow_.graph.nodes[index];
    std::vector<int32_t> before;
    const auto after = [&](int32_t other) {
      if (other >= 0 && other != index) before.push_back(other);
    };
    const auto writes = [&](ValueId id) {
      const int32_t memory = flow_.memory(id);
      after(writer_[memory]);
      for (const int32_t reader : readers_[memory]) after(reader);
      readers_[memory].clear();
      writer_[memory] = index;
    };
    node.for_each_operand([&](ValueId id) {
      after(maker_[id]);
      after(writer_[flow_.memory(id)]);
      readers_[flow_.memory(id)].push_back(index);
    });
    node.for_each_written(writes);
    node.for_each_result([&](ValueId id) {
      if (flow_.memories[flow_.memory(id)].maker == index) writes(id);
      if (maker_[id] < 0) maker_[id] = index;
    });
    if (ordered) {
      after(last_ordered_);
      last_ordered_ = index;
    }
    std::sort(before.begin(), before.end());
    before.erase(std::unique(before.begin(), before.end()), before.end());
    flow_.before.push_back(std::move(before));
  }

 private:
  Flow& flow_;
  std::vector<int32_t> maker_;                 // of each value
  std::vector<int32_t> writer_;                // of each memory: the last
  std::vector<std::vector<int32_t>> readers_;  // since then
  int32_t last_ordered_ = -1;
};

}  // namespace

Flow::Flow(const Graph& of, std::vector<int32_t> numbers, const std::vector<bool>& ordered)
    : graph(of), memory_of(std::move(numbers)) {
  int32_t count = 0;
  for (const int32_t number : memory_of) count = std::max(count, number + 1);
  memories.resize(static_cast<size_t>(count));
  for (size_t b = 0; b < memory_of.size(); ++b) {
    uint64_t& bytes = memories[memory_of[b]].bytes;
    bytes = std::max(bytes, graph.buffers[b].bytes);
  }
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const auto index = static_cast<int32_t>(i);
    const auto use = [&](ValueId id) -> MemoryFlow& {
      MemoryFlow& found = memories[memory(id)];
      if (found.users.empty() || found.users.back() != index) found.users.push_back(index);
      return found;
    };
    graph.nodes[i].for_each_operand(use);
    graph.nodes[i].for_each_written([&](ValueId id) { use(id).written = true; });
    graph.nodes[i].for_each_result([&](ValueId id) {
      const bool is_new =
          memories[memory(id)].users.empty() && graph.buffer_of(id).origin == BufferOrigin::kInside;
      MemoryFlow& found = use(id);
      if (!is_new) return;
      found.maker = index;
      found.whole = id;
    });
  }
  const auto leave = [&](ValueId id) {
    if (id != kNoValue) memories[memory(id)].escapes = true;
  };
  for (const ValueId id : graph.results) leave(id);
  for (const GradResult& grad : graph.grads) leave(grad.grad);
  FlowOrder order(this);
  for (size_t i = 0; i < graph.nodes.size(); ++i) order.add(static_cast<int32_t>(i), ordered[i]);
}

}  // namespace mytorch::graph
