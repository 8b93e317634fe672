// LAPACKE's routines by element type. The _work variants neither allocate nor test for NaN, which
// costs a pass over the operands; the kernels test where a routine needs it.
#pragma once

#include <lapacke.h>

#include <type_traits>

#include "mytorch/backend.h"

// BLAS, as every library of it exports it. (cblas.h is at different places.)
extern "C" {
void strsm_(const char*, const char*, const char*, const char*, const int*, const int*,
            const float*, const float*, const int*, float*, const int*, size_t, size_t, size_t,
            size_t);
void dtrsm_(const char*, const char*, const char*, const char*, const int*, const int*,
            const double*, const double*, const int*, double*, const int*, size_t, size_t, size_t,
            size_t);
}

namespace mytorch::lapack {

// MYTORCH_LAPACK(potrf)(args...) calls LAPACKE_spotrf_work or LAPACKE_dpotrf_work for column-major
// operands.
#define MYTORCH_LAPACK_ROUTINE(name)                            \
  template <class T, class... Args>                             \
  int name(Args... args) {                                      \
    if constexpr (std::is_same_v<T, float>) {                   \
      return LAPACKE_s##name##_work(LAPACK_COL_MAJOR, args...); \
    } else {                                                    \
      return LAPACKE_d##name##_work(LAPACK_COL_MAJOR, args...); \
    }                                                           \
  }
MYTORCH_LAPACK_ROUTINE(potrf)
MYTORCH_LAPACK_ROUTINE(getrf)
MYTORCH_LAPACK_ROUTINE(getrs)
MYTORCH_LAPACK_ROUTINE(geqrf)
MYTORCH_LAPACK_ROUTINE(orgqr)
MYTORCH_LAPACK_ROUTINE(syevd)
MYTORCH_LAPACK_ROUTINE(gesdd)
#undef MYTORCH_LAPACK_ROUTINE

// B := op(A)^-1 B, or from the right B op(A)^-1.
template <class T>
void trsm(char side, char uplo, char trans, char diag, int m, int n, const T* a, int lda, T* b,
          int ldb) {
  const T one = 1;
  if constexpr (std::is_same_v<T, float>) {
    strsm_(&side, &uplo, &trans, &diag, &m, &n, &one, a, &lda, b, &ldb, 1, 1, 1, 1);
  } else {
    dtrsm_(&side, &uplo, &trans, &diag, &m, &n, &one, a, &lda, b, &ldb, 1, 1, 1, 1);
  }
}

// A leading dimension: at least 1.
inline int leading(int64_t rows) { return rows < 1 ? 1 : static_cast<int>(rows); }

// Why a size of the operand is beyond the 32 bits of LAPACK's integers, or nullptr. Work areas may
// be several times as large as a matrix, so its elements are bounded, too.
inline const char* size_reason(const sdk::TensorView& x) {
  constexpr int64_t kMost = int64_t{1} << 28;
  const int64_t m = x.size(-2), n = x.size(-1);
  if (m > kMost || n > kMost || m * n > kMost) return "a matrix has more than 2^28 elements";
  return nullptr;
}

template <class F>
void visit_type(mt_dtype dtype, F&& f) {
  if (sdk::is_dtype<float>(dtype)) return f(sdk::TypeTag<float>{});
  f(sdk::TypeTag<double>{});
}

}  // namespace mytorch::lapack
