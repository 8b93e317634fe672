// cuSOLVER, which is opened by the first call that needs it, and cuBLAS's triangular solves.
#pragma once

#include <cublas_v2.h>
#include <cusolverDn.h>

#include <cstdint>
#include <type_traits>
#include <vector>

#include "backends/cuda/factorization/operands.h"
#include "backends/cuda/runtime/sdk.h"
#include "mytorch/backend/library.h"

namespace mytorch::cuda {

// Routines whose names differ by the letter of the type; what is orthogonal for real matrices is
// unitary for complex ones.
#define MYTORCH_SOLVER_REAL(F, name) F(cusolverDnS##name) F(cusolverDnD##name)
#define MYTORCH_SOLVER_COMPLEX(F, name) F(cusolverDnC##name) F(cusolverDnZ##name)
#define MYTORCH_SOLVER_TYPED(F, name) MYTORCH_SOLVER_REAL(F, name) MYTORCH_SOLVER_COMPLEX(F, name)
#define MYTORCH_SOLVER_ROUTINES(F)            \
  F(cusolverDnCreate)                         \
  F(cusolverDnSetStream)                      \
  F(cusolverDnCreateParams)                   \
  F(cusolverDnCreateGesvdjInfo)               \
  F(cusolverDnXgesvdjSetTolerance)            \
  F(cusolverDnXgesvdjSetMaxSweeps)            \
  F(cusolverDnXgesvdp_bufferSize)             \
  F(cusolverDnXgesvdp)                        \
  F(cusolverDnXsyevd_bufferSize)              \
  F(cusolverDnXsyevd)                         \
  MYTORCH_SOLVER_TYPED(F, potrf_bufferSize)   \
  MYTORCH_SOLVER_TYPED(F, potrf)              \
  MYTORCH_SOLVER_TYPED(F, potrfBatched)       \
  MYTORCH_SOLVER_TYPED(F, getrf_bufferSize)   \
  MYTORCH_SOLVER_TYPED(F, getrf)              \
  MYTORCH_SOLVER_TYPED(F, getrs)              \
  MYTORCH_SOLVER_TYPED(F, geqrf_bufferSize)   \
  MYTORCH_SOLVER_TYPED(F, geqrf)              \
  MYTORCH_SOLVER_REAL(F, orgqr_bufferSize)    \
  MYTORCH_SOLVER_REAL(F, orgqr)               \
  MYTORCH_SOLVER_COMPLEX(F, ungqr_bufferSize) \
  MYTORCH_SOLVER_COMPLEX(F, ungqr)            \
  MYTORCH_SOLVER_TYPED(F, gesvdj_bufferSize)  \
  MYTORCH_SOLVER_TYPED(F, gesvdj)

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

// What belongs to a type: the first for float, then double, float2 and double2.
template <class T, class S, class D, class C, class Z>
constexpr auto for_type(S s, D d, C c, Z z) {
  if constexpr (std::is_same_v<T, float>) {
    return s;
  } else if constexpr (std::is_same_v<T, double>) {
    return d;
  } else if constexpr (std::is_same_v<T, float2>) {
    return c;
  } else {
    return z;
  }
}
template <class T>
inline constexpr cudaDataType kDataType = for_type<T>(CUDA_R_32F, CUDA_R_64F, CUDA_C_32F,
                                                      CUDA_C_64F);

// MYTORCH_SOLVE(T, potrf, handle, ...) calls cusolverDnSpotrf, or D, C or Z in place of S;
// MYTORCH_BLAS does the same with cuBLAS. MYTORCH_SOLVE_EITHER is for routines that have another
// name for complex matrices.
#define MYTORCH_SOLVE_EITHER(T, real, complex, ...)                                           \
  ::mytorch::cuda::check(                                                                     \
      for_type<T>(solver().cusolverDnS##real, solver().cusolverDnD##real,                     \
                  solver().cusolverDnC##complex, solver().cusolverDnZ##complex)(__VA_ARGS__), \
      is_complex_number<T> ? "cusolverDn " #complex : "cusolverDn " #real)
#define MYTORCH_SOLVE(T, name, ...) MYTORCH_SOLVE_EITHER(T, name, name, __VA_ARGS__)
#define MYTORCH_BLAS(T, name, ...)                                                          \
  ::mytorch::cuda::check(                                                                   \
      for_type<T>(cublasS##name, cublasD##name, cublasC##name, cublasZ##name)(__VA_ARGS__), \
      "cublas " #name)

// Options of Jacobi's rotations that end when they change less than `tolerance`.
gesvdjInfo_t jacobi_options(double tolerance);

// Why an operand is not for the library, or nullptr: it is real and the kernel is for complex
// matrices (the host gives others no complex ones), its sizes are beyond the library's integers, or
// the library cannot be used.
const char* library_reason(const sdk::TensorView& x, bool complex);

// The part of register_cusolver_complex in cusolver_spectra.cpp.
void register_complex_spectra(std::vector<mt_kernel_entry>& kernels);

}  // namespace mytorch::cuda
