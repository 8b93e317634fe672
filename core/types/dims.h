// Lists of sizes, strides or dimensions under construction; no allocation for up to six elements.
#pragma once

#include <cstdint>

#include "absl/container/inlined_vector.h"
#include "mytorch/list.h"

namespace mytorch {

using Dims = absl::InlinedVector<int64_t, 6>;

inline IntList as_list(const Dims& dims) { return {dims.data(), dims.size()}; }
inline Dims to_dims(IntList list) { return Dims(list.begin(), list.end()); }

}  // namespace mytorch
