// The fields of config.json about rotary positions.
#pragma once

#include <cstdint>

#include "mytorch/nn/rotary.h"
#include "nn/models/config_fields.h"

namespace mytorch::nn::models {

// Reads or writes the base and the scaling of the kinds "default", "linear", "llama3" and "yarn".
// `length` is the original one of YaRN if the file states none. Throws Error(kValue) for another
// kind.
void visit_rope(const char* what, ConfigFields& fields, double& theta, RotaryScaling& scaling,
                int64_t length);

}  // namespace mytorch::nn::models
