#include "autograd/view.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <utility>

#include "autograd/meta.h"
#include "autograd/operators.h"
#include "autograd/vmap/batched.h"
#include "autograd/writers.h"
#include "core/types/errors.h"

namespace mytorch::autograd {

int64_t ViewGeometry::low() const {
  int64_t low = offset;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] == 0) return 0;
    if (strides[i] < 0) low += (sizes[i] - 1) * strides[i];
  }
  return low;
}

int64_t ViewGeometry::high() const {
  int64_t high = offset + 1;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] == 0) return 0;
    if (strides[i] > 0) high += (sizes[i] - 1) * strides[i];
  }
  return high;
}

bool ViewGeometry::is_contiguous() const {
  int64_t stride = 1;
  for (size_t i = sizes.size(); i-- > 0;) {
    if (strides[i] != stride) return false;
    stride *= sizes[i];
  }
  return true;
}

bool ViewGeometry::overlaps() const {
  // In order of strides, each dimension must step over the extent of the smaller ones.
  std::vector<std::pair<int64_t, int64_t>> dims;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] == 0) return false;
    if (sizes[i] > 1) dims.emplace_back(std::abs(strides[i]), sizes[i]);
  }
  std::sort(dims.begin(), dims.end());
  int64_t reach = 0;
  for (const auto& [stride, size] : dims) {
    if (stride <= reach) return true;
    reach += (size - 1) * stride;
  }
  return false;
}

namespace {

// Sums a gradient over the dimensions of stride 0 of its tensor, and removes them. Other overlaps
// are rare.
Tensor drop_repeated(Tensor grad, ViewGeometry* geometry) {
  std::vector<int64_t> repeated;
  ViewGeometry rest;
  rest.offset = geometry->offset;
  for (size_t i = 0; i < geometry->sizes.size(); ++i) {
    if (geometry->strides[i] == 0 && geometry->sizes[i] > 1) {
      repeated.push_back(static_cast<int64_t>(i));
    } else {
      rest.sizes.push_back(geometry->sizes[i]);
      rest.strides.push_back(geometry->strides[i]);
    }
  }
  if (repeated.empty()) return grad;
  *geometry = std::move(rest);
  return op::sum(grad, repeated);
}

// Returns the positions of the elements, relative to `low`, in row-major order.
Tensor positions(const ViewGeometry& geometry, int64_t low, int64_t extent, Device device) {
  const Tensor all = op::arange(extent, device);
  return op::flatten(op::as_strided(all, geometry.sizes, geometry.strides, geometry.offset - low));
}

}  // namespace

Tensor as_strided_backward(const Tensor& grad, IntList input_sizes, IntList input_strides,
                           int64_t input_offset, IntList sizes, IntList strides, int64_t offset) {
  const ViewGeometry input(input_sizes, input_strides, input_offset);
  ViewGeometry view(sizes, strides, offset);
  Tensor gradient = drop_repeated(grad, &view);
  // A buffer for the part of the storage that input or view cover.
  const bool view_empty = count(view.sizes) == 0;
  const bool input_empty = count(input.sizes) == 0;
  if (view_empty || input_empty) return op::zeros(input.sizes, grad.dtype(), grad.device());
  const int64_t low = std::min(input.low(), view.low());
  const int64_t extent = std::max(input.high(), view.high()) - low;
  Tensor buffer = batch::own_memory(op::zeros(IntList(extent), grad.dtype(), grad.device()));
  if (view.overlaps()) {
    buffer =
        op::index_add(buffer, positions(view, low, extent, grad.device()), op::flatten(gradient));
  } else {
    op::copy_(op::as_strided(buffer, view.sizes, view.strides, view.offset - low), gradient);
  }
  if (input.overlaps()) {
    // If several elements of the input share memory, each gets its share of the gradient.
    const Tensor at = positions(input, low, extent, grad.device());
    const Tensor ones = op::ones(IntList(count(input.sizes)), grad.dtype(), grad.device());
    const Tensor shares =
        op::index_add(op::zeros(IntList(extent), grad.dtype(), grad.device()), at, ones);
    buffer = op::div(buffer, op::clamp_min(shares, 1));
  }
  return op::as_strided(buffer, input.sizes, input.strides, input.offset - low);
}

