// In the place of hwy/foreach_target.h: includes HWY_TARGET_INCLUDE, a kernel, once for each
// instruction set, whose operations simd/highway.h has made available before.
#pragma once

#include "backends/cpu-openmp/simd/highway.h"

// Highway's loop runs a second time, now over the kernel. It begins as in a file that has not seen
// highway.h, whose operations are not to be included for the sets again; what renames these macros
// fails to compile, because HWY_EXPORT then names functions that are not there.
#undef HIGHWAY_HWY_FOREACH_TARGET_H_
#undef HWY_TARGET_TOGGLE
#pragma push_macro("HWY_HIGHWAY_INCLUDED")
#undef HWY_HIGHWAY_INCLUDED
#include "hwy/foreach_target.h"
#pragma pop_macro("HWY_HIGHWAY_INCLUDED")
