// The history of views and of in-place operations. A view follows the history of its base.
#pragma once

#include <cstdint>
#include <vector>

#include "autograd/access.h"
#include "mytorch/autograd/record.h"

namespace mytorch::autograd {

// The position of a tensor's elements. The offset counts elements from the beginning of the
// storage.
struct ViewGeometry {
  std::vector<int64_t> sizes;
  std::vector<int64_t> strides;
  int64_t offset = 0;

  ViewGeometry() = default;
  explicit ViewGeometry(const TensorImpl& tensor)
      : sizes(tensor.sizes().vec()), strides(tensor.strides().vec()), offset(tensor.offset()) {}
  ViewGeometry(IntList sizes, IntList strides, int64_t offset)
      : sizes(sizes.vec()), strides(strides.vec()), offset(offset) {}

  // The offsets of the first element and past the last one; both 0 if there are no elements.
  int64_t low() const;
  int64_t high() const;
  bool is_contiguous() const;
  // Returns whether elements may overlap (conservative).
  bool overlaps() const;
};

// The history of a view of which only the geometry is known: as_strided of its base.
class AsStridedBackward final : public Node {
 public:
  AsStridedBackward(ViewGeometry base, ViewGeometry view)
      : base_(std::move(base)), view_(std::move(view)) {}
  const char* name() const override { return "AsStridedBackward"; }
  void apply(Tensor* grads, Tensor* out) override;

 private:
  ViewGeometry base_;
  ViewGeometry view_;
};

// The history of a base that the operation of `fn` wrote through a view. The gradient of the
// written part goes through `fn`, the rest to the former history of the base. Edge 0 leads to that
// history; the other edges are those of `fn`.
class CopySlices final : public Node {
 public:
  // Takes over one reference to fn.
  CopySlices(Node* fn, uint32_t self_edge, ViewGeometry base, ViewGeometry view)
      : Node(NodeAccess::is_unfitted(fn) ? kUnfitted : kPlain),
        fn_(fn),
        self_edge_(self_edge),
        base_(std::move(base)),
        view_(std::move(view)) {}
  ~CopySlices() override { NodeAccess::release(fn_); }
  const char* name() const override { return "CopySlices"; }
  void apply(Tensor* grads, Tensor* out) override;
  void release_saved() override { fn_->release_saved(); }
  const Node& fn() const { return *fn_; }
  // Returns a new node for the view that `fn` wrote, a function of the base that this node made.
  NodePtr<AsStridedBackward> node_of_view(const TensorImpl& like);

 private:
  Node* fn_;
  uint32_t self_edge_;
  ViewGeometry base_;
  ViewGeometry view_;
};

// rebase_history for operations whose written argument is not output 0 and edge 0.
void rebase_history(const Tensor& self, Node* node, uint32_t output, uint32_t self_edge);

}  // namespace mytorch::autograd
