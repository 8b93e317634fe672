// The graph of a computation: nodes that turn gradients of an operation's outputs into gradients of
// its inputs, and edges from each node to those that made the inputs.
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

// What autograd keeps per thread. Plain data, so that access needs no initialization check.
struct ThreadData {
  uint64_t sequence = 0;              // of the next node made on this thread
  bool anomaly = false;               // an AnomalyMode is alive
  bool check_nan = false;             // and looks for NaN
  const Task* task = nullptr;         // the innermost backward that runs on this thread
  const Task* pruned = nullptr;       // the same where only part of its graph is wanted
  const Node* executing = nullptr;    // the node whose gradient that computes now
  const char* inplace_op = nullptr;   // the in-place operation that check_inplace last allowed
  SavedTensorHooks* hooks = nullptr;  // the innermost hooks on saved tensors
  Node* doomed = nullptr;             // nodes to destroy, linked: destruction does not recurse
  bool destroying = false;
  int depth = 0;  // of backward calls nested on this thread
};
extern thread_local constinit ThreadData thread_data __attribute__((tls_model("initial-exec")));

// What a gradient at an input of a node has to look like, which is like the output it belongs to.
struct GradInfo {
  static constexpr int kInline = 5;
  mt_device device{};
  int32_t ndim = -1;  // -1: not known (an output that is not differentiable)
  ScalarType dtype = ScalarType::kFloat32;
  uint8_t device_slot = 0;
  void* stream = nullptr;  // that the forward ran on; null on the CPU
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

// An operation recorded for differentiation. Counted by the tensors it made and by the edges that
// lead to it. Its edges and grad infos lie behind the object, in the same block of the pool.
class Node {
 public:
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;

  // "AddBackward".
  virtual const char* name() const = 0;
  // `grads` has one entry per input of the node (output of the forward operation), undefined where
  // no gradient came, though never all of them; `out` one undefined tensor per edge, to be set
  // where wants(i). May take the tensors out of `grads`. Runs with the gradient mode of
  // `create_graph`.
  virtual void apply(Tensor* grads, Tensor* out) = 0;
  // Frees what was saved for apply, after which apply throws.
  virtual void release_saved() {}

  // Whether anybody wants the gradient along edge i, in the backward that is running.
  bool wants(uint32_t i) const {
    const Node* to = edges()[i].node;
    if (to == nullptr) return false;
    return thread_data.pruned == nullptr || wanted_by_task(to);
  }
  // The same before any backward: whether recording needs what the gradient along edge i needs.
  bool has_edge(uint32_t i) const { return edges()[i].node != nullptr; }

  // Lets edge i lead to what made the tensor. Each edge is set at most once.
  void edge(uint32_t i, const TensorImpl* input) {
    const Edge to = edge_of(input);
    if (to.node == nullptr) return;
    to.node->retain();
    edges()[i] = to;
  }
  void edge(uint32_t i, const Tensor& input) { edge(i, input.impl()); }
  void edge(uint32_t i, const Operand& input) { edge(i, input.impl()); }
  // Edges first, first + 1, ... to the tensors of a list.
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

  // Zeros of the shape, type and device of an input, for formulas that need every gradient.
  Tensor zeros_for(uint32_t input) const;

 protected:
  // kUnfitted: the gradients that apply makes may yet have to be summed over the dimensions in
  // which an input was broadcast, and converted to its type; the engine does.
  enum Kind : uint8_t { kPlain, kLeaf, kUnfitted };

  explicit Node(Kind kind = kPlain) : kind_(kind) {}
  virtual ~Node() = default;

 private:
  template <class T>
  friend class NodePtr;
  template <class T, class... Args>
  friend auto make_node(uint32_t num_edges, uint32_t num_inputs, Args&&... args);
  friend struct NodeAccess;  // the library's own sources

  // A leaf's node lives in its tensor, so who keeps the node keeps the tensor.
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
  static void destroy(Node* node);  // and, without recursion, whatever only it kept alive

  std::atomic<uint32_t> refs_{0};
  uint32_t num_edges_ = 0;
  uint32_t num_inputs_ = 0;
  uint16_t edges_at_ = 0;  // bytes from the beginning of the object
  uint8_t size_class_ = 0;
  Kind kind_ = kPlain;
  uint64_t sequence_ = 0;
  // Which running backward has a NodeState for this node, and where: id << 32 | index. 0: none.
  // While the node waits for its destruction: the next one that does.
  std::atomic<uint64_t> claim_{0};
  NodeExtras* extras_ = nullptr;  // hooks and other rarities
  union {
    TensorImpl* leaf_ = nullptr;  // of a leaf's node: its tensor, not counted
    Node* enclosing_;  // of an in-place node on a view: the node of the base that owns it
  };
};

// A node while it is being made: destroyed at the end of the scope unless a tensor or an edge has
// taken it.
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

// Makes a node with that many edges (inputs of the forward operation that may want a gradient) and
// inputs (outputs of the forward operation).
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
