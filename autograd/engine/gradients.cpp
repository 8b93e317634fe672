#include "autograd/engine/gradients.h"

#include "autograd/meta.h"
#include "autograd/operators.h"
#include "core/tensor/batched.h"
#include "core/types/errors.h"
#include "mytorch/grad_mode.h"

namespace mytorch::autograd {
namespace {

bool can_add_to(const Tensor& sum) { return sum.impl()->contiguous() && is_writable(sum); }

}  // namespace

void add_gradient(Tensor* sum, Tensor&& gradient) {
  if (!gradient.defined()) return;
  if (!sum->defined()) {
    *sum = std::move(gradient);
    return;
  }
  if (can_add_to(*sum)) {
    op::add_(*sum, gradient);
  } else if (can_add_to(gradient)) {
    op::add_(gradient, *sum);
    *sum = std::move(gradient);
  } else {
    *sum = op::add(*sum, gradient);
  }
}

namespace {

// Makes the gradient of a whole from that of its first part.
bool begin_whole(const Node& node, const Tensor& gradient, const GradInfo& info, Tensor* sum,
                 Wholes* wholes) {
  if (grad_enabled() || info.ndim < 1 || is_batched(gradient.impl())) return false;
  const Device device(info.device.type, info.device.index);
  if (gradient.dtype() != info.dtype || gradient.device() != device) return false;
  const Tensor whole = op::empty(info.sizes(), info.dtype, device);
  const Tensor part = node.part_of(whole);
  const std::optional<Slice> slice = slice_of(whole, part);
  if (!slice.has_value() || !(part.sizes() == gradient.sizes())) return false;
  op::copy_(part, gradient);
  *sum = whole;
  wholes->begin(sum, *slice);
  return true;
}

}  // namespace

bool add_gradient_of_part(const Node& node, const Tensor& gradient, const GradInfo& info,
                          Tensor* sum, Wholes* wholes) {
  if (!sum->defined()) return begin_whole(node, gradient, info, sum, wholes);
  if (!can_add_to(*sum)) return false;
  if (sum->dtype() != gradient.dtype() || sum->device() != gradient.device()) return false;
  const Tensor part = node.part_of(*sum);
  if (!(part.sizes() == gradient.sizes()) || has_internal_overlap(*part.impl())) return false;
  if (!wholes->empty()) {
    const std::optional<Slice> slice = slice_of(*sum, part);
    if (slice.has_value() && wholes->take(sum, *slice)) {
      op::copy_(part, gradient);
      return true;
    }
    wholes->complete(sum);
  }
  op::add_(part, gradient);
  return true;
}

void fit_gradient_slow(Tensor* gradient, const GradInfo& info, const std::string& from) {
  if (info.ndim < 0) return;
  const Device device(info.device.type, info.device.index);
  if (!(gradient->sizes() == info.sizes())) {
    fail(ErrorCode::kShape, "[", from, "] the gradient has shape ", shape_str(gradient->sizes()),
         ", but the input has shape ", shape_str(info.sizes()));
  }
  if (!is_differentiable(gradient->dtype())) {
    fail(ErrorCode::kType, "[", from, "] the gradient has dtype ", dtype_name(gradient->dtype()),
         ", but the input has dtype ", dtype_name(info.dtype));
  }
  if (gradient->device() != device && gradient->dim() != 0) {
    fail(ErrorCode::kDevice, "[", from, "] the gradient is on ", gradient->device().str(),
         ", but the input is on ", device.str());
  }
  // A real operand of a complex result takes the real part.
  if (!is_complex(info.dtype)) *gradient = op::real(*gradient);
  *gradient = op::to(*gradient, info.dtype, device);
}

void check_nan(const Node& node, const Tensor* out) {
  NoGradGuard no_grad;
  for (uint32_t i = 0; i < node.num_edges(); ++i) {
    if (out[i].defined() && op::has_nan(out[i])) {
      fail(ErrorCode::kValue, "[", node.name(), "] the gradient of input ", i, ", ",
           dtype_name(out[i].dtype()), " ", shape_str(out[i].sizes()), ", contains NaN");
    }
  }
}

void run_hooks(Node* node, Tensor* grads) {
  NodeExtras* extras = NodeAccess::extras(node);
  std::vector<NodeExtras::HookAt> hooks;
  std::vector<NodeExtras::RetainAt> retained;
  {
    // Call hooks outside the lock: a hook may remove itself or add others.
    std::lock_guard<std::mutex> lock(extras->mutex);
    hooks = extras->hooks;
    retained = extras->retained;
  }
  for (const auto& [input, hook] : hooks) {
    if (!grads[input].defined() || !hook->on_gradient || hook->removed) continue;
    Tensor replaced = hook->on_gradient(grads[input]);
    if (!replaced.defined()) continue;
    fit_gradient_slow(&replaced, node->infos()[input], "hook");
    grads[input] = std::move(replaced);
  }
  for (const auto& [input, slot] : retained) {
    if (!grads[input].defined()) continue;
    std::lock_guard<std::mutex> lock(slot->mutex);
    if (slot->grad.defined()) {
      slot->grad = op::add(slot->grad, grads[input]);
    } else {
      slot->grad = grads[input].is_view() ? op::contiguous_copy(grads[input]) : grads[input];
    }
  }
}

void run_accumulated_hooks(Node* leaf) {
  NodeExtras* extras = NodeAccess::extras(leaf);
  std::vector<NodeExtras::HookAt> hooks;
  {
    std::lock_guard<std::mutex> lock(extras->mutex);
    hooks = extras->hooks;
  }
  for (const auto& at : hooks) {
    if (at.hook->on_accumulated && !at.hook->removed) {
      at.hook->on_accumulated(Tensor::share(NodeAccess::leaf_tensor(leaf)));
    }
  }
}

}  // namespace mytorch::autograd
