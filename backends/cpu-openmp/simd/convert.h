// Conversions between arrays of any two element types, which stage operands in the compute type.
#pragma once

#include <cstdint>

#include "mytorch/abi.h"

namespace mytorch::simd {

// Converts `n` elements. The ranges do not overlap, unless the types have one width and `from ==
// to`.
using ConvertFn = void (*)(const void* from, void* to, int64_t n);

// Returns the conversion for the instruction set in use, or nullptr if a type is not one of bool,
// uint8, int8, int16, int32, int64, float16, bfloat16, float32, float64.
//
//  * To bool: x != 0, so NaN is true. From bool: 0 or 1; any nonzero byte is true.
//  * Between integers: modulo 2^width.
//  * To a narrower float: to nearest, ties to even; NaN stays NaN; overflow gives infinity. float64
//    and the integers reach the 16-bit floats through float32, as in ATen.
//  * Float to integer: truncated. Out of range, and for NaN, int32 and int64 give their minimum, as
//    on x86. int8 and int16 are the low bits of the int32 result, uint8 of the int64 result.
ConvertFn get_convert(mt_dtype from, mt_dtype to);

}  // namespace mytorch::simd
