// The instruction set that the backend's vector code uses.
#pragma once

#include <string>
#include <string_view>

namespace mytorch::simd {

// Pins an instruction set for the process: "avx2", "avx3" (AVX-512), "avx3_bf16" (AVX-512 with
// products of bfloat16), "avx3_amx" (the same with tiles) or "plain" (no vectors). Called before
// the first vector function. Throws sdk::Error(MT_ERROR_VALUE) for another name, and
// sdk::Error(MT_ERROR_UNSUPPORTED) if this processor or this build lacks the set.
void pin_instruction_set(std::string_view name);

// What happens without a pin. Called before the first vector function.
void use_best_instruction_set();

// Returns Highway's name of the set in use, the best one unless one is pinned: "AVX3", "AVX2", ...
const char* instruction_set();

// Returns the sets that the backend was not compiled for: "" in a complete build, "AVX2", ...
std::string sets_left_out();

// Whether the set in use is AVX-512 and has products of pairs of bfloat16 (bfloat16-inl.h).
bool has_bfloat16_pairs();

}  // namespace mytorch::simd
