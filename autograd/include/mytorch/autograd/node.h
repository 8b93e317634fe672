// The autograd graph. Nodes map gradients of an operation's outputs to gradients of its inputs;
// edges lead from a node to the nodes that produced its operation's inputs.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <new>
#include <utility>

#include "mytorch/autograd/meta.h"
#include "mytorch/tensor.h"

namespace mytorch::autograd {

class Task;
class SavedTensorHooks;
struct NodeExtras;

// Autograd's per-thread state. Plain data, so that access needs no initialization check.
struct ThreadData {
  uint64_t sequence = 0;         // number of the next node created on this thread
  bool anomaly = false;          // an AnomalyMode exists
  bool check_nan = false;        // and checks for NaN
  const Task* task = nullptr;    // the innermost backward running on this thread
  const Task* pruned = nullptr;  // the same if only part of its graph is needed, else null
  bool one_stream = true;  // of the innermost one: all work but that of leaves is on one stream
  const Node* executing = nullptr;    // the node whose apply is running
  const char* inplace_op = nullptr;   // the in-place operation last passed to check_inplace
  SavedTensorHooks* hooks = nullptr;  // the innermost saved-tensor hooks
  Node* doomed = nullptr;             // linked list of nodes to destroy, which avoids recursion
  bool destroying = false;
  int depth = 0;  // nesting depth of backward calls on this thread
};
extern thread_local constinit ThreadData thread_data __attribute__((tls_model("initial-exec")));

// The required shape, type and device of the gradient at a node's input: those of the corresponding
// output.
struct GradInfo {
  static constexpr int kInline = 5;
  mt_device device{};
  int32_t ndim = -1;  // -1: unknown (an output that is not differentiable)
  ScalarType dtype = ScalarType::kFloat32;
  uint8_t device_slot = 0;
  void* stream = nullptr;  // the stream of the forward operation; null on the CPU
  union {
    int64_t inline_sizes[kInline];
    int64_t* heap_sizes;
  };

  GradInfo() : inline_sizes{} {}
  ~GradInfo() {
    if (ndim > kInline) delete[] heap_sizes;
  }
  GradInfo(const GradInfo&) = delete;
  GradInfo& operator=(const GradInfo&) = delete;
  void set(const TensorImpl& like);
  const int64_t* sizes_data() const { return ndim > kInline ? heap_sizes : inline_sizes; }
  IntList sizes() const { return {sizes_data(), static_cast<size_t>(ndim < 0 ? 0 : ndim)}; }
};

// An operation recorded for differentiation. Reference-counted by the tensors that it produced and
// by the edges that lead to it. The edges and grad infos follow the object in the same pool block.
class Node {
 public:
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;

  // For example "AddBackward".
  virtual const char* name() const = 0;
  // Computes the gradients. `grads` has one entry per input of the node (output of the forward
  // operation); entries without a gradient are undefined, but never all of them. `out` has one
  // undefined tensor per edge; set out[i] if wants(i). May move from `grads`. The gradient mode
  // equals `create_graph`.
  virtual void apply(Tensor* grads, Tensor* out) = 0;
  // Frees the tensors saved for apply. Later calls of apply throw.
  virtual void release_saved() {}
  // For a node of kind kPart: returns the part of `whole` that the output is of the input, as a
  // view. `whole` has the shape of the input.
  virtual Tensor part_of(const Tensor& whole) const { return whole; }

  // Returns whether the running backward needs the gradient along edge i.
  bool wants(uint32_t i) const {
    const Node* to = edges()[i].node;
    if (to == nullptr) return false;
    return thread_data.pruned == nullptr || wanted_by_task(to);
  }
  // Returns whether edge i leads anywhere: while recording, whether to save what its gradient
  // needs.
  bool has_edge(uint32_t i) const { return edges()[i].node != nullptr; }

  // Connects edge i to the node that produced `input`. Each edge is set at most once.
  void edge(uint32_t i, const TensorImpl* input) {
    const Edge to = edge_of(input);
    if (to.node == nullptr) return;
    to.node->retain();
    edges()[i] = to;
  }
  void edge(uint32_t i, const Tensor& input) { edge(i, input.impl()); }
  void edge(uint32_t i, const Operand& input) { edge(i, input.impl()); }
  // Connects edges first, first + 1, ... to the tensors of a list.
  void edges_from(uint32_t first, TensorList inputs) {
    for (size_t k = 0; k < inputs.size(); ++k) edge(first + static_cast<uint32_t>(k), inputs[k]);
  }

  Edge* edges() const {
    return reinterpret_cast<Edge*>(reinterpret_cast<char*>(const_cast<Node*>(this)) + edges_at_);
  }
  uint32_t num_edges() const { return num_edges_; }
  GradInfo* infos() const { return reinterpret_cast<GradInfo*>(edges() + num_edges_); }
  uint32_t num_inputs() const { return num_inputs_; }
  uint64_t sequence() const { return sequence_; }

