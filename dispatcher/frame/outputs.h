// Checks of a call's operands, and of the tensors that it writes.
#pragma once

#include <cstring>
#include <initializer_list>

#include "absl/container/inlined_vector.h"
#include "core/tensor/spec.h"
#include "dispatcher/table/op.h"
#include "mytorch/tensor.h"

namespace mytorch {

struct ReduceSpec;

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

// Points the outputs' fields of an argument struct to the targets.
inline void set_output_fields(const OpInfo& op, void* args, TensorImpl* const* targets, size_t n) {
  for (size_t i = 0; i < n; ++i) {
    const mt_tensor* const field = &targets[i]->abi;
    std::memcpy(static_cast<char*>(args) + op.outputs[i].offset, &field, sizeof(field));
  }
}

// The in-place or out= form of a call that is not pointwise, once the arguments are in the argument
// struct. The constructor checks the outputs against the results of the shape function, and sets
// their fields: to the output, or to a temporary if the output has another type or overlaps an
// input (an exact alias only if a kernel does not take it).
class OutCall {
 public:
  using Specs = std::initializer_list<const TensorSpec*>;
  OutCall(const OpEntry& entry, mt_args_header* args, const Tensor* const* outs, Specs specs,
          bool inplace);
  OutCall(const OpEntry& entry, mt_args_header* args, const Tensor* const* outs,
          const ReduceSpec& spec, Device device, bool inplace);

  // Each runs the kernel. Returns false if none takes the call: the caller then computes the
  // results as a Substitution, and copies them into the targets.
  bool try_kernel(bool complex);
  void copy(std::initializer_list<const Tensor*> results);
  // Without one, runs the fallback if it is allowed, else throws an Error.
  void run_primitive(bool complex);
  // Without one, runs the operators of the program.
  void run_program();

  TensorImpl* target(size_t i = 0) const { return outputs_[i].target().impl(); }
  // Copies temporaries, and counts the writes.
  void finish();

 private:
  struct Output {
    const Tensor& out;
    Tensor temporary;
    const Tensor& target() const { return temporary.defined() ? temporary : out; }
  };
  void set_fields();
  void add(const Tensor& out, IntList sizes, ScalarType dtype, Device device, bool inplace);

  const OpEntry& entry_;
  mt_args_header* const args_;
  absl::InlinedVector<Output, 2> outputs_;
};

// Throws Error(kValue) if two outputs of a call share memory.
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
