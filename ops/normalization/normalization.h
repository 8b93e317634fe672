// What the kinds of normalization share: out = (x - mean) * rstd * weight + bias. 16-bit types
// compute in float32.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <tuple>
#include <utility>

#include "core/types/dims.h"
#include "mytorch/tensor.h"
#include "ops/spec.h"

namespace mytorch::normalization {

// ---- checks and specs ----

void check_trailing(const Tensor& input, IntList normalized_shape, const char* op);

// Checks that optional parameters have shape `sizes` and the input's type or its compute type.
void check_parameters(std::initializer_list<std::pair<const char*, const Tensor&>> parameters,
                      IntList sizes, const Tensor& input, const char* op);

// Returns the number of channels.
int64_t check_channels(const Tensor& input, const char* op);

void check_residual(const Tensor& input, const Tensor& residual, const char* op);
void check_grad_sum(const Tensor& grad_sum, const Tensor& sum, const char* op);

// Checks the statistics that a gradient takes from the forward operator.
void check_statistics(std::initializer_list<std::pair<const char*, const Tensor&>> statistics,
                      const TensorSpec& expected, const Tensor& input, const char* op);

// Returns the spec of the statistics of rows: the last dimensions have size 1.
TensorSpec row_statistics(const Tensor& input, IntList normalized_shape);

// Returns the specs of the gradients of the input and of parameters of shape `sizes`, in the
// parameters' type. A gradient whose mask is 0 has no elements.
template <size_t n>
Specs<n> gradient_specs(const Tensor& grad_out, const Tensor& input, const Tensor& weight,
                        IntList sizes, IntList mask, const char* op) {
  check_value(mask.size() == n, op, "output_mask has ", mask.size(), " values, not ", n);
  check_shape(grad_out.sizes() == input.sizes(), op, "grad_out has shape ", grad_out.sizes(),
              ", but input has shape ", input.sizes());
  check_same_type(grad_out, "grad_out", input, "input", op);
  check_parameters({{"weight", weight}}, sizes, input, op);
  std::array<TensorSpec, n> specs;
  for (size_t i = 0; i < n; ++i) {
    specs[i] = i == 0 ? like(input) : like(weight.defined() ? weight : input, to_dims(sizes));
    if (mask[i] == 0) specs[i].sizes = {0};
  }
  return std::tuple_cat(specs);
}

// ---- steps ----

// Returns x * weight + bias; both parameters are optional.
Tensor affine(const Tensor& x, const Tensor& weight, const Tensor& bias);

// Returns one value per channel, shaped for dimension 1 of an input of `ndim` dimensions. `x` may
// be undefined.
Tensor per_channel(const Tensor& x, int64_t ndim);

// Returns `x`, which has the input's shape, scaled and shifted by channel, in the input's type.
Tensor affine_by_channel(const Tensor& x, const Tensor& weight, const Tensor& bias,
                         const Tensor& input);

Dims last_dims(IntList shape);
// Returns 1 / sqrt(deviation^2 + eps), where the square may exceed the type's range.
Tensor inverse_deviation(const Tensor& deviation, double eps);

}  // namespace mytorch::normalization
