// Promotion, broadcasting and outputs of pointwise calls.
#pragma once

#include <new>

#include "dispatcher/choice/choice.h"
#include "dispatcher/frame/outputs.h"
#include "dispatcher/frame/uniform.h"
#include "dispatcher/table/op.h"
#include "mytorch/tensor.h"

namespace mytorch {

// A tensor or number as an operand that lives in the caller's frame.
class OperandArg {
 public:
  explicit OperandArg(const Operand& operand) {
    if (operand.is_tensor()) {
      abi_ = &operand.impl()->abi;
    } else if (operand.is_scalar()) {
      abi_ = (new (&scalar_) HostScalar(operand.scalar()))->abi();
    }
  }
  OperandArg(const OperandArg&) = delete;
  OperandArg& operator=(const OperandArg&) = delete;
  const mt_tensor* abi() const { return abi_; }

 private:
  const mt_tensor* abi_ = nullptr;
  alignas(HostScalar) unsigned char scalar_[sizeof(HostScalar)];
};

// A HOST operand that replaces an operand as the caller gave it: a 0-dim CPU tensor beside device
// tensors, or a number that a comparison rounds.
struct HostOperand {
  mt_tensor tensor;
  double rounded;
};

// The tensor arguments of a call in schema order; an absent optional is null. `hosts` has room for
// as many operands in their place.
struct PointwiseInputs {
  const mt_tensor** inputs;
  HostOperand* hosts;
};

// The slow paths of the functions below.
void general_outputs(const OpInfo& op, PointwiseInputs inputs, mt_args_header* header,
                     TensorImpl** outputs, const bool* wanted);
TensorImpl* general_into(const OpInfo& op, PointwiseInputs inputs, mt_args_header* header,
                         const Tensor& out, bool inplace, Tensor* temporary);
void general_into_each(const OpInfo& op, PointwiseInputs inputs, mt_args_header* header,
                       const Tensor* const* outs, TensorImpl** into, Tensor* temporaries, int n);

// The functions below set header->compute, and header->flags if they replace no input.

// Makes the outputs, with the broadcast shape and ATen's stride order. If `wanted` is given, the
// outputs that it excludes stay null.
template <Promote promote, int n, int m>
[[gnu::always_inline]] inline void pointwise_outputs(
    const OpInfo& op, const mt_tensor* (&inputs)[n], HostOperand (&hosts)[n],
    mt_args_header* header, TensorImpl* (&outputs)[m], const bool* wanted = nullptr) {
  const TensorImpl* const like = uniform(op, inputs);
  if (like == nullptr || !computes_in<promote>(like->dtype)) [[unlikely]] {
    general_outputs(op, {inputs, hosts}, header, outputs, wanted);
    return;
  }
  header->compute = like->abi.dl.dtype;
  header->flags = MT_ARGS_UNIFORM;
  const ScalarType result = promote == Promote::kCompare ? ScalarType::kBool : like->dtype;
  for (int i = 0; i < m; ++i) {
    if (wanted != nullptr && !wanted[i]) continue;
    const int8_t fixed = op.outputs[i].dtype;
    outputs[i] = new_contiguous_like(*like, fixed >= 0 ? static_cast<ScalarType>(fixed) : result);
  }
}

// For the in-place and out= forms: checks the shape, type and aliasing of `out`. Returns the tensor
// for the kernel to write: `out`, or *temporary if `out` overlaps an input without being an exact
// alias. finish_into copies the temporary and counts the write.
template <Promote promote, int n>
[[gnu::always_inline]] inline TensorImpl* pointwise_into(const OpInfo& op,
                                                         const mt_tensor* (&inputs)[n],
                                                         HostOperand (&hosts)[n],
                                                         mt_args_header* header, const Tensor& out,
                                                         bool inplace, Tensor* temporary) {
  TensorImpl* const impl = out.impl();
  if (promote == Promote::kCompare || impl == nullptr || !uniform_into(op, inputs, impl) ||
      !computes_in<promote>(impl->dtype)) [[unlikely]] {
    return general_into(op, {inputs, hosts}, header, out, inplace, temporary);
  }
  header->compute = impl->abi.dl.dtype;
  header->flags = MT_ARGS_UNIFORM;
  return impl;
}

inline void finish_into(const Tensor& out, const Tensor& temporary) {
  if (temporary.defined()) [[unlikely]]
    copy_into(out, temporary);
  out.impl()->bump_version();
}

// Runs the kernel. If there is none, runs the operators of the program, else the fallback if it is
// allowed.
void run_program_slow(const OpEntry& entry, TensorImpl* out, const void* args);
void run_complex_program(const OpEntry& entry, TensorImpl* out, const void* args);
[[gnu::always_inline]] inline void run_pointwise(const OpEntry& entry, TensorImpl* out,
                                                 const void* args, bool complex) {
  if (complex) [[unlikely]]
    return run_complex_program(entry, out, args);
  mt_ctx* ctx = context(out->device_slot, out->abi.dl.device);
  if (!run_kernel(entry, out->device_slot, ctx, args)) [[unlikely]] {
    run_program_slow(entry, out, args);
  }
}

// The out= form of a call. Its code is the same for all records with as many operands and outputs.
template <size_t m>
class PointwiseOut {
 public:
  // Does the same as pointwise_into for each output. They must not share memory.
  template <Promote promote, int n>
  [[gnu::noinline]] void prepare(const OpInfo& op, const mt_tensor* (&inputs)[n],
                                 HostOperand (&hosts)[n], mt_args_header* header,
                                 const Tensor* const (&outs)[m]) {
    if constexpr (m == 1) {
      targets_[0] =
          pointwise_into<promote>(op, inputs, hosts, header, *outs[0], false, temporaries_);
    } else {
      bool common = promote != Promote::kCompare;
      for (size_t i = 0; i < m && common; ++i) {
        const TensorImpl* const impl = outs[i]->impl();
        common =
            impl != nullptr && uniform_into(op, inputs, impl) && computes_in<promote>(impl->dtype);
        for (size_t k = 0; k < i && common; ++k) {
          common = outs[k]->impl()->storage != impl->storage;
        }
      }
      if (common) [[likely]] {
        header->compute = outs[0]->impl()->abi.dl.dtype;
        header->flags = MT_ARGS_UNIFORM;
        for (size_t i = 0; i < m; ++i) targets_[i] = outs[i]->impl();
        return;
      }
      general_into_each(op, {inputs, hosts}, header, outs, targets_, temporaries_, m);
    }
  }

  // Sets the outputs' fields of the argument struct, runs the kernel, and counts the writes.
  [[gnu::noinline]] void run(const OpEntry& entry, mt_args_header* args,
                             const Tensor* const (&outs)[m], bool complex) {
    set_output_fields(*entry.info, args, targets_, m);
    run_pointwise(entry, targets_[0], args, complex);
    for (size_t i = 0; i < m; ++i) finish_into(*outs[i], temporaries_[i]);
  }

 private:
  TensorImpl* targets_[m];
  Tensor temporaries_[m];
};

}  // namespace mytorch
