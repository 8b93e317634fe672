#include "dispatcher/frame/outputs.h"

#include <optional>

#include "core/types/errors.h"
#include "dispatcher/choice/choice.h"
#include "dispatcher/choice/complex.h"
#include "dispatcher/choice/observe.h"
#include "dispatcher/frame/kernel_call.h"
#include "dispatcher/frame/pointwise.h"
#include "dispatcher/frame/reduce.h"
#include "dispatcher/table/fields.h"
#include "mytorch/abi_ops/copy_.h"

namespace mytorch {

const mt_tensor* required_slow(const OpInfo& op, const char* arg) {
  fail(ErrorCode::kValue, "[", op.base, "] argument '", arg,
       "' is an undefined tensor: only optional arguments may be left undefined");
}

bool on_one_device(const OpInfo& op, const void* args) {
  const mt_device* first = nullptr;
  bool one = true;
  for_each_input(op, args, [&](const mt_tensor*& t, const ArgInfo&) {
    if ((t->flags & MT_TENSOR_HOST) != 0) return;
    if (first == nullptr) first = &t->dl.device;
    one = one && t->dl.device.type == first->type && t->dl.device.index == first->index;
  });
  return one;
}

void fail_devices(const OpInfo& op, const void* args) {
  std::string text;
  for_each_input(op, args, [&](const mt_tensor*& t, const ArgInfo& arg) {
    absl::StrAppend(&text, text.empty() ? "" : ", ", arg.name, " on ",
                    Device(t->dl.device.type, t->dl.device.index).str());
  });
  fail(ErrorCode::kDevice, "[", op.base, "] the tensors are on different devices (", text,
       "): move them to one with to(device)");
}

void check_writable(const OpInfo& op, const TensorImpl* self) {
  if (has_internal_overlap(*self)) {
    fail(ErrorCode::kValue, "[", op.base, "] the tensor to write, of shape ",
         shape_str(self->sizes()), " and strides ", shape_str(self->strides()),
         ", has elements that share memory (an expanded tensor?): clone() it first");
  }
  if (self->read_only) {
    fail(ErrorCode::kValue, "[", op.base,
         "] the tensor to write is over `const` memory (from_blob): clone() it first");
  }
  if (self->inference && !thread_state.inference_mode) {
    fail(ErrorCode::kValue, "[", op.base,
         "] a tensor made in inference mode cannot be written outside of it: clone() it first");
  }
}

void check_out(const OpInfo& op, const TensorImpl* out, IntList sizes, ScalarType from,
               Device device, bool inplace) {
  const char* what = inplace ? "self" : "out";
  if (!(out->sizes() == sizes)) {
    fail(ErrorCode::kShape, "[", op.base, "] the result has shape ", shape_str(sizes), ", but ",
         what, " has shape ", shape_str(out->sizes()),
         inplace ? ": use the form that is not in-place" : ": give an out of that shape");
  }
  if (!can_cast(from, out->dtype)) {
    fail(ErrorCode::kType, "[", op.base, "] a result of type ", dtype_name(from),
         " cannot be stored in ", what, " of type ", dtype_name(out->dtype));
  }
  if (inplace && is_complex(out->dtype) && is_floating_point(from)) {
    // As in PyTorch: a gradient of complex parts would come back for a real result.
    fail(ErrorCode::kType, "[", op.base, "] the result for complex numbers is real, ",
         dtype_name(from), ": use the form that is not in-place");
  }
  if (!(out->device() == device)) {
    fail(ErrorCode::kDevice, "[", op.base, "] the result is on ", device.str(), ", but ", what,
         " is on ", out->device().str());
  }
  check_writable(op, out);
}

void copy_into(const Tensor& to, const Tensor& from) {
  const int slot = to.impl()->device_slot;
  mt_ctx* ctx = context(slot, to.impl()->abi.dl.device);
  if (run_copy(slot, ctx, &to.impl()->abi, &from.impl()->abi)) return;
  static const OpEntry* const entry = find_op("copy_");
  mt_args_copy_ args{};
  args.header.size = sizeof(args);
  args.header.compute = to.impl()->abi.dl.dtype;
  args.self = &to.impl()->abi;
  args.src = &from.impl()->abi;
  run_fallback(*entry, slot, ctx, &args);
}

void check_apart(const OpInfo& op, const Tensor* const* outputs, int n) {
  for (int a = 0; a < n; ++a) {
    for (int b = 0; b < a; ++b) {
      if (outputs[a]->defined() && outputs[b]->defined() &&
          overlap(outputs[a]->impl()->abi, outputs[b]->impl()->abi) != Overlap::kNone) {
        fail(ErrorCode::kValue, "[", op.base,
             "] two of the outputs overlap in memory: give each its own");
      }
    }
  }
}

Tensor copy_of(const TensorImpl* input) {
  Tensor copy = Tensor::adopt(new_tensor(input->abi.dl.shape, input->abi.dl.ndim, input->dtype,
                                         input->device(), input->device_slot));
  copy_into(copy, Tensor::share(const_cast<TensorImpl*>(input)));
  return copy;
}

OutCall::OutCall(const OpEntry& entry, mt_args_header* args, const Tensor* const* outs, Specs specs,
                 bool inplace)
    : entry_(entry), args_(args) {
  args->compute = to_abi((*specs.begin())->dtype);
  if (!on_one_device(*entry.info, args)) fail_devices(*entry.info, args);
  const Tensor* const* out = outs;
  for (const TensorSpec* spec : specs) {
    add(**out++, as_list(spec->sizes), spec->dtype, spec->device, inplace);
  }
  if (specs.size() > 1) check_apart(*entry.info, outs, static_cast<int>(specs.size()));
  set_fields();
}

OutCall::OutCall(const OpEntry& entry, mt_args_header* args, const Tensor* const* outs,
                 const ReduceSpec& spec, Device device, bool inplace)
    : entry_(entry), args_(args) {
  const OpInfo& op = *entry.info;
  args->compute = to_abi(spec.compute);
  for (int i = 0; i < op.num_outputs; ++i) {
    add(*outs[i], as_list(spec.sizes), spec.type_of(op.outputs[i]), device, inplace);
  }
  if (op.num_outputs > 1) check_apart(op, outs, op.num_outputs);
  set_fields();
}

void OutCall::add(const Tensor& out, IntList sizes, ScalarType dtype, Device device, bool inplace) {
  const OpInfo& op = *entry_.info;
  required(out, op,
           inplace               ? "self"
           : op.num_outputs == 1 ? "out"
                                 : op.outputs[outputs_.size()].name);
  TensorImpl* const impl = out.impl();
  check_out(op, impl, sizes, dtype, device, inplace);
  bool direct = impl->dtype == dtype;
  for_each_input(op, args_, [&](const mt_tensor*& t, const ArgInfo&) {
    const Overlap o = overlap(impl->abi, *t);
    if (o == Overlap::kPartial ||
        (o == Overlap::kExact && !takes_alias(entry_, impl->device_slot))) {
      direct = false;
    }
  });
  outputs_.push_back(
      {out, direct ? Tensor()
                   : Tensor::adopt(new_tensor(sizes.data(), static_cast<int>(sizes.size()), dtype,
                                              device, impl->device_slot))});
}

void OutCall::set_fields() {
  absl::InlinedVector<TensorImpl*, 2> targets;
  for (size_t i = 0; i < outputs_.size(); ++i) targets.push_back(target(i));
  set_output_fields(*entry_.info, args_, targets.data(), targets.size());
}

bool OutCall::try_kernel(bool complex) {
  TensorImpl* const out = target();
  mt_ctx* ctx = context(out->device_slot, out->abi.dl.device);
  return complex ? run_complex_kernel(entry_, out->device_slot, ctx, args_)
                 : run_kernel(entry_, out->device_slot, ctx, args_);
}

void OutCall::copy(std::initializer_list<const Tensor*> results) {
  const Output* output = outputs_.data();
  for (const Tensor* result : results) copy_into((output++)->target(), *result);
}

void OutCall::run_primitive(bool complex) {
  if (try_kernel(complex)) return;
  TensorImpl* const out = target();
  const std::optional<Substitution> substitution =
      complex ? std::optional<Substitution>(std::in_place, entry_, out, args_) : std::nullopt;
  run_fallback(entry_, out->device_slot, context(out->device_slot, out->abi.dl.device), args_);
}

void OutCall::run_program() { run_pointwise(entry_, target(), args_, is_complex(args_->compute)); }

void OutCall::finish() {
  for (const Output& output : outputs_) {
    if (output.temporary.defined()) copy_into(output.out, output.temporary);
    output.out.impl()->bump_version();
  }
}

}  // namespace mytorch
