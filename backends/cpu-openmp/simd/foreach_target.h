// Replaces hwy/foreach_target.h: includes HWY_TARGET_INCLUDE once for each instruction set, whose
// operations simd/highway.h has declared before.
#pragma once

#include "backends/cpu-openmp/simd/highway.h"

// Highway's loop runs a second time, now over the kernel. It begins as in a file that has not
// included highway.h, whose operations must not be included again. If a release of Highway renames
// these macros, HWY_EXPORT names nonexistent functions and compilation fails.
#undef HIGHWAY_HWY_FOREACH_TARGET_H_
#undef HWY_TARGET_TOGGLE
#pragma push_macro("HWY_HIGHWAY_INCLUDED")
#undef HWY_HIGHWAY_INCLUDED
#include "hwy/foreach_target.h"
#pragma pop_macro("HWY_HIGHWAY_INCLUDED")