void AsStridedBackward::apply(Tensor* grads, Tensor* out) {
  if (!wants(0)) return;
  out[0] = as_strided_backward(grads[0], base_.sizes, base_.strides, base_.offset, view_.sizes,
                               view_.strides, view_.offset);
}

void CopySlices::apply(Tensor* grads, Tensor* out) {
  // The gradient of the base, with the layout of the base, so that the view has its place in it.
  const int64_t low = std::min(base_.low(), view_.low());
  const int64_t extent = std::max(base_.high(), view_.high()) - low;
  const bool covered = extent == count(base_.sizes);
  Tensor memory, all;
  if (covered && base_.is_contiguous() && grads[0].is_contiguous() && is_writable(grads[0])) {
    memory = all = std::move(grads[0]);
  } else if (covered && base_.is_contiguous()) {
    // The node of an earlier write may take this tensor over: many writes of parts, as of the steps
    // of a sequence, need one copy.
    all = batch::own_memory(op::empty(base_.sizes, grads[0].dtype(), grads[0].device()));
    memory = all;
    op::copy_(all, grads[0]);
  } else {
    memory = batch::own_memory(
        (covered ? op::empty : op::zeros)(IntList(extent), grads[0].dtype(), grads[0].device()));
    all = op::as_strided(memory, base_.sizes, base_.strides, base_.offset - low);
    op::copy_(all, grads[0]);
  }
  grads[0] = Tensor();
  const Tensor part = op::as_strided(memory, view_.sizes, view_.strides,
                                     memory.storage_offset() + view_.offset - low);
  Tensor part_grad = op::clone(part);

  std::vector<Tensor> fn_out(fn_->num_edges());
  fn_->apply(&part_grad, fn_out.data());
  if (wants(0)) {
    if (self_edge_ < fn_out.size() && fn_out[self_edge_].defined()) {
      op::copy_(part, fn_out[self_edge_]);
    } else {
      op::zero_(part);
    }
    out[0] = std::move(all);
  }
  for (uint32_t i = 0, to = 1; i < fn_out.size(); ++i) {
    if (i != self_edge_) out[to++] = std::move(fn_out[i]);
  }
}

NodePtr<AsStridedBackward> CopySlices::node_of_view(const TensorImpl& like) {
  auto node = make_node<AsStridedBackward>(1, 1, base_, view_);
  NodeAccess::set_edge(node.get(), 0, {this, 0});
  node->infos()[0].set(like);
  return node;
}

namespace {

// A write through a view of another type (real(z), view_as_real(z)) is not differentiable: the node
// of a view knows its place among the elements of its base.
void refuse_other_type(const TensorImpl& root, const TensorImpl& view) {
  if (root.dtype == view.dtype) return;
  fail(ErrorCode::kUnsupported, "[view] a ", dtype_name(view.dtype), " view of a ",
       dtype_name(root.dtype),
       " tensor is written, or read after a write, by an operation that gradients flow through: "
       "make a new tensor, with complex(real, imag) or view_as_complex(x)");
}

}  // namespace

