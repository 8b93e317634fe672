// Checks that every call makes on its operands and on the tensors that its results go to.
#pragma once

#include "dispatcher/table/op.h"
#include "mytorch/tensor.h"

namespace mytorch {

// The operand of an argument that must be given; throws Error(kValue) for an undefined tensor.
const mt_tensor* required_slow(const OpInfo& op, const char* arg);
inline const mt_tensor* required(const Tensor& tensor, const OpInfo& op, const char* arg) {
  if (!tensor.defined()) [[unlikely]]
    return required_slow(op, arg);
  return &tensor.impl()->abi;
}
inline const mt_tensor* optional_abi(const Tensor& tensor) {
  return tensor.defined() ? &tensor.impl()->abi : nullptr;
}

// Whether all tensors of a call are on one device, HOST operands aside.
bool on_one_device(const OpInfo& op, const void* args);
[[noreturn]] void fail_devices(const OpInfo& op, const void* args);

// Throws unless a result of type `from` and shape `sizes` may go to `out`.
void check_out(const OpInfo& op, const TensorImpl* out, IntList sizes, ScalarType from,
               Device device, bool inplace);

// An out= result of a kernel that is not pointwise: `out` is checked against what the shape
// function said; target() is a temporary where out overlaps an input (or is exactly one and a
// kernel does not take that), is of another type, or not contiguous in a way the call needs.
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

// Refuses two outputs of one call that share memory: each would overwrite the other.
void check_apart(const OpInfo& op, std::initializer_list<Tensor> outputs);
void check_apart(const OpInfo& op, const Tensor* const* outputs, int n);

// Whether an input of an op that writes `written` shares memory with it in another way than being
// exactly it; a copy is then read in its place.
inline bool overlaps_partly(const TensorImpl* written, const TensorImpl* input) {
  return input != nullptr && overlap(written->abi, input->abi) == Overlap::kPartial;
}
Tensor copy_of(const TensorImpl* input);

// Copies `from` into `to`, of the same shape, through the copy_ kernel, below every layer.
void copy_into(const Tensor& to, const Tensor& from);

// Refuses writes that would be lost or wrong: to memory that several elements share, to an
// inference tensor outside inference mode.
void check_writable(const OpInfo& op, const TensorImpl* self);

}  // namespace mytorch
