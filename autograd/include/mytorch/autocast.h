// Mixed precision: in the scope of an AutocastGuard, operators compute in the type that suits them.
//
//   Tensor loss;
//   {
//     AutocastGuard autocast({.device = kCPU, .dtype = kBFloat16});
//     loss = cross_entropy(model(input), target);  // products in bfloat16, the loss in float32
//   }
//   loss.backward();  // parameters and their gradients remain float32
//
// Each operator has a policy, which its reference page states:
//
//   lower    matrix products, convolutions, attention: floating operands are cast to the type of
//            the guard
//   float32  exponentials, logarithms, powers, softmax, norms, losses, sums: float16 and bfloat16
//            operands are cast to float32
//   widest   several operands of one type: float16 and bfloat16 operands are cast to float32 if
//            another operand is float32
//   none     all others, which promote their operands as always
//
// float64 and integers are never cast, nor are the operands of in-place and out= forms. Gradients
// run without autocast, in the types of the forward.
#pragma once

#include <optional>

#include "mytorch/device.h"
#include "mytorch/dtype.h"
#include "mytorch/owned.h"

namespace mytorch {

struct AutocastOptions {
  Device device;  // Operands on devices of this type are cast; its index is ignored.
  // kBFloat16 or kFloat16. By default the type set by set_autocast_dtype: kFloat16 for CUDA,
  // kBFloat16 for other devices.
  std::optional<ScalarType> dtype = std::nullopt;
  bool enabled = true;        // false: no casts in this scope, inside a guard that casts
  bool cache_enabled = true;  // false: casts parameters anew for each operator
};

// Enables or disables autocast for a device type on this thread in its scope. Guards nest. Casts of
// leaves that require gradients, such as parameters, are kept until the outermost guard ends, or
// until the leaf is modified.
class AutocastGuard {
 public:
  // Throws Error(kType) if the type is neither kBFloat16 nor kFloat16, and Error(kDevice) if there
  // is no such device.
  explicit AutocastGuard(const AutocastOptions& options);
  explicit AutocastGuard(Device device, std::optional<ScalarType> dtype = std::nullopt,
                         bool enabled = true)
      : AutocastGuard(AutocastOptions{device, dtype, enabled}) {}
  ~AutocastGuard();
  AutocastGuard(const AutocastGuard&) = delete;
  AutocastGuard& operator=(const AutocastGuard&) = delete;

 private:
  Owned<class AutocastScope> scope_;
};

// libtorch's functions on the state of this thread. The index of the device is ignored.
namespace autocast {

bool is_autocast_enabled(Device device);
void set_autocast_enabled(Device device, bool enabled);
ScalarType get_autocast_dtype(Device device);
void set_autocast_dtype(Device device, ScalarType dtype);
bool is_autocast_cache_enabled();
void set_autocast_cache_enabled(bool enabled);
// Drops the casts that are kept.
void clear_cache();

}  // namespace autocast
}  // namespace mytorch
