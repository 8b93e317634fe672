// Checks of arguments: a condition, and the text of the error if it does not hold.
//
//   check_shape(a.dim() == 2, "mm", "self has shape ", a.sizes(), ": it must be a matrix");
//
// throws Error(kShape) "[mm] self has shape (2, 3, 4): it must be a matrix". The parts of a text
// are strings, numbers, shapes and element types.
#pragma once

#include <string>

#include "core/types/checked.h"
#include "core/types/dims.h"
#include "core/types/errors.h"
#include "mytorch/tensor.h"

namespace mytorch {

inline std::string check_part(IntList sizes) { return shape_str(sizes); }
inline const char* check_part(ScalarType type) { return dtype_name(type); }
template <class T>
T check_part(T part) {
  return part;
}

// Parts are passed by value, so that the caller's variables stay in registers.
template <class... Parts>
[[noreturn, gnu::noinline, gnu::cold]] void refuse(ErrorCode code, const char* op, Parts... parts) {
  fail(code, "[", op, "] ", check_part(parts)...);
}

template <class... Parts>
inline void check_shape(bool holds, const char* op, Parts... parts) {
  if (!holds) [[unlikely]]
    refuse(ErrorCode::kShape, op, parts...);
}
template <class... Parts>
inline void check_value(bool holds, const char* op, Parts... parts) {
  if (!holds) [[unlikely]]
    refuse(ErrorCode::kValue, op, parts...);
}
template <class... Parts>
inline void check_type(bool holds, const char* op, Parts... parts) {
  if (!holds) [[unlikely]]
    refuse(ErrorCode::kType, op, parts...);
}

inline void check_same_type(const Tensor& a, const char* a_name, const Tensor& b,
                            const char* b_name, const char* op) {
  check_type(a.dtype() == b.dtype(), op, a_name, " is ", a.dtype(), " and ", b_name, " is ",
             b.dtype(), ": convert one of them");
}

inline void check_floating(const Tensor& x, const char* name, const char* op) {
  check_type(x.is_floating_point(), op, name, " is ", x.dtype(), ": it must be of a floating type");
}

}  // namespace mytorch
