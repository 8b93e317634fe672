// Computes once what depends on nothing but constants: numbers of zeros(), full(), arange() and
// what operators make of them. Tensors from outside are never folded: their elements may change,
// also in ways that no version counts.
#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "core/runtime/device_registry.h"
#include "graph/ir/uses.h"
#include "graph/passes/passes.h"
#include "graph/steps/interpret.h"
#include "graph/steps/plan_parts.h"
#include "mytorch/tensor_impl.h"

namespace mytorch::graph {
namespace {

// A plan keeps the results, so they are small. A kernel that fills more memory than this takes as
// long as one that reads it.
constexpr uint64_t kLargest = 256 << 10;  // of one tensor, in bytes
constexpr uint64_t kTotal = 4 << 20;      // of a graph

class ConstantFolding {
 public:
  explicit ConstantFolding(Recorded* recorded)
      : recorded_(*recorded),
        graph_(recorded->graph),
        uses_(recorded->graph),
        constant_(recorded->graph.buffers.size()),
        folded_(recorded->graph.nodes.size()) {}

  int64_t run() {
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      if (is_foldable(static_cast<int32_t>(i))) {
        folded_[i] = true;
        for_each_made(graph_.nodes[i], [&](ValueId id) { constant_[buffer_of(id)] = true; });
      }
    }
    const int64_t count = std::count(folded_.begin(), folded_.end(), true);
    if (count > 0) compute();
    return count;
  }

 private:
  size_t buffer_of(ValueId id) const {
    return static_cast<size_t>(graph_.values[static_cast<size_t>(id)].buffer);
  }

  template <class F>
  static void for_each_made(const GraphNode& node, F f) {
    node.for_each_result(f);
    node.for_each_written(f);
  }

  // Returns whether a node fills memory that nothing else writes.
  bool is_fill(const GraphNode& node, int32_t index) const {
    if (node.form != kFunction || node.random() || node.args.empty() || !node.overwrites(0) ||
        node.args[0].kind != Arg::kTensor) {
      return false;
    }
    const ValueId id = node.args[0].values[0];
    const BufferUses& uses = uses_.of(id);
    return graph_.buffer_of(id).origin == BufferOrigin::kInside && uses.producer < 0 &&
           uses.written.size() == 1 && uses.written[0] == index && is_whole(graph_, id) &&
           std::all_of(uses.read.begin(), uses.read.end(), [&](int32_t at) { return at >= index; });
  }

  bool is_foldable(int32_t index) {
    const GraphNode& node = graph_.nodes[static_cast<size_t>(index)];
    if (is_view(graph_, node)) return false;
    const bool fill = is_fill(node, index);
    if (!fill && (!is_pure(node) || node.results.empty() || node.op().dynamic)) return false;
    bool fine = true;
    for (size_t a = 0; a < node.args.size(); ++a) {
      if (fill && a == 0) continue;
      for (const ValueId id : node.args[a].values) {
        fine = fine && (id == kNoValue || constant_[buffer_of(id)]);
      }
    }
    uint64_t bytes = 0;
    for_each_made(node, [&](ValueId id) {
      const BufferUses& uses = uses_.of(id);
      fine = fine && !uses.escapes && (fill || (uses.is_single() && uses.producer == index));
      bytes += graph_.buffer_of(id).bytes;
    });
    if (!fine || bytes > kLargest || total_ + bytes > kTotal) return false;
    total_ += bytes;
    return true;
  }

  const Tensor& tensor_of(ValueId id) {
    Tensor& found = env_[id];
    if (found.defined()) return found;
    Tensor& memory = memory_[buffer_of(id)];
    if (!memory.defined()) {
      const GraphBuffer& buffer = graph_.buffer_of(id);
      const auto bytes = static_cast<int64_t>(buffer.bytes);
      memory = Tensor::adopt(
          new_tensor(&bytes, 1, kUInt8, buffer.device, checked_device_slot(buffer.device)));
    }
    found = tensor_over(memory.impl()->storage, graph_.values[static_cast<size_t>(id)], 0);
    return found;
  }

  void compute() {
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      if (!folded_[i]) continue;
      const GraphNode& node = graph_.nodes[i];
      const std::vector<Value> results =
          interpret(node, [this](ValueId id) { return tensor_of(id); });
      for (size_t r = 0; r < results.size(); ++r) {
        const std::vector<Tensor> tensors = tensors_of(results[r]);
        for (size_t k = 0; k < node.results[r].values.size(); ++k) {
          const ValueId id = node.results[r].values[k];
          if (id == kNoValue) continue;
          env_[id] = tensors[k];
          memory_[buffer_of(id)] = tensors[k];
        }
      }
    }
    std::vector<bool> removed = folded_;
    for (size_t b = 0; b < graph_.buffers.size(); ++b) {
      if (!constant_[b]) continue;
      const BufferUses& uses = uses_.buffer(static_cast<int32_t>(b));
      const bool needed = std::any_of(uses.read.begin(), uses.read.end(), [&](int32_t at) {
        return !folded_[static_cast<size_t>(at)];
      });
      if (!needed) {
        for (const int32_t view : uses.viewed) removed[static_cast<size_t>(view)] = true;
        continue;
      }
      GraphBuffer& buffer = graph_.buffers[b];
      buffer.origin = BufferOrigin::kOutside;
      buffer.index = static_cast<int32_t>(recorded_.outside.size());
      recorded_.outside.push_back(memory_[b]);
    }
    remove_nodes(&graph_, removed);
  }

  Recorded& recorded_;
  Graph& graph_;
  const GraphUses uses_;
  std::vector<bool> constant_;  // by buffer
  std::vector<bool> folded_;    // by node
  uint64_t total_ = 0;
  absl::flat_hash_map<ValueId, Tensor> env_;
  absl::flat_hash_map<size_t, Tensor> memory_;  // by buffer
};

}  // namespace

void fold_constants(Recorded* recorded, const PassOptions&, Fired* fired) {
  const int64_t count = ConstantFolding(recorded).run();
  if (count > 0) (*fired)["constant-folding"] += count;
}

}  // namespace mytorch::graph
