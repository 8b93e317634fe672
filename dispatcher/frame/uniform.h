// The uniform case of a pointwise call: contiguous tensors of one type, shape and device, and
// numbers that do not raise the type. The test is inline and knows the number of operands, because
// it accounts for most of the cost of such a call before its kernel.
#pragma once

#include <cstring>

#include "dispatcher/table/op.h"
#include "mytorch/tensor.h"

namespace mytorch {

// Returns whether the operator accepts operands that all have this type.
inline bool is_uniform_type(const OpInfo& op, ScalarType type) {
  return (op.uniform_types >> static_cast<int>(type) & 1) != 0;
}

// Returns whether the numbers among the operands leave the type of the tensors unchanged.
bool numbers_are_lower(const OpInfo& op, const mt_tensor* const* inputs, ScalarType tensor);

// Returns whether device, number of dimensions and type are equal: two adjacent words of a
// DLTensor.
inline bool same_kind(const mt_tensor* a, const mt_tensor* b) {
  static_assert(offsetof(mt_dltensor, ndim) == offsetof(mt_dltensor, device) + 8 &&
                offsetof(mt_dltensor, dtype) == offsetof(mt_dltensor, device) + 12);
  return std::memcmp(&a->dl.device, &b->dl.device, 16) == 0;
}

// Returns whether two tensors of the same kind have the same shape.
[[gnu::always_inline]] inline bool same_shape(const mt_tensor* a, const mt_tensor* b) {
  const int32_t ndim = a->dl.ndim;
  const int64_t* const x = a->dl.shape;
  const int64_t* const y = b->dl.shape;
  for (int32_t i = 0; i < ndim; ++i) {
    if (x[i] != y[i]) return false;
  }
  return true;
}

inline bool is_contiguous_here(const mt_tensor* t) {
  return (t->flags & (MT_TENSOR_CONTIGUOUS | MT_TENSOR_HOST)) == MT_TENSOR_CONTIGUOUS;
}

// The common properties of the operands of a uniform call.
struct Uniform {
  const mt_tensor* like;  // compared with all operands; null: the first of them
  bool tensors = false;   // any operand is a tensor
  bool numbers = false;
};

// Returns whether all tensors are contiguous, not HOST, of one kind and shape, and satisfy `fit`.
template <int n, class Fit>
[[gnu::always_inline]] inline bool look_at(const mt_tensor* const (&inputs)[n], Uniform& all,
                                           Fit&& fit) {
#pragma GCC unroll 8
  for (int i = 0; i < n; ++i) {
    const mt_tensor* t = inputs[i];
    if (t == nullptr) continue;
    if (t->storage == nullptr) {
      all.numbers = true;
      continue;
    }
    if (!is_contiguous_here(t)) return false;
    if (all.like == nullptr) {
      all.like = t;
    } else if (!same_kind(t, all.like) || !same_shape(t, all.like) || !fit(t)) {
      return false;
    }
    all.tensors = true;
  }
  return all.tensors;
}

// Returns the first tensor of a uniform call, or null for another call.
template <int n>
[[gnu::always_inline]] inline const TensorImpl* uniform(const OpInfo& op,
                                                        const mt_tensor* const (&inputs)[n]) {
  Uniform all{nullptr};
  if (!look_at(inputs, all, [](const mt_tensor*) { return true; })) return nullptr;
  const auto* impl = reinterpret_cast<const TensorImpl*>(all.like);
  if (!is_uniform_type(op, impl->dtype)) return nullptr;
  if (all.numbers && !numbers_are_lower(op, inputs, impl->dtype)) return nullptr;
  return impl;
}

// Returns whether the call is uniform and `out` has the operands' kind and shape and, for each
// operand, is an exact alias or does not overlap it.
template <int n>
[[gnu::always_inline]] inline bool uniform_into(const OpInfo& op,
                                                const mt_tensor* const (&inputs)[n],
                                                const TensorImpl* out) {
  if (op.outputs[0].dtype >= 0 || !is_contiguous_here(&out->abi) || out->inference ||
      out->read_only) {
    return false;
  }
  Uniform all{&out->abi};
  const auto apart = [&](const mt_tensor* t) {
    return t->storage != out->abi.storage || t->dl.data == out->abi.dl.data;
  };
  return look_at(inputs, all, apart) && is_uniform_type(op, out->dtype) &&
         (!all.numbers || numbers_are_lower(op, inputs, out->dtype));
}

// Returns whether the compute type of operands of this type is the same type.
template <Promote promote>
inline bool computes_in(ScalarType type) {
  if constexpr (promote == Promote::kFloat || promote == Promote::kWiden) {
    return is_floating_point(type);
  }
  return true;
}

}  // namespace mytorch
