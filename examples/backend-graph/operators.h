// The pointwise operators that the compiler knows, as loops over a few hundred elements.
#pragma once

#include <cstdint>

#include "mytorch/backend/region.h"

namespace loops {

namespace sdk = mytorch::sdk;

// out[i] = f(a[i], b[i], number). Operators of one operand ignore b.
using Body = void (*)(float* out, const float* a, const float* b, float number, int64_t n);

struct Operator {
  Body body = nullptr;           // null: not a pointwise operator that is known
  bool binary = false;           // whether it has an argument `other`
  const char* number = nullptr;  // the argument that is the number, or null
};

Operator operator_of(const sdk::RegionNode& node);

}  // namespace loops
