// Loops whose pieces wait for each other, by mt_ctx::parallel_for: for libraries that bring
// parallel regions of their own. In C11, like mytorch/abi.h.
#pragma once

#include "mytorch/abi.h"

// Special values of parallel_for's `grain`, for ranges [0, n).
//
// Each of the n elements is a call body(user, i, i + 1) on a thread of its own, all at the same
// time. If there cannot be n threads here (MT_ASK_TOGETHER), the only call is body(user, 0, n).
#define MT_TOGETHER INT64_MIN
// Calls body(user, 0, k) on the calling thread, where k <= n is the number of threads that a loop
// with MT_TOGETHER may have here: 1 inside of a loop, or fewer than n if the system refuses them.
#define MT_ASK_TOGETHER (INT64_MIN + 1)
