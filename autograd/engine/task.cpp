#include "autograd/engine/task.h"

#include <algorithm>

#include "autograd/engine/gradients.h"
#include "autograd/operators.h"
#include "core/tensor/capture_layer.h"
#include "core/types/errors.h"

namespace mytorch::autograd {
namespace {

// Reused by the next run, except for memory beyond kMaxSpareChunks.
constexpr size_t kMaxSpareChunks = 64;
thread_local std::unique_ptr<TaskMemory> spare;

std::unique_ptr<TaskMemory> take_memory() {
  if (spare != nullptr) return std::move(spare);
  return std::make_unique<TaskMemory>();
}

uint32_t new_id() {
  static std::atomic<uint32_t> last{0};
  uint32_t id;
  do {
    id = last.fetch_add(1, std::memory_order_relaxed) + 1;
  } while (id == 0);
  return id;
}

}  // namespace

void ReadyHeap::push(NodeState* state) {
  heap_.push_back({state->node->sequence(), state});
  std::push_heap(heap_.begin(), heap_.end());
}

NodeState* ReadyHeap::pop() {
  std::pop_heap(heap_.begin(), heap_.end());
  NodeState* state = heap_.back().state;
  heap_.pop_back();
  return state;
}

Task::Task(const TaskOptions& options)
    : options_(options),
      id_(new_id()),
      pruned_(options.parks != nullptr),
      // The gradients of a recording have no values.
      check_nan_(thread_data.check_nan && !recording_graph()),
      memory_(take_memory()) {}

Task::~Task() {
  if (executed_ < size_) {
    // The run was pruned or ended with an error.
    for (uint64_t i = 0; i < size_; ++i) {
      NodeState& state = at(i);
      std::atomic<uint64_t>& claim = NodeAccess::claim(state.node);
      uint64_t mine = uint64_t{id_} << 32 | i;
      claim.compare_exchange_strong(mine, 0, std::memory_order_relaxed);
      state.one = Tensor();
      state.many.reset();
    }
  }
  memory_->heap.clear();
  memory_->stack.clear();
  if (memory_->chunks.size() > kMaxSpareChunks) memory_->chunks.resize(kMaxSpareChunks);
  spare = std::move(memory_);
}

void Task::add_root(Edge edge, Tensor gradient) {
  roots_.push_back({CountedEdge(edge), std::move(gradient)});
}

int32_t Task::capture(Edge edge) {
  pruned_ = true;
  captures_.push_back({CountedEdge(edge), -1, Tensor()});
  return static_cast<int32_t>(captures_.size()) - 1;
}

void Task::accumulate(Edge leaf) {
  pruned_ = true;
  accumulated_.emplace_back(leaf);
}

NodeState* Task::find(const Node* node) const {
  const uint64_t claim = NodeAccess::claim(const_cast<Node*>(node)).load(std::memory_order_relaxed);
  if (claim >> 32 == id_) [[likely]]
    return &at(claim & UINT32_MAX);
  if (elsewhere_.empty()) return nullptr;
  const auto it = elsewhere_.find(node);
  return it != elsewhere_.end() ? &at(it->second) : nullptr;
}

bool Task::wants(const Node* node) const {
  const NodeState* state = find(node);
  return state != nullptr && state->reached;
}

NodeState& Task::find_or_add(Node* node, bool* added) {
  *added = false;
  if (NodeState* state = find(node); state != nullptr) return *state;
  *added = true;
  const uint64_t index = size_;
  if (index / TaskMemory::kChunk == memory_->chunks.size()) {
    memory_->chunks.push_back(std::make_unique<NodeState[]>(TaskMemory::kChunk));
  }
  uint64_t free = 0;
  if (!NodeAccess::claim(node).compare_exchange_strong(free, uint64_t{id_} << 32 | index,
                                                       std::memory_order_relaxed)) {
    elsewhere_.emplace(node, index);
  }
  ++size_;
  NodeState& state = at(index);
  state.node = node;
  state.index = static_cast<uint32_t>(index);
  state.dependencies = 0;
  state.captures = -1;
  state.part = nullptr;
  state.executes = state.reached = true;
  if (node->num_inputs() > 1) state.many = std::make_unique<Tensor[]>(node->num_inputs());
  if (node->num_inputs() > 0) {
    const mt_device device = node->infos()[0].device;
    if (device.type > 0) {
      if (device_.type == 0) device_ = Device(device.type, device.index);
      if (device.type != device_.type || device.index != device_.index) several_devices_ = true;
      // Leaves may have another one: their streams wait for all that is there when they add.
      if (!NodeAccess::is_leaf(node)) {
        void* const stream = node->infos()[0].stream;
        if (!has_stream_) stream_ = stream;
        has_stream_ = true;
        if (stream != stream_) several_streams_ = true;
      }
    }
  }
  return state;
}

void Task::discover() {
  std::vector<NodeState*>& stack = memory_->stack;
  bool added = false;
  for (const Root& root : roots_) {
    NodeState& state = find_or_add(root.edge.get().node, &added);
    if (added) stack.push_back(&state);
  }
  add_parts();
  while (!stack.empty()) {
    const NodeState& state = *stack.back();
    stack.pop_back();
    const Edge* edges = state.node->edges();
    for (uint32_t i = 0; i < state.node->num_edges(); ++i) {
      if (!state.leads(i)) continue;
      NodeState& to = find_or_add(edges[i].node, &added);
      ++to.dependencies;
      if (added) stack.push_back(&to);
    }
  }
}

// Keeps only the nodes on a path from the roots to a wanted gradient.
void Task::prune() {
  std::vector<uint32_t> pending(size_);
  std::vector<NodeState*> order;  // topological: each after all nodes that lead to it
  order.reserve(size_);
  for (uint64_t i = 0; i < size_; ++i) {
    NodeState& state = at(i);
    state.executes = state.reached = false;
    pending[i] = state.dependencies;
    state.dependencies = 0;
    if (pending[i] == 0) order.push_back(&state);
  }
  for (size_t k = 0; k < order.size(); ++k) {
    const Node* node = order[k]->node;
    for (uint32_t i = 0; i < node->num_edges(); ++i) {
      if (node->edges()[i].node == nullptr) continue;
      NodeState* to = find(node->edges()[i].node);
      if (--pending[to->index] == 0) order.push_back(to);
    }
  }
  for (int32_t c = 0; c < static_cast<int32_t>(captures_.size()); ++c) {
    NodeState* state = find(captures_[c].edge.get().node);
    if (state == nullptr) continue;  // not reachable from the roots
    captures_[c].next = std::exchange(state->captures, c);
    state->reached = true;
  }
  for (const CountedEdge& leaf : accumulated_) {
    NodeState* state = find(leaf.get().node);
    if (state != nullptr) state->executes = state->reached = true;
  }
  for (size_t k = order.size(); k-- > 0;) {
    NodeState* state = order[k];
    const Node* node = state->node;
    for (uint32_t i = 0; i < node->num_edges(); ++i) {
      if (node->edges()[i].node == nullptr) continue;
      if (find(node->edges()[i].node)->reached) state->executes = state->reached = true;
    }
    if (!state->executes) continue;
    for (uint32_t i = 0; i < node->num_edges(); ++i) {
      if (node->edges()[i].node == nullptr) continue;
      NodeState* to = find(node->edges()[i].node);
      if (to->reached) ++to->dependencies;
    }
  }
}

void Task::seed() {
  for (Root& root : roots_) {
    NodeState* state = find(root.edge.get().node);
    if (options_.parks != nullptr && !state->reached) {
      options_.parks->roots.push_back({CountedEdge(root.edge.get()), std::move(root.gradient)});
      continue;
    }
    add_on_stream(*state, root.edge.get().input, std::move(root.gradient));
  }
}

void Task::add_on_stream(NodeState& state, uint32_t input, Tensor&& gradient) {
  wait_for_current(*state.node);
  StreamScope stream(*state.node);
  Tensor own = std::move(gradient);  // let go on the stream that reads it
  wholes_.complete(&state.grads()[input]);
  add_gradient(&state.grads()[input], std::move(own));
}

std::vector<NodeState*> Task::first_ready() {
  std::vector<NodeState*> ready;
  for (const Root& root : roots_) {
    NodeState* state = find(root.edge.get().node);
    if (state->dependencies == 0 && state->reached) ready.push_back(state);
  }
  for (const Parked::Part* part : parts_) ready.push_back(find(part->node.get().node));
  std::sort(ready.begin(), ready.end());
  ready.erase(std::unique(ready.begin(), ready.end()), ready.end());
  return ready;
}

}  // namespace mytorch::autograd
