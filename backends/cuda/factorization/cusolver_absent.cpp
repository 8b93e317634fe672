// In place of the library's kernels in a build without it: they decline and say why.
#if !__has_include(<cusolverDn.h>)

#include "backends/cuda/registry.h"
#include "mytorch/abi_ops/geqrf.h"
#include "mytorch/abi_ops/linalg_cholesky_ex.h"
#include "mytorch/abi_ops/linalg_eigh_forward.h"
#include "mytorch/abi_ops/linalg_householder_product.h"
#include "mytorch/abi_ops/linalg_lu_factor_ex.h"
#include "mytorch/abi_ops/linalg_lu_solve.h"
#include "mytorch/abi_ops/linalg_qr.h"
#include "mytorch/abi_ops/linalg_solve_triangular.h"
#include "mytorch/abi_ops/linalg_svd_forward.h"
#include "mytorch/backend.h"

namespace mytorch::cuda {
namespace {

template <class Args>
void decline(mt_ctx& /*ctx*/, const Args& /*args*/) {
  throw sdk::Declined{};
}
template <class Args>
const char* reason(const Args& /*args*/) {
  return "the backend was built without cuSOLVER";
}

template <class... Args>
void decline_all(KernelEntries& kernels) {
  (kernels.push_back(sdk::kernel<&decline<Args>, &reason<Args>>("cusolver", MT_TAKES_STRIDED)),
   ...);
}

}  // namespace

void register_cusolver_factors(KernelEntries& kernels) {
  decline_all<mt_args_linalg_cholesky_ex, mt_args_linalg_lu_factor_ex, mt_args_linalg_lu_solve,
              mt_args_linalg_solve_triangular, mt_args_geqrf, mt_args_linalg_qr,
              mt_args_linalg_householder_product>(kernels);
}
void register_cusolver_spectra(KernelEntries& kernels) {
  decline_all<mt_args_linalg_eigh_forward, mt_args_linalg_svd_forward>(kernels);
}

// The others decline complex matrices, too.
void register_cusolver_complex(KernelEntries& /*kernels*/) {}

}  // namespace mytorch::cuda

#endif
