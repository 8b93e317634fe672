// What the environment says of the passes and stages by which a recording becomes a plan:
//
//   MYTORCH_COMPILE_WITHOUT=algebra,fusion   those that do not run
//   MYTORCH_COMPILE_DUMP=rewrite,fusion      those that print what they do; 1 for all
#pragma once

#include <string_view>

namespace mytorch::graph {

// The stages behind the passes over graphs (passes/passes.h).
inline constexpr const char* kRegions = "regions";
inline constexpr const char* kKept = "kept";
inline constexpr const char* kFusion = "fusion";
inline constexpr const char* kInPlace = "in-place";
inline constexpr const char* kBranches = "branches";

// Returns whether a pass or stage must not run.
bool is_disabled(std::string_view name);
// Returns whether a pass or stage prints to stderr what it does.
bool dumps(std::string_view name);

}  // namespace mytorch::graph
