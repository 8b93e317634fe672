// The casts of operands, and the cache of the casts of leaves.
#pragma once

#include <vector>

#include "autograd/autocast/state.h"
#include "mytorch/list.h"
#include "mytorch/tensor.h"

namespace mytorch::autocast {

// Casts a floating tensor, recording its gradient. Keeps casts of leaves that require gradients.
Tensor cast(const Tensor& tensor, ScalarType dtype);

// Returns whether a policy may cast a tensor; null is an absent one.
inline bool casts(Policy policy, const TensorImpl* impl) {
  return impl != nullptr &&
         (state.types_cast(policy, impl->device_slot) >> static_cast<unsigned>(impl->dtype) & 1) !=
             0;
}
inline Tensor cast_by(Policy policy, const Tensor& tensor) {
  return cast(tensor,
              policy == Policy::kLower ? state.dtype[tensor.impl()->device_slot] : kFloat32);
}

// Returns the type of a tensor on a device with autocast, as a bit; else 0.
inline uint16_t type_bit(const TensorImpl* impl) {
  if (impl == nullptr || !state.enabled(impl->device_slot)) return 0;
  return static_cast<uint16_t>(1u << static_cast<unsigned>(impl->dtype));
}

// Returns whether kWidest casts operands of these types: to float32 if some are float32, or both
// float16 and bfloat16, unless some are float64.
inline bool widens(int types) {
  constexpr auto bit = [](ScalarType type) { return 1 << static_cast<int>(type); };
  const int low = types & (bit(kFloat16) | bit(kBFloat16));
  if (low == 0 || (types & bit(kFloat64)) != 0) return false;
  return (types & bit(kFloat32)) != 0 || (low & (low - 1)) != 0;
}

}  // namespace mytorch::autocast
