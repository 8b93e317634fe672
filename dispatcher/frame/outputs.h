// Checks of a call's operands, and of the tensors that it writes.
#pragma once

#include "dispatcher/table/op.h"
#include "mytorch/tensor.h"

namespace mytorch {

// Returns the operand of a required argument. Throws Error(kValue) for an undefined tensor.
const mt_tensor* required_slow(const OpInfo& op, const char* arg);
inline const mt_tensor* required(const Tensor& tensor, const OpInfo& op, const char* arg) {
  if (!tensor.defined()) [[unlikely]]
    return required_slow(op, arg);
  return &tensor.impl()->abi;
}
inline const mt_tensor* optional_abi(const Tensor& tensor) {
  return tensor.defined() ? &tensor.impl()->abi : nullptr;
}

// Returns whether all tensors of a call, except HOST operands, are on one device.
bool on_one_device(const OpInfo& op, const void* args);
[[noreturn]] void fail_devices(const OpInfo& op, const void* args);

// Throws Error(kShape, kType, kDevice or kValue) unless a result of type `from` and shape `sizes`
// on `device` can be stored in `out`.
void check_out(const OpInfo& op, const TensorImpl* out, IntList sizes, ScalarType from,
               Device device, bool inplace);

// An output of the in-place or out= form of a call that is not pointwise. The constructor checks
// `out` against the result of the shape function. target() is `out`, or a temporary if `out` has
// another type or overlaps an input (an exact alias only if a kernel does not take it).
class KernelInto {
 public:
  KernelInto(const OpEntry& entry, const Tensor& out, IntList sizes, ScalarType dtype,
             Device device, const void* args, bool inplace);
  TensorImpl* target() const { return target_tensor().impl(); }
  const Tensor& target_tensor() const { return temporary_.defined() ? temporary_ : out_; }
  void finish();

 private:
  const Tensor& out_;
  Tensor temporary_;
};

// Throws Error(kValue) if two outputs of a call share memory.
void check_apart(const OpInfo& op, std::initializer_list<Tensor> outputs);
void check_apart(const OpInfo& op, const Tensor* const* outputs, int n);

// Returns whether an input shares some memory with `written` without being an exact alias. The call
// then reads a copy of it.
inline bool overlaps_partly(const TensorImpl* written, const TensorImpl* input) {
  return input != nullptr && overlap(written->abi, input->abi) == Overlap::kPartial;
}
Tensor copy_of(const TensorImpl* input);

// Copies `from` into `to`, which has the same shape, with the copy_ kernel, below all layers.
void copy_into(const Tensor& to, const Tensor& from);

// Throws Error(kValue) if elements of `self` share memory, or if it is an inference tensor outside
// inference mode.
void check_writable(const OpInfo& op, const TensorImpl* self);

}  // namespace mytorch
