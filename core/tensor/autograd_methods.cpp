// The methods of Tensor that the autograd library implements.
#include <utility>

#include "core/tensor/batched.h"
#include "core/types/errors.h"
#include "mytorch/autograd_table.h"
#include "mytorch/tensor.h"

namespace mytorch {

constinit const AutogradTable* autograd_table = nullptr;
constinit const BatchTable* batch_table = nullptr;

namespace {

// Returns the autograd table for a call of `method`. Throws Error if the tensor is undefined or the
// library is not linked.
const AutogradTable& table(const Tensor& self, const char* method) {
  if (!self.defined()) {
    fail(ErrorCode::kValue, "[", method, "] called on an undefined tensor");
  }
  if (autograd_table == nullptr) {
    fail(ErrorCode::kUnsupported, "[", method,
         "] needs the autograd library: link mytorch or mytorch_autograd in addition to the core");
  }
  return *autograd_table;
}

}  // namespace

const Tensor& Tensor::requires_grad_(bool requires_grad) const {
  table(*this, "requires_grad_").set_requires_grad(*this, requires_grad);
  return *this;
}

bool Tensor::is_leaf() const { return table(*this, "is_leaf").is_leaf(*this); }

Tensor Tensor::grad() const { return table(*this, "grad").grad(*this); }

void Tensor::set_grad(const Tensor& grad) const { table(*this, "set_grad").set_grad(*this, grad); }

void Tensor::retain_grad() const { table(*this, "retain_grad").retain_grad(*this); }

bool Tensor::retains_grad() const { return table(*this, "retains_grad").retains_grad(*this); }

void Tensor::backward(const Tensor& gradient, std::optional<bool> retain_graph, bool create_graph,
                      TensorList inputs) const {
  table(*this, "backward").backward(*this, gradient, retain_graph, create_graph, inputs);
}

int64_t Tensor::register_hook(std::function<Tensor(const Tensor&)> hook) const {
  return table(*this, "register_hook").register_hook(*this, std::move(hook));
}

void Tensor::remove_hook(int64_t hook) const {
  table(*this, "remove_hook").remove_hook(*this, hook);
}

std::string Tensor::grad_fn() const { return table(*this, "grad_fn").grad_fn(*this); }

// An alias has no base: writes through either tensor are counted in the shared version, and there
// is no other connection for autograd.
Tensor Tensor::detach() const {
  if (!defined()) fail(ErrorCode::kValue, "[detach] called on an undefined tensor");
  if (is_batched(impl_)) [[unlikely]]
    return batch_table->detach(*this);
  return adopt(new_alias(impl_));
}

const Tensor& Tensor::detach_() const {
  const AutogradTable& autograd = table(*this, "detach_");
  if (is_view()) {
    fail(ErrorCode::kValue,
         "[detach_] the tensor is a view, whose history is its base's: write x = x.detach()");
  }
  check_not_batched(*this, "detach_");
  autograd.detach(*this);
  return *this;
}

void Tensor::set_data(const Tensor& data) const {
  if (!defined() || !data.defined()) {
    fail(ErrorCode::kValue, "[set_data] called on, or with, an undefined tensor");
  }
  if (is_view() || (autograd_table != nullptr && !is_leaf())) {
    fail(ErrorCode::kValue, "[set_data] the tensor is ",
         is_view() ? "a view" : "the result of an operation",
         ": only a leaf with memory of its own takes other data; assign to the variable instead");
  }
  if (!(data.sizes() == sizes())) {
    fail(ErrorCode::kShape, "[set_data] data of shape ", shape_str(data.sizes()),
         " for a tensor of shape ", shape_str(sizes()), ": give data of the same shape");
  }
  if (requires_grad() && !is_differentiable(data.dtype())) {
    fail(ErrorCode::kType, "[set_data] data of type ", dtype_name(data.dtype()),
         " for a tensor that requires grad: give a floating-point type");
  }
  check_not_batched(*this, "set_data");
  check_not_batched(data, "set_data");
  replace_data(impl_, *data.impl());
  if (impl_->autograd != nullptr) autograd_table->data_replaced(impl_);
}

}  // namespace mytorch
