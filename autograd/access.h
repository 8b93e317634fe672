// Access to nodes beyond their public interface, for the library's own sources.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "mytorch/autograd/node.h"

namespace mytorch::autograd {

// A function on the gradient of a tensor. Shared by the tensor, for removal, and by the node that
// made the tensor when the hook was registered, which calls it.
struct Hook {
  int64_t id = 0;
  std::function<Tensor(const Tensor&)> on_gradient;   // before it is used
  std::function<void(const Tensor&)> on_accumulated;  // leaves: after it was added to grad
  std::atomic<bool> removed{false};
};

// The gradient of retain_grad. Tensor and node share it, since either may be destroyed first.
struct RetainedGrad {
  std::mutex mutex;
  Tensor grad;
};

// The place where a node was made, for anomaly mode.
struct NodeOrigin {
  std::vector<void*> frames;
  std::string scope;   // the path of the NameScopes
  std::string within;  // the node whose apply() made this one, if any
};

struct NodeExtras {
  struct HookAt {
    uint32_t input;
    std::shared_ptr<Hook> hook;
  };
  struct RetainAt {
    uint32_t input;
    std::shared_ptr<RetainedGrad> slot;
  };
  std::mutex mutex;
  std::vector<HookAt> hooks;
  std::vector<RetainAt> retained;
  struct NameAt {
    uint32_t input;
    std::string name;
  };
  std::vector<NameAt> names;
  NodeOrigin origin;
};

namespace batch {
struct Batched;
}

struct MetaExtras {
  std::vector<std::shared_ptr<Hook>> hooks;
  std::shared_ptr<RetainedGrad> retained;
  std::shared_ptr<const batch::Batched> batched;  // inside vmap
};

struct NodeAccess {
  static void retain(Node* node) { node->retain(); }
  static void release(Node* node) {
    if (node->kind_ == Node::kLeaf) {
      mytorch::release(node->leaf_);
      return;
    }
    // If the count is one, the caller holds the last reference and no other thread can add one.
    if (node->refs_.load(std::memory_order_acquire) == 1 ||
        node->refs_.fetch_sub(1, std::memory_order_acq_rel) == 1) {
      Node::destroy(node);
    }
  }
  // For nodes that no other thread knows yet.
  static void retain_unpublished(Node* node) {
    node->refs_.store(node->refs_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }
  static bool is_leaf(const Node* node) { return node->kind_ == Node::kLeaf; }
  static bool is_unfitted(const Node* node) { return node->kind_ >= Node::kUnfitted; }
  static bool is_part(const Node* node) { return node->kind_ == Node::kPart; }
  static TensorImpl* leaf_tensor(const Node* node) { return node->leaf_; }
  static void make_leaf(Node* node, TensorImpl* tensor) {
    node->kind_ = Node::kLeaf;
    node->leaf_ = tensor;
    node->sequence_ = UINT64_MAX;  // runs as soon as all its gradients have arrived
    node->refs_.store(1, std::memory_order_relaxed);
  }
  static void destroy(Node* node) { Node::destroy(node); }
  static Node* enclosing(const Node* node) { return node->enclosing_; }
  static void set_enclosing(Node* node, Node* enclosing) { node->enclosing_ = enclosing; }
  static std::atomic<uint64_t>& claim(Node* node) { return node->claim_; }
  static NodeExtras* extras(const Node* node) { return node->extras_; }
  static NodeExtras& make_extras(Node* node);
  static void set_edge(Node* node, uint32_t i, Edge to);  // releases the former edge
  static void finish(Node* node);
};

// An edge that holds a reference to its node.
class CountedEdge {
 public:
  CountedEdge() = default;
  explicit CountedEdge(Edge edge) : edge_(edge) {
    if (edge.node != nullptr) NodeAccess::retain(edge.node);
  }
  CountedEdge(CountedEdge&& other) noexcept : edge_(std::exchange(other.edge_, {})) {}
  CountedEdge& operator=(CountedEdge&& other) noexcept {
    std::swap(edge_, other.edge_);
    return *this;
  }
  ~CountedEdge() {
    if (edge_.node != nullptr) NodeAccess::release(edge_.node);
  }
  const Edge& get() const { return edge_; }

 private:
  Edge edge_;
};

}  // namespace mytorch::autograd
