// The arguments of a call from JSON, as far as `mytorch check` and `mytorch bench` agree: the types
// and layouts of tensors, and the values of all other arguments.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "conformance/catalog.h"
#include "mytorch/call.h"

namespace mytorch::conformance {

// JSON has no NaN and no infinities: "nan", "inf" and "-inf" stand for them.
double number(const Json& json);

// Returns the type of a tensor argument: the one that `spec` gives, else the one that the record
// fixes, else `open`.
ScalarType type_of(const OpRecord& op, const std::string& arg, const Json& spec, ScalarType open);

// How a tensor lies in the memory that is allocated for it.
struct Geometry {
  std::vector<int64_t> memory;    // the shape of the memory, which is contiguous
  std::vector<int64_t> strides;   // the strides of the tensor in the memory
  std::vector<int64_t> distinct;  // the shape of the elements that differ: without broadcasting
};

// Returns the geometry of a layout: contiguous, transposed, sliced, broadcast, channels_last,
// channels_first (an image (N, H, W, C) in the memory of (N, C, H, W)), heads (of attention,
// (B, H, L, D) in the memory of (B, L, H, D)) or padded (the first half of rows of twice the
// length). A tensor with too few dimensions for the layout is contiguous.
Geometry geometry_of(const std::vector<int64_t>& shape, const std::string& layout);

// Returns the value of an argument that is not a tensor; `device` is the value of every argument of
// type Device. Throws Error(kValue) if the JSON does not have the argument's type.
Value plain_value(const OpRecord& op, const OpArg& arg, const Json& json, Device device);

// Throws Error(kValue): the operator does not take this value.
[[noreturn]] void refuse(const OpRecord& op, const OpArg& arg, const Json& json);

}  // namespace mytorch::conformance
