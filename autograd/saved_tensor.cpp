#include "mytorch/autograd/saved_tensor.h"

#include <memory>
#include <string>

#include "autograd/anomaly.h"
#include "autograd/meta.h"
#include "autograd/operators.h"
#include "autograd/view.h"
#include "autograd/vmap/batched.h"
#include "autograd/writers.h"
#include "core/types/errors.h"
#include "mytorch/autograd.h"
#include "mytorch/thread_state.h"

namespace mytorch::autograd {

// The state of a saved tensor that is not a plain reference.
struct SavedTensor::Extra {
  CountedEdge edge;  // of inputs: the edge for their gradients
  std::shared_ptr<const SavedTensorHooks::Functions> hooks;
  SavedTensorHooks::Packed packed;
  bool is_output = false;
};

namespace {

// A scope without recording and packing, for the handling of saved values.
class Quietly {
 public:
  Quietly() : hooks_(std::exchange(thread_data.hooks, nullptr)) {}
  ~Quietly() { thread_data.hooks = hooks_; }

 private:
  NoGradGuard no_grad_;
  SavedTensorHooks* hooks_;
};

// Returns an alias without history, batched if the values are.
TensorImpl* alias_of(TensorImpl* values) {
  if (is_batched(values)) [[unlikely]]
    return batch::new_alias(values);
  return new_alias(values);
}

// Returns an alias of the values whose gradient goes along an edge.
Tensor with_edge(TensorImpl* values, Edge edge) {
  Tensor tensor = Tensor::adopt(alias_of(values));
  set_node(tensor.impl(), edge.node, edge.input);
  tensor.impl()->layer_flags |= kLayerAutograd;
  return tensor;
}

// Does the same for output `output` of a node. A view that an in-place node wrote follows the node
// of the base.
Tensor as_output(TensorImpl* values, const Node* owner, uint32_t output) {
  auto* node = const_cast<Node*>(owner);
  if (Node* base = NodeAccess::enclosing(node); base != nullptr) {
    auto of_view = static_cast<CopySlices*>(base)->node_of_view(*values);
    return with_edge(values, {of_view.get(), 0});
  }
  return with_edge(values, {node, output});
}

void check_savable(const TensorImpl* tensor) {
  if (tensor->inference) {
    fail(ErrorCode::kValue,
         "[autograd] an inference tensor cannot be saved for backward, since writes to it are not "
         "counted: clone() it outside inference mode first");
  }
}

}  // namespace

void SavedTensor::reset() {
  if (impl_ != nullptr) mytorch::release(std::exchange(impl_, nullptr));
  delete std::exchange(extra_, nullptr);
  state_ = kUndefined;
}

void SavedTensor::save_input_slow(TensorImpl* input) {
  check_savable(input);
  extra_ = new Extra;
  extra_->edge = CountedEdge(edge_of(input));
  pack(Tensor::adopt(alias_of(input)));
}

void SavedTensor::pack(const Tensor& values) {
  extra_->hooks = thread_data.hooks->functions();
  state_ = kPacked;
  Quietly quietly;
  extra_->packed = extra_->hooks->pack(values);
}

SavedTensor SavedTensor::before_write(const Tensor& input, const Tensor& written) {
  if (!input.defined() || input.impl()->storage != written.impl()->storage) {
    return SavedTensor(input);
  }
  check_savable(input.impl());
  SavedTensor saved;
  saved.extra_ = new Extra;
  saved.extra_->edge = CountedEdge(edge_of(input.impl()));
  Tensor copy;
  {
    Quietly quietly;
    copy = op::clone(input);
  }
  if (thread_data.hooks != nullptr) {
    saved.pack(copy);
    return saved;
  }
  detail::retain(copy.impl());
  saved.impl_ = copy.impl();
  saved.version_ = copy.version();
  saved.state_ = kCopy;
  return saved;
}

SavedTensor SavedTensor::output(const Tensor& result, const Node*, uint32_t output) {
  SavedTensor saved;
  if (!result.defined()) return saved;
  check_savable(result.impl());
  saved.output_ = output;
  TensorImpl* alias = alias_of(result.impl());
  if (thread_data.hooks != nullptr) {
    saved.extra_ = new Extra;
    saved.extra_->is_output = true;
    saved.pack(Tensor::adopt(alias));
    return saved;
  }
  saved.impl_ = alias;
  saved.version_ = alias->storage->abi.version;
  saved.state_ = kOutput;
  return saved;
}

Tensor SavedTensor::unpack_slow(const Node* owner) const {
  if (state_ == kReleased) {
    fail(ErrorCode::kValue, "[", owner->name(), "] backward ran a second time through ",
         operator_name(*owner),
         ", whose saved values the first run freed: pass retain_graph = true to every backward "
         "through this part of the graph but the last");
  }
  if (state_ == kPacked) {
    Tensor values;
    {
      Quietly quietly;
      values = extra_->hooks->unpack(extra_->packed);
    }
    if (!values.defined() || !grad_enabled()) return values;
    if (extra_->is_output) return as_output(values.impl(), owner, output_);
    if (extra_->edge.get().node != nullptr) return with_edge(values.impl(), extra_->edge.get());
    return values;
  }
  if (version_ != impl_->storage->abi.version) fail_version(owner);
  if (grad_enabled()) {
    if (state_ == kOutput) return as_output(impl_, owner, output_);
    if (state_ == kCopy && extra_->edge.get().node != nullptr) {
      return with_edge(impl_, extra_->edge.get());
    }
  }
  return Tensor::share(impl_);
}

void SavedTensor::fail_version(const Node* owner) const {
  const char* op = find_writer(impl_->storage->abi.id, version_);
  const std::string writer =
      op != nullptr
          ? absl::StrCat("by ", op)
          : "by an operation that was not recorded (in no-grad mode, or on a detached alias)";
  const std::string saver = operator_name(*owner);
  fail(ErrorCode::kValue, "[", owner->name(), "] ", saver, " saved ",
       state_ == kOutput ? "its result" : "an operand", ", a ", dtype_name(impl_->dtype),
       " tensor of shape ", shape_str(impl_->sizes()),
       ", for its gradient, and the tensor was overwritten ", writer, " (it was saved at version ",
       version_, " and is at version ", impl_->storage->abi.version,
       "). Write to a clone(), or write before ", saver, " runs");
}

}  // namespace mytorch::autograd
