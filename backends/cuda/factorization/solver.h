// cuSOLVER, which is opened by the first call that needs it, and cuBLAS's triangular solves.
#pragma once

#include <cublas_v2.h>
#include <cusolverDn.h>

#include <cstdint>
#include <string>
#include <type_traits>

#include "backends/cuda/runtime/sdk.h"
#include "mytorch/backend/library.h"

namespace mytorch::cuda {

#define MYTORCH_SOLVER_TYPED(F, name) F(cusolverDnS##name) F(cusolverDnD##name)
#define MYTORCH_SOLVER_COMPLEX(F, name) F(cusolverDnC##name) F(cusolverDnZ##name)
#define MYTORCH_SOLVER_ROUTINES(F)             \
  F(cusolverDnCreate)                          \
  F(cusolverDnSetStream)                       \
  F(cusolverDnCreateParams)                    \
  F(cusolverDnCreateGesvdjInfo)                \
  F(cusolverDnXgesvdjSetTolerance)             \
  F(cusolverDnXgesvdjSetMaxSweeps)             \
  F(cusolverDnXgesvdp_bufferSize)              \
  F(cusolverDnXgesvdp)                         \
  F(cusolverDnXsyevd_bufferSize)               \
  F(cusolverDnXsyevd)                          \
  MYTORCH_SOLVER_TYPED(F, potrf_bufferSize)    \
  MYTORCH_SOLVER_TYPED(F, potrf)               \
  MYTORCH_SOLVER_TYPED(F, potrfBatched)        \
  MYTORCH_SOLVER_TYPED(F, getrf_bufferSize)    \
  MYTORCH_SOLVER_TYPED(F, getrf)               \
  MYTORCH_SOLVER_TYPED(F, getrs)               \
  MYTORCH_SOLVER_TYPED(F, geqrf_bufferSize)    \
  MYTORCH_SOLVER_TYPED(F, geqrf)               \
  MYTORCH_SOLVER_TYPED(F, orgqr_bufferSize)    \
  MYTORCH_SOLVER_TYPED(F, orgqr)               \
  MYTORCH_SOLVER_TYPED(F, gesvdj_bufferSize)   \
  MYTORCH_SOLVER_TYPED(F, gesvdj)              \
  MYTORCH_SOLVER_COMPLEX(F, potrf_bufferSize)  \
  MYTORCH_SOLVER_COMPLEX(F, potrf)             \
  MYTORCH_SOLVER_COMPLEX(F, getrf_bufferSize)  \
  MYTORCH_SOLVER_COMPLEX(F, getrf)             \
  MYTORCH_SOLVER_COMPLEX(F, getrs)             \
  MYTORCH_SOLVER_COMPLEX(F, geqrf_bufferSize)  \
  MYTORCH_SOLVER_COMPLEX(F, geqrf)             \
  MYTORCH_SOLVER_COMPLEX(F, ungqr_bufferSize)  \
  MYTORCH_SOLVER_COMPLEX(F, ungqr)             \
  MYTORCH_SOLVER_COMPLEX(F, gesvdj_bufferSize) \
  MYTORCH_SOLVER_COMPLEX(F, gesvdj)

MYTORCH_ROUTINES(Solver, MYTORCH_SOLVER_ROUTINES);

// Returns why the library cannot be used, or nullptr.
const char* solver_reason();
// Call this only if solver_reason() is nullptr.
const Solver& solver();

// Returns this thread's handles for the context's device, set to its stream.
cusolverDnHandle_t solver_handle_of(const mt_ctx& ctx);
cublasHandle_t blas_handle_of(mt_ctx& ctx);
// The library's default options of routines for any type.
cusolverDnParams_t solver_params();

void check(cusolverStatus_t status, const char* what);
void check(cublasStatus_t status, const char* what);

// MYTORCH_SOLVE(T, potrf, handle, ...) calls cusolverDnSpotrf or cusolverDnDpotrf; MYTORCH_BLAS
// does the same with cuBLAS.
template <class T, class Single, class Double>
auto for_type(Single single, Double both) {
  if constexpr (std::is_same_v<T, float>) {
    return single;
  } else {
    return both;
  }
}
#define MYTORCH_SOLVE(T, name, ...)                                                     \
  ::mytorch::cuda::check(                                                               \
      for_type<T>(solver().cusolverDnS##name, solver().cusolverDnD##name)(__VA_ARGS__), \
      "cusolverDn " #name)
#define MYTORCH_BLAS(T, name, ...) \
  ::mytorch::cuda::check(for_type<T>(cublasS##name, cublasD##name)(__VA_ARGS__), "cublas " #name)

// The same for cuComplex and cuDoubleComplex.
template <class T, class Single, class Double>
auto for_complex_type(Single single, Double both) {
  if constexpr (std::is_same_v<T, cuComplex>) {
    return single;
  } else {
    return both;
  }
}
#define MYTORCH_SOLVE_COMPLEX(T, name, ...)                                                     \
  ::mytorch::cuda::check(                                                                       \
      for_complex_type<T>(solver().cusolverDnC##name, solver().cusolverDnZ##name)(__VA_ARGS__), \
      "cusolverDn " #name)

// Options of Jacobi's rotations that end when they change less than `tolerance`.
gesvdjInfo_t jacobi_options(double tolerance);

// Why the sizes of an operand are beyond the library's integers, or the library cannot be used, or
// nullptr.
const char* library_reason(const sdk::TensorView& x);

}  // namespace mytorch::cuda
