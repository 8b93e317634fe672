// LAPACKE's routines by element type. The _work variants neither allocate nor test for NaN, which
// costs a pass over the operands; the kernels test where a routine needs it.
#pragma once

#include <complex>
#define LAPACK_COMPLEX_CUSTOM
#define lapack_complex_float std::complex<float>
#define lapack_complex_double std::complex<double>
#include <lapacke.h>

#include <type_traits>

#include "mytorch/backend.h"
#include "mytorch/backend/matrices.h"

// BLAS, as every library of it exports it. (cblas.h is at different places.)
extern "C" {
void sgemm_(const char*, const char*, const int*, const int*, const int*, const float*,
            const float*, const int*, const float*, const int*, const float*, float*, const int*,
            size_t, size_t);
void dgemm_(const char*, const char*, const int*, const int*, const int*, const double*,
            const double*, const int*, const double*, const int*, const double*, double*,
            const int*, size_t, size_t);
void strsm_(const char*, const char*, const char*, const char*, const int*, const int*,
            const float*, const float*, const int*, float*, const int*, size_t, size_t, size_t,
            size_t);
void dtrsm_(const char*, const char*, const char*, const char*, const int*, const int*,
            const double*, const double*, const int*, double*, const int*, size_t, size_t, size_t,
            size_t);
void ctrsm_(const char*, const char*, const char*, const char*, const int*, const int*,
            const std::complex<float>*, const std::complex<float>*, const int*,
            std::complex<float>*, const int*, size_t, size_t, size_t, size_t);
void ztrsm_(const char*, const char*, const char*, const char*, const int*, const int*,
            const std::complex<double>*, const std::complex<double>*, const int*,
            std::complex<double>*, const int*, size_t, size_t, size_t, size_t);
}

namespace mytorch::lapack {

// MYTORCH_LAPACK_ROUTINE(name, of_reals, of_complex) defines name<T>(args...), which calls
// LAPACKE's routine for column-major operands: s or d with the name `of_reals`, c or z with
// `of_complex`.
#define MYTORCH_LAPACK_ROUTINE(name, of_reals, of_complex)            \
  template <class T, class... Args>                                   \
  int name(Args... args) {                                            \
    if constexpr (std::is_same_v<T, float>) {                         \
      return LAPACKE_s##of_reals##_work(LAPACK_COL_MAJOR, args...);   \
    } else if constexpr (std::is_same_v<T, double>) {                 \
      return LAPACKE_d##of_reals##_work(LAPACK_COL_MAJOR, args...);   \
    } else if constexpr (std::is_same_v<T, std::complex<float>>) {    \
      return LAPACKE_c##of_complex##_work(LAPACK_COL_MAJOR, args...); \
    } else {                                                          \
      return LAPACKE_z##of_complex##_work(LAPACK_COL_MAJOR, args...); \
    }                                                                 \
  }
MYTORCH_LAPACK_ROUTINE(potrf, potrf, potrf)
MYTORCH_LAPACK_ROUTINE(getrf, getrf, getrf)
MYTORCH_LAPACK_ROUTINE(getrs, getrs, getrs)
MYTORCH_LAPACK_ROUTINE(sytrf, sytrf, sytrf)
MYTORCH_LAPACK_ROUTINE(sytrs, sytrs, sytrs)
// Of Hermitian matrices; called for complex types alone.
MYTORCH_LAPACK_ROUTINE(hetrf, sytrf, hetrf)
MYTORCH_LAPACK_ROUTINE(hetrs, sytrs, hetrs)
MYTORCH_LAPACK_ROUTINE(geqrf, geqrf, geqrf)
MYTORCH_LAPACK_ROUTINE(orgqr, orgqr, ungqr)
MYTORCH_LAPACK_ROUTINE(syevd, syevd, heevd)
MYTORCH_LAPACK_ROUTINE(sytrd, sytrd, hetrd)
MYTORCH_LAPACK_ROUTINE(orgtr, orgtr, ungtr)
MYTORCH_LAPACK_ROUTINE(stedc, stedc, stedc)
MYTORCH_LAPACK_ROUTINE(gesdd, gesdd, gesdd)
MYTORCH_LAPACK_ROUTINE(geev, geev, geev)
#undef MYTORCH_LAPACK_ROUTINE

// B := op(A)^-1 B, or from the right B op(A)^-1.
template <class T>
void trsm(char side, char uplo, char trans, char diag, int m, int n, const T* a, int lda, T* b,
          int ldb) {
  const T one = 1;
  const auto call = [&](auto routine) {
    routine(&side, &uplo, &trans, &diag, &m, &n, &one, a, &lda, b, &ldb, 1, 1, 1, 1);
  };
  if constexpr (std::is_same_v<T, float>) {
    call(strsm_);
  } else if constexpr (std::is_same_v<T, double>) {
    call(dtrsm_);
  } else if constexpr (std::is_same_v<T, std::complex<float>>) {
    call(ctrsm_);
  } else {
    call(ztrsm_);
  }
}

// C := alpha op(A) B + beta C of reals, with C of m rows and n columns, and an inner size of k.
template <class T>
void gemm(char trans, int m, int n, int k, T alpha, const T* a, int lda, const T* b, int ldb,
          T beta, T* c, int ldc) {
  if constexpr (std::is_same_v<T, float>) {
    sgemm_(&trans, "N", &m, &n, &k, &alpha, a, &lda, b, &ldb, &beta, c, &ldc, 1, 1);
  } else {
    dgemm_(&trans, "N", &m, &n, &k, &alpha, a, &lda, b, &ldb, &beta, c, &ldc, 1, 1);
  }
}

// The adjoint of a matrix has the conjugates of its elements.
template <class T>
T conjugate(T x) {
  if constexpr (sdk::is_complex_number<T>) {
    return std::conj(x);
  } else {
    return x;
  }
}
// The operation by which LAPACK takes the adjoint.
template <class T>
constexpr char kAdjoint = sdk::is_complex_number<T> ? 'C' : 'T';

// Returns 0, or NaN if a part of the number is not finite, so that a sum tells of all.
template <class T>
sdk::RealOf<T> zero_unless_finite(T x) {
  if constexpr (sdk::is_complex_number<T>) {
    return x.real() * 0 + x.imag() * 0;
  } else {
    return x * 0;
  }
}

// The length of a work area that a routine's query gave, in the type of its elements. A float may
// round it down.
template <class T>
int64_t work_length(T wanted) {
  return static_cast<int64_t>(static_cast<double>(std::real(wanted)) * 1.000001) + 1;
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

}  // namespace mytorch::lapack
