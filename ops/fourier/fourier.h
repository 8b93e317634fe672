// What the Fourier transforms of fourier.cpp and short_time_fourier.cpp share.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "mytorch/tensor.h"
#include "ops/spec.h"

namespace mytorch {

using OptionalText = std::optional<std::string_view>;

namespace fourier {

// The argument `normalization` of the primitives.
inline constexpr int64_t kNone = 0, kByRoot = 1, kByNumber = 2;

// Returns the normalization of a forward or inverse transform for the argument `norm`.
int64_t normalization(const OptionalText& norm, bool forward, const char* op);

// Return the operand in the type that is transformed: integers become float32.
Tensor as_floating(const Tensor& self, const char* op);
Tensor as_complex(const Tensor& self, const char* op);
// Throws Error(kType) if it is complex.
Tensor as_real(const Tensor& self, const char* op);

Tensor conjugated(const Tensor& self);

// Returns the operand cropped or padded with zeros to `sizes` of its dimensions `dims`.
Tensor resized(const Tensor& self, IntList dims, IntList sizes);

}  // namespace fourier
}  // namespace mytorch
