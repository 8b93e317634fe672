// A run in two parts: what the first one parks, the second one resumes.
#include <mutex>
#include <utility>
#include <vector>

#include "autograd/engine/gradients.h"
#include "autograd/engine/parked.h"
#include "autograd/engine/task.h"

namespace mytorch::autograd {

bool Task::apply_and_park(NodeState& state, Tensor* out) {
  Node* const node = state.node;
  const Edge* const edges = node->edges();
  std::vector<bool> open(node->num_edges());
  bool leaves_some = false;
  for (uint32_t i = 0; i < node->num_edges(); ++i) {
    open[i] = edges[i].node != nullptr && !find(edges[i].node)->reached;
    leaves_some |= open[i];
  }
  if (!leaves_some) {
    node->apply(state.grads(), out);
    return false;
  }
  std::vector<Tensor> gradients(state.grads(), state.grads() + node->num_inputs());
  node->apply(state.grads(), out);
  if (check_nan_) check_nan(*node, out);
  std::unique_lock<std::mutex> lock;
  if (shared_ != nullptr) lock = std::unique_lock<std::mutex>(shared_->mutex);
  // The caller's next work may read what is parked.
  result_streams_.add(*node);
  leaves_some = false;
  for (uint32_t i = 0; i < node->num_edges(); ++i) {
    if (!open[i]) continue;
    if (!out[i].defined()) {
      leaves_some = true;
      continue;
    }
    // Given although nobody wants it now: to compute it again would cost as much as all.
    if (NodeAccess::is_unfitted(node)) out[i] = fit(node, i, std::move(out[i]));
    fit_gradient_slow(&out[i], edges[i].node->infos()[edges[i].input], node->name());
    options_.parks->roots.push_back({CountedEdge(edges[i]), std::move(out[i])});
    open[i] = false;
  }
  if (leaves_some) {
    options_.parks->parts.push_back(
        {CountedEdge({node, 0}), std::move(gradients), std::move(open)});
  }
  return leaves_some;
}

void Task::resume(Parked& parked) {
  resumes_ = pruned_ = true;
  for (Parked::Root& root : parked.roots) {
    roots_.push_back({std::move(root.edge), std::move(root.gradient)});
  }
  for (Parked::Part& part : parked.parts) parts_.push_back(&part);
}

// Nothing leads to a part: all nodes that do have been executed.
void Task::add_parts() {
  for (Parked::Part* part : parts_) {
    bool added = false;
    NodeState& state = find_or_add(part->node.get().node, &added);
    state.part = part;
    state.reached = false;
    for (uint32_t i = 0; i < state.node->num_inputs(); ++i) {
      state.grads()[i] = std::move(part->gradients[i]);
    }
    memory_->stack.push_back(&state);
  }
}

}  // namespace mytorch::autograd
