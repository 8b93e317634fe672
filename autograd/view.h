// Views and in-place operations: views follow the history of their base.
#pragma once

#include <cstdint>
#include <vector>

#include "autograd/access.h"
#include "mytorch/autograd/record.h"

namespace mytorch::autograd {

// Where elements lie; offset in elements from the beginning of the storage.
struct Geometry {
  std::vector<int64_t> sizes;
  std::vector<int64_t> strides;
  int64_t offset = 0;

  Geometry() = default;
  explicit Geometry(const TensorImpl& tensor)
      : sizes(tensor.sizes().vec()), strides(tensor.strides().vec()), offset(tensor.offset()) {}
  Geometry(IntList sizes, IntList strides, int64_t offset)
      : sizes(sizes.vec()), strides(strides.vec()), offset(offset) {}

  // Offsets of the first and past the last element; empty: both 0.
  int64_t low() const;
  int64_t high() const;
  // Whether elements may coincide (conservative).
  bool overlaps() const;
};

// What made a view of which only the geometry is known: as_strided of its base.
class AsStridedBackward final : public Node {
 public:
  AsStridedBackward(Geometry base, Geometry view)
      : base_(std::move(base)), view_(std::move(view)) {}
  const char* name() const override { return "AsStridedBackward"; }
  void apply(Tensor* grads, Tensor* out) override;

 private:
  Geometry base_;
  Geometry view_;
};

// What made a base that was written through a view by the operation of `fn`: the gradient of the
// part written goes through `fn`, that of the rest to what made the base before. Edge 0 leads to
// the base before; the others are fn's.
class CopySlices final : public Node {
 public:
  // Takes over one reference to fn.
  CopySlices(Node* fn, uint32_t self_edge, Geometry base, Geometry view)
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
  // A new node for the view that fn wrote, as an output of the base that this node made.
  NodePtr<AsStridedBackward> node_of_view(const TensorImpl& like);

 private:
  Node* fn_;
  uint32_t self_edge_;
  Geometry base_;
  Geometry view_;
};

// rebase_history for operations whose written argument is not output 0 or edge 0.
void rebase_history(const Tensor& self, Node* node, uint32_t output, uint32_t self_edge);

}  // namespace mytorch::autograd
