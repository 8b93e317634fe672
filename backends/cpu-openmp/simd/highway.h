// Highway and our vector mathematics; include this instead of hwy/highway.h and simd/*-inl.h.
//
// Otherwise a kernel that is compiled once for each instruction set would parse Highway's
// operations, and the intrinsics below them, once for each set in every file: half of the
// compilation time of a small kernel. But all kernels can share the operations of a set. So this
// header declares those of all sets at once, which a precompiled header can store. Each further
// inclusion only selects a set by macros: HWY_NAMESPACE, HWY_BEFORE_NAMESPACE and others then refer
// to the current HWY_TARGET. This is why the header has an include guard instead of #pragma once.
#ifndef MYTORCH_SIMD_HIGHWAY_H_
#define MYTORCH_SIMD_HIGHWAY_H_

#pragma push_macro("HWY_TARGET_INCLUDE")
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu-openmp/simd/all-inl.h"
#include "hwy/foreach_target.h"
// The operations of the static target, which foreach_target.h leaves to its includer.
#include "backends/cpu-openmp/simd/all-inl.h"
#pragma pop_macro("HWY_TARGET_INCLUDE")

#endif  // MYTORCH_SIMD_HIGHWAY_H_

#include "hwy/ops/set_macros-inl.h"
