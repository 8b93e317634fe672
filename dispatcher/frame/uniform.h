// The common case of a pointwise call: dense tensors of one type, shape and device, and numbers
// that do not raise the type. Whether a call is one is found out inline, with the number of
// operands known: this is most of what such a call costs before its kernel.
#pragma once

#include <cstring>

#include "dispatcher/table/op.h"
#include "mytorch/tensor.h"

namespace mytorch {

// Whether a call with dense operands of this type alone needs no closer look at their types.
inline bool is_uniform_type(const OpInfo& op, ScalarType type) {
  return (op.uniform_types >> static_cast<int>(type) & 1) != 0;
}

// Whether the numbers among the operands leave the type of the tensors as it is.
bool numbers_are_lower(const OpInfo& op, const mt_tensor* const* inputs, ScalarType tensor);

// Device, number of dimensions and type lie side by side in a DLTensor: two words.
inline bool same_kind(const mt_tensor* a, const mt_tensor* b) {
  static_assert(offsetof(mt_dltensor, ndim) == offsetof(mt_dltensor, device) + 8 &&
                offsetof(mt_dltensor, dtype) == offsetof(mt_dltensor, device) + 12);
  return std::memcmp(&a->dl.device, &b->dl.device, 16) == 0;
}

// Of tensors of the same kind.
inline bool same_shape(const mt_tensor* a, const mt_tensor* b) {
  const int32_t ndim = a->dl.ndim;
  const int64_t* const x = a->dl.shape;
  const int64_t* const y = b->dl.shape;
  for (int32_t i = 0; i < ndim; ++i) {
    if (x[i] != y[i]) return false;
  }
  return true;
}

inline bool is_dense_here(const mt_tensor* t) {
  return (t->flags & (MT_TENSOR_DENSE | MT_TENSOR_HOST)) == MT_TENSOR_DENSE;
}

// The first tensor of such a call, or null.
template <int n>
[[gnu::always_inline]] inline const TensorImpl* uniform(const OpInfo& op,
                                                        const mt_tensor* const (&inputs)[n]) {
  const mt_tensor* first = nullptr;
  bool numbers = false;
#pragma GCC unroll 8
  for (int i = 0; i < n; ++i) {
    const mt_tensor* t = inputs[i];
    if (t == nullptr) continue;
    if (t->storage == nullptr) {
      numbers = true;
      continue;
    }
    if (!is_dense_here(t)) return nullptr;
    if (first == nullptr) {
      first = t;
    } else if (!same_kind(t, first) || !same_shape(t, first)) {
      return nullptr;
    }
  }
  const auto* impl = reinterpret_cast<const TensorImpl*>(first);
  if (first == nullptr || !is_uniform_type(op, impl->dtype)) return nullptr;
  if (numbers && !numbers_are_lower(op, inputs, impl->dtype)) return nullptr;
  return impl;
}

// Whether such a call may write `out`: it is of the operands' kind and shape, and apart from each
// or exactly it.
template <int n>
[[gnu::always_inline]] inline bool uniform_into(const OpInfo& op,
                                                const mt_tensor* const (&inputs)[n],
                                                const TensorImpl* out) {
  if (op.outputs[0].dtype >= 0 || !is_dense_here(&out->abi) || out->inference) return false;
  const mt_tensor* first = nullptr;
  bool numbers = false;
#pragma GCC unroll 8
  for (int i = 0; i < n; ++i) {
    const mt_tensor* t = inputs[i];
    if (t == nullptr) continue;
    if (t->storage == nullptr) {
      numbers = true;
      continue;
    }
    if (!is_dense_here(t) || !same_kind(t, &out->abi) || !same_shape(t, &out->abi) ||
        (t->storage == out->abi.storage && t->dl.data != out->abi.dl.data)) {
      return false;
    }
    first = t;
  }
  return first != nullptr && is_uniform_type(op, out->dtype) &&
         (!numbers || numbers_are_lower(op, inputs, out->dtype));
}

// Whether the computation on operands of this type is in the same type.
template <Promote promote>
inline bool computes_in(ScalarType type) {
  if constexpr (promote == Promote::kFloat || promote == Promote::kWiden) {
    return is_floating_point(type);
  }
  return true;
}

}  // namespace mytorch
