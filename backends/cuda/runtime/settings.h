// Settings from the environment.
#pragma once

#include <cstdlib>
#include <string_view>

namespace mytorch::cuda {

// Whether an environment variable is "1".
inline bool is_enabled(const char* name) {
  const char* text = std::getenv(name);
  return text != nullptr && std::string_view(text) == "1";
}

// MYTORCH_CUDA_TF32=1: tensor cores may round the factors of float32 products to 10 bits.
inline bool tf32_allowed() {
  static const bool allowed = is_enabled("MYTORCH_CUDA_TF32");
  return allowed;
}

}  // namespace mytorch::cuda
