#include "mytorch/autograd/node.h"

#include <algorithm>

#include "autograd/access.h"
#include "autograd/anomaly.h"
#include "autograd/engine/task.h"
#include "autograd/operators.h"
#include "autograd/pool.h"
#include "core/types/errors.h"
#include "mytorch/thread_state.h"

namespace mytorch::autograd {

thread_local constinit ThreadData thread_data __attribute__((tls_model("initial-exec"))) = {};

void GradInfo::set(const TensorImpl& like) {
  const int32_t n = like.abi.dl.ndim;
  if (ndim > kInline) delete[] heap_sizes;
  ndim = -1;
  int64_t* sizes = inline_sizes;
  if (n > kInline) [[unlikely]]
    sizes = heap_sizes = new int64_t[n];
  std::copy_n(like.abi.dl.shape, n, sizes);
  ndim = n;
  dtype = like.dtype;
  device_slot = like.device_slot;
  device = like.abi.dl.device;
  if (device.type != MT_DEVICE_CPU) stream = context(device_slot, device)->stream;
}

void* Node::allocate(size_t bytes, uint8_t* size_class) {
  return pool::allocate(bytes, size_class);
}

void Node::deallocate(void* block, uint8_t size_class) { pool::release(block, size_class); }

void Node::record_origin() {
  NodeExtras& extras = NodeAccess::make_extras(this);
  extras.origin = current_origin();
}

bool Node::wanted_by_task(const Node* to) { return thread_data.pruned->wants(to); }

Tensor Node::zeros_for(uint32_t input) const {
  const GradInfo& info = infos()[input];
  return op::zeros(info.sizes(), info.dtype, Device(info.device.type, info.device.index));
}

// Destroying a long chain of nodes must not recurse: nested calls append the nodes that become free
// to a list, which the outermost call processes.
void Node::destroy(Node* node) {
  ThreadData& data = thread_data;
  node->claim_.store(reinterpret_cast<uintptr_t>(data.doomed), std::memory_order_relaxed);
  data.doomed = node;
  if (data.destroying) return;
  data.destroying = true;
  while (data.doomed != nullptr) {
    Node* next = data.doomed;
    data.doomed = reinterpret_cast<Node*>(
        static_cast<uintptr_t>(next->claim_.load(std::memory_order_relaxed)));
    NodeAccess::finish(next);
  }
  data.destroying = false;
}

void NodeAccess::finish(Node* node) {
  Edge* edges = node->edges();
  GradInfo* infos = node->infos();
  const uint32_t num_edges = node->num_edges_;
  const uint32_t num_inputs = node->num_inputs_;
  const uint8_t size_class = node->size_class_;
  delete node->extras_;
  node->~Node();
  for (uint32_t i = 0; i < num_edges; ++i) {
    if (edges[i].node != nullptr) release(edges[i].node);
  }
  for (uint32_t i = 0; i < num_inputs; ++i) infos[i].~GradInfo();
  pool::release(node, size_class);
}

NodeExtras& NodeAccess::make_extras(Node* node) {
  if (node->extras_ == nullptr) node->extras_ = new NodeExtras;
  return *node->extras_;
}

void NodeAccess::set_edge(Node* node, uint32_t i, Edge to) {
  if (to.node != nullptr) retain(to.node);
  Edge old = std::exchange(node->edges()[i], to);
  if (old.node != nullptr) release(old.node);
}

}  // namespace mytorch::autograd
