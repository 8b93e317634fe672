#if __has_include(<cusolverDn.h>)

#include "backends/cuda/factorization/solver.h"

#include <string>

#include "backends/cuda/common/handles.h"
#include "backends/cuda/runtime/launch.h"

namespace mytorch::cuda {
namespace {

const sdk::OpenedLibrary<Solver>& opened() {
  static const auto* const instance =
      new sdk::OpenedLibrary<Solver>("libcusolver.so." + std::to_string(CUSOLVER_VER_MAJOR));
  return *instance;
}

}  // namespace

const char* solver_reason() { return opened().reason(); }
const Solver& solver() { return opened().routines(); }

void check(cusolverStatus_t status, const char* what) {
  if (status == CUSOLVER_STATUS_SUCCESS) return;
  throw sdk::Error(
      status == CUSOLVER_STATUS_ALLOC_FAILED ? MT_ERROR_OUT_OF_MEMORY : MT_ERROR_INTERNAL,
      std::string(what) + ": status " + std::to_string(static_cast<int>(status)) + " of cuSOLVER");
}
void check(cublasStatus_t status, const char* what) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw sdk::Error(
      status == CUBLAS_STATUS_ALLOC_FAILED ? MT_ERROR_OUT_OF_MEMORY : MT_ERROR_INTERNAL,
      std::string(what) + ": " + cublasGetStatusString(status));
}

cusolverDnHandle_t solver_handle_of(const mt_ctx& ctx) {
  use_device(ctx);
  const auto handle = handle_for<cusolverDnHandle_t>(ctx.device.index, [] {
    cusolverDnHandle_t made = nullptr;
    check(solver().cusolverDnCreate(&made), "cusolverDnCreate");
    return made;
  });
  check(solver().cusolverDnSetStream(handle, stream_of(ctx)), "cusolverDnSetStream");
  return handle;
}

cublasHandle_t blas_handle_of(mt_ctx& ctx) {
  constexpr size_t kWorkspace = size_t{8} << 20, kAligned = 256;
  use_device(ctx);
  const auto handle = handle_for<cublasHandle_t>(ctx.device.index, [] {
    cublasHandle_t made = nullptr;
    check(cublasCreate(&made), "cublasCreate");
    return made;
  });
  check(cublasSetStream(handle, stream_of(ctx)), "cublasSetStream");
  const auto address = reinterpret_cast<uintptr_t>(scratch_bytes(ctx, kWorkspace + kAligned));
  void* const memory = reinterpret_cast<void*>((address + kAligned - 1) / kAligned * kAligned);
  check(cublasSetWorkspace(handle, memory, kWorkspace), "cublasSetWorkspace");
  return handle;
}

cusolverDnParams_t solver_params() {
  static const cusolverDnParams_t params = [] {
    cusolverDnParams_t made = nullptr;
    check(solver().cusolverDnCreateParams(&made), "cusolverDnCreateParams");
    return made;
  }();
  return params;
}

gesvdjInfo_t jacobi_options(double tolerance) {
  gesvdjInfo_t options = nullptr;
  check(solver().cusolverDnCreateGesvdjInfo(&options), "cusolverDnCreateGesvdjInfo");
  check(solver().cusolverDnXgesvdjSetTolerance(options, tolerance), "gesvdjSetTolerance");
  check(solver().cusolverDnXgesvdjSetMaxSweeps(options, 400), "gesvdjSetMaxSweeps");
  return options;
}

const char* library_reason(const sdk::TensorView& x, bool complex) {
  if (complex && !sdk::is_complex(x.dtype())) return "this kernel is for complex matrices";
  constexpr int64_t kMost = int64_t{1} << 28;
  const int64_t m = x.size(-2), n = x.size(-1);
  if (m > kMost || n > kMost || m * n > kMost) return "a matrix has more than 2^28 elements";
  return solver_reason();
}

}  // namespace mytorch::cuda

#endif  // cusolver_absent.cpp otherwise
