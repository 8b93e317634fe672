// The methods of Tensor for differentiation, which core calls through a table.
#include <atomic>
#include <cstdio>
#include <utility>

#include "autograd/generated.h"
#include "autograd/meta.h"
#include "autograd/operators.h"
#include "core/tensor/capture_layer.h"
#include "core/types/errors.h"
#include "mytorch/autograd.h"
#include "mytorch/autograd/record.h"
#include "mytorch/autograd_table.h"

namespace mytorch::autograd {
namespace {

bool is_leaf(const Tensor& self) {
  const Edge edge = edge_of(self.impl());
  return edge.node == nullptr || NodeAccess::is_leaf(edge.node);
}

void set_requires_grad(const Tensor& self, bool requires_grad) {
  TensorImpl* impl = self.impl();
  if (!is_leaf(self)) {
    if (requires_grad) return;  // its history requires grad
    fail(ErrorCode::kValue,
         "[requires_grad_] only a leaf can stop requiring grad; this tensor was made by ",
         edge_of(impl).node->name(), ": use detach()");
  }
  if (!requires_grad) {
    if (impl->autograd != nullptr) impl->autograd->node = nullptr;
    impl->layer_flags &= ~uint32_t{kLayerAutograd};
    return;
  }
  if (!is_differentiable(impl->dtype)) {
    fail(ErrorCode::kType, "[requires_grad_] only floating and complex types have gradients, not ",
         dtype_name(impl->dtype));
  }
  if (impl->inference && !thread_state.inference_mode) {
    fail(ErrorCode::kValue,
         "[requires_grad_] an inference tensor cannot require grad: clone() it outside inference "
         "mode");
  }
  AutogradMeta& meta = make_meta(impl);
  if (meta.leaf == nullptr) {
    auto leaf = make_node<LeafNode>(0, 1);
    leaf->infos()[0].set(*impl);
    NodeAccess::make_leaf(leaf.get(), impl);
    meta.leaf = leaf.get();
  }
  meta.node = meta.leaf;
  meta.output = 0;
  meta.version = impl->storage->abi.version;
  impl->layer_flags |= kLayerAutograd;
}

void detach(const Tensor& self) {
  TensorImpl* impl = self.impl();
  if (impl->autograd != nullptr) clear_node(impl);
  impl->layer_flags &= ~uint32_t{kLayerAutograd};
}

void data_replaced(TensorImpl* impl) {
  AutogradMeta& meta = *impl->autograd;
  if (meta.leaf == nullptr) return;
  GradInfo& info = meta.leaf->infos()[0];
  info.stream = nullptr;
  info.set(*impl);
  meta.version = impl->storage->abi.version;
}

MetaExtras& extras_of(AutogradMeta& meta) {
  if (meta.extras == nullptr) meta.extras = new MetaExtras;
  return *meta.extras;
}

// Warns, once in the process, that backward leaves no grad in a tensor that is not a leaf.
void warn_no_grad(const Node& node) {
  static std::atomic<bool> warned{false};
  if (warned.exchange(true)) return;
  std::fprintf(
      stderr,
      "mytorch: warning: [grad] a tensor that is not a leaf (%s made it) gets no grad from "
      "backward: call retain_grad() on it before backward, or read the grad of the leaf\n",
      node.name());
}

Tensor get_grad(const Tensor& self) {
  AutogradMeta* meta = self.impl()->autograd;
  if (meta == nullptr) return Tensor();
  if (meta->extras != nullptr && meta->extras->retained != nullptr) {
    std::lock_guard<std::mutex> lock(meta->extras->retained->mutex);
    return meta->extras->retained->grad;
  }
  if (!meta->grad.defined() && meta->node != nullptr && !NodeAccess::is_leaf(meta->node)) {
    warn_no_grad(*meta->node);
  }
  if (recording_graph()) [[unlikely]]
    capture_table->grad_read(self, meta->grad);
  return meta->grad;
}

void set_grad(const Tensor& self, const Tensor& grad) {
  TensorImpl* impl = self.impl();
  if (grad.defined()) {
    if (grad.is_same(self)) fail(ErrorCode::kValue, "[set_grad] a tensor cannot be its own grad");
    if (!(grad.sizes() == self.sizes())) {
      fail(ErrorCode::kShape, "[set_grad] a grad of shape ", shape_str(grad.sizes()),
           " for a tensor of shape ", shape_str(self.sizes()));
    }
    if (grad.dtype() != self.dtype()) {
      fail(ErrorCode::kType, "[set_grad] a grad of type ", dtype_name(grad.dtype()),
           " for a tensor of type ", dtype_name(self.dtype()));
    }
    if (!(grad.device() == self.device())) {
      fail(ErrorCode::kDevice, "[set_grad] a grad on ", grad.device().str(), " for a tensor on ",
           self.device().str());
    }
  } else if (impl->autograd == nullptr) {
    return;
  }
  AutogradMeta& meta = make_meta(impl);
  if (meta.extras != nullptr && meta.extras->retained != nullptr) {
    std::lock_guard<std::mutex> lock(meta.extras->retained->mutex);
    meta.extras->retained->grad = grad;
  } else {
    meta.grad = grad;
    if (recording_graph()) [[unlikely]]
      capture_table->grad_written(self);
  }
}

// Returns the edge to which hooks on a tensor belong.
Edge hooked_edge(const char* op, const Tensor& self) {
  const Edge edge = edge_of(self.impl());
  if (edge.node == nullptr) {
    fail(ErrorCode::kValue, "[", op, "] the tensor does not require grad");
  }
  return edge;
}

void retain_grad(const Tensor& self) {
  const Edge edge = hooked_edge("retain_grad", self);
  if (NodeAccess::is_leaf(edge.node)) return;
  MetaExtras& extras = extras_of(*self.impl()->autograd);
  if (extras.retained != nullptr) return;
  extras.retained = std::make_shared<RetainedGrad>();
  extras.retained->grad = std::move(self.impl()->autograd->grad);
  NodeExtras& of_node = NodeAccess::make_extras(edge.node);
  std::lock_guard<std::mutex> lock(of_node.mutex);
  of_node.retained.push_back({edge.input, extras.retained});
}

bool retains_grad(const Tensor& self) {
  const AutogradMeta* meta = self.impl()->autograd;
  return meta != nullptr && meta->extras != nullptr && meta->extras->retained != nullptr;
}

// Compiled functions that use a tensor are recorded again, with its hooks.
void note_hooks(const Tensor& self) {
  const Tensor none;
  count_replaced(&none, self.impl());
}

int64_t add_hook(const Tensor& self, const Edge& edge, std::shared_ptr<Hook> hook) {
  note_hooks(self);
  static std::atomic<int64_t> last{0};
  hook->id = last.fetch_add(1, std::memory_order_relaxed) + 1;
  extras_of(*self.impl()->autograd).hooks.push_back(hook);
  NodeExtras& extras = NodeAccess::make_extras(edge.node);
  std::lock_guard<std::mutex> lock(extras.mutex);
  extras.hooks.push_back({edge.input, hook});
  return hook->id;
}

int64_t register_hook(const Tensor& self, std::function<Tensor(const Tensor&)> function) {
  const Edge edge = hooked_edge("register_hook", self);
  auto hook = std::make_shared<Hook>();
  hook->on_gradient = std::move(function);
  return add_hook(self, edge, std::move(hook));
}

void remove_hook(const Tensor& self, int64_t id) {
  note_hooks(self);
  AutogradMeta* meta = self.impl()->autograd;
  if (meta != nullptr && meta->extras != nullptr) {
    auto& hooks = meta->extras->hooks;
    for (size_t i = 0; i < hooks.size(); ++i) {
      if (hooks[i]->id != id) continue;
      // A node that an in-place operation has replaced may still call it.
      hooks[i]->removed = true;
      if (NodeExtras* extras = meta->node != nullptr ? NodeAccess::extras(meta->node) : nullptr) {
        std::lock_guard<std::mutex> lock(extras->mutex);
        std::erase_if(extras->hooks, [&](const auto& at) { return at.hook == hooks[i]; });
      }
      hooks.erase(hooks.begin() + static_cast<ptrdiff_t>(i));
      return;
    }
  }
  fail(ErrorCode::kValue, "[remove_hook] the tensor has no hook ", id);
}

void tensor_backward(const Tensor& self, const Tensor& gradient, std::optional<bool> retain_graph,
                     bool create_graph, TensorList inputs) {
  const TensorList gradients = gradient.defined() ? TensorList(&gradient, 1) : TensorList();
  backward(TensorList(&self, 1), gradients, retain_graph, create_graph, inputs);
}

std::string grad_fn(const Tensor& self) {
  const Edge edge = edge_of(self.impl());
  return edge.node == nullptr || NodeAccess::is_leaf(edge.node) ? "" : edge.node->name();
}

constexpr AutogradTable kTable = {
    .destroy_meta = destroy_meta,
    .data_replaced = data_replaced,
    .set_requires_grad = set_requires_grad,
    .is_leaf = is_leaf,
    .detach = detach,
    .grad = get_grad,
    .set_grad = set_grad,
    .retain_grad = retain_grad,
    .retains_grad = retains_grad,
    .backward = tensor_backward,
    .register_hook = register_hook,
    .remove_hook = remove_hook,
    .grad_fn = grad_fn,
};

// libmytorch links this library as a whole, so that the registration is never dropped.
[[maybe_unused]] const bool installed = (autograd_table = &kTable, install_wrappers(), true);

}  // namespace

int64_t register_post_accumulate_hook(const Tensor& leaf,
                                      std::function<void(const Tensor&)> function) {
  if (!leaf.defined()) {
    fail(ErrorCode::kValue, "[register_post_accumulate_hook] called on an undefined tensor");
  }
  const Edge edge = hooked_edge("register_post_accumulate_hook", leaf);
  if (!NodeAccess::is_leaf(edge.node)) {
    fail(ErrorCode::kValue,
         "[register_post_accumulate_hook] only leaves accumulate gradients; this "
         "tensor was made by ",
         edge.node->name());
  }
  auto hook = std::make_shared<Hook>();
  hook->on_accumulated = std::move(function);
  return add_hook(leaf, edge, std::move(hook));
}

SavedTensorHooks::SavedTensorHooks(Pack pack, Unpack unpack)
    : functions_(std::make_shared<const Functions>(Functions{std::move(pack), std::move(unpack)})),
      outer_(std::exchange(thread_data.hooks, this)) {}

SavedTensorHooks::~SavedTensorHooks() { thread_data.hooks = outer_; }

}  // namespace mytorch::autograd
