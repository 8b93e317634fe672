// How closely a compiled function follows the function itself.
#pragma once

#include <cstdint>

namespace mytorch {

enum class CompileMode : uint8_t {
  // Kernels are fused. The values between fused operators keep the precision of the computation: a
  // chain in bfloat16 is rounded at its end, and products and sums may be contracted. Results are
  // deterministic and as accurate as those of the function, but may differ in the last bits.
  kDefault,
  // Kernels are fused where that does not change results: they are those of the function, bit for
  // bit.
  kExact,
  // As kDefault, and rules apply that hold for real numbers, but not for NaN, infinities or -0, or
  // that lose accuracy (docs/compile.md, "Rules").
  kFast,
};

}  // namespace mytorch
