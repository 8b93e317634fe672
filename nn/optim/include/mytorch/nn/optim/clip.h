// Gradient clipping, for use between backward() and step().
#pragma once

#include <utility>

#include "mytorch/list.h"
#include "mytorch/tensor.h"

namespace mytorch::nn::optim {

// The norm of all gradients, a 0-dim tensor. Arithmetic with numbers gives tensors. Converted to a
// number, or compared with one, it waits for the device: `double norm = clip_grad_norm_(...)`,
// `if (norm > 10)`.
class GradientNorm : public Tensor {
 public:
  explicit GradientNorm(Tensor norm) : Tensor(std::move(norm)) {}
  operator double() const { return item<double>(); }  // NOLINT: libtorch's function returns it
};
// Without these, a number would make them ambiguous between those of double and of Tensor.
#define MYTORCH_OPERATOR_OF_NORM(op)                                                     \
  inline GradientNorm operator op(const GradientNorm& a, const GradientNorm& b) {        \
    return GradientNorm(static_cast<const Tensor&>(a) op static_cast<const Tensor&>(b)); \
  }                                                                                      \
  template <mytorch::detail::Number T>                                                   \
  GradientNorm operator op(const GradientNorm& norm, T number) {                         \
    return GradientNorm(static_cast<const Tensor&>(norm) op Scalar(number));             \
  }                                                                                      \
  template <mytorch::detail::Number T>                                                   \
  GradientNorm operator op(T number, const GradientNorm& norm) {                         \
    return GradientNorm(Scalar(number) op static_cast<const Tensor&>(norm));             \
  }
MYTORCH_OPERATOR_OF_NORM(+)
MYTORCH_OPERATOR_OF_NORM(-)
MYTORCH_OPERATOR_OF_NORM(*)
MYTORCH_OPERATOR_OF_NORM(/)
#undef MYTORCH_OPERATOR_OF_NORM
#define MYTORCH_COMPARISON_OF_NORM(op)                   \
  template <mytorch::detail::Number T>                   \
  bool operator op(const GradientNorm& norm, T number) { \
    return static_cast<double>(norm) op double(number);  \
  }                                                      \
  template <mytorch::detail::Number T>                   \
  bool operator op(T number, const GradientNorm& norm) { \
    return double(number) op static_cast<double>(norm);  \
  }
MYTORCH_COMPARISON_OF_NORM(==)
MYTORCH_COMPARISON_OF_NORM(!=)
MYTORCH_COMPARISON_OF_NORM(<)
MYTORCH_COMPARISON_OF_NORM(<=)
MYTORCH_COMPARISON_OF_NORM(>)
MYTORCH_COMPARISON_OF_NORM(>=)
#undef MYTORCH_COMPARISON_OF_NORM

// Scales all gradients of the parameters by a common factor, so that their norm of order
// `norm_type` (inf: the largest magnitude), taken as one vector, is at most `max_norm`. Returns the
// 0-dim norm before scaling, on the first gradient's device. With `error_if_nonfinite`, waits for
// the norm and throws Error(kValue), leaving the gradients unchanged, if it is NaN or infinite.
GradientNorm clip_grad_norm_(TensorList parameters, double max_norm, double norm_type = 2,
                             bool error_if_nonfinite = false);

// Clamps each element of the gradients to [-max_value, max_value].
void clip_grad_value_(TensorList parameters, double max_value);

}  // namespace mytorch::nn::optim