  // Returns zeros with the shape, type and device of an input, for formulas that need every
  // gradient.
  Tensor zeros_for(uint32_t input) const;

 protected:
  // kUnfitted: the engine reduces gradients from apply over broadcast dimensions and converts them
  // to the type of the input.
  // kPart: unfitted, with one input and one edge; the output is the view part_of() of the input.
  // The engine may add the gradient to this part of a sum instead of calling apply, unless the part
  // repeats elements.
  enum Kind : uint8_t { kPlain, kLeaf, kUnfitted, kPart };

  explicit Node(Kind kind = kPlain) : kind_(kind) {}
  virtual ~Node() = default;

 private:
  template <class T>
  friend class NodePtr;
  template <class T, class... Args>
  friend auto make_node(uint32_t num_edges, uint32_t num_inputs, Args&&... args);
  friend struct NodeAccess;  // for the library's own sources

  // A leaf's node is owned by its tensor, so references to the node are counted on the tensor.
  void retain() { (kind_ == kLeaf ? leaf_->refs : refs_).fetch_add(1, std::memory_order_relaxed); }
  static bool wanted_by_task(const Node* to);
  void finish_init(uint16_t edges_at, uint8_t size_class, uint32_t num_edges, uint32_t num_inputs) {
    edges_at_ = edges_at;
    size_class_ = size_class;
    num_edges_ = num_edges;
    num_inputs_ = num_inputs;
    sequence_ = thread_data.sequence++;
    for (uint32_t i = 0; i < num_edges; ++i) new (edges() + i) Edge;
    for (uint32_t i = 0; i < num_inputs; ++i) new (infos() + i) GradInfo;
    if (thread_data.anomaly) [[unlikely]]
      record_origin();
  }
  void record_origin();
  static void* allocate(size_t bytes, uint8_t* size_class);
  static void deallocate(void* block, uint8_t size_class);
  // Also destroys, without recursion, nodes that only it kept alive.
  static void destroy(Node* node);

  std::atomic<uint32_t> refs_{0};
  uint32_t num_edges_ = 0;
  uint32_t num_inputs_ = 0;
  uint16_t edges_at_ = 0;  // offset in bytes from the start of the object
  uint8_t size_class_ = 0;
  Kind kind_ = kPlain;
  uint64_t sequence_ = 0;
  // The running backward that has a NodeState for this node, and its index: id << 32 | index; 0 if
  // none. For a node awaiting destruction: the next such node.
  std::atomic<uint64_t> claim_{0};
  NodeExtras* extras_ = nullptr;  // hooks and other rare data
  union {
    TensorImpl* leaf_ = nullptr;  // of a leaf's node: its tensor, not counted
    Node* enclosing_;  // of an in-place node on a view: the node of its base, which owns it
  };
};

// Owns a node under construction: destroys it at the end of the scope unless a tensor or an edge
// references it.
template <class T>
class NodePtr {
 public:
  NodePtr() = default;
  explicit NodePtr(T* node) : node_(node) {}
  NodePtr(NodePtr&& other) noexcept : node_(std::exchange(other.node_, nullptr)) {}
  NodePtr& operator=(NodePtr&& other) noexcept {
    std::swap(node_, other.node_);
    return *this;
  }
  ~NodePtr() {
    if (node_ != nullptr && node_->Node::refs_.load(std::memory_order_relaxed) == 0) {
      Node::destroy(node_);
    }
  }
  T* operator->() const { return node_; }
  T& operator*() const { return *node_; }
  T* get() const { return node_; }
  operator Node*() const { return node_; }  // NOLINT: set_history(result, node)
  explicit operator bool() const { return node_ != nullptr; }

 private:
  T* node_ = nullptr;
};

// Creates a node with `num_edges` edges (inputs of the forward operation that may need a gradient)
// and `num_inputs` inputs (outputs of the forward operation).
template <class T, class... Args>
auto make_node(uint32_t num_edges, uint32_t num_inputs, Args&&... args) {
  static_assert(sizeof(T) % alignof(Edge) == 0 && sizeof(T) < 65536 && alignof(T) <= 64);
  uint8_t size_class = 0;
  void* block = Node::allocate(sizeof(T) + num_edges * sizeof(Edge) + num_inputs * sizeof(GradInfo),
                               &size_class);
  T* node;
  try {
    node = new (block) T(std::forward<Args>(args)...);
  } catch (...) {
    Node::deallocate(block, size_class);
    throw;
  }
  static_cast<Node*>(node)->finish_init(sizeof(T), size_class, num_edges, num_inputs);
  return NodePtr<T>(node);
}

}  // namespace mytorch::autograd
