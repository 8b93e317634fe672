#include "autograd/meta.h"

#include <mutex>
#include <new>
#include <utility>

#include "autograd/operators.h"
#include "autograd/pool.h"
#include "core/tensor/capture_layer.h"
#include "mytorch/autograd/record.h"

namespace mytorch::autograd {

AutogradMeta& make_meta(TensorImpl* tensor) {
  if (tensor->autograd == nullptr) {
    uint8_t size_class = 0;
    void* block = pool::allocate(sizeof(AutogradMeta), &size_class);
    auto* meta = new (block) AutogradMeta;
    meta->size_class = size_class;
    tensor->autograd = meta;
  }
  return *tensor->autograd;
}

void destroy_meta(TensorImpl* tensor) {
  AutogradMeta* meta = tensor->autograd;
  tensor->autograd = nullptr;
  if (meta->node != nullptr && meta->node != meta->leaf) NodeAccess::release(meta->node);
  if (meta->leaf != nullptr) NodeAccess::destroy(meta->leaf);
  delete meta->extras;
  const uint8_t size_class = meta->size_class;
  meta->~AutogradMeta();
  pool::release(meta, size_class);
}

void set_node(TensorImpl* tensor, Node* node, uint32_t output) {
  AutogradMeta& meta = make_meta(tensor);
  Node* old = meta.node;
  const uint32_t old_output = meta.output;
  NodeAccess::retain(node);
  meta.node = node;
  meta.output = output;
  if (old != nullptr && meta.extras != nullptr && meta.extras->retained != nullptr) {
    if (NodeExtras* extras = NodeAccess::extras(old); extras != nullptr) {
      std::lock_guard<std::mutex> lock(extras->mutex);
      std::erase_if(extras->retained, [&](const NodeExtras::RetainAt& at) {
        return at.slot == meta.extras->retained && at.input == old_output;
      });
    }
    NodeExtras& extras = NodeAccess::make_extras(node);
    std::lock_guard<std::mutex> lock(extras.mutex);
    extras.retained.push_back({output, meta.extras->retained});
  }
  if (old != nullptr && old != meta.leaf) NodeAccess::release(old);
}

void clear_node(TensorImpl* tensor) {
  AutogradMeta& meta = *tensor->autograd;
  Node* old = std::exchange(meta.node, nullptr);
  meta.output = 0;
  if (meta.extras != nullptr && meta.extras->retained != nullptr) {
    std::lock_guard<std::mutex> lock(meta.extras->retained->mutex);
    meta.grad = meta.extras->retained->grad;
  }
  delete std::exchange(meta.extras, nullptr);
  if (old != nullptr && old != meta.leaf) NodeAccess::release(old);
}

namespace {

// Returns whether nothing else refers to the gradient's memory, so that it needs no copy.
bool unshared(const Tensor& gradient) {
  const TensorImpl* impl = gradient.impl();
  uint32_t kept = 0, kept_memory = 0;
  if (recording_graph()) [[unlikely]] {
    kept = capture_table->keeps(gradient) ? 1 : 0;
    kept_memory = capture_table->keeps_memory(gradient) ? 1 : 0;
  }
  return impl->refs.load(std::memory_order_acquire) == 1 + kept && impl->base == nullptr &&
         impl->storage->refs.load(std::memory_order_acquire) == 1 + kept_memory;
}

// Returns whether the gradient is a view of all of a tensor that nothing else refers to, as the
// backward of views gives it.
bool is_lone_view(const Tensor& gradient) {
  const TensorImpl* impl = gradient.impl();
  const TensorImpl* base = impl->base;
  return base != nullptr && !recording_graph() && impl->refs.load(std::memory_order_acquire) == 1 &&
         base->refs.load(std::memory_order_acquire) == 1 &&
         impl->storage->refs.load(std::memory_order_acquire) == 1 &&
         static_cast<uint64_t>(gradient.nbytes()) == impl->storage->bytes;
}

bool has_layout_of(const Tensor& gradient, const TensorImpl& tensor) {
  return gradient.is_contiguous() || gradient.strides() == tensor.strides();
}

}  // namespace

bool is_writable(const Tensor& gradient) {
  // Inside vmap a gradient that all examples share cannot take one that differs between them. A
  // hook may give memory of others.
  return !grad_enabled() && thread_data.one_stream && (thread_state.wanted & kLayerBatch) == 0 &&
         unshared(gradient) && !gradient.impl()->read_only && !gradient.impl()->inference;
}

void accumulate_grad(const TensorImpl* tensor, Tensor* grad, Tensor&& gradient) {
  const bool recording = grad_enabled();
  if (grad->defined()) {
    // In place, so that references to the grad stay valid, unless the sum must be recorded.
    if (recording) {
      *grad = op::add(*grad, gradient);
    } else {
      op::add_(*grad, gradient);
    }
    return;
  }
  if (recording) {
    *grad = op::clone(gradient);
  } else if (unshared(gradient) && has_layout_of(gradient, *tensor)) {
    *grad = std::move(gradient);
  } else if (is_lone_view(gradient) && has_layout_of(gradient, *tensor)) {
    *grad = gradient.detach();  // a tensor of its own, with the memory of the base
  } else {
    *grad = op::contiguous_copy(gradient);
  }
}

void LeafNode::apply(Tensor* grads, Tensor*) {
  TensorImpl* tensor = NodeAccess::leaf_tensor(this);
  std::lock_guard<std::mutex> lock(mutex);
  Tensor& grad = tensor->autograd->grad;
  if (recording_graph()) [[unlikely]] {
    capture_table->grad_read(Tensor::share(tensor), grad);
    accumulate_grad(tensor, &grad, std::move(grads[0]));
    capture_table->grad_written(Tensor::share(tensor));
    return;
  }
  accumulate_grad(tensor, &grad, std::move(grads[0]));
}

}  // namespace mytorch::autograd
