#include "dispatcher/frame/kernel_call.h"

#include <string_view>
#include <typeinfo>

#include "core/runtime/device_registry.h"
#include "core/types/errors.h"
#include "dispatcher/table/layers.h"

namespace mytorch {

Tensor make_output(const TensorSpec& spec) {
  if (spec.strides.empty()) {
    return Tensor::adopt(new_tensor(spec.sizes.data(), static_cast<int>(spec.sizes.size()),
                                    spec.dtype, spec.device, checked_device_slot(spec.device)));
  }
  return Tensor::adopt(
      new_tensor_strided(as_list(spec.sizes), as_list(spec.strides), spec.dtype, spec.device));
}

const mt_tensor* DynamicOutputs::make(void* self, int32_t index, const int64_t* shape,
                                      int32_t ndim) {
  auto* outputs = static_cast<DynamicOutputs*>(self);
  if (index < 0 || static_cast<size_t>(index) >= outputs->specs_.size()) return nullptr;
  try {
    TensorSpec spec = outputs->specs_[index];
    spec.sizes.assign(shape, shape + ndim);
    spec.strides.clear();
    outputs->outputs_[index] = make_output(spec);
  } catch (...) {
    outputs->failure_ = std::current_exception();
    return nullptr;
  }
  return &outputs->outputs_[index].impl()->abi;
}

void DynamicOutputs::run(const OpEntry& entry, const void* args) {
  const Device device = specs_[0].device;
  const int slot = checked_device_slot(device);
  auto* ctx = static_cast<ThreadContext*>(context(slot, {device.type, device.index}));
  ctx->dynamic_output = make;
  ctx->dynamic_user = this;
  struct Reset {
    ThreadContext* ctx;
    ~Reset() { ctx->dynamic_output = nullptr; }
  } reset{ctx};
  try {
    if (!run_kernel(entry, slot, ctx, args)) run_fallback(entry, slot, ctx, args);
  } catch (...) {
    if (failure_ != nullptr) std::rethrow_exception(failure_);
    throw;
  }
}

Tensor DynamicOutputs::take(int index) {
  if (!outputs_[index].defined()) {
    fail(ErrorCode::kInternal, "[", op_.base, "] the kernel did not make output ", index);
  }
  return std::move(outputs_[index]);
}

namespace {

void assign(const OpInfo& op, const Tensor& to, const Tensor& result, bool inplace) {
  required(to, op, inplace ? "self" : "out");
  check_out(op, to.impl(), result.sizes(), result.dtype(), result.device(), inplace);
  to.copy_(result);
}

}  // namespace

void assign_inplace(const OpInfo& op, const Tensor& self, const Tensor& result) {
  assign(op, self, result, true);
}

void assign_out(const OpInfo& op, const Tensor& out, const Tensor& result) {
  assign(op, out, result, false);
}

void assign_outs(const OpInfo& op, const Tensor* const* outs,
                 std::initializer_list<const Tensor*> results) {
  const Tensor* const* out = outs;
  for (const Tensor* result : results) {
    required(**out, op, "out");
    check_out(op, (*out++)->impl(), result->sizes(), result->dtype(), result->device(), false);
  }
  check_apart(op, outs, static_cast<int>(results.size()));
  for (const Tensor* result : results) (*outs++)->copy_(*result);
}

[[noreturn]] static void refuse_out_gradient(const OpInfo& op) {
  fail(ErrorCode::kValue, "[", op.base,
       "] the out= form is not differentiable, and one of its tensors requires a gradient: use the "
       "functional form, or call it inside NoGradGuard");
}

void* enter(const FormInfo& form, uint32_t wanted) {
  if (wanted == 0) return nullptr;
  if ((wanted & kLayerAutograd) != 0) {
    if (form.form == kOut) refuse_out_gradient(form.op);
    if (form.written_lists != 0) refuse_list_gradient(form.op);
  }
  return first_wrapper(form.entry, form.form, wanted);
}

void refuse_list_gradient(const OpInfo& op) {
  fail(ErrorCode::kValue, "[", op.base,
       "] it writes tensors that require a gradient, and is not differentiable: call it inside "
       "NoGradGuard");
}

void rethrow_from(const OpInfo& composite, const Error& error) {
  const std::string_view message = error.what();
  const size_t end = message.find("] ");
  // Classes derived from Error know where they come from.
  if (typeid(error) != typeid(Error) || !message.starts_with('[') || end == message.npos) throw;
  const std::string_view name = message.substr(1, end - 1);
  if (name == composite.base) throw;
  throw Error(error.code(), absl::StrCat("[", composite.base, "] ", std::string(name), ": ",
                                         std::string(message.substr(end + 2))));
}

void refuse_complex_call(const OpInfo& op) {
  fail(ErrorCode::kUnsupported, "[", op.base, "] takes no complex numbers");
}

uint16_t refuse_arguments(const OpInfo& op, const char* why) {
  fail(ErrorCode::kValue, why[0] == '[' ? "" : absl::StrCat("[", op.base, "] "), why);
}

}  // namespace mytorch
