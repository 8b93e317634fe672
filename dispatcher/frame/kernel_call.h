// Building blocks of the forms of operators (forms.h).
#pragma once

#include <exception>
#include <string>
#include <string_view>

#include "absl/container/inlined_vector.h"
#include "core/runtime/context.h"
#include "core/runtime/stream_capture.h"
#include "core/tensor/spec.h"
#include "dispatcher/choice/choice.h"
#include "dispatcher/choice/complex.h"
#include "dispatcher/choice/observe.h"
#include "dispatcher/frame/outputs.h"
#include "dispatcher/frame/pointwise.h"
#include "dispatcher/table/layers.h"
#include "mytorch/tensor.h"

namespace mytorch {

// ---- arguments as fields of the argument struct ----

inline int64_t abi_value(int64_t x) { return x; }
inline bool abi_value(bool x) { return x; }
inline double abi_value(double x) { return x; }
inline mt_scalar abi_value(const Scalar& x) { return x.abi(); }
inline mt_scalar abi_value(const std::optional<Scalar>& x) {
  return x.has_value() ? x->abi() : mt_scalar{};
}
inline mt_optional_int abi_value(std::optional<int64_t> x) {
  return {x.value_or(0), x.has_value()};
}
inline mt_optional_int abi_value(std::optional<bool> x) {
  return {x.value_or(false), x.has_value()};
}
inline mt_optional_float abi_value(std::optional<double> x) {
  return {x.value_or(0), x.has_value()};
}
inline mt_int_list abi_value(const IntList& x) {
  return {x.data(), static_cast<int64_t>(x.size())};
}
inline mt_int_list abi_value(const OptionalIntList& x) {
  return x.has_value() ? abi_value(*x) : mt_int_list{};
}
inline mt_float_list abi_value(FloatList x) { return {x.data(), static_cast<int64_t>(x.size())}; }
inline mt_float_list abi_value(const OptionalFloatList& x) {
  return x.has_value() ? abi_value(*x) : mt_float_list{};
}
inline mt_dtype abi_value(ScalarType x) { return to_abi(x); }
inline mt_dtype abi_value(std::optional<ScalarType> x) {
  return x.has_value() ? to_abi(*x) : mt_dtype{};
}
inline mt_device abi_value(Device x) { return {x.type, x.index}; }
inline mt_device abi_value(std::optional<Device> x) {
  return x.has_value() ? mt_device{x->type, x->index} : mt_device{};
}

// Takes a call number from the generator, or from the default generator, for work on the device of
// `on`.
inline mt_random random_call(const std::optional<Generator>& generator, const Tensor& on) {
  const Generator& from = generator.has_value() ? *generator : default_generator();
  return num_captures() == 0 ? from.next() : captured_draw(from, on.device());
}

class TensorListArg {
 public:
  explicit TensorListArg(TensorList list) {
    for (const Tensor& tensor : list) pointers_.push_back(optional_abi(tensor));
  }
  mt_tensor_list abi() const { return {pointers_.data(), static_cast<int64_t>(pointers_.size())}; }

 private:
  absl::InlinedVector<const mt_tensor*, 8> pointers_;
};

// Strings cross the contract as zero-terminated C strings.
class StrArg {
 public:
  explicit StrArg(std::string_view text) : text_(text), present_(true) {}
  explicit StrArg(std::optional<std::string_view> text)
      : text_(text.value_or("")), present_(text.has_value()) {}
  const char* abi() const { return present_ ? text_.c_str() : nullptr; }

 private:
  std::string text_;
  bool present_;
};

// ---- results ----

Tensor make_output(const TensorSpec& spec);

inline Tensor make_view(const Tensor& of, const ViewSpec& spec) {
  const IntList sizes = as_list(spec.sizes), strides = as_list(spec.strides);
  if (spec.dtype >= 0) [[unlikely]] {
    return Tensor::adopt(
        new_view(of.impl(), sizes, strides, spec.offset, static_cast<ScalarType>(spec.dtype)));
  }
  return Tensor::adopt(new_view(of.impl(), sizes, strides, spec.offset));
}

template <size_t n>
TensorImpl* first_of(TensorImpl* const (&outputs)[n]) {
  for (TensorImpl* output : outputs) {
    if (output != nullptr) return output;
  }
  return nullptr;
}

// The outputs of a record marked `dynamic`: its kernel requests them from the context.
class DynamicOutputs {
 public:
  DynamicOutputs(const OpInfo& op, std::initializer_list<TensorSpec> specs)
      : op_(op), specs_(specs), outputs_(specs.size()) {}
  void run(const OpEntry& entry, const void* args);
  Tensor take(int index);

 private:
  static const mt_tensor* make(void* self, int32_t index, const int64_t* shape, int32_t ndim);
  const OpInfo& op_;
  std::vector<TensorSpec> specs_;
  std::vector<Tensor> outputs_;
  std::exception_ptr failure_;  // of make(): no exception passes through a kernel
};

// ---- calls ----

// Runs the kernel on the device of `out`. Returns false if no kernel takes the call: the caller
// then runs the record's composite as a Substitution.
inline bool try_kernel(const OpEntry& entry, TensorImpl* out, const void* args) {
  mt_ctx* ctx = context(out->device_slot, out->abi.dl.device);
  return run_kernel(entry, out->device_slot, ctx, args);
}

inline bool try_complex_kernel(const OpEntry& entry, TensorImpl* out, const void* args) {
  mt_ctx* ctx = context(out->device_slot, out->abi.dl.device);
  return run_complex_kernel(entry, out->device_slot, ctx, args);
}

// Does the same for a primitive: if no kernel takes the call, runs the fallback if it is allowed,
// else throws an Error.
inline void run_primitive(const OpEntry& entry, TensorImpl* out, const void* args) {
  mt_ctx* ctx = context(out->device_slot, out->abi.dl.device);
  if (!run_kernel(entry, out->device_slot, ctx, args)) [[unlikely]] {
    run_fallback(entry, out->device_slot, ctx, args);
  }
}

// Does the work of assign_out for several results. Checks all of them before it writes any.
void assign_outs(const OpInfo& op, const Tensor* const* outs,
                 std::initializer_list<const Tensor*> results);

// Throws `error`, which an operator called by a composite threw, with the name of the composite in
// front: "[nll_loss] target 5 ..." becomes "[cross_entropy] nll_loss: target 5 ...".
[[noreturn, gnu::cold]] void rethrow_from(const OpInfo& composite, const Error& error);

// Throws Error(kUnsupported): the operator takes no complex numbers.
[[noreturn]] void refuse_complex_call(const OpInfo& op);

// Throws Error(kValue): no body of the record covers the arguments of the call.
[[noreturn]] uint16_t refuse_arguments(const OpInfo& op, const char* why);

}  // namespace mytorch