// A view's node is valid until its base gets another history; writes in no-grad mode do not count.
// The `version` in a root's metadata is the version at which it got its history.
Edge edge_of_view(const TensorImpl* view) {
  // Many threads may read one tensor, and this function modifies it.
  static std::mutex mutex;
  std::lock_guard<std::mutex> lock(mutex);
  AutogradMeta* meta = std::atomic_ref(const_cast<TensorImpl*>(view)->autograd).load();
  const TensorImpl* root = view->base;
  const AutogradMeta* root_meta = root->autograd;
  const uint64_t now = view->storage->abi.version;
  const bool root_recorded =
      root_meta != nullptr && root_meta->node != nullptr && !NodeAccess::is_leaf(root_meta->node);
  const bool stale =
      root_recorded &&
      (meta != nullptr ? root_meta->version > meta->version
                       : static_cast<int32_t>(static_cast<uint32_t>(root_meta->version) -
                                              view->view_version) > 0);
  if (!stale) {
    if (meta == nullptr) return {};
    std::atomic_ref(meta->version).store(now, std::memory_order_release);
    return {meta->node, meta->output};
  }
  if (view->no_grad_view) {
    fail(ErrorCode::kValue,
         "[view] a view that was made in no-grad mode is used with gradients enabled after its "
         "base, "
         "or another view of it, was written in place by a recorded operation: whether its values "
         "are to be differentiated is ambiguous. Make the view again");
  }
  refuse_other_type(*root, *view);
  auto node = make_node<AsStridedBackward>(1, 1, ViewGeometry(*root), ViewGeometry(*view));
  node->edge(0, root);
  node->infos()[0].set(*view);
  auto* impl = const_cast<TensorImpl*>(view);
  if (meta == nullptr) {
    // Published after it is complete: other threads read it without the lock.
    TensorImpl holder;
    AutogradMeta& fresh = make_meta(&holder);
    set_node(&holder, node, 0);
    fresh.version = now;
    holder.autograd = nullptr;
    std::atomic_ref(impl->autograd).store(&fresh, std::memory_order_release);
  } else {
    set_node(impl, node, 0);
    std::atomic_ref(meta->version).store(now, std::memory_order_release);
  }
  return {node.get(), 0};
}

void rebase_history(const Tensor& self, Node* node) { rebase_history(self, node, 0, 0); }

void rebase_history(const Tensor& self, Node* node, uint32_t output, uint32_t self_edge) {
  TensorImpl* impl = self.impl();
  TensorImpl* root = root_of(impl);
  if (!is_differentiable(root->dtype)) {  // integers of floats have no gradient
    thread_data.inplace_op = nullptr;
    return;
  }
  node->infos()[output].set(*impl);
  if (root == impl) {
    set_node(impl, node, output);
  } else {
    if (node->num_inputs() != 1) {
      fail(ErrorCode::kUnsupported, "[", node->name(),
           "] an operation with several outputs wrote a view in place: write its base instead");
    }
    refuse_other_type(*root, *impl);
    const bool has_self = self_edge < node->num_edges();
    NodeAccess::retain(node);
    auto slices = make_node<CopySlices>(node->num_edges() + (has_self ? 0 : 1), 1, node, self_edge,
                                        ViewGeometry(*root), ViewGeometry(*impl));
    NodeAccess::set_enclosing(node, slices.get());
    // The edge to the view now leads to the former history of the base, also in the node, whose
    // edges wants() reads.
    const CountedEdge before(edge_of(root));
    if (has_self) NodeAccess::set_edge(node, self_edge, before.get());
    NodeAccess::set_edge(slices.get(), 0, before.get());
    for (uint32_t i = 0, to = 1; i < node->num_edges(); ++i) {
      if (i != self_edge) NodeAccess::set_edge(slices.get(), to++, node->edges()[i]);
    }
    slices->infos()[0].set(*root);
    set_node(root, slices, 0);
  }
  const uint64_t version = root->storage->abi.version;
  root->autograd->version = version;
  const char* op = std::exchange(thread_data.inplace_op, nullptr);
  note_writer(root->storage->abi.id, version, op != nullptr ? op : node->name());
  root->layer_flags |= kLayerAutograd;
  impl->layer_flags |= kLayerAutograd;
  if (root != impl && impl->autograd != nullptr && impl->autograd->extras != nullptr) {
    edge_of_view(impl);  // so that retain_grad follows the write
  }
}

}  // namespace mytorch::autograd
