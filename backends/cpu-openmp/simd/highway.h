// Highway and our own vector mathematics, in the place of hwy/highway.h and of simd/*-inl.h.
//
// A kernel that is compiled once for each instruction set would have Highway's operations, and the
// intrinsics below them, parsed for each of them again, in every file: half of the time that a
// small kernel takes. But the operations of one set are as good for all kernels. So this header has
// them parsed for all sets at once, where a precompiled header can keep them, and selects a set by
// the macros alone wherever it is included again: HWY_NAMESPACE, HWY_BEFORE_NAMESPACE and the like
// then speak of the current HWY_TARGET. Hence the guard in place of #pragma once.
#ifndef MYTORCH_SIMD_HIGHWAY_H_
#define MYTORCH_SIMD_HIGHWAY_H_

#pragma push_macro("HWY_TARGET_INCLUDE")
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu-openmp/simd/all-inl.h"
#include "hwy/foreach_target.h"
// Those of the static target, for which foreach_target.h leaves it to its includer.
#include "backends/cpu-openmp/simd/all-inl.h"
#pragma pop_macro("HWY_TARGET_INCLUDE")

#endif  // MYTORCH_SIMD_HIGHWAY_H_

#include "hwy/ops/set_macros-inl.h"
